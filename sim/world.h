/*
 * A world: n ranks in one process, all driven by one thread, each with its own
 * instance of a transport and a fabric for the engine. For tests and for the
 * seeded scheduler; comm/ does the same for real processes.
 */
#ifndef COLL_SIM_WORLD_H
#define COLL_SIM_WORLD_H

#include "engine/engine.h"
#include "transports/registry.h"

enum { SIM_WINDOWS_MAX = 4 };

struct sim_rank {
	struct sim_world *world;
	int rank;
	void *inst;
	void **links;                 /* by peer */
	struct coll_endpoint **ports; /* by peer, lane, window, direction; NULL until opened */
	struct coll_fabric fabric;
	struct coll_run *run;
};

struct sim_world {
	int size;
	struct coll_transport transport; /* complete */
	struct coll_loop_group *group;
	uint32_t slots;
	size_t slot_bytes;
	struct sim_rank *ranks;
	uint32_t channels; /* opened, both directions */
};

/*
 * Make n ranks. table NULL: loop itself; otherwise a table that wraps loop, and
 * group is what its open() gets in env->group. ref_bytes: see coll_fabric.
 */
coll_status sim_world_create(struct sim_world *w, int size, const struct coll_transport *table, void *group,
                             uint32_t slots, size_t slot_bytes, size_t ref_bytes);
void sim_world_destroy(struct sim_world *w);

/* Open the link of one rank to another, if it is not open. */
coll_status sim_world_link(struct sim_rank *r, int peer);

/* Close the channels of one rank, as comm/ does when a call has failed. */
void sim_world_close(struct sim_world *w, int rank);

/*
 * Poll all runs in turn until every one has ended: OK; the first error of any
 * rank; or COLL_ERR_PEER_SILENT when nothing can move any more (a deadlock). who
 * (may be NULL): the rank the status is about.
 */
coll_status sim_world_finish(struct sim_world *w, int *who);

#endif
