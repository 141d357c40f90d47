/*
 * collrun as a user sees it: exit status, what it says, what the ranks see, and
 * that nothing outlives it. Runs the real program (argv[1]) with small shell
 * scripts and rank_probe (argv[2]) as ranks; other hosts are reached by a script
 * that plays ssh on this machine. Processes are told apart by a marker in their
 * arguments.
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <sys/stat.h>

#include "ran_test.h"
#include "tools/common/host.h"

/* ---- The command line -------------------------------------------------- */

static void refuses_by_name(void)
{
	expect("--foo", 2, "unknown option --foo");
	expect("-n", 2, "-n needs a value");
	expect("-n 0 true", 2, "-n 0");
	expect("-n x true", 2, "-n x");
	expect("-n 2", 2, "no program");
	expect("true", 2, "the number of ranks is missing");
	expect("-H a:x true", 2, "a:x");
	expect("-H localhost:2 -n 3 true", 2, "-n 3: the hosts have 2 slots");
	expect("-n 1 --bind socket true", 2, "--bind socket");
	expect("-n 1 --timeout soon true", 2, "--timeout soon");
	expect("-n 1 -x NO_SUCH_VARIABLE_HERE true", 2, "no such variable");
	expect("-n 1 --hostfile /no/such/file true", 2, "/no/such/file");
	expect("-n 1 --verbose=3 true", 2, "takes no value");
	expect("-n 1 --output /no/such/dir true", 1, "/no/such/dir");
}

static void help_and_version(void)
{
	struct ran r = run("--help");

	CHECK(r.status == 0 && strstr(r.out, "usage: collrun") && strstr(r.out, "--hostfile"));
	forget(&r);
	r = run("--version");
	CHECK(r.status == 0 && strncmp(r.out, "collrun ", 8) == 0);
	forget(&r);
}

static void arguments_pass_unchanged(void)
{
	struct ran r = run("-n 1 --no-prefix -- printf '%s|' -n 'a b' \"it's\" '' '$HOME' --help");

	CHECK(strcmp(r.out, "-n|a b|it's||$HOME|--help|\n") == 0, "%s", r.out);
	forget(&r);
	r = run("-H one:1 --ssh $D/ssh --no-prefix printf '%s|' 'a b' \"it's\" '' '$HOME'");
	CHECK(strcmp(r.out, "a b|it's||$HOME|\n") == 0, "%s / %s", r.out, r.err);
	forget(&r);
}

/* ---- The fate of the job ----------------------------------------------- */

static void exit_status_is_the_jobs(void)
{
	expect("-n 3 true", 0, "");
	expect("-n 3 sh -c 'exit $((COLL_RANK == 1 ? 7 : 0))'", 7, "rank 1 on host ");
	expect("-n 3 sh -c 'exit $((COLL_RANK == 1 ? 7 : 0))'", 7, "exited with status 7");
	expect("-n 2 sh -c '[ $COLL_RANK = 0 ] || kill -9 $$'", 137, "killed by signal 9");
	expect("-n 1 sh -c 'kill -SEGV $$'", 139, "killed by signal 11");
	expect("-n 2 /no/such/program", 127, "cannot run /no/such/program: No such file");
	expect("-n 2 --timeout 0.3 sleep 50", 124, "has not ended within 0.3 s");
}

/* Rank 3 is killed, the others fail because of it: rank 3 is the news. Rank 0
 * stops the agent meanwhile, so that it learns of all four at once. */
static const char victims[] = "dead() { grep -q ') Z' /proc/$1/stat; }\n"
                              "there() { while ! [ -s $D/pid.$1 ]; do sleep 0.01; done; cat $D/pid.$1; }\n"
                              "echo $$ >$D/tmp.$COLL_RANK; mv $D/tmp.$COLL_RANK $D/pid.$COLL_RANK\n"
                              "all=\"$(there 0) $(there 1) $(there 2) $(there 3)\"\n"
                              "if [ $COLL_RANK = 0 ]; then\n"
                              "	kill -STOP $PPID\n"
                              "	(for p in $all; do while ! dead $p; do sleep 0.01; done; done; kill -CONT $PPID) &\n"
                              "	echo go >$D/go\n"
                              "fi\n"
                              "while ! [ -e $D/go ]; do sleep 0.01; done\n"
                              "[ $COLL_RANK != 3 ] || kill -9 $$\n"
                              "while ! dead $(cat $D/pid.3); do sleep 0.01; done\n"
                              "exit 5\n";

