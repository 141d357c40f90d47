/*
 * The limit of descriptors of this process, and what its job may need.
 */
#ifndef COLL_CONTEXT_DESCRIPTORS_H
#define COLL_CONTEXT_DESCRIPTORS_H

#include "context/context.h"

/* The most descriptors that links to all other ranks take, beside those that are open now. */
unsigned long coll_descriptors_needed(int ranks_here, int ranks_elsewhere);

/* Raise the soft limit to the hard one if it does not allow these, and say so. What is lacking then is reported where a
 * descriptor cannot be had. */
void coll_descriptors_allow(const struct coll_context *ctx, unsigned long needed);

#endif
