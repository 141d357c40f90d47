/*
 * The simulated data path: transports "shm" and "tcp" that are loop inside, with the ends that the
 * real ones have. When a process ends without closing a link, the link of its peer breaks, and the
 * peer's context is told. This file stands in for transports/registry.c.
 */
#ifndef COLL_SIM_JOBS_LINKS_H
#define COLL_SIM_JOBS_LINKS_H

#include "sim/jobs/machine.h"

/* The host of this process is out of reach: links of tcp with it end when COLL_UNREACHABLE_MS is over. */
void sim_links_cut(struct sim_process *p);

#endif
