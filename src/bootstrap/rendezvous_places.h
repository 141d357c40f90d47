/*
 * Where the root of a rendezvous may be.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_PLACES_H
#define COLL_BOOTSTRAP_RENDEZVOUS_PLACES_H

#include "bootstrap/address.h"
#include "bootstrap/rendezvous.h"

struct rendezvous_places {
	struct coll_places at;
	int from_files; /* so many of these, first, stand in files of a meeting */
	int shortage;   /* errno: this process had no descriptor to read such a file; 0: it had */
	uint64_t looked_up_ns;
};

void rendezvous_places_init(struct rendezvous_places *p, const struct coll_rendezvous_point *how);
/* Look up the name of its host, if the last time is long ago. */
void rendezvous_places_resolve(struct rendezvous_places *p, const struct coll_rendezvous_point *how);
/* Look for the files of a meeting. */
void rendezvous_places_find(struct rendezvous_places *p, const struct coll_rendezvous_point *how);

/* Where this rank listens at port, best first: the address of its connection to the root, the other interfaces,
 * loopback. */
void rendezvous_places_own(const struct coll_rendezvous_point *how, int root_fd, uint16_t port, struct coll_places *p);

#endif
