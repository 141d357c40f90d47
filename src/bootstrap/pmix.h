/*
 * The client side of PMIx, through libpmix found at run time.
 */
#ifndef COLL_BOOTSTRAP_PMIX_H
#define COLL_BOOTSTRAP_PMIX_H

#include "bootstrap/id.h"

coll_status coll_pmix_share(bool root, char *text, size_t cap, uint64_t deadline_ns, struct coll_error_box *err);

#endif