static void the_killed_rank_is_named_not_its_victims(void)
{
	for (int i = 0; i < 3; i++) {
		expect("-n 4 sh $D/victims", 137, "collrun: rank 3 on host ");
		expect("-n 1 sh -c 'rm $D/pid.* $D/go'", 0, "");
	}
}

static void survivors_end_by_themselves(void)
{
	struct ran r = run(
	        "-n 2 --prefix sh -c 'if [ $COLL_RANK = 1 ]; then exit 7; fi; trap \"echo asked to\" TERM; sleep 1; "
	        "echo my own error >&2; exit 9'");

	CHECK(r.status == 7);
	CHECK(strstr(r.err, "[0] my own error") != NULL, "%s", r.err);
	CHECK(strstr(r.out, "asked to") == NULL);
	CHECK(count_lines(r.err, "collrun:") == 1, "%s", r.err);
	forget(&r);
}

static void then_they_are_asked_then_killed(void)
{
	struct ran r = run("-n 3 --prefix sh -c 'if [ $COLL_RANK = 1 ]; then exit 7; fi; "
	                   "if [ $COLL_RANK = 2 ]; then trap \"\" TERM; else trap \"echo asked to; exit 1\" TERM; fi; "
	                   "while :; do sleep 0.05; done' $M");

	CHECK(r.status == 7);
	CHECK(strstr(r.out, "[0] asked to") != NULL, "%s", r.out);
	CHECK(marked() == 0);
	forget(&r);
}

static void a_signal_ends_all(int signal, const char *hosts)
{
	char args[512];
	struct ran r;
	pid_t pid;

	snprintf(args, sizeof(args), "%s sh -c 'echo up; sleep 100; sleep 100' $M", hosts);
	pid = start(args);
	CHECK(wait_output("up", 4), "no rank came up");
	kill(pid, signal);
	r = finish(pid);
	CHECK(r.status == 128 + signal, "signal %d: status %d", signal, r.status);
	CHECK(wait_marked(0, 0), "%d processes are left", marked());
	forget(&r);
}

static void signals_end_the_job(void)
{
	a_signal_ends_all(SIGINT, "-n 4");
	a_signal_ends_all(SIGTERM, "-n 4");
	a_signal_ends_all(SIGHUP, "-n 4");
	a_signal_ends_all(SIGTERM, "-H one:2,two:2 --ssh $D/ssh");
}

/* Ranks with children in the background and daemons in sessions of their own. */
static void kill_it(const char *hosts)
{
	char args[512];
	struct ran r;
	pid_t pid;

	snprintf(args, sizeof(args),
	         "%s sh -c 'sh -c \"sleep 100; :\" $M & setsid sh -c \"echo up; sleep 100; :\" $M & sleep 100; :' $M",
	         hosts);
	pid = start(args);
	CHECK(wait_output("up", 4), "no rank came up");
	CHECK(wait_marked(12, 1000));
	kill(pid, SIGKILL);
	r = finish(pid);
	CHECK(r.status == 1000 + SIGKILL);
	CHECK(wait_marked(0, 0), "%d processes are left", marked());
	forget(&r);
}

static void killing_collrun_leaves_nobody(void)
{
	kill_it("-n 4");
	kill_it("-H one:2,two:2 --ssh $D/ssh");
}

static void daemons_do_not_outlive_the_job(void)
{
	struct ran r = run("-n 2 sh -c 'setsid sh -c \"sleep 100; :\" $M >/dev/null 2>&1 & exit 0'");

	CHECK(r.status == 0);
	CHECK(wait_marked(0, 0));
	forget(&r);
}

/* A daemon that ends during the job does not wait for its end as a zombie. */
static void orphans_are_reaped(void)
{
	struct ran r = run("-n 2 --timeout 30 sh -c '(sh -c \"echo \\$\\$ >$D/orphan.$COLL_RANK\" &); "
	                   "while ! [ -s $D/orphan.$COLL_RANK ]; do sleep 0.01; done; "
	                   "while [ -e /proc/$(cat $D/orphan.$COLL_RANK) ]; do sleep 0.01; done'");

	CHECK(r.status == 0, "status %d %s", r.status, r.err);
	forget(&r);
}

