/*
 * Where ranks run: allocations of schedulers in the forms of their manuals, what is refused of them, and --dry-run.
 * The real program, without starting anything.
 */
#define PLAIN_OWN_MAIN
#include "ran_test.h"

/* What --dry-run prints of the placement: "a a b": the host of each rank. */
static char *placed(const char *args)
{
	char command[1024], host[128], *all = text_of(4095);
	struct ran r;
	int rank, n = 0;

	snprintf(command, sizeof(command), "--dry-run %s", args);
	r = run(command);
	CHECK(r.status == 0, "%s: status %d %s", args, r.status, r.err);
	for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n")) {
		if (sscanf(line, "rank %d on %127[^,],", &rank, host) == 2) {
			CHECK(rank == n++, "%s", line);
			strcat(strcat(all, *all ? " " : ""), host);
		}
	}
	forget(&r);
	return all;
}

static void places(const char *args, const char *hosts)
{
	char *got = placed(args);

	CHECK(strcmp(got, hosts) == 0, "%s: \"%s\", expected \"%s\"", args, got, hosts);
	free(got);
}

static void slurm(const char *list, const char *tasks, const char *args, const char *hosts)
{
	setenv("SLURM_JOB_NODELIST", list, 1);
	if (tasks)
		setenv("SLURM_TASKS_PER_NODE", tasks, 1);
	places(args, hosts);
	unsetenv("SLURM_TASKS_PER_NODE");
	unsetenv("SLURM_JOB_NODELIST");
}

static void slurm_says(const char *list, const char *tasks, const char *text)
{
	setenv("SLURM_JOB_NODELIST", list, 1);
	setenv("SLURM_TASKS_PER_NODE", tasks, 1);
	expect("true", 2, text);
	unsetenv("SLURM_TASKS_PER_NODE");
	unsetenv("SLURM_JOB_NODELIST");
}

static void slurm_allocations(void)
{
	slurm("n1", NULL, "p", "n1");
	slurm("n[1-3]", NULL, "p", "n1 n2 n3");
	slurm("n[1-3,7],m", "2(x3),1,2", "p", "n1 n1 n2 n2 n3 n3 n7 m m");
	slurm("node[08-11]", "1(x4)", "p", "node08 node09 node10 node11");
	slurm("rack[0-1]node[1,3]-ib", "1(x4)", "p", "rack0node1-ib rack0node3-ib rack1node1-ib rack1node3-ib");
	slurm("a-1.cluster,b-2.cluster", "3,1", "p", "a-1.cluster a-1.cluster a-1.cluster b-2.cluster");
	/* Fewer ranks fill the first hosts; more are spread. */
	slurm("n[1-3]", "2(x3)", "-n 3 p", "n1 n1 n2");
	slurm("n[1-2]", "1(x2)", "-n 4 p", "n1 n1 n2 n2");
	slurm("n[1-2]", "1(x2)", "-n 5 p", "n1 n1 n1 n2 n2");
	setenv("SLURM_JOB_CPUS_PER_NODE", "2(x2)", 1);
	slurm("n[1-2]", NULL, "p", "n1 n1 n2 n2");
	slurm("n[1-2]", "1(x2)", "p", "n1 n2");
	unsetenv("SLURM_JOB_CPUS_PER_NODE");
	/* Hosts that are given count. */
	slurm("n[1-2]", "1(x2)", "-H a:1,b:1 p", "a b");
}

/* srun gives the step that it starts numbers of its own, but not salloc's shell. */
static void slurm_steps(void)
{
	setenv("SLURM_STEP_NODELIST", "n2", 1);
	setenv("SLURM_STEP_TASKS_PER_NODE", "3", 1);
	slurm("n[1-2]", "3", "p", "n2 n2 n2");
	slurm("n[1-2]", "1(x2)", "p", "n1 n2");
	unsetenv("SLURM_STEP_NODELIST");
	unsetenv("SLURM_STEP_TASKS_PER_NODE");
}

