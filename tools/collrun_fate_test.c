/*
 * What becomes of a job, as its user sees it: signals that are handed on, grace, restarts, the last line, what a
 * remote shell says, and output that cannot be written. That collrun ends in whatever state it is:
 * tests/multi/launcher_states.py.
 */
#define PLAIN_OWN_MAIN
#include "ran_test.h"

/* Wait until a file of the test has a text; false after 20 s. */
static bool wait_text(const char *name, const char *text)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;
	const struct timespec nap = {0, 5000000};
	bool there = false;

	while (!there && coll_clock_ns() < until) {
		char *all = slurp(name);

		there = strstr(all, text) != NULL;
		free(all);
		nanosleep(&nap, NULL);
	}
	return there;
}

static const char *last_line(const char *text)
{
	const char *at = text, *end;

	while ((end = strchr(at, '\n')) && end[1])
		at = end + 1;
	return at;
}

/* ---- Signals ------------------------------------------------------------ */

static const char traps[] = "for s in USR1 USR2 CONT WINCH; do trap \"echo $s >>$D/got.$COLL_RANK\" $s; done\n"
                            "trap 'exit 0' TERM\n"
                            "echo up\n"
                            "while :; do sleep 0.05; done\n";

static void hand_on(const char *hosts)
{
	static const struct {
		int number;
		const char *name;
	} signals[] = {{SIGUSR1, "USR1\n"}, {SIGUSR2, "USR2\n"}, {SIGCONT, "CONT\n"}, {SIGWINCH, "WINCH\n"}};
	char args[512], name[16];
	struct ran r;
	pid_t pid;

	snprintf(args, sizeof(args), "%s sh $D/traps", hosts);
	pid = start(args);
	CHECK(wait_output("up", 3), "no rank came up");
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		kill(pid, signals[i].number);
		for (int rank = 0; rank < 3; rank++) {
			snprintf(name, sizeof(name), "got.%d", rank);
			CHECK(wait_text(name, signals[i].name), "rank %d: no SIG%s", rank, signals[i].name);
		}
	}
	kill(pid, SIGTERM);
	r = finish(pid);
	CHECK(r.status == 143, "status %d %s", r.status, r.err);
	forget(&r);
	expect("-n 1 sh -c 'rm $D/got.*'", 0, "");
}

static void signals_go_to_all_ranks(void)
{
	hand_on("-n 3");
	hand_on("-H one:1,two:2 --root 127.0.0.1 --ssh $D/ssh");
}

static void the_agent_hands_them_on_too(void)
{
	struct ran r = run("-n 2 sh -c 'trap \"echo got it; exit 0\" USR1; echo $$ >$D/at.$COLL_RANK; "
	                   "while ! [ -s $D/at.0 -a -s $D/at.1 ]; do sleep 0.01; done; "
	                   "[ $COLL_RANK = 1 ] || kill -USR1 $PPID; while :; do sleep 0.05; done'");

	CHECK(r.status == 0 && count_lines(r.out, "got it") == 2, "status %d %s %s", r.status, r.out, r.err);
	forget(&r);
}

/* Stopped ranks go on, and the job ends well. They wait without children, of whom a stopped one would hold up its shell
 * before that is stopped. */
static void stopped_ranks_go_on(void)
{
	char state[64] = "", path[128], *out;
	struct ran r;
	int rank, fifo;
	pid_t pid;
	FILE *f;

	snprintf(path, sizeof(path), "%s/fifo", dir);
	REQUIRE(mkfifo(path, 0600) == 0 && (fifo = open(path, O_RDWR | O_CLOEXEC)) >= 0, "no pipe");
	pid = start("-n 2 sh -c 'echo up $$; read line <$D/fifo' $M");
	CHECK(wait_output("up", 2), "no rank came up");
	out = slurp("out");
	REQUIRE(sscanf(out, "up %d", &rank) == 1, "%s", out);
	free(out);
	kill(pid, SIGTSTP);
	snprintf(path, sizeof(path), "/proc/%d/stat", rank);
	for (int i = 0; i < 2000 && !strstr(state, ") T"); i++) {
		const struct timespec nap = {0, 10000000};

		f = fopen(path, "r");
		REQUIRE(f && fgets(state, sizeof(state), f), "no rank");
		fclose(f);
		nanosleep(&nap, NULL);
	}
	CHECK(strstr(state, ") T") != NULL, "%s", state);
	kill(pid, SIGCONT);
	CHECK(write(fifo, "\n\n", 2) == 2);
	r = finish(pid);
	CHECK(r.status == 0, "status %d %s", r.status, r.err);
	close(fifo);
	forget(&r);
}

