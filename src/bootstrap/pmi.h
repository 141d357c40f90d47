/*
 * The client side of PMI-1, the text protocol of MPICH's launcher.
 */
#ifndef COLL_BOOTSTRAP_PMI_H
#define COLL_BOOTSTRAP_PMI_H

#include "bootstrap/id.h"

/* The two stores. text is a C string without blanks: given by rank 0, received
 * (at most cap bytes) by the others. */
coll_status coll_pmi_share(bool root, char *text, size_t cap, uint64_t deadline_ns, struct coll_error_box *err);

#endif