/* In an allocation of Slurm, and where nobody names another remote shell. The ranks run there. */
static void slurm_hosts_are_reached_by_srun(void)
{
	char *path = strdup(getenv("PATH")), *before = text_of(4095);
	struct ran r;

	snprintf(before, 4095, "%s:%s", dir, path);
	write_file("srun",
	           "#!/bin/sh\nwhile [ $1 != -w ]; do shift; done\nhost=$2\nshift 2\nFAKE_HOST=$host exec \"$@\"\n",
	           0755);
	setenv("PATH", before, 1);
	r = run("--dry-run -H one:1 true");
	CHECK(r.status == 0 && strstr(r.out, "one: ssh ") && !strstr(r.out, "srun"), "%s", r.out);
	forget(&r);
	setenv("SLURM_JOB_NODELIST", "one,two", 1);
	setenv("SLURM_TASKS_PER_NODE", "1(x2)", 1);
	r = run("--dry-run --ssh rsh true");
	CHECK(r.status == 0 && strstr(r.out, "one: rsh one ") && !strstr(r.out, "srun"), "%s", r.out);
	forget(&r);
	r = run("--prefix --root 127.0.0.1 sh -c 'echo on $FAKE_HOST'");
	CHECK(r.status == 0 && strstr(r.out, "[0] on one\n") && strstr(r.out, "[1] on two\n"), "%s%s", r.out, r.err);
	forget(&r);
	unsetenv("SLURM_JOB_NODELIST");
	unsetenv("SLURM_TASKS_PER_NODE");
	setenv("PATH", path, 1);
	free(before);
	free(path);
}

static void slurm_mistakes(void)
{
	static const char *const lists[] = {"n[1-3",   "n1-3]",    "n[]",  "n[3-1]", "n[1-]", "n[-2]",
	                                    "n[a]",    "n[1,,2]",  "a,,b", ",a",     "a,",    "n[1-99999999]",
	                                    "n[1[2]]", "n[1-2-3]", "a b",  "n[1 2]"};
	static const char *const tasks[] = {"2",   "2(x3)", "2(x1)", "2(x2",   "2(y2)", "0(x2)",
	                                    "1,x", "1,",    ",1",    "1(x2),", "-1,1",  "1;1"};
	char text[128];

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		snprintf(text, sizeof(text), "SLURM_JOB_NODELIST=%s: this is no list of hosts", lists[i]);
		slurm_says(lists[i], "1", text);
	}
	for (size_t i = 0; i < sizeof(tasks) / sizeof(tasks[0]); i++) {
		snprintf(text, sizeof(text), "SLURM_TASKS_PER_NODE=%s: expected numbers like 2(x3),1 for the 2 hosts",
		         tasks[i]);
		slurm_says("n[1-2]", tasks[i], text);
	}
}

static void with_file(const char *variable, const char *content, const char *args, const char *hosts, const char *error)
{
	char path[128];

	write_file("nodes", content, 0644);
	snprintf(path, sizeof(path), "%s/nodes", dir);
	setenv(variable, path, 1);
	if (error)
		expect("true", 2, error);
	else
		places(args, hosts);
	unsetenv(variable);
}

static void pbs_allocations(void)
{
	with_file("PBS_NODEFILE", "n1\nn1\nn2\nn2\n", "p", "n1 n1 n2 n2", NULL);
	with_file("PBS_NODEFILE", "n1.cluster\nn2.cluster\nn1.cluster\n", "p", "n1.cluster n1.cluster n2.cluster",
	          NULL);
	with_file("PBS_NODEFILE", "n1\n\nn2", "-n 4 p", "n1 n1 n2 n2", NULL);
	with_file("PBS_NODEFILE", "", NULL, NULL, "it names no host");
	with_file("PBS_NODEFILE", "n1 2\n", NULL, NULL, "line 1: \"2\" behind host n1");
	with_file("PBS_NODEFILE", "n1\n-x\n", NULL, NULL, "\"-x\" is not a host name");
	setenv("PBS_NODEFILE", "/no/such/file", 1);
	expect("true", 2, "PBS_NODEFILE=/no/such/file: No such file");
	unsetenv("PBS_NODEFILE");
}

static void lsf(const char *variable, const char *value, const char *hosts, const char *error)
{
	setenv(variable, value, 1);
	if (error)
		expect("true", 2, error);
	else
		places("p", hosts);
	unsetenv(variable);
}

static void lsf_allocations(void)
{
	lsf("LSB_MCPU_HOSTS", "hosta 2 hostb 1 ", "hosta hosta hostb", NULL);
	lsf("LSB_HOSTS", "hosta hosta hostb", "hosta hosta hostb", NULL);
	lsf("LSB_MCPU_HOSTS", "hosta", NULL, "expected a number of slots behind host hosta");
	lsf("LSB_MCPU_HOSTS", "hosta two", NULL, "expected a number of slots behind host hosta");
	lsf("LSB_MCPU_HOSTS", "hosta 0", NULL, "expected a number of slots behind host hosta");
	lsf("LSB_HOSTS", " ", NULL, "LSB_HOSTS= : it names no host");
	/* All three are there in a job; the file is the whole truth. */
	setenv("LSB_MCPU_HOSTS", "hosta 2", 1);
	with_file("LSB_DJOB_HOSTFILE", "hosta\nhosta\nhostb\n", "p", "hosta hosta hostb", NULL);
	unsetenv("LSB_MCPU_HOSTS");
}

