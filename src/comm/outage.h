/*
 * How long destroy waits for late ranks. While the network is away nobody can come: a link of this process, of data or
 * of the control plane, is not acknowledged.
 */
#ifndef COLL_COMM_OUTAGE_H
#define COLL_COMM_OUTAGE_H

#include "context/context.h"

struct coll_outage {
	uint64_t begun_ns, since_ns;  /* since when others are late: an outage does not count */
	uint64_t at_ns;               /* of the last look */
	struct coll_link_counts *was; /* then, by process */
	bool *up;                     /* whether there was such a link */
	bool seen;                    /* between the last two looks */
};

/* The wait begins. */
void coll_outage_begin(struct coll_outage *o);

/* Whether those who have not come are waited for no longer. */
bool coll_outage_is_late(struct coll_outage *o, struct coll_context *ctx);

/* When they are not at the latest. */
int coll_outage_late_ms(const struct coll_context *ctx);

void coll_outage_end(struct coll_outage *o);

#endif
