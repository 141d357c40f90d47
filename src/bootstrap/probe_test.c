/*
 * Every launcher's variables, how they are nested, and what is refused. One row is
 * one environment; what the row expects is written by hand.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/probe.h"
#include "tests/plain.h"

enum { VARS_MAX = 16 };

struct row {
	const char *vars[VARS_MAX]; /* "NAME=value" */
	/* Expected: an error with this text, or the rest. */
	const char *error;
	int rank, size, local_rank, local_size;
	const char *launcher;
	const char *way; /* "unix", "tcp HOST PORT", "ports HOST PORT", "pmi", "pmix", "" */
};

static void forget_launchers(void)
{
	static const char *const prefixes[] = {"COLL_", "COLLRUN", "RANK=", "WORLD_SIZE=", "LOCAL_",    "MASTER_",
	                                       "TORCH", "OMPI_",   "PMIX_", "PMI_",        "MPI_LOCAL", "SLURM_"};
	extern char **environ;

	for (char **e = environ; *e;) {
		char name[128];
		bool ours = false;

		for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
			ours |= strncmp(*e, prefixes[i], strlen(prefixes[i])) == 0;
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(*e, "="), *e);
		if (ours)
			unsetenv(name); /* shifts the rest down */
		else
			e++;
	}
}

#define KEY "COLL_JOB_KEY=00112233445566778899aabbccddeeff"

/* Whether a job needs a secret is the matter of secret_test.c: here none does. */
static coll_status probe(const struct row *r, const coll_config *cfg, struct coll_identity *id,
                         struct coll_error_box *err)
{
	const char *given[] = {"COLL_INSECURE=1", NULL, NULL};
	coll_config own = COLL_CONFIG_INIT;
	struct coll_settings s;
	coll_status st;

	forget_launchers();
	if (cfg)
		own = *cfg;
	own.settings = given;
	for (int i = 0; i < VARS_MAX && r->vars[i]; i++) {
		char pair[256];

		/* A process keeps a key of its environment. */
		if (strcmp(r->vars[i], KEY) == 0) {
			given[1] = KEY;
			continue;
		}
		snprintf(pair, sizeof(pair), "%s", r->vars[i]);
		pair[strcspn(pair, "=")] = 0;
		setenv(pair, strchr(r->vars[i], '=') + 1, 1);
	}
	coll_error_clear(err);
	st = coll_settings_load(&s, &own, NULL, err);
	return st == COLL_OK ? coll_bootstrap_identify(&own, &s, id, err) : st;
}

static void way_text(const struct coll_identity *id, char *buf, size_t len_bytes)
{
	*buf = 0;
	if (id->unix_name[0])
		snprintf(buf, len_bytes, "unix");
	else if (id->root_host[0])
		snprintf(buf, len_bytes, "%s %s %u", id->root_ports ? "ports" : "tcp", id->root_host, id->root_port);
	else
		snprintf(buf, len_bytes, "%s", id->publish);
}

static void check(const struct row *r, const coll_config *cfg)
{
	struct coll_identity id;
	struct coll_error_box err;
	char way[400];
	coll_status st = probe(r, cfg, &id, &err);

	if (r->error) {
		CHECK(st != COLL_OK, "%s: expected a refusal (%s)", r->vars[0], r->error);
		CHECK(strstr(err.message, r->error) != NULL, "%s: says \"%s\", expected \"%s\"", r->vars[0],
		      err.message, r->error);
		return;
	}
	REQUIRE(st == COLL_OK, "%s: %s", r->vars[0], err.message);
	way_text(&id, way, sizeof(way));
	CHECK(id.rank == r->rank && id.size == r->size, "%s: rank %d of %d", r->vars[0], id.rank, id.size);
	CHECK(id.local_rank == r->local_rank && id.local_size == r->local_size, "%s: local %d of %d", r->vars[0],
	      id.local_rank, id.local_size);
	CHECK(strcmp(id.launcher, r->launcher) == 0, "%s: launcher %s", r->vars[0], id.launcher);
	CHECK(strcmp(way, r->way) == 0, "%s: way \"%s\", expected \"%s\"", r->vars[0], way, r->way);
	CHECK(id.one_host == (strcmp(way, "unix") == 0 || id.size == 1), "%s: one host %d", r->vars[0], id.one_host);
	CHECK(id.root_bind == (id.rank == 0 && id.root_host[0]));
}

