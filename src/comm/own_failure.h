/*
 * A rank whose creation fails for a reason of its own, as memory, descriptors, permissions, space or a setting, says so
 * to the others before it ends. Until they have met it tells the root of the rendezvous, or as the root whoever comes;
 * the rendezvous says it while it lasts; behind it a note of the control plane does.
 */
#ifndef COLL_COMM_OWN_FAILURE_H
#define COLL_COMM_OWN_FAILURE_H

#include "bootstrap/bootstrap.h"
#include "context/context.h"

/* Who this rank is, once it is known, and whether the others are to be told why it fails. */
struct coll_creation {
	struct coll_identity id;
	bool untold;
};

/* The others are in the job, and this rank gives up: they learn why, instead of what follows from it. own: the error
 * is this rank's alone, and not what the rendezvous says. comm: the id of the communicator that is not made. */
void coll_own_failure_report(struct coll_context *ctx, uint64_t comm, coll_status st, const struct coll_error_box *err,
                             bool own);

/* The ranks have not met, and know of nothing. What this process had opened is closed: to tell takes a descriptor and
 * some memory. Waits for at most COLL_DELAY_RENDEZVOUS_TELL_MS. */
void coll_own_failure_tell(const coll_config *cfg, const struct coll_settings *settings, const struct coll_identity *id,
                           coll_status st, const struct coll_error_box *err);

#endif
