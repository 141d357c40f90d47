/*
 * The name that a program has given a communicator: coll_comm_set_name(). Drivers and the service thread read it while
 * it changes, so a name that was given stays until the communicator is freed.
 */
#ifndef COLL_CORE_LABEL_H
#define COLL_CORE_LABEL_H

#include "core/comm.h"

enum { COLL_LABEL_BYTES = 32 };

struct coll_label {
	struct coll_label *before;
	char text[COLL_LABEL_BYTES];
};

/* In front of a text of the log: "tp: ", or "". */
struct coll_label_text {
	char text[COLL_LABEL_BYTES + 2];
};
struct coll_label_text coll_comm_label(const struct coll_comm *comm);

/* Never NULL; "" without a name. */
const char *coll_label_of(const struct coll_comm *comm);
bool coll_label_is_valid(const char *text);
/* Of a valid text. False: no memory. */
bool coll_label_set(struct coll_comm *comm, const char *text);
void coll_label_free(struct coll_comm *comm);

#endif
