/*
 * Long messages of plain buffers among ranks of one host, by tiles.
 */
#ifndef COLL_INTRA_CICO_H
#define COLL_INTRA_CICO_H

#include "intra/enter.h"

/* cico.c: whether they are better than the plan; from INTRA_CICO_NEW on, or from INTRA_CICO_BEGUN, when
 * all have entered this turn. */
bool coll_intra_cico_serve(const struct coll_intra *n, const struct coll_job *job);
coll_status coll_intra_poll_cico(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
