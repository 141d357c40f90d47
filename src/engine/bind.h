/*
 * Binding.
 */
#ifndef COLL_ENGINE_BIND_H
#define COLL_ENGINE_BIND_H

#include "engine/state.h"

/* Make the run's tables fit a plan; nothing happens when they do. */
coll_status coll_run_bind(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_plan *plan,
                          uint32_t windows);

/* What only some plans need: several windows' scratch, flights, block layouts. */
coll_status coll_run_prepare(struct coll_run *run, const struct coll_job *job);

/* Elements that the tiles must cover. */
size_t coll_run_span(const struct coll_job *job);

/* Open every channel that the plan receives on; AGAIN: some links are still connecting. */
coll_status coll_run_open_receivers(struct coll_run *run);

#endif
