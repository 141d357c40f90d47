/*
 * The inspector: answers who asks this process what it is doing. A door per context (an
 * abstract Unix socket named by the process id) and the signal of COLL_DUMP_SIGNAL; both
 * are served by the service thread and never by a thread that moves data.
 *
 * The door: a client of the same user, or root, connects, sends "state" or "dump" and a
 * newline, and reads a dump (dump.h) to the end of the stream. Whoever connects and says
 * nothing holds one of a few places for a few seconds, until somebody else wants it;
 * nothing is built before it is asked for, nobody is waited for.
 */
#ifndef COLL_INSPECT_INSPECTOR_H
#define COLL_INSPECT_INSPECTOR_H

#include "context/context.h"

struct coll_inspector;

/* "\0libcoll.PID.K" with K = 0, 1, ... for the contexts of a process. */
#define COLL_INSPECTOR_NAME "libcoll.%d.%d"

/* Never fails: without a door or a signal the job runs all the same. NULL: neither. */
struct coll_inspector *coll_inspector_open(struct coll_context *ctx);
void coll_inspector_close(struct coll_inspector **inspector);

/* What the service thread does for it; NULL for NULL. */
const struct coll_service_client *coll_inspector_client(const struct coll_inspector *inspector);

#endif