/* ---- Grace and time ------------------------------------------------------ */

static void grace_is_given(void)
{
	struct ran r = run("-n 2 --grace 60 sh -c '[ $COLL_RANK = 0 ] || exit 7; sleep 4; echo saved'");

	CHECK(r.status == 7 && strstr(r.out, "saved"), "status %d %s", r.status, r.out);
	forget(&r);
	r = run("-n 2 --grace 0 --no-prefix sh -c '[ $COLL_RANK = 0 ] || exit 7; sleep 4; echo saved'");
	CHECK(r.status == 7 && strcmp(r.out, "saved\n") == 0, "status %d %s", r.status, r.out);
	forget(&r);
	r = run("-n 2 --grace 0.1 sh -c '[ $COLL_RANK = 0 ] || exit 7; trap \"\" TERM; while :; do sleep 0.05; done' "
	        "$M");
	CHECK(r.status == 7 && marked() == 0, "status %d", r.status);
	forget(&r);
}

static void a_second_signal_ends_at_once(int number)
{
	pid_t pid =
	        start("-n 2 --grace 0 sh -c 'trap \"echo asked\" TERM INT; echo up; while :; do sleep 0.05; done' $M");
	struct ran r;

	CHECK(wait_output("up", 2), "no rank came up");
	kill(pid, number);
	CHECK(wait_output("asked", 2), "it was not handed on");
	kill(pid, number);
	r = finish(pid);
	CHECK(r.status == 128 + number && marked() == 0, "status %d", r.status);
	forget(&r);
}

static void a_second_signal(void)
{
	a_second_signal_ends_at_once(SIGTERM);
	a_second_signal_ends_at_once(SIGINT);
}

/* All have saved what they did, or one has not. */
static void ranks_may_ask_to_be_started_again(void)
{
	static const struct {
		const char *program;
		int number, status;
	} cases[] = {{"trap \"exit 75\" TERM; echo up; while :; do sleep 0.05; done", SIGTERM, 75},
	             {"trap \"exit 75\" HUP; echo up; while :; do sleep 0.05; done", SIGHUP, 75},
	             {"trap \"exit $((75 + COLL_RANK))\" TERM; echo up; while :; do sleep 0.05; done", SIGTERM, 143},
	             {"trap \"exit 0\" TERM; echo up; while :; do sleep 0.05; done", SIGTERM, 143}};
	char args[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ran r;
		pid_t pid;

		snprintf(args, sizeof(args), "-n 2 --grace 60 --restart 2 sh -c '%s' $M", cases[i].program);
		pid = start(args);
		CHECK(wait_output("up", 2), "no rank came up");
		kill(pid, cases[i].number);
		r = finish(pid);
		CHECK(r.status == cases[i].status && marked() == 0, "case %zu: status %d", i, r.status);
		forget(&r);
	}
}

static void time_is_over_in_any_grace(void)
{
	expect("-n 2 --grace 0 --timeout 1 sh -c 'trap \"\" TERM; while :; do sleep 0.05; done' $M", 124,
	       "has not ended within 1 s");
	CHECK(marked() == 0);
}

/* ---- Restarts ------------------------------------------------------------ */

