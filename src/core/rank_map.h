/*
 * Members: which processes of the context the ranks of a communicator are, and what
 * follows from that set alone (hosts, locality, crowding), equal on all members but
 * for local_rank and local_size.
 *
 * The control plane, the links and the peer infos speak of processes (ranks of the job);
 * plans, channels, records and users speak of ranks of the communicator.
 */
#ifndef COLL_CORE_RANK_MAP_H
#define COLL_CORE_RANK_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct coll_context;

struct coll_rank_map {
	int size;
	int *process_of;   /* by rank; NULL: ranks are processes */
	int *rank_of;      /* by process, -1: no member; NULL likewise */
	int processes;     /* of the context */
	uint32_t *host_of; /* by rank: hosts in order of first appearance */
	uint32_t hosts;
	int local_rank, local_size;
	bool crowded; /* some host has more ranks of the job than cores */
};

/* size processes by rank, this process among them; NULL: all of the context. Half-built
 * after a failure: to be ended too. */
coll_status coll_rank_map_init(struct coll_rank_map *m, const struct coll_context *ctx, const int *process_of,
                               int size);
void coll_rank_map_fini(struct coll_rank_map *m);

static inline int coll_rank_map_process(const struct coll_rank_map *m, int rank)
{
	return m->process_of ? m->process_of[rank] : rank;
}

/* -1: that process is not a member (or process is -1). */
static inline int coll_rank_map_rank(const struct coll_rank_map *m, int process)
{
	if (process < 0 || process >= m->processes)
		return -1;
	return m->rank_of ? m->rank_of[process] : process;
}

#endif
