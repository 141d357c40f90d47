/*
 * Links to other processes.
 */
#ifndef COLL_CONTROL_CONNECT_H
#define COLL_CONTROL_CONNECT_H

#include "control/state.h"

/* What is left to write is written when the link can take it. */
void coll_control_watch(struct coll_control *c, struct coll_control_link *l);
struct coll_control_link *coll_control_find_link(const struct coll_control *c, int peer);
void coll_control_open_link(struct coll_control *c, int peer, bool asked);
void coll_control_drop_link(struct coll_control *c, struct coll_control_link *l);

/* Connect anew, whatever links there are. */
void coll_control_probe(struct coll_control *c, int peer);

/* The link has ended. error: of the system call that said so, 0 none. */
void coll_control_broken(struct coll_control *c, struct coll_control_link *l, const char *cause, int error);
/* The other end gave this link up, and may say its last words elsewhere: it has not been read to its end. */
void coll_control_given_up(struct coll_control *c, struct coll_control_link *l);
/* A message on it was not the one that the other end sent; where: at which end that was seen, for the log. */
void coll_control_altered(struct coll_control *c, struct coll_control_link *l, const char *where);
/* The same, seen here: the other end is told, and the link dropped. */
void coll_control_corrupt(struct coll_control *c, struct coll_control_link *l);
void coll_control_accept(struct coll_control *c, int listener);
void coll_control_listen(struct coll_control *c, bool on);
uint64_t coll_control_hello_deadline(struct peer *p);

/* Handshakes; false: nonsense, drop the link. */
bool coll_control_on_challenge(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_hello(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);
bool coll_control_on_welcome(struct coll_control *c, struct coll_control_link *l, const struct coll_hello *h);

/* Timers. */
void coll_control_expire(struct coll_control *c, uint64_t now);

#endif
