/*
 * Operations by way of the central buffer.
 */
#ifndef COLL_INTRA_CENTRAL_MOVE_H
#define COLL_INTRA_CENTRAL_MOVE_H

#include "intra/enter.h"

coll_status coll_intra_poll_central(void *arg, const struct coll_job *job, struct coll_intra_state *s);
void coll_intra_position_central(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                                 struct coll_run_where *where);

#endif
