/*
 * Connections to candidate ports of the root that have no answer yet, while others are tried.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_TRIES_H
#define COLL_BOOTSTRAP_RENDEZVOUS_TRIES_H

#include "bootstrap/address.h"
#include "bootstrap/wire.h"

enum { RENDEZVOUS_TRIES_MAX = 32 };

struct rendezvous_tries {
	struct coll_wire wire[RENDEZVOUS_TRIES_MAX];
	struct coll_address at[RENDEZVOUS_TRIES_MAX];
	int target[RENDEZVOUS_TRIES_MAX];
	int count;
};

/* Takes w over, which has none then. False: there is no room, and w stays. */
bool rendezvous_tries_add(struct rendezvous_tries *t, struct coll_wire *w, const struct coll_address *at, int target);
bool rendezvous_tries_has(const struct rendezvous_tries *t, const struct coll_address *at);
/* One that has proved the key becomes w, and target is that of it. False: none has. */
bool rendezvous_tries_proved(struct rendezvous_tries *t, struct coll_wire *w, int *target);
/* Close those that have ended, or have had their time. stranger: the text of the last that was somebody else. */
void rendezvous_tries_sweep(struct rendezvous_tries *t, char *stranger, size_t cap);
/* When the next one has had its time; UINT64_MAX: never. */
uint64_t rendezvous_tries_end_ns(const struct rendezvous_tries *t);
void rendezvous_tries_close(struct rendezvous_tries *t);

#endif
