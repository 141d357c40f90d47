/*
 * The root of a meeting: rank 0, or the host of a unique id.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_ROOT_H
#define COLL_BOOTSTRAP_RENDEZVOUS_ROOT_H

#include "bootstrap/rendezvous_state.h"

coll_status meet_root(const struct coll_rendezvous_point *how, struct coll_error_box *err);

#endif
