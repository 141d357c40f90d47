/*
 * intranode operations (src/intra), as the communicator uses them.
 */
#ifndef COLL_SELECT_INTRA_H
#define COLL_SELECT_INTRA_H

#include "core/comm.h"

/* At creation: the longest message run intranode, of agreed facts. */
void coll_select_intra_facts(struct coll_comm *comm, const struct coll_opened_transport *common);

/* What that needs of this rank alone. */
coll_status coll_select_intra_prepare(struct coll_comm *comm);

#endif