static void a_lost_agent_is_told(void)
{
	struct ran r;

	/* The rank's parent is the agent. */
	r = run("-n 2 sh -c '[ $COLL_RANK = 0 ] && kill -9 $PPID; sleep 100; :' $M");
	CHECK(r.status == 1, "status %d", r.status);
	CHECK(strstr(r.err, "lost host") != NULL, "%s", r.err);
	CHECK(wait_marked(0, 0));
	forget(&r);
	expect("-H one:1,two:1 --ssh false true", 1, "(false ended with status 1)");
}

/* ---- Output and input -------------------------------------------------- */

static void lines_carry_their_rank(void)
{
	struct ran r = run("-n 2 --prefix sh -c 'printf \"a\\nb\"; echo c$COLL_RANK >&2'");

	CHECK(strstr(r.out, "[0] a\n") && strstr(r.out, "[1] a\n") && strstr(r.out, "[0] b\n") &&
	              strstr(r.out, "[1] b\n"),
	      "%s", r.out);
	CHECK(strstr(r.err, "[0] c0\n") && strstr(r.err, "[1] c1\n"), "%s", r.err);
	forget(&r);
}

/* Each rank writes lines in many small pieces; none may mix, none be lost. */
static void lines_are_never_mixed(void)
{
	enum { RANKS = 64, LINES = 40 };
	struct ran r =
	        run("-n 64 --prefix sh -c 'i=0; while [ $i -lt 40 ]; do printf \"<$COLL_RANK \"; printf \"$i \"; "
	            "printf \"$COLL_RANK>\\n\"; i=$((i+1)); done'");
	int seen[RANKS] = {0}, total = 0;

	CHECK(r.status == 0);
	for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
		int a, b, i, c, end = 0;

		REQUIRE(sscanf(line, "[%d] <%d %d %d>%n", &a, &b, &i, &c, &end) == 4 && line[end] == 0, "%s", line);
		REQUIRE(a == b && b == c && a >= 0 && a < RANKS && i == seen[a], "%s", line);
		seen[a]++;
		total++;
	}
	CHECK(total == RANKS * LINES, "%d lines", total);
	forget(&r);
}

static void much_output_is_not_lost(void)
{
	struct ran r = run("-n 8 sh -c 'seq 1 100000; seq 1 50000 >&2'");

	CHECK(r.status == 0);
	CHECK(count_lines(r.out, "\n") == 800000, "%d lines", count_lines(r.out, "\n"));
	CHECK(count_lines(r.err, "\n") == 400000, "%d lines", count_lines(r.err, "\n"));
	forget(&r);
	/* One line of 3 MB, and a reader that goes away. */
	r = run("-n 2 --no-prefix sh -c 'head -c 3000000 /dev/zero | tr \"\\0\" x'");
	CHECK(strlen(r.out) == 6000002, "%zu bytes", strlen(r.out));
	forget(&r);
	r = run("-n 2 yes $M | head -1; true");
	CHECK(wait_marked(0, 0));
	forget(&r);
}

static void a_file_for_each(void)
{
	struct ran r = run("-n 3 --output $D/files sh -c 'echo out $COLL_RANK; echo err $COLL_RANK >&2'");
	char *text;

	CHECK(r.status == 0 && !*r.out && !*r.err, "%s %s", r.out, r.err);
	text = slurp("files/rank.2.out");
	CHECK(strcmp(text, "out 2\n") == 0, "%s", text);
	free(text);
	text = slurp("files/rank.1.err");
	CHECK(strcmp(text, "err 1\n") == 0, "%s", text);
	free(text);
	forget(&r);
}

static void input_goes_to_rank_zero(void)
{
	struct ran r;

	CHECK(system("seq 1 200000 >/dev/null") == 0);
	r = run("-n 3 --no-prefix sh -c 'cat | cksum' </dev/null");
	CHECK(count_lines(r.out, "4294967295 0\n") == 3, "%s", r.out);
	forget(&r);
	r = run("-n 3 --prefix sh -c 'cat | wc -l' <<EOF\na\nb\nEOF");
	CHECK(strstr(r.out, "[0] 2\n") && strstr(r.out, "[1] 0\n") && strstr(r.out, "[2] 0\n"), "%s", r.out);
	forget(&r);
	r = run("-n 2 --prefix sh -c '[ $COLL_RANK = 1 ] || cat | cksum' <$P");
	CHECK(r.status == 0);
	{
		char command[512], expected[128] = "", got[160];
		FILE *f;

		snprintf(command, sizeof(command), "cksum <%s", rank_probe);
		f = popen(command, "r");
		CHECK(fgets(expected, sizeof(expected), f) != NULL);
		pclose(f);
		snprintf(got, sizeof(got), "[0] %s", expected);
		CHECK(strcmp(r.out, got) == 0, "%s, expected %s", r.out, got);
	}
	forget(&r);
	/* A rank 0 that does not read. */
	expect("-n 2 true <$P", 0, "");
}

