/*
 * Which ways a call may go, and the condition of each, in words for humans.
 */
#ifndef COLL_INTRA_EXPLAIN_H
#define COLL_INTRA_EXPLAIN_H

#include "intra/intra.h"

/* The ways that are tried for a job, in order, and the condition of each: "zero-copy if ...; else pair-stream (plain
 * buffers)", cut to len_bytes. What is left for the plan goes to *plan. explain.c */
void coll_intra_explain(const struct coll_intra_op *intra, const struct coll_job *job, char *buf, size_t len_bytes,
                        const char **plan);

#endif
