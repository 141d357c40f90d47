/*
 * A failure as coll_last_error() describes it, in memory of its own: it outlives the communicator that it came from.
 */
#ifndef COLL_CORE_FAILURE_H
#define COLL_CORE_FAILURE_H

#include "core/comm.h"

struct coll_failure {
	coll_error error; /* points to what follows */
	char host[64], kind[32], link[16];
	char message[1024];
	int *late;
	int users; /* of one that is shared, guarded by those who share it */
};

/* Make f a copy of e. Without memory for the late ranks it has the first of them. */
void coll_failure_copy(struct coll_failure *f, const coll_error *e);

/* The failure of the communicator, for one user; NULL: it has none of this status, or there is no memory. What guards
 * the communicator's failure is held. */
struct coll_failure *coll_failure_of(const struct coll_comm *comm, coll_status status);
/* One user more, and one less, who sets *f to NULL. Both accept NULL. */
struct coll_failure *coll_failure_share(struct coll_failure *f);
void coll_failure_drop(struct coll_failure **f);

#endif
