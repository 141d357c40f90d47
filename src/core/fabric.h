/*
 * Fabric: the channels of a communicator.
 */
#ifndef COLL_CORE_FABRIC_H
#define COLL_CORE_FABRIC_H

#include "core/comm.h"

coll_status coll_comm_fabric_init(struct coll_comm *comm, struct coll_comm_fabric *f, uint16_t lane_base);
void coll_comm_fabric_close(struct coll_comm_fabric *f);
/* The channels to one rank. */
void coll_comm_fabric_close_peer(struct coll_comm_fabric *f, int rank);

/* One direction of one lane and window, of slots like these at both ends. */
struct coll_comm_lane {
	uint16_t number, window;
	bool alone; /* see rails.h */
	uint32_t slots;
	size_t slot_bytes;
};

/* Open the channel to or from a process; its link opens on first use. The caller closes it by the table of *opened. */
coll_status coll_comm_channel_open(struct coll_comm *comm, int process, struct coll_comm_lane lane,
                                   enum coll_direction dir, struct coll_opened_transport **opened, void **channel);

/* The rail of a channel to or from a process, the same at both ends. alive: the rails of the link that may be used. */
uint32_t coll_comm_rail_of(const struct coll_comm *comm, int process, struct coll_comm_lane lane,
                           const struct coll_opened_transport *w, const struct coll_transport_path *alive);

/* The rank whose link is broken. Prefers `likely`, and returns it also if no link is broken. */
int coll_comm_broken(struct coll_comm *comm, int likely);
enum coll_link_end coll_comm_link_end(struct coll_comm *comm, int rank);

#endif
