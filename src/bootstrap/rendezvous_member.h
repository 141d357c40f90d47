/*
 * Every rank but 0 in a meeting.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_MEMBER_H
#define COLL_BOOTSTRAP_RENDEZVOUS_MEMBER_H

#include "bootstrap/rendezvous_state.h"

coll_status meet_member(const struct coll_rendezvous_point *how, struct coll_error_box *err);

#endif
