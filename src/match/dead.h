/*
 * Tagged messages when members have died.
 */
#ifndef COLL_MATCH_DEAD_H
#define COLL_MATCH_DEAD_H

#include "match/tags.h"

/* End what needs ranks that have died since the last look. The lock is held, and what has come was taken in. */
void coll_tag_lose_dead(struct coll_comm *comm);

#endif
