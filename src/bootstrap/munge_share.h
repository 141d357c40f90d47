/*
 * The store of MUNGE: one text from rank 0 to all ranks of this user, at ports of a host that all can name.
 */
#ifndef COLL_BOOTSTRAP_MUNGE_SHARE_H
#define COLL_BOOTSTRAP_MUNGE_SHARE_H

#include "bootstrap/bootstrap.h"

/* who: root_host and port_seed say where. Rank 0 gives text, serves it from then on, and returns at once. The others
 * look for rank 0 until deadline_ns, and receive at most cap bytes. */
coll_status coll_munge_share(const struct coll_settings *settings, const struct coll_identity *who, char *text,
                             size_t cap, uint64_t deadline_ns, struct coll_error_box *err);

/* The ranks have met, or will not: rank 0 serves nobody any more. */
void coll_munge_share_end(void);

#endif