/* ---- What the ranks see ------------------------------------------------ */

static void ranks_find_each_other(void)
{
	struct ran r = run("-n 5 $P --rounds 3");

	CHECK(r.status == 0, "%s", r.err);
	CHECK(count_lines(r.out, "launcher collrun meeting unix  secret COLL_JOB_KEY: ok") == 5, "%s", r.out);
	forget(&r);
	r = run("-n 64 $P");
	CHECK(r.status == 0 && count_lines(r.out, ": ok") == 64, "%s", r.err);
	forget(&r);
}

static void over_several_hosts(void)
{
	struct ran r = run("-H one:2,localhost:1,two:3 --ssh $D/ssh $P --rounds 2");

	CHECK(r.status == 0, "%s", r.err);
	CHECK(count_lines(r.out, "launcher collrun meeting") == 6 &&
	              count_lines(r.out, " ports secret COLL_JOB_KEY: ok") == 6,
	      "%s", r.out);
	CHECK(strstr(r.out, "rank 5 of 6 local 2 of 3") && strstr(r.out, "rank 2 of 6 local 0 of 1"), "%s", r.out);
	forget(&r);
	r = run("-H one:2,two:3 --root 127.0.0.1 --ssh $D/ssh $P");
	CHECK(r.status == 0 && count_lines(r.out, "meeting unix  secret COLL_JOB_KEY: ok") == 5, "status %d %s %s",
	      r.status, r.out, r.err);
	forget(&r);
	r = run("--hostfile $D/hosts -n 4 --prefix --ssh $D/ssh sh -c 'echo $COLL_RANK on $FAKE_HOST "
	        "$COLL_LOCAL_RANK'");
	CHECK(strstr(r.out, "[0] 0 on one 0\n") && strstr(r.out, "[1] 1 on two 0\n") &&
	              strstr(r.out, "[2] 2 on two 1\n") && strstr(r.out, "[3] 3 on three 0\n"),
	      "%s %s", r.out, r.err);
	forget(&r);
}

/* Two network namespaces joined by a wire are two hosts. */
static const char namespaces[] =
        "ip netns add $1a && ip netns add $1b &&\n"
        "ip link add $1v netns $1a type veth peer name $1w netns $1b &&\n"
        "ip -n $1a addr add 10.98.7.1/24 dev $1v && ip -n $1b addr add 10.98.7.2/24 dev $1w &&\n"
        "ip -n $1a link set lo up && ip -n $1b link set lo up &&\n"
        "ip -n $1a link set $1v up && ip -n $1b link set $1w up\n";

static void over_network_namespaces(void)
{
	char name[16], command[512];
	struct ran r;

	snprintf(name, sizeof(name), "cr%d", (int)getpid());
	snprintf(command, sizeof(command), "sh %s/namespaces %s >/dev/null 2>&1", dir, name);
	if (system(command) == 0) {
		snprintf(command, sizeof(command), "-H %sa:1,%sb:2 --ssh $D/enter $P --rounds 2", name, name);
		r = run(command);
		CHECK(r.status == 0 && count_lines(r.out, "meeting 10.98.7.1 ports secret COLL_JOB_KEY: ok") == 3,
		      "%s %s", r.out, r.err);
		forget(&r);
		/* More ranks than children of rank 0: parents on both hosts. */
		snprintf(command, sizeof(command), "-H %sb:10,%sa:10 --ssh $D/enter $P", name, name);
		r = run(command);
		CHECK(r.status == 0 && count_lines(r.out, "meeting 10.98.7.2 ports secret COLL_JOB_KEY: ok") == 20,
		      "%s %s", r.out, r.err);
		forget(&r);
	} else {
		plain_skip_why = "no network namespaces here";
	}
	snprintf(command, sizeof(command), "ip netns del %sa 2>/dev/null; ip netns del %sb 2>/dev/null", name, name);
	(void)!system(command);
}

