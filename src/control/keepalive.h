/*
 * A word now and then on control links over TCP, so that they are never idle, and links that are missing.
 */
#ifndef COLL_CONTROL_KEEPALIVE_H
#define COLL_CONTROL_KEEPALIVE_H

#include "control/state.h"

/* Keep links over TCP from being idle. */
void coll_control_say_alive(struct coll_control *c, uint64_t now);

/* How long the service may sleep at most, if ms otherwise. */
int coll_control_alive_ms(const struct coll_control *c, int ms);

/* Make the links that must always be there, and are not. */
void coll_control_keep_links(struct coll_control *c, uint64_t now);

/* Whether there is such a link. */
bool coll_control_lacks_links(const struct coll_control *c);

/* Whether what was sent over a control link is not acknowledged, as in an outage. Any thread. */
bool coll_control_is_cut(struct coll_control *c);

#endif
