/*
 * Memory that is refused: what the parts of the program share. refused.c has the ranks and the tests,
 * refused_calls.c what a rank calls, refused_creation.c the ways to create.
 */
#ifndef COLL_TESTS_REFUSED_H
#define COLL_TESTS_REFUSED_H

#include "coll/coll.h"
#include "plain.h"
#include "refusing.h"

extern char refused_transports[64]; /* the setting */

struct rank {
	coll_comm *comm;
	int rank;
	coll_status (*act)(struct rank *r);
	unsigned k; /* 0: nothing is refused */
	enum refusing mode;
	unsigned refused;
	coll_status status;
};

/* Settings of a rank that waits for seconds only, and is quiet; of n ranks of this process. */
coll_status refused_create(coll_comm **comms, int n);
void refused_quiet(void *arg, int level, const char *line);

void refused_arm(const struct rank *r);
void refused_disarm(struct rank *r);
/* A call on comm has failed: the error is clear, and the other rank is let go. Returns st. */
coll_status refused_told(struct rank *r, const coll_comm *comm, coll_status st);

/* What a rank does. */
coll_status act_calls(struct rank *r);
coll_status act_repeats(struct rank *r);
coll_status act_children(struct rank *r);
coll_status act_ends(struct rank *r);
coll_status act_streams(struct rank *r);
coll_status act_groups(struct rank *r);
coll_status act_operations(struct rank *r);
coll_status act_memory(struct rank *r);

/* A communicator is created and destroyed; act is nobody's. Returns how many allocations were refused. */
unsigned refused_created_together(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode);
unsigned refused_created_apart(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode);
unsigned refused_created_on_hosts(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode);
unsigned refused_created_alone(coll_status (*act)(struct rank *r), unsigned k, enum refusing mode);

#endif
