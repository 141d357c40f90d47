/*
 * See ranks.h. The barrier spins, for it stands around what is timed; where ranks exceed
 * cores it yields early.
 */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOTE_BYTES = 8192, POLLS_ALONE = 65536, POLLS_CROWDED = 16 };

struct ranks_shared {
	_Alignas(64) atomic_uint arrived;
	_Alignas(64) atomic_uint round;
	_Alignas(64) struct {
		uint64_t begin_ns, end_ns;
	} time[RANKS_MAX];
	_Alignas(64) char note[RANKS_MAX][NOTE_BYTES];
};

static void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

/* The increment of the last one to arrive acquires what all have written; its release of the new
 * round hands that on. */
void ranks_meet(struct ranks *r)
{
	struct ranks_shared *s = r->shared;
	const unsigned round = atomic_load_explicit(&s->round, memory_order_acquire);
	unsigned polls = 0;

	if (atomic_fetch_add_explicit(&s->arrived, 1, memory_order_acq_rel) + 1 == (unsigned)r->size) {
		atomic_store_explicit(&s->arrived, 0, memory_order_relaxed);
		atomic_store_explicit(&s->round, round + 1, memory_order_release);
		return;
	}
	while (atomic_load_explicit(&s->round, memory_order_acquire) == round) {
		relax();
		if (++polls % r->patience == 0)
			sched_yield();
	}
}

int ranks_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct ranks *r = arg;

	for (size_t at = 0; at < len_bytes; at += NOTE_BYTES) {
		const size_t len = len_bytes - at < NOTE_BYTES ? len_bytes - at : NOTE_BYTES;

		memcpy(r->shared->note[r->rank], (const char *)mine + at, len);
		ranks_meet(r);
		for (int k = 0; k < r->size; k++)
			memcpy((char *)all + (size_t)k * len_bytes + at, r->shared->note[k], len);
		ranks_meet(r);
	}
	return 0;
}

bool ranks_enter(const struct ranks *r, char *const *name, int n)
{
	const char *mine = name[r->rank * n / r->size];
	char path[256];
	int fd;

	if (mine[0] == '@')
		return setenv("COLL_HOST_ID", mine + 1, 1) == 0;
	snprintf(path, sizeof(path), "/run/netns/%s", mine);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) {
		fprintf(stderr, "versus: network namespace %s: %s\n", mine, strerror(errno));
		return false;
	}
	close(fd);
	return setenv("COLL_HOST_ID", mine, 1) == 0;
}

uint64_t ranks_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

/* Nobody overwrites its times before all have read them: whoever times again meets the others first. */
double ranks_span(struct ranks *r, uint64_t begin_ns, uint64_t end_ns)
{
	uint64_t begin = 0, end = 0;

	r->shared->time[r->rank].begin_ns = begin_ns;
	r->shared->time[r->rank].end_ns = end_ns;
	ranks_meet(r);
	for (int k = 0; k < r->size; k++) {
		if (r->shared->time[k].begin_ns > begin)
			begin = r->shared->time[k].begin_ns;
		if (r->shared->time[k].end_ns > end)
			end = r->shared->time[k].end_ns;
	}
	ranks_meet(r);
	return end > begin ? (double)(end - begin) * 1e-9 : 1e-9;
}

/* To the rank-th of the cores this process may use, round and round; how many there are. */
static int pin(int rank)
{
	cpu_set_t allowed, mine;
	int cores, seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		return 1;
	cores = CPU_COUNT(&allowed);
	CPU_ZERO(&mine);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &allowed) && seen++ == rank % cores)
			CPU_SET(c, &mine);
	if (sched_setaffinity(0, sizeof(mine), &mine) != 0)
		perror("versus: sched_setaffinity");
	return cores;
}

/* Wait for all; the first that fails ends the others, which would wait for it in vain. */
static int wait_for_all(const pid_t *child, int size)
{
	int worst = 0;

	for (int left = size; left > 0; left--) {
		int status = 0;
		const pid_t pid = wait(&status);
		int rank = 0;

		if (pid < 0)
			return 1;
		while (rank < size - 1 && child[rank] != pid)
			rank++;
		if (status == 0)
			continue;
		if (worst == 0) {
			worst = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			if (WIFSIGNALED(status))
				fprintf(stderr, "versus: rank %d ended by signal %d\n", rank, WTERMSIG(status));
			for (int k = 0; k < size; k++)
				if (child[k] != pid)
					kill(child[k], SIGKILL);
		}
	}
	return worst;
}

int ranks_run(int size, int (*body)(struct ranks *r, void *arg), void *arg)
{
	struct ranks r = {.size = size};
	const pid_t parent = getpid();
	pid_t child[RANKS_MAX];

	r.shared = mmap(NULL, sizeof(*r.shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (r.shared == MAP_FAILED) {
		perror("versus: mmap");
		return 1;
	}
	for (r.rank = 0; r.rank < size; r.rank++) {
		child[r.rank] = fork();
		if (child[r.rank] < 0) {
			perror("versus: fork");
			for (int k = 0; k < r.rank; k++)
				kill(child[k], SIGKILL);
			return 1;
		}
		if (child[r.rank] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(1);
			r.patience = pin(r.rank) < size ? POLLS_CROWDED : POLLS_ALONE;
			exit(body(&r, arg));
		}
	}
	munmap(r.shared, sizeof(*r.shared));
	return wait_for_all(child, size);
}
