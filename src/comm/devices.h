/*
 * Devices of ranks, at creation: what is asked for, what this rank gets, and which ranks have one.
 */
#ifndef COLL_COMM_DEVICES_H
#define COLL_COMM_DEVICES_H

#include "core/comm.h"
#include "device/device.h"

/* Before any peer is involved: what cfg (may be NULL) or COLL_DEVICE asks for, for n ranks of this process. CONFIG: it
 * is malformed, or cannot be had here. */
coll_status coll_comm_devices_choose(const coll_config *cfg, const struct coll_settings *settings, int n,
                                     struct coll_device_choice *choice, struct coll_error_box *err);

/* After coll_context_join(): open the device of this rank, if it wants one. */
coll_status coll_comm_devices_open(struct coll_context *ctx, const struct coll_device_choice *choice, int local_rank,
                                   struct coll_error_box *err);

/* The rank among those of this host: as the launcher says, else by the peer infos. */
int coll_comm_devices_local_rank(const struct coll_context *ctx);

/* The ranks map each other's device memory, where they can: collective, before the program has the communicator. */
coll_status coll_comm_devices_connect(struct coll_comm *comm);
/* The same for all ranks of one process, by one thread. */
void coll_comm_devices_connect_all(struct coll_comm **comms, int n);

/* Whether any rank of the communicator has a device. Agreed. */
bool coll_comm_devices_any(const struct coll_comm *comm);

#endif
