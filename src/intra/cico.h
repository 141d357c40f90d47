/*
 * Long messages of plain buffers among ranks of one host, by tiles.
 */
#ifndef COLL_INTRA_CICO_H
#define COLL_INTRA_CICO_H

#include "intra/enter.h"

coll_status coll_intra_poll_cico(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