static const struct row good[] = {
        {{NULL}, NULL, 0, 1, 0, 1, "alone", ""},
        {{"COLL_RANK=1", "COLL_SIZE=3", "COLL_ROOT=h:5000"}, NULL, 1, 3, -1, -1, "explicit", "tcp h 5000"},
        {{"COLL_RANK=0", "COLL_SIZE=3", "COLL_ROOT=[fd::1]:5000", "COLL_LOCAL_RANK=0", "COLL_LOCAL_SIZE=2"},
         NULL,
         0,
         3,
         0,
         2,
         "explicit",
         "tcp fd::1 5000"},
        {{"COLL_RANK=0", "COLL_SIZE=1"}, NULL, 0, 1, -1, -1, "explicit", ""},
        /* A loopback address says that all are on one host. */
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=127.0.0.1:5000"}, NULL, 1, 2, -1, -1, "explicit", "unix"},
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=127.3.0.1:5000"}, NULL, 1, 2, -1, -1, "explicit", "unix"},
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=localhost:5000"}, NULL, 1, 2, -1, -1, "explicit", "unix"},
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=[::1]:5000"}, NULL, 1, 2, -1, -1, "explicit", "unix"},
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=localhost", KEY}, NULL, 1, 2, -1, -1, "explicit", "unix"},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=5"}, NULL, 1, 2, -1, -1, "torchrun", "unix"},
        {{"COLL_RANK=2", "COLL_SIZE=3", "COLL_ROOT=unix:abc", KEY, "COLLRUN_JOB=1"},
         NULL,
         2,
         3,
         -1,
         -1,
         "collrun",
         "unix"},
        {{"COLL_RANK=2", "COLL_SIZE=3", "COLL_ROOT=h", KEY}, NULL, 2, 3, -1, -1, "explicit", "ports h 0"},
        {{"COLL_RANK=2", "COLL_SIZE=3", "COLL_ROOT=[fe::1]", KEY}, NULL, 2, 3, -1, -1, "explicit", "ports fe::1 0"},
        {{"RANK=1", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=m", "MASTER_PORT=29500",
          "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none"},
         NULL,
         1,
         4,
         1,
         4,
         "torchrun",
         "unix"},
        {{"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=29500",
          "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RUN_ID=none"},
         NULL,
         3,
         4,
         1,
         2,
         "torchrun",
         "ports m 0"},
        {{"RANK=3", "WORLD_SIZE=4", "MASTER_ADDR=m", "MASTER_PORT=29500"},
         NULL,
         3,
         4,
         -1,
         -1,
         "torchrun",
         "ports m 29500"},
        {{"RANK=3", "WORLD_SIZE=4", "COLL_ROOT=x:1"}, NULL, 3, 4, -1, -1, "torchrun", "tcp x 1"},
        {{"RANK=0", "WORLD_SIZE=1"}, NULL, 0, 1, -1, -1, "torchrun", ""},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77"},
         NULL,
         1,
         2,
         1,
         2,
         "openmpi",
         "unix"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
          "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_MCA_ess_base_jobid=77"},
         NULL,
         1,
         2,
         1,
         2,
         "openmpi",
         "unix"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
          "OMPI_COMM_WORLD_LOCAL_SIZE=1", "PMIX_NAMESPACE=77"},
         NULL,
         1,
         2,
         0,
         1,
         "openmpi",
         "pmix"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=0",
          "OMPI_COMM_WORLD_LOCAL_SIZE=1", "COLL_ROOT=h:9"},
         NULL,
         1,
         2,
         0,
         1,
         "openmpi",
         "tcp h 9"},
        {{"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"},
         NULL,
         1,
         2,
         0,
         1,
         "mpich",
         "pmi"},
        {{"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9"}, NULL, 1, 2, -1, -1, "pmi1", "pmi"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=1", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=1"},
         NULL,
         1,
         2,
         1,
         2,
         "srun",
         "unix"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=9", "SLURM_STEP_NUM_TASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0",
          "SLURM_NNODES=2", "COLL_ROOT=h:4"},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "tcp h 4"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
          "PMIX_NAMESPACE=s"},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "pmix"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
          "SLURM_STEP_NODELIST=n[07-09,12],m", KEY},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "ports n07 0"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
          "SLURM_STEP_NODELIST=a1.x,a2.x", KEY},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "ports a1.x 0"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
          "SLURM_STEP_NODELIST=r[1,3]-ib,m", KEY},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "ports r1-ib 0"},
        /* A step without PMI inside one that has it, and one that has it. */
        {{"PMI_RANK=0", "PMI_SIZE=1", "PMI_FD=9", "PMI_JOBID=5.0", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5",
          "SLURM_STEP_ID=1", "SLURM_NNODES=1"},
         NULL,
         1,
         2,
         -1,
         2,
         "srun",
         "unix"},
        {{"PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9", "PMI_JOBID=5.1", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5",
          "SLURM_STEP_ID=1", "SLURM_NNODES=1"},
         NULL,
         1,
         2,
         -1,
         -1,
         "pmi1",
         "pmi"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=1", "SLURM_NNODES=2",
          "PMIX_NAMESPACE=slurm.pmix.5.0", "SLURM_STEP_NODELIST=a,b", KEY},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "ports a 0"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=1", "SLURM_NNODES=2",
          "PMIX_NAMESPACE=slurm.pmix.5.1"},
         NULL,
         1,
         2,
         -1,
         -1,
         "srun",
         "pmix"},
        /* A batch script is not a step. */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=5"}, NULL, 0, 1, 0, 1, "alone", ""},
        /* mpirun inside a step: the step's numbers count hosts. */
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "OMPI_COMM_WORLD_RANK=5",
          "OMPI_COMM_WORLD_SIZE=8", "COLL_ROOT=h:4"},
         NULL,
         5,
         8,
         -1,
         -1,
         "openmpi",
         "tcp h 4"},
        /* Nobody's. */
        {{"RANK=1"}, NULL, 0, 1, 0, 1, "alone", ""},
        {{"WORLD_SIZE=2"}, NULL, 0, 1, 0, 1, "alone", ""},
        {{"WORLD_SIZE=7", "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9"}, NULL, 1, 2, -1, -1, "pmi1", "pmi"},
        /* Nested: torchrun below srun and mpirun; mpirun below srun with PMI; COLL_* below all. */
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=7",
          "TORCHELASTIC_RUN_ID=r", "PMI_RANK=0", "PMI_SIZE=1", "PMI_FD=9", "SLURM_PROCID=0", "SLURM_NTASKS=1",
          "SLURM_JOB_ID=5", "SLURM_STEP_ID=0"},
         NULL,
         1,
         2,
         1,
         2,
         "torchrun",
         "unix"},
        {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=7", "OMPI_COMM_WORLD_RANK=0",
          "OMPI_COMM_WORLD_SIZE=1"},
         NULL,
         1,
         2,
         -1,
         -1,
         "torchrun",
         "ports m 7"},
        {{"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "COLL_ROOT=h:4", "PMI_RANK=0", "PMI_SIZE=2",
          "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0"},
         NULL,
         3,
         4,
         -1,
         -1,
         "openmpi",
         "tcp h 4"},
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=h:4", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=7"},
         NULL,
         1,
         2,
         -1,
         -1,
         "explicit",
         "tcp h 4"},
        /* One that is incomplete gives way to one that is complete. */
        {{"RANK=0", "WORLD_SIZE=4", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=7",
          "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2"},
         NULL,
         1,
         2,
         1,
         2,
         "openmpi",
         "unix"},
        {{"OMPI_COMM_WORLD_RANK=1", "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9"}, NULL, 1, 2, -1, -1, "pmi1", "pmi"},
        /* Two launchers that agree. */
        {{"COLL_RANK=1", "COLL_SIZE=2", "COLL_ROOT=h:4", "RANK=1", "WORLD_SIZE=2"},
         NULL,
         1,
         2,
         -1,
         -1,
         "explicit",
         "tcp h 4"},
};

