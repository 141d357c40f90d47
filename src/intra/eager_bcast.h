/*
 * Broadcast.
 */
#ifndef COLL_INTRA_EAGER_BCAST_H
#define COLL_INTRA_EAGER_BCAST_H

#include "intra/enter.h"

coll_status coll_intra_poll_wide_bcast(void *arg, const struct coll_job *job, struct coll_intra_state *s);
coll_status coll_intra_poll_eager_bcast(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
