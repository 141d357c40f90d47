/*
 * The simulated network: the table of src/net over virtual time. Sockets, epoll, eventfds and timers
 * of simulated processes; messages are late by a seeded time. A process that ends loses its
 * descriptors as it does with a kernel: its peers read an end or a reset, its listeners refuse.
 */
#ifndef COLL_SIM_JOBS_NETWORK_H
#define COLL_SIM_JOBS_NETWORK_H

#include <stdbool.h>

#include "sim/jobs/machine.h"

/* From now on nothing passes between the host of this process and others, or passes again. Every
 * process is a host of its own, as far as addresses go. */
void sim_network_cut(struct sim_process *p, bool cut);
bool sim_network_is_cut(const struct sim_process *a, const struct sim_process *b);
/* All connections of the process end with a reset, as by a firewall; the processes live. */
void sim_network_reset(struct sim_process *p);
/* When the process ends, its addresses go with it: connections to it find no way. */
void sim_network_leaves(struct sim_process *p);

#endif