static const struct row bad[] = {
        {{"COLL_RANK=1"}, "COLL_RANK is set but COLL_SIZE is not"},
        {{"COLL_SIZE=2"}, "COLL_SIZE is set but COLL_RANK is not"},
        {{"COLL_RANK=2", "COLL_SIZE=2", "COLL_ROOT=h:1"}, "COLL_RANK=2 is not below COLL_SIZE=2"},
        {{"COLL_RANK=-3", "COLL_SIZE=2", "COLL_ROOT=h:1"}, "COLL_RANK=-3"},
        {{"COLL_RANK=0", "COLL_SIZE=-2", "COLL_ROOT=h:1"}, "COLL_SIZE=-2"},
        {{"COLL_RANK=x", "COLL_SIZE=2"}, "COLL_RANK=x"},
        {{"COLL_RANK=0", "COLL_SIZE=2"}, "COLL_ROOT=host:port is not"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:1", "COLL_LOCAL_RANK=2", "COLL_LOCAL_SIZE=2"}, "local rank 2"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:1", "COLL_LOCAL_RANK=0", "COLL_LOCAL_SIZE=3"}, "3 local ranks"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:99999"}, "COLL_ROOT=h:99999"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=:1"}, "COLL_ROOT=:1"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:x"}, "COLL_ROOT=h:x"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=unix:"}, "COLL_ROOT=unix:"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:0"}, "COLL_ROOT=h:0 names no port"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=localhost"}, "COLL_ROOT=localhost names no port"},
        {{"COLL_RANK=0", "COLL_SIZE=2", "COLL_ROOT=h:1", "COLL_JOB_KEY=123"}, "COLL_JOB_KEY"},
        {{"COLL_ROOT=h:1"}, "the rank of this process is not"},
        {{"RANK=two", "WORLD_SIZE=4"}, "RANK=two"},
        {{"RANK=4", "WORLD_SIZE=4"}, "RANK=4 is not below WORLD_SIZE=4"},
        {{"RANK=1", "WORLD_SIZE=4"}, "MASTER_ADDR is not"},
        {{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=m"}, "MASTER_PORT is not"},
        {{"RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=m", "MASTER_PORT=0"}, "MASTER_PORT=0"},
        {{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"},
        {{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"}, "COLL_ROOT=host:port"},
        {{"PMI_SIZE=1"}, "PMI_SIZE is set but PMI_RANK is not"},
        {{"PMI_RANK=0", "PMI_SIZE=2"}, "PMI_FD is not"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2"},
         "COLL_ROOT=host:port"},
        {{"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=5", "SLURM_STEP_ID=0", "SLURM_NNODES=2",
          "SLURM_STEP_NODELIST=r[1-2]c[1-2]"},
         "SLURM_STEP_NODELIST does not"},
        {{"TORCHELASTIC_RUN_ID=r", "RANK=1"}, "RANK is set but WORLD_SIZE is not"},
        {{"PMI_SIZE=4", "OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_RANK is set but"},
        {{"COLL_RANK=1", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=7"}, "COLL_SIZE is not"},
};

TEST(probe, understands_every_launcher)
{
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		check(&good[i], NULL);
}

TEST(probe, says_which_launchers_were_passed_over)
{
	const struct row r = {{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=m", "MASTER_PORT=7", "OMPI_COMM_WORLD_RANK=0",
	                       "OMPI_COMM_WORLD_SIZE=1", "PMI_SIZE=3", "SLURM_PROCID=1", "SLURM_NTASKS=2",
	                       "SLURM_JOB_ID=5", "SLURM_STEP_ID=0"}};
	struct coll_identity id;
	struct coll_error_box err;

	CHECK(probe(&r, NULL, &id, &err) == COLL_OK, "%s", err.message);
	CHECK(strcmp(id.passed_over,
	             "openmpi (OMPI_COMM_WORLD_RANK=0 of OMPI_COMM_WORLD_SIZE=1), mpich (incomplete)") == 0,
	      "%s", id.passed_over);
}

TEST(probe, refuses_what_is_incomplete_by_name)
{
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check(&bad[i], NULL);
}

static int never(void *arg, const void *mine, void *all, size_t len_bytes)
{
	return 1;
}

TEST(probe, the_callers_config_comes_first)
{
	const struct row callback = {{"RANK=nonsense"}, NULL, 2, 5, -1, -1, "callback", ""};
	const struct row by_root = {
	        {"COLL_ROOT=h:7", "RANK=0", "WORLD_SIZE=9"}, NULL, 2, 5, -1, -1, "explicit", "tcp h 7"};
	const struct row same = {
	        {"RANK=2", "WORLD_SIZE=5", "LOCAL_RANK=2", "LOCAL_WORLD_SIZE=5", "MASTER_ADDR=m", "MASTER_PORT=1"},
	        NULL,
	        2,
	        5,
	        2,
	        5,
	        "torchrun",
	        "unix"};
	const struct row differs = {{"RANK=1", "WORLD_SIZE=5", "MASTER_ADDR=m", "MASTER_PORT=1"},
	                            "torchrun has rank 1 of 5"};
	const struct row nowhere = {{NULL}, "but no rendezvous address"};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = 2;
	cfg.size = 5;
	check(&by_root, &cfg);
	check(&same, &cfg);
	check(&differs, &cfg);
	check(&nowhere, &cfg);
	cfg.exchange = never;
	check(&callback, &cfg);
}

TEST(probe, refuses_half_a_config)
{
	const struct row r = {{NULL}, "give both"}, no_rank = {{NULL}, "coll_config.exchange is given but not"};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = 2;
	check(&r, &cfg);
	cfg.rank = -1;
	cfg.size = 3;
	check(&r, &cfg);
	cfg.rank = 3;
	check(&r, &cfg);
	cfg = (coll_config)COLL_CONFIG_INIT;
	cfg.exchange = never;
	check(&no_rank, &cfg);
}

/* Processes of one job derive the same key and name; others differ. Only a key that was given is a secret. */
TEST(probe, jobs_are_told_apart)
{
	struct row r = {{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
	                 "PMIX_NAMESPACE=77"}};
	struct coll_identity a, b, c, d;
	struct coll_error_box err;

	REQUIRE(probe(&r, NULL, &a, &err) == COLL_OK);
	r.vars[0] = "OMPI_COMM_WORLD_RANK=1";
	REQUIRE(probe(&r, NULL, &b, &err) == COLL_OK);
	r.vars[3] = "PMIX_NAMESPACE=78";
	REQUIRE(probe(&r, NULL, &c, &err) == COLL_OK);
	r.vars[4] = KEY;
	REQUIRE(probe(&r, NULL, &d, &err) == COLL_OK);
	CHECK(strcmp(a.unix_name, b.unix_name) == 0);
	CHECK(memcmp(a.job_key, b.job_key, sizeof(a.job_key)) == 0);
	CHECK(a.job_key[0] != 0 && a.job_key[1] != 0 && a.job_key[0] != a.job_key[1]);
	CHECK(strcmp(a.unix_name, c.unix_name) != 0);
	CHECK(memcmp(a.job_key, c.job_key, sizeof(a.job_key)) != 0);
	CHECK(!a.secret && d.secret && strcmp(d.secret, "COLL_JOB_KEY") == 0);
	CHECK(d.job_key[0] == 0x0011223344556677u && d.job_key[1] == 0x8899aabbccddeeffu);
}
