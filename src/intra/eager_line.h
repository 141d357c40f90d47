/*
 * Payload in lines.
 */
#ifndef COLL_INTRA_EAGER_LINE_H
#define COLL_INTRA_EAGER_LINE_H

#include "intra/enter.h"

/* eager_line.c: so many bytes, to our entry from a line on; from a peer's, each line when it is there.
 * AGAIN: called again until it is OK. */
void coll_intra_pack(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t first,
                     const char *from, size_t bytes);
coll_status coll_intra_unpack(const struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t rank, uint32_t first, char *to, size_t bytes);
coll_status coll_intra_poll_eager_line_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s);
coll_status coll_intra_poll_barrier(void *arg, const struct coll_job *job, struct coll_intra_state *s);
coll_status coll_intra_poll_eager_lines_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
