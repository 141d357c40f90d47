/*
 * The members of a communicator: the process of each rank, and what follows from that set alone
 * (hosts, locality, oversubscription). All of it is equal on all members, except local_rank and
 * local_size.
 *
 * The control plane, the links and the peer infos use processes (ranks of the job). Plans,
 * channels, records and users use ranks of the communicator.
 */
#ifndef COLL_CORE_RANK_MAP_H
#define COLL_CORE_RANK_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct coll_context;

struct coll_rank_map {
	int size;
	int *process_of;   /* by rank; NULL: ranks equal processes */
	int *rank_of;      /* by process, -1: not a member; NULL: as above */
	int processes;     /* of the context */
	uint32_t *host_of; /* by rank: hosts in order of first appearance */
	uint32_t hosts;
	int local_rank, local_size;
	int local_max;       /* ranks of the host that has most */
	bool oversubscribed; /* some host has more ranks of the job than cores */
};

/* process_of lists `size` processes by rank, this process among them. NULL: all processes of the
 * context. After a failure the map is incomplete, and coll_rank_map_fini() must still be called. */
coll_status coll_rank_map_init(struct coll_rank_map *m, const struct coll_context *ctx, const int *process_of,
                               int size);
void coll_rank_map_fini(struct coll_rank_map *m);

static inline int coll_rank_map_process(const struct coll_rank_map *m, int rank)
{
	return m->process_of ? m->process_of[rank] : rank;
}

/* -1: the process is not a member, or the argument is -1. */
static inline int coll_rank_map_rank(const struct coll_rank_map *m, int process)
{
	if (process < 0 || process >= m->processes)
		return -1;
	return m->rank_of ? m->rank_of[process] : process;
}

#endif
