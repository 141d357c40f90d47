/*
 * Jobs come and go in the same two processes, and leave nothing behind: descriptors,
 * threads, and what the kernel counts of RDMA objects (`rdma resource`): queue pairs,
 * completion queues, regions, protection domains, identifiers. After a tenth of the rounds
 * and after all of them the figures are the same.
 *
 * usage: rdma_rounds [ROUNDS [TRANSPORT]]
 */
#define PLAIN_OWN_MAIN
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"

enum { RANKS = 2, CARD_MAX = 8192, FIGURES = 160 };

struct figures {
	int descriptors[RANKS], threads[RANKS];
	char objects[FIGURES];
};

static struct shared {
	atomic_int arrived;
	atomic_int wrong;
	char peer_infos[RANKS][CARD_MAX];
	struct figures before, after;
} * shared;
static int rounds = 200;
static const char *transport = "rdma";

/* All ranks are here. */
static void meet(int *turn)
{
	*turn += RANKS;
	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < *turn)
		usleep(200);
}

struct mine {
	int rank, *turn;
};

static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const struct mine *m = arg;

	if (len_bytes > CARD_MAX)
		return 1;
	memcpy(shared->peer_infos[m->rank], mine, len_bytes);
	meet(m->turn);
	for (int r = 0; r < RANKS; r++)
		memcpy((char *)all + (size_t)r * len_bytes, shared->peer_infos[r], len_bytes);
	meet(m->turn);
	return 0;
}

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = -1;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

/* Once both have destroyed theirs. */
static void take(struct figures *f, int rank, int *turn)
{
	FILE *p;

	meet(turn);
	f->descriptors[rank] = entries("/proc/self/fd");
	f->threads[rank] = entries("/proc/self/task");
	meet(turn);
	if (rank == 0 && (p = popen("PATH=$PATH:/sbin:/usr/sbin rdma resource show 2>&1", "r"))) {
		if (!fgets(f->objects, sizeof(f->objects), p))
			snprintf(f->objects, sizeof(f->objects), "?");
		pclose(p);
	}
	meet(turn);
}

static void one_round(int rank, int *turn)
{
	char transports[64];
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	struct mine m = {rank, turn};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	float *x;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	cfg.rank = rank;
	cfg.size = RANKS;
	cfg.exchange = exchange;
	cfg.exchange_arg = &m;
	cfg.settings = settings;
	if (coll_comm_create(&comm, &cfg) != COLL_OK) {
		atomic_fetch_add(&shared->wrong, 1);
		_exit(1);
	}
	if (coll_mem_alloc(comm, (void **)&x, 40000) == COLL_OK) {
		for (int i = 0; i < 10000; i++)
			x[i] = 1;
		if (coll_all_reduce(x, x, 10000, COLL_F32, COLL_SUM, comm, NULL) != COLL_OK || x[9999] != RANKS)
			atomic_fetch_add(&shared->wrong, 1);
		coll_mem_free(comm, x);
	}
	if (coll_comm_destroy(&comm) != COLL_OK)
		atomic_fetch_add(&shared->wrong, 1);
}

static void rank_main(int rank)
{
	int turn = 0;

	for (int i = 0; i < rounds; i++) {
		if (i == rounds / 10)
			take(&shared->before, rank, &turn);
		one_round(rank, &turn);
	}
	take(&shared->after, rank, &turn);
	_exit(0);
}

static void jobs_leave_nothing(void)
{
	pid_t pids[RANKS];
	int status;

	for (int r = 0; r < RANKS; r++) {
		pids[r] = fork();
		if (pids[r] == 0)
			rank_main(r);
	}
	for (int r = 0; r < RANKS; r++) {
		waitpid(pids[r], &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: status %x", r, status);
	}
	CHECK(atomic_load(&shared->wrong) == 0, "%d wrong", atomic_load(&shared->wrong));
	for (int r = 0; r < RANKS; r++)
		CHECK(shared->before.descriptors[r] == shared->after.descriptors[r] &&
		              shared->before.threads[r] == shared->after.threads[r],
		      "rank %d: descriptors %d, %d; threads %d, %d", r, shared->before.descriptors[r],
		      shared->after.descriptors[r], shared->before.threads[r], shared->after.threads[r]);
	CHECK(strcmp(shared->before.objects, shared->after.objects) == 0, "%s, then %s", shared->before.objects,
	      shared->after.objects);
	printf("     %d rounds: %d descriptors, %d threads, %s", rounds, shared->after.descriptors[0],
	       shared->after.threads[0], shared->after.objects);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = atoi(argv[1]);
	if (argc > 2)
		transport = argv[2];
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	plain_run("", "jobs_leave_nothing", jobs_leave_nothing);
	return plain_summary();
}
