/*
 * What all ranks of a job must have in common: the version of the library, its size, and the settings that are agreed.
 */
#ifndef COLL_CONTEXT_CHECK_PEERS_H
#define COLL_CONTEXT_CHECK_PEERS_H

#include "context/context.h"

/* Needs the peer infos. The error names a rank that differs. */
coll_status coll_context_check_peers(const struct coll_context *c, struct coll_error_box *err);

#endif
