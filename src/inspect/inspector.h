/*
 * The inspector: answers queries about what this process is doing. It has a listener per context (an
 * abstract Unix socket named by the process id) and the signal of COLL_DUMP_SIGNAL. The
 * service thread serves both, never a thread that moves data.
 *
 * The listener: a client of the same user, or root, connects, sends "state", "dump" or "job" and a
 * newline, and reads a dump (dump.h) to the end of the stream, for "job" also what the other processes answer
 * (job_state.h). A client that sends nothing
 * holds one of a few places for a few seconds, or until another client needs it.
 * A dump is built when it is requested, and the inspector never waits for a client.
 */
#ifndef COLL_INSPECT_INSPECTOR_H
#define COLL_INSPECT_INSPECTOR_H

#include "context/context.h"

struct coll_inspector;

/* "\0libcoll.PID.K.RANK" with K = 0, 1, ... for the contexts of a process. */
#define COLL_INSPECTOR_NAME "libcoll.%d.%d.%d"

/* Never fails: the job also runs without a listener or a signal. NULL: neither. */
struct coll_inspector *coll_inspector_open(struct coll_context *ctx);
void coll_inspector_close(struct coll_inspector **inspector);

/* What the service thread does for it; NULL for NULL. */
const struct coll_service_client *coll_inspector_client(const struct coll_inspector *inspector);

#endif
