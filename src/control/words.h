/*
 * Words that outlive their writer: messages left with a process of this host. Called with the lock held.
 */
#ifndef COLL_CONTROL_WORDS_H
#define COLL_CONTROL_WORDS_H

#include "control/control.h"

enum { COLL_CARRIED_BYTES = 96 };

struct coll_message;
struct coll_control_link;

/* Whether a process is on this host, so that words can be left there. */
bool coll_control_is_here(const struct coll_control *c, int peer);

/* Leave words with a process of this host. WRITTEN: it will read them, whatever becomes of this process. GONE: it has
 * ended, for certain. AGAIN: not now. */
enum coll_words_left { COLL_WORDS_WRITTEN, COLL_WORDS_GONE, COLL_WORDS_AGAIN };
enum coll_words_left coll_control_leave_words(struct coll_control *c, int peer,
                                              const uint8_t bytes[COLL_CARRIED_BYTES]);

/* A connection to its Unix listener, or -1. If that refuses, the process or its context has ended. */
int coll_control_connect_here(struct coll_control *c, int peer);

/* A link without a proof brings words. False: it brings none, or they are not genuine. */
bool coll_control_on_words(struct coll_control *c, const struct coll_message *m);
/* Read what lies on an incoming link without a proof, if that is words. */
void coll_control_take_words(struct coll_control *c, struct coll_control_link *l);

#endif