static void grid_engine_allocations(void)
{
	with_file("PE_HOSTFILE", "n1 2 all.q@n1 UNDEFINED\nn2 1 all.q@n2 <NULL>\n", "p", "n1 n1 n2", NULL);
	with_file("PE_HOSTFILE", "n1 1 all.q@n1 0,0\nn2 1 all.q@n2 0,1:1,0\nn1 1 big.q@n1 UNDEFINED\n", "p", "n1 n1 n2",
	          NULL);
	with_file("PE_HOSTFILE", "n1\n", NULL, NULL, "line 1: expected a number of slots behind host n1");
	with_file("PE_HOSTFILE", "n1 2 q\nn2 many q\n", NULL, NULL,
	          "line 2: expected a number of slots behind host n2");
}

/* Hosts of our own name are started here, others by the remote shell; the ranks run there. */
static void an_allocation_is_used(void)
{
	struct ran r;

	setenv("SLURM_JOB_NODELIST", "one,two", 1);
	setenv("SLURM_TASKS_PER_NODE", "1(x2)", 1);
	r = run("-n 4 --prefix --root 127.0.0.1 --ssh $D/ssh sh -c 'echo on $FAKE_HOST'");
	CHECK(r.status == 0, "%s", r.err);
	CHECK(strstr(r.out, "[0] on one\n") && strstr(r.out, "[1] on one\n") && strstr(r.out, "[2] on two\n") &&
	              strstr(r.out, "[3] on two\n"),
	      "%s", r.out);
	forget(&r);
	unsetenv("SLURM_JOB_NODELIST");
	unsetenv("SLURM_TASKS_PER_NODE");
}

static void a_dry_run_starts_nothing(void)
{
	struct ran r =
	        run("--dry-run -H localhost:1,b:1 --ssh 'rsh -x' --remote '/opt/my coll/collrun' touch $D/started");
	char *started = slurp("started");

	CHECK(r.status == 0 && strstr(r.out, "2 ranks on 2 hosts\n") && strstr(r.out, "localhost: here\n"), "%s",
	      r.out);
	CHECK(strstr(r.out, "b: rsh -x b '/opt/my coll/collrun' --agent\n") && strstr(r.out, "each rank: touch "), "%s",
	      r.out);
	forget(&r);
	free(started);
	expect("-n 1 test ! -e $D/started", 0, "");
}

static void as_users_of_others_write_it(void)
{
	places("-n2 p", "localhost localhost");
	places("-np 2 p", "localhost localhost");
	places("--np 2 p", "localhost localhost");
	places("--np=2 p", "localhost localhost");
	places("-n 4 --oversubscribe -H a:1,b:1 p", "a a b b");
	expect("-n 4 -H a:1,b:1 p", 2, "the hosts have 2 slots (--oversubscribe takes more)");
	expect("--hostfil x p", 2, "unknown option --hostfil: did you mean --hostfile?");
	expect("--grcae 3 p", 2, "did you mean --grace?");
	expect("--map-by core p", 2, "unknown option --map-by (try --help)");
	expect("-n2x p", 2, "-n 2x: expected a number of ranks");
	expect("-n 1 --grace -1 p", 2, "--grace -1: expected a number of seconds");
	expect("-n 1 --restart x p", 2, "--restart x: expected a number of times");
}

int main(int argc, char **argv)
{
	static const char *const variables[] = {"SLURM_JOB_NODELIST",
	                                        "SLURM_NODELIST",
	                                        "SLURM_TASKS_PER_NODE",
	                                        "SLURM_JOB_CPUS_PER_NODE",
	                                        "LSB_DJOB_HOSTFILE",
	                                        "LSB_MCPU_HOSTS",
	                                        "LSB_HOSTS",
	                                        "PE_HOSTFILE",
	                                        "PBS_NODEFILE"};

	if (!ran_begin(argc, argv, "collrun_hosts_test")) {
		fprintf(stderr, "usage: collrun_hosts_test COLLRUN\n");
		return 2;
	}
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	write_file("ssh", "#!/bin/sh\nhost=$1\nshift\nFAKE_HOST=$host exec sh -c \"$*\"\n", 0755);
	PLAIN_RUN(slurm_allocations);
	PLAIN_RUN(slurm_steps);
	PLAIN_RUN(slurm_hosts_are_reached_by_srun);
	PLAIN_RUN(slurm_mistakes);
	PLAIN_RUN(pbs_allocations);
	PLAIN_RUN(lsf_allocations);
	PLAIN_RUN(grid_engine_allocations);
	PLAIN_RUN(an_allocation_is_used);
	PLAIN_RUN(a_dry_run_starts_nothing);
	PLAIN_RUN(as_users_of_others_write_it);
	return ran_end();
}