static void environment_goes_along(void)
{
	struct ran r;

	setenv("COLL_DEBUG", "info", 1);
	setenv("COLLRUN_TEST_A", "a b", 1);
	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "9", 1);
	r = run("-H one:1,localhost:1 --prefix --ssh $D/ssh -x COLLRUN_TEST_A -x COLLRUN_TEST_B='c d' "
	        "sh -c 'echo \"$COLL_DEBUG,$COLLRUN_TEST_A,$COLLRUN_TEST_B,$RANK$WORLD_SIZE\"'");
	unsetenv("COLL_DEBUG");
	unsetenv("COLLRUN_TEST_A");
	CHECK(strstr(r.out, "[0] info,a b,c d,\n") && strstr(r.out, "[1] info,a b,c d,\n"), "%s %s", r.out, r.err);
	forget(&r);
	r = run("-n 2 $P");
	CHECK(r.status == 0, "%s", r.err);
	forget(&r);
	unsetenv("RANK");
	unsetenv("WORLD_SIZE");
	r = run("-n 1 --no-prefix sh -c 'ulimit -n; pwd'");
	{
		char here[600], cwd[512], *limit = NULL;
		FILE *f = popen("ulimit -n", "r");
		size_t cap = 0;

		CHECK(getline(&limit, &cap, f) > 0 && getcwd(cwd, sizeof(cwd)));
		pclose(f);
		snprintf(here, sizeof(here), "%s%s\n", limit, cwd);
		CHECK(strcmp(r.out, here) == 0, "%s, expected %s", r.out, here);
		free(limit);
	}
	forget(&r);
}

static void binding(void)
{
	struct ran r = run("-n 2 --prefix --bind core grep Cpus_allowed_list /proc/self/status");
	char *a, *b;

	if (!coll_topology_known()) {
		CHECK(r.status == 2 && strstr(r.err, "without hwloc"));
		forget(&r);
		SKIP("built without hwloc");
	}
	CHECK(r.status == 0, "%s", r.err);
	a = strstr(r.out, "[0] Cpus_allowed_list:");
	b = strstr(r.out, "[1] Cpus_allowed_list:");
	REQUIRE(a && b, "%s", r.out);
	if (coll_topology_cores() > 1)
		CHECK(atoi(a + 22) != atoi(b + 22), "%s", r.out);
	forget(&r);
	r = run("-n 3 --bind numa true");
	CHECK(r.status == 0, "%s", r.err);
	forget(&r);
}

/* ---- All of it --------------------------------------------------------- */

int main(int argc, char **argv)
{
	const char *only = argc > 3 ? argv[3] : "";

	if (argc < 3 || !ran_begin(argc, argv, "collrun_test")) {
		fprintf(stderr, "usage: collrun_test COLLRUN RANK_PROBE [TEST]\n");
		return 2;
	}
	write_file("ssh",
	           "#!/bin/sh\nhost=$1\nshift\nexec env -i PATH=\"$PATH\" HOME=/ D=\"$D\" P=\"$P\" M=\"$M\" "
	           "FAKE_HOST=$host sh -c \"$*\"\n",
	           0755);
	write_file("enter", "#!/bin/sh\nhost=$1\nshift\nexec ip netns exec $host sh -c \"$*\"\n", 0755);
	write_file("namespaces", namespaces, 0644);
	write_file("victims", victims, 0644);
	write_file("hosts", "# a comment\none\n\ntwo slots=2 # two of them\nthree:1\n", 0644);
#define RUN(t)                        \
	do {                          \
		if (strstr(#t, only)) \
			PLAIN_RUN(t); \
	} while (0)
	RUN(refuses_by_name);
	RUN(help_and_version);
	RUN(arguments_pass_unchanged);
	RUN(exit_status_is_the_jobs);
	RUN(the_killed_rank_is_named_not_its_victims);
	RUN(survivors_end_by_themselves);
	RUN(then_they_are_asked_then_killed);
	RUN(signals_end_the_job);
	RUN(killing_collrun_leaves_nobody);
	RUN(daemons_do_not_outlive_the_job);
	RUN(orphans_are_reaped);
	RUN(a_lost_agent_is_told);
	RUN(lines_carry_their_rank);
	RUN(lines_are_never_mixed);
	RUN(much_output_is_not_lost);
	RUN(a_file_for_each);
	RUN(input_goes_to_rank_zero);
	RUN(ranks_find_each_other);
	RUN(over_several_hosts);
	RUN(over_network_namespaces);
	RUN(environment_goes_along);
	RUN(binding);
	return ran_end();
}
