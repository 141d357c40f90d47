/*
 * How the processes of a test find each other without a launcher: coll_config.exchange, the
 * caller's all-gather, through a page that all of them map. One meeting makes one
 * communicator; whoever starts the processes zeroes it before.
 */
#ifndef COLL_TESTS_MULTI_MEETING_H
#define COLL_TESTS_MULTI_MEETING_H

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coll/coll.h"

enum { MEETING_RANKS_MAX = 8, MEETING_CARD_BYTES = 8192 };

struct meeting {
	atomic_int arrived;
	char peer_infos[MEETING_RANKS_MAX][MEETING_CARD_BYTES];
};

struct meeting_seat {
	struct meeting *meeting;
	int rank, size;
};

/* What all processes that are forked from here on share, zeroed. */
static inline void *meeting_page(size_t len_bytes)
{
	void *page = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		exit(2);
	return page;
}

#ifdef COLL_SIM_JOBS
pid_t sim_process_start(void (*body)(const void *arg, int rank), const void *arg, int rank);
static inline pid_t meeting_fork(void (*body)(const void *arg, int rank), const void *arg, int rank)
{
	return sim_process_start(body, arg, rank);
}
#else
/* MEETING_HOSTS: two files of network namespaces. Every other rank is in the second. */
static inline void meeting_go(int rank)
{
	const char *hosts = getenv("MEETING_HOSTS"), *second = hosts ? strchr(hosts, ':') : NULL;
	char path[256];
	int fd;

	if (!second)
		return;
	snprintf(path, sizeof(path), "%.*s", rank % 2 ? 255 : (int)(second - hosts), rank % 2 ? second + 1 : hosts);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
		_exit(3);
	close(fd);
}

static inline pid_t meeting_fork(void (*body)(const void *arg, int rank), const void *arg, int rank)
{
	const pid_t pid = fork();

	if (pid == 0) {
		meeting_go(rank);
		body(arg, rank);
	}
	return pid;
}
#endif

/* A process for each rank, in which body() ends; what they share begins as zeros. */
static inline void meeting_start(pid_t *pids, int size, void *shared, size_t shared_bytes,
                                 void (*body)(const void *arg, int rank), const void *arg)
{
	memset(shared, 0, shared_bytes);
	fflush(stdout);
	for (int r = 0; r < size; r++)
		pids[r] = meeting_fork(body, arg, r);
}

static inline int meeting_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const struct meeting_seat *seat = arg;
	struct meeting *m = seat->meeting;

	if (len_bytes > MEETING_CARD_BYTES)
		return 1;
	memcpy(m->peer_infos[seat->rank], mine, len_bytes);
	atomic_fetch_add(&m->arrived, 1);
	while (atomic_load(&m->arrived) < seat->size)
		usleep(100);
	for (int r = 0; r < seat->size; r++)
		memcpy((char *)all + (size_t)r * len_bytes, m->peer_infos[r], len_bytes);
	return 0;
}

/* The seat is looked at until the communicator is made. */
static inline void meeting_sit(struct meeting_seat *seat, coll_config *cfg)
{
	cfg->rank = seat->rank;
	cfg->size = seat->size;
	cfg->exchange = meeting_exchange;
	cfg->exchange_arg = seat;
}

/* The communicator of all ranks, in a process that writes no log, unless VERBOSE is set; one that has none ends with
 * status 9. log: counts its lines, or NULL. */
static inline coll_comm *meeting_world_logged(struct meeting *meeting, int rank, int size, const char *const *settings,
                                              void (*log)(void *arg, int level, const char *line), void *arg)
{
	struct meeting_seat seat = {meeting, rank, size};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *world = NULL;

	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : log;
	cfg.log_arg = arg;
	if ((!getenv("VERBOSE") && !freopen("/dev/null", "w", stderr)) || coll_comm_create(&world, &cfg) != COLL_OK)
		_exit(9);
	return world;
}

static inline coll_comm *meeting_world(struct meeting *meeting, int rank, int size, const char *const *settings)
{
	return meeting_world_logged(meeting, rank, size, settings, NULL, NULL);
}

#endif
