/*
 * Where a rendezvous begins, for those who call one.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_ROLES_H
#define COLL_BOOTSTRAP_RENDEZVOUS_ROLES_H

#include "bootstrap/rendezvous.h"

/* Meet all ranks: how->all then has what each of them brings. */
coll_status coll_rendezvous(const struct coll_rendezvous_point *how, struct coll_error_box *err);

/* Host a meeting: hand all ranks what each of them brings. The time limit is the shortest of theirs, and
 * begins when the first has come. */
void coll_rendezvous_host(const struct coll_rendezvous_point *how);

#endif
