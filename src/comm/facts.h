/*
 * The facts of a communicator that all its ranks agree on: transport of the slowest pair, layout, slots, windows.
 */
#ifndef COLL_COMM_FACTS_H
#define COLL_COMM_FACTS_H

#include "core/comm.h"

/* The slowest transport that some pair will use, computed from the peer infos alone: the fastest that all ranks have,
 * and that crosses hosts if `crossing`. NULL: none. */
const struct coll_opened_transport *coll_comm_facts_transport(const struct coll_comm *comm, bool crossing);

/* Prices and plans follow this layout from now on. */
void coll_comm_facts_take_layout(struct coll_comm *comm, struct coll_layout *layout);

/* Prices follow comm->host_rates from now on: links are no faster than those of the slowest host, where somebody says
 * what they carry. */
void coll_comm_facts_take_links(struct coll_comm *comm);

/* Fill comm->facts, slots and slot_bytes, from its rank map, layout and rails. */
void coll_comm_facts_find(struct coll_comm *comm);

#endif
