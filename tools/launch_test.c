/*
 * Under the launchers themselves: Open MPI's and MPICH's mpirun where they are
 * installed; torchrun and srun by the variables they set (a real torchrun needs
 * PyTorch). argv[1] is rank_probe, which fails unless every rank's bytes arrive.
 */
#define PLAIN_OWN_MAIN
#include "tests/plain.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *rank_probe;

static char *output_of(const char *command, int *status)
{
	FILE *f = popen(command, "r");
	char *text = calloc(1, 1 << 16);

	(void)!fread(text, 1, (1 << 16) - 1, f);
	*status = pclose(f);
	return text;
}

static int count(const char *text, const char *with)
{
	int n = 0;

	for (const char *p = text; (p = strstr(p, with)); p += strlen(with))
		n++;
	return n;
}

static bool have(const char *program)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	return system(command) == 0;
}

static void expect(const char *command, int ranks, const char *line)
{
	int status;
	char *text = output_of(command, &status);

	CHECK(status == 0 && count(text, line) == ranks && count(text, ": ok") == ranks,
	      "%s: status %d, expected %d x \"%s\":\n%s", command, status, ranks, line, text);
	free(text);
}

static const int sizes[] = {1, 2, 5};

static void mpich(void)
{
	char command[512];

	if (!have("mpirun.mpich"))
		SKIP("no mpirun.mpich here");
	for (int i = 0; i < 3; i++) {
		snprintf(command, sizeof(command), "timeout 60 mpirun.mpich -n %d %s --rounds 3 2>&1", sizes[i],
		         rank_probe);
		expect(command, sizes[i],
		       sizes[i] == 1 ? "launcher mpich" : "launcher mpich meeting unix  secret none");
	}
}

/* Without the local size the ranks may be anywhere: PMI-1 carries the address. */
static void mpich_across_hosts(void)
{
	char command[512];

	if (!have("mpirun.mpich"))
		SKIP("no mpirun.mpich here");
	snprintf(command, sizeof(command), "timeout 60 mpirun.mpich -n 5 env -u MPI_LOCALNRANKS %s --rounds 3 2>&1",
	         rank_probe);
	expect(command, 5, "launcher pmi1 meeting pmi secret unique id");
}

#define OPENMPI "timeout 60 mpirun.openmpi --allow-run-as-root --oversubscribe"

static void openmpi(void)
{
	char command[512];

	if (!have("mpirun.openmpi"))
		SKIP("no mpirun.openmpi here");
	for (int i = 0; i < 3; i++) {
		snprintf(command, sizeof(command), OPENMPI " -n %d %s --rounds 3 2>&1", sizes[i], rank_probe);
		expect(command, sizes[i],
		       sizes[i] == 1 ? "launcher openmpi" : "launcher openmpi meeting unix  secret none");
	}
}

static void openmpi_across_hosts(void)
{
	char command[512];

	if (!have("mpirun.openmpi"))
		SKIP("no mpirun.openmpi here");
	snprintf(command, sizeof(command), OPENMPI " -n 5 env -u OMPI_COMM_WORLD_LOCAL_SIZE %s --rounds 3 2>&1",
	         rank_probe);
	expect(command, 5, "launcher openmpi meeting pmix secret unique id");
	snprintf(command, sizeof(command),
	         OPENMPI " -n 2 env -u OMPI_COMM_WORLD_LOCAL_SIZE COLL_ROOT=127.0.0.1:%d %s 2>&1",
	         30000 + (int)getpid() % 9999, rank_probe);
	expect(command, 2, "launcher openmpi meeting unix  secret none");
}

/* ---- By their variables ------------------------------------------------ */

/* n processes with rank variables of their own ("A=%d B=%d": rank, local rank);
 * all must end well. */
static void run_by_variables(int n, int per_host, const char *each, const char *common)
{
	pid_t pid[16];

	for (int r = 0; r < n; r++) {
		pid[r] = fork();
		if (pid[r] == 0) {
			char own[256], command[1024];

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			snprintf(own, sizeof(own), each, r, r % per_host);
			snprintf(command, sizeof(command), "exec env %s %s %s --rounds 3 >/dev/null", common, own,
			         rank_probe);
			alarm(60);
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
			_exit(126);
		}
	}
	for (int r = 0; r < n; r++) {
		int status;

		waitpid(pid[r], &status, 0);
		CHECK(status == 0, "rank %d of %d ended with %d (%s)", r, n, status, common);
	}
}

/* torchrun's own store: it holds MASTER_PORT and answers nobody. */
static int hold_a_port(int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0)
		exit(1);
	*port = ntohs(a.sin_port);
	return fd;
}

static void torchrun_by_variables(void)
{
	char common[512];
	int port, fd = hold_a_port(&port);

	for (int i = 0; i < 3; i++) {
		snprintf(common, sizeof(common),
		         "WORLD_SIZE=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
		         "TORCHELASTIC_RUN_ID=none TORCHELASTIC_USE_AGENT_STORE=True",
		         sizes[i], sizes[i], port);
		run_by_variables(sizes[i], sizes[i], "RANK=%d LOCAL_RANK=%d", common);
	}
	/* Two nodes of two, which a loopback address contradicts. */
	snprintf(common, sizeof(common),
	         "WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d TORCHELASTIC_RUN_ID=none "
	         "TORCHELASTIC_USE_AGENT_STORE=True",
	         port);
	run_by_variables(4, 2, "RANK=%d LOCAL_RANK=%d", common);
	/* The port is taken and nobody said so. */
	snprintf(common, sizeof(common), "WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", port);
	run_by_variables(4, 4, "RANK=%d LOCAL_RANK=%d", common);
	close(fd);
	/* It is free. */
	run_by_variables(4, 4, "RANK=%d LOCAL_RANK=%d", common);
}

static void srun_by_variables(void)
{
	char common[256];

	snprintf(common, sizeof(common), "SLURM_JOB_ID=%d SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_NNODES=1",
	         (int)getpid());
	run_by_variables(4, 4, "SLURM_PROCID=%d SLURM_LOCALID=%d", common);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: launch_test RANK_PROBE\n");
		return 2;
	}
	rank_probe = argv[1];
	PLAIN_RUN(mpich);
	PLAIN_RUN(mpich_across_hosts);
	PLAIN_RUN(openmpi);
	PLAIN_RUN(openmpi_across_hosts);
	PLAIN_RUN(torchrun_by_variables);
	PLAIN_RUN(srun_by_variables);
	return plain_summary();
}
