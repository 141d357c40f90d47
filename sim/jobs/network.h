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
/* Only processes of one side reach each other; all begin on side 0. */
void sim_network_side(struct sim_process *p, int side);
/* One way only: nothing arrives at its host from others (deaf), or at others from it (mute). */
void sim_network_one_way(struct sim_process *p, bool deaf, bool mute);
/* In any direction. */
bool sim_network_is_cut(const struct sim_process *a, const struct sim_process *b);
/* All connections of the process end with a reset, as by a firewall; the processes live. */
void sim_network_reset(struct sim_process *p);
/* The queue of its Unix listener is full, or is not any more. */
void sim_network_full(struct sim_process *p, bool full);
/* It is killed within one of its next calls: the one that comes as number `calls`. Of what it sends then a part
 * arrives. */
void sim_network_dies_within(struct sim_process *p, unsigned calls);
/* From now on the system has descriptors of processes (pidfd); before, links alone show deaths. */
void sim_network_shows_ends(void);
/* When the process ends, its addresses go with it: connections to it find no way. */
void sim_network_leaves(struct sim_process *p);

#endif