static void the_job_starts_anew(void)
{
	struct ran r =
	        run("--np 2 --restart 3 --no-prefix sh -c 'echo key $COLL_JOB_KEY; [ $COLLRUN_RESTART = 2 ] || exit 3; "
	            "exec $P'");
	char first[64], second[64];

	CHECK(r.status == 0, "status %d %s", r.status, r.err);
	CHECK(count_lines(r.err, "starting the job anew") == 2 && strstr(r.err, "(2 of 3)"), "%s", r.err);
	CHECK(count_lines(r.out, "key ") == 6 && count_lines(r.out, ": ok") == 2, "%s", r.out);
	REQUIRE(sscanf(r.out, "key %40s key %*40s key %40s", first, second) == 2, "%s", r.out);
	CHECK(strcmp(first, second) != 0, "the key is the same");
	forget(&r);
	r = run("-n2 --restart 2 sh -c 'sleep 100 & echo x >>$D/tries; exit 4' $M");
	CHECK(r.status == 4 && marked() == 0, "status %d", r.status);
	CHECK(strstr(last_line(r.err), "exited with status 4"), "%s", r.err);
	forget(&r);
	expect("-n 1 --no-prefix sh -c 'exit $(wc -l <$D/tries)'", 6, "");
	/* From outside it is not the job that failed. */
	r = run("-n 2 --restart 2 --timeout 0.5 sleep 50");
	CHECK(r.status == 124 && !strstr(r.err, "anew"), "status %d %s", r.status, r.err);
	forget(&r);
}

/* ---- The last line ------------------------------------------------------- */

static void the_last_line_names_the_cause(void)
{
	static const char told[] = "sh -c 'r=$COLL_RANK; by=; [ $r = 2 ] || by=\" (reported by rank 2)\"; "
	                           "[ $r = 2 ] || while ! [ -e $D/found ]; do sleep 0.01; done; "
	                           "echo \"coll[$r/4] error: all_reduce: calls differ$by [COLL-3101]\" >&2; "
	                           "echo \"rank $r of 4: all_reduce: calls differ$by [COLL-3101]\" >&2; "
	                           "echo \"coll[$r/4] warn: too late [COLL-5101]\" >&2; [ $r = 2 ] || exit 1; "
	                           "touch $D/found; sleep 0.2; exit 1'";
	char args[1024];
	struct ran r;

	for (int files = 0; files < 2; files++) {
		snprintf(args, sizeof(args), "-n 4 %s %s", files ? "--output $D/files" : "", told);
		r = run(args);
		CHECK(r.status == 1, "status %d", r.status);
		CHECK(strncmp(last_line(r.err),
		              "collrun: the cause: [COLL-3101] all_reduce: calls differ (rank 2 on host ", 73) == 0,
		      "%s", r.err);
		CHECK(count_lines(r.err, "collrun: ") == 1, "%s", r.err);
		forget(&r);
		expect("-n 1 rm $D/found", 0, "");
	}
	/* Three find it at the same time, and print it: told once each. Deaths are told by all. */
	r = run("-n 3 sh -c 'echo \"coll[$COLL_RANK/3] error: calls differ [COLL-3101]\" >&2; "
	        "echo \"rank $COLL_RANK of 3: calls differ [COLL-3101]\" >&2; "
	        "echo \"coll[$COLL_RANK/3] error: rank 7 is dead [COLL-2101]\" >&2; exit 1'");
	CHECK(count_lines(r.err, "error: calls differ") == 1 && count_lines(r.err, "of 3: calls differ") == 3 &&
	              count_lines(r.err, "COLL-2101") == 3,
	      "%s", r.err);
	CHECK(strstr(r.err, "collrun: not shown: 2 lines with an error") &&
	              strstr(last_line(r.err), "the cause: [COLL-3101]"),
	      "%s", r.err);
	forget(&r);
	/* Each names itself; another text, or the same one later, is another error. A job that ends well has the count,
	 * too. */
	r = run("-n 3 sh -c 'c=\"coll[$COLL_RANK/3] error:\"; echo \"$c rank $COLL_RANK waits [COLL-3102]\" >&2; "
	        "echo \"$c file of $COLL_RANK [COLL-1120]\" >&2; sleep 0.$((COLL_RANK))$((COLL_RANK)); "
	        "[ $COLL_RANK != 2 ] || sleep 2; echo \"$c rank 9 is silent [COLL-2201]\" >&2'");
	CHECK(r.status == 0 && count_lines(r.err, "waits") == 1 && count_lines(r.err, "file of") == 3 &&
	              count_lines(r.err, "is silent") == 2,
	      "%s", r.err);
	CHECK(strstr(last_line(r.err), "collrun: not shown: 3 lines"), "%s", r.err);
	forget(&r);
	/* A rank that failed by itself, and one that says so. */
	r = run("-n 2 sh -c 'if [ $COLL_RANK = 1 ]; then touch $D/gone; exit 5; fi; while ! [ -e $D/gone ]; do sleep "
	        "0.01; done; "
	        "echo \"coll[0/2] error: rank 1 is dead [COLL-2101]\" >&2; exit 1'");
	CHECK(strstr(last_line(r.err), "collrun: rank 1 on host ") && strstr(last_line(r.err), "exited with status 5"),
	      "%s", r.err);
	forget(&r);
	/* It was told early, since the other one went on; and once more at the end. */
	r = run("-n 2 --grace 30 --prefix sh -c '[ $COLL_RANK = 0 ] || kill -9 $$; sleep 3; echo my own error >&2; "
	        "exit 9'");
	CHECK(r.status == 137 && strstr(r.err, "collrun: rank 1 on host "), "status %d %s", r.status, r.err);
	CHECK(strstr(last_line(r.err), "collrun: the cause: rank 1 on host ") &&
	              strstr(last_line(r.err), "killed by signal 9"),
	      "%s", r.err);
	forget(&r);
}

