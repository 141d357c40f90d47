/*
 * Who is slow: what this process has waited lately, how fast its links to other hosts are, and whether it or a link of
 * it is far behind its peers (slow_rule.h). The service thread looks every SLOW_LOOK, asks a few members of its
 * communicators what they have waited, and warns of itself. So there is no centre, the cost per process does not depend
 * on the size of the job, and of several slow ranks each is named. Whoever asks this process (COLL_ABOUT_SLOW) gets its
 * facts with its verdict.
 *
 * Reads counters that calls and the kernel keep anyway (core/waits.h, link_counts); touches no call. Links over shared
 * memory and RDMA have no such counters, and are not judged.
 */
#ifndef COLL_WATCH_SLOW_H
#define COLL_WATCH_SLOW_H

#include "context/service.h"
#include "control/mismatch_msg.h"

struct coll_slow;

/* NULL: no memory, or there is no other process. Joined contexts only. */
struct coll_slow *coll_slow_open(struct coll_context *ctx);
void coll_slow_close(struct coll_slow **slow);
const struct coll_service_client *coll_slow_client(const struct coll_slow *s);

/* The facts of this process. Any thread; takes no lock but its own. */
void coll_slow_facts(struct coll_context *ctx, struct coll_slow_facts *facts);

#endif
