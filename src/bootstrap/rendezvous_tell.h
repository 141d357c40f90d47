/*
 * A rank that cannot come to the rendezvous tells the root why.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_TELL_H
#define COLL_BOOTSTRAP_RENDEZVOUS_TELL_H

#include "bootstrap/rendezvous.h"

/* By how->absent, from a rank that is not the root. Tries until how->deadline_ns; false: the root was not there. */
bool rendezvous_tell(const struct coll_rendezvous_point *how);

#endif