/* ---- Remote shells -------------------------------------------------------- */

static void what_a_remote_shell_says_is_shown(void)
{
	struct ran r = run("-H one:1 --no-prefix --ssh $D/greets echo fine");

	CHECK(r.status == 0 && strcmp(r.out, "fine\n") == 0, "status %d %s %s", r.status, r.out, r.err);
	CHECK(strstr(r.err, "collrun: host one: Welcome\n") && strstr(r.err, "collrun: host one: Quota: 80 % used\n") &&
	              strstr(r.err, "collrun: host one: by the way\n"),
	      "%s", r.err);
	forget(&r);
	r = run("-H one:1 --ssh $D/refuses echo fine");
	CHECK(r.status == 1, "status %d", r.status);
	CHECK(strstr(last_line(r.err), "lost host one (") && strstr(last_line(r.err), "ended with status 255") &&
	              strstr(last_line(r.err), "it said \"Permission denied\""),
	      "%s", r.err);
	forget(&r);
	/* Its pipe is held by what it has left behind. */
	expect("-H one:1 --ssh $D/leaves true", 1, "ended with status 3");
	/* Text and no agent. */
	expect("-H one:1 --ssh $D/says true", 1, "collrun: host one: Welcome");
}

/* The limit is met by the tenth of ten hosts: those before have said hello, and get no job. */
static void one_agent_cannot_be_started(void)
{
	struct ran r = run("-n 1 --no-prefix sh -c 'ulimit -n 36; exec $C --root 127.0.0.1 --ssh $D/ssh "
	                   "-H a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1 echo ran'");

	CHECK(r.status == 1 && !strstr(r.out, "ran"), "status %d %s %s", r.status, r.out, r.err);
	CHECK(strstr(r.err, "collrun: cannot start the agent of host ") && !strstr(r.err, "lost host"), "%s", r.err);
	forget(&r);
	expect("-n 1 sh -c 'ulimit -n 34; exec $C -H a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1 echo ran'", 1,
	       "collrun: 10 hosts need more open files than the limit of 34");
	/* The soft limit is raised for ourselves, not for what we start. */
	r = run("-n 1 --no-prefix sh -c 'ulimit -Sn 24; exec $C --root 127.0.0.1 --ssh $D/ssh "
	        "-H a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1,i:1,j:1 sh -c \"ulimit -Sn\"'");
	CHECK(r.status == 0 && count_lines(r.out, "24\n") == 10, "status %d %s %s", r.status, r.out, r.err);
	forget(&r);
}

/* What a remote shell has left behind holds its pipes: ours are closed. */
static void nothing_is_left_open_from_run_to_run(void)
{
	struct ran r = run("-n 1 sh -c 'ulimit -n 24; exec $C --restart 20 -H one:1 --ssh $D/holds true'");

	CHECK(count_lines(r.err, "starting the job anew") == 20 && !strstr(r.err, "cannot start"), "%s", r.err);
	forget(&r);
}

/* ---- Output and input ------------------------------------------------------ */

