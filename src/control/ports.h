/*
 * The TCP listeners of a control plane, and what it announces of them: for other hosts, and for this one where
 * COLL_HOST_ID divides it.
 */
#ifndef COLL_CONTROL_PORTS_H
#define COLL_CONTROL_PORTS_H

#include "control/state.h"

/* Marks the host in *info, too. The listeners may be none; an error: the addresses that were chosen cannot be had. */
coll_status coll_control_open_ports(struct coll_control *c, struct coll_peer_info *info, struct coll_error_box *err);
/* Nobody comes over TCP where all peers are on this host. */
void coll_control_close_ports(struct coll_control *c);

#endif
