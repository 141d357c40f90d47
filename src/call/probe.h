/*
 * A look at the next tagged message.
 */
#ifndef COLL_CALL_PROBE_H
#define COLL_CALL_PROBE_H

#include "core/comm.h"

/* What coll_comm_probe() waits for. COLL_AGAIN: there is none. info may be NULL. */
coll_status coll_comm_iprobe(struct coll_comm *comm, int source, int tag, coll_message_info *info);

#endif