static void prefixes_come_with_a_second_writer(void)
{
	struct ran r = run("-n 3 sh -c '[ $COLL_RANK = 1 ] || exit 0; echo a; echo b; echo c >&2'");

	CHECK(strcmp(r.out, "a\nb\n") == 0 && strcmp(r.err, "c\n") == 0, "%s %s", r.out, r.err);
	forget(&r);
	r = run("-n 2 sh -c 'if [ $COLL_RANK = 1 ]; then echo a; touch $D/one; while ! [ -e $D/two ]; do sleep 0.01; "
	        "done; echo c; "
	        "else while ! [ -e $D/one ]; do sleep 0.01; done; sleep 0.2; echo b; sleep 0.2; touch $D/two; fi'");
	CHECK(strcmp(r.out, "a\n[0] b\n[1] c\n") == 0, "%s", r.out);
	forget(&r);
	r = run("-n 1 --prefix echo a");
	CHECK(strcmp(r.out, "[0] a\n") == 0, "%s", r.out);
	forget(&r);
}

/* A full disk is an error of collrun's if the job has none; the job goes on. */
static void output_that_cannot_be_written(void)
{
	expect("-n 2 sh -c 'echo a; sleep 0.2; echo b; touch $D/to_the_end' >/dev/full", 1,
	       "cannot write standard output: No space left on device");
	expect("-n 1 rm $D/to_the_end", 0, "");
	expect("-n 2 sh -c 'echo a; exit 6' >/dev/full", 6, "No space left on device");
	expect("-n 2 echo a >&-", 1, "cannot write standard output: Bad file descriptor");
	expect("-n 2 true >&-", 0, "");
	expect("-n 2 sh -c 'exit 5' <&- >&-", 5, "exited with status 5");
	expect("--help >/dev/full", 1, "No space left on device");
	expect("-n 2 --dry-run true >/dev/full", 1, "No space left on device");
	expect("-n 1 sh -c 'mkdir $D/none; ln -s /dev/full $D/none/rank.0.out'", 0, "");
	expect("-n 1 --output $D/none echo x", 1, "/rank.0.out: No space left on device");
}

static void input_is_left_alone(void)
{
	struct ran r = run(
	        "-n 1 sh -c 'printf \"a\\nb\\nc\\n\" | while read x; do $0 --stdin none -n 2 cat; echo $x; done' $C");

	CHECK(strcmp(r.out, "a\nb\nc\n") == 0, "%s %s", r.out, r.err);
	forget(&r);
	expect("-n 1 --stdin 2 true", 2, "--stdin 2: expected 0 or none");
}

int main(int argc, char **argv)
{
	if (!ran_begin(argc, argv, "collrun_fate_test")) {
		fprintf(stderr, "usage: collrun_fate_test COLLRUN RANK_PROBE\n");
		return 2;
	}
	write_file("ssh", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n", 0755);
	write_file(
	        "greets",
	        "#!/bin/sh\nshift\necho Welcome\necho by the way >&2\nprintf 'Quota: 80 %% used'\nexec sh -c \"$*\"\n",
	        0755);
	write_file("refuses", "#!/bin/sh\necho 'Permission denied' >&2\nexit 255\n", 0755);
	write_file("leaves", "#!/bin/sh\nsleep 30 &\nexit 3\n", 0755);
	write_file("holds", "#!/bin/sh\nsleep 3 &\nexit 3\n", 0755);
	write_file("says", "#!/bin/sh\necho Welcome\n", 0755);
	write_file("traps", traps, 0644);
	PLAIN_RUN(signals_go_to_all_ranks);
	PLAIN_RUN(the_agent_hands_them_on_too);
	PLAIN_RUN(stopped_ranks_go_on);
	PLAIN_RUN(grace_is_given);
	PLAIN_RUN(a_second_signal);
	PLAIN_RUN(ranks_may_ask_to_be_started_again);
	PLAIN_RUN(time_is_over_in_any_grace);
	PLAIN_RUN(the_job_starts_anew);
	PLAIN_RUN(the_last_line_names_the_cause);
	PLAIN_RUN(what_a_remote_shell_says_is_shown);
	PLAIN_RUN(one_agent_cannot_be_started);
	PLAIN_RUN(nothing_is_left_open_from_run_to_run);
	PLAIN_RUN(prefixes_come_with_a_second_writer);
	PLAIN_RUN(output_that_cannot_be_written);
	PLAIN_RUN(input_is_left_alone);
	return ran_end();
}
