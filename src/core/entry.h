/*
 * What an entry point asks first: is there an object, and is it this process's? A forked child has the objects of its
 * parent in its memory, and may only destroy them there.
 */
#ifndef COLL_CORE_ENTRY_H
#define COLL_CORE_ENTRY_H

#include "base/fork.h"
#include "core/comm.h"

/* Keep the reason for coll_last_error(NULL), and for coll_last_error() of an object of the parent. */
void coll_entry_refuse(const struct coll_context *ctx, const char *what, const char *kind);

/* ctx: of the object, NULL: there is none; what: "stream". True: kind must return COLL_ERR_ARGUMENT. */
static inline bool coll_entry_forbids(const struct coll_context *ctx, const char *what, const char *kind)
{
	if (__builtin_expect(ctx != NULL, true) && coll_fork_owns(ctx->mark))
		return false;
	coll_entry_refuse(ctx, what, kind);
	return true;
}

static inline bool coll_entry_no_comm(const struct coll_comm *comm, const char *kind)
{
	return coll_entry_forbids(comm ? comm->ctx : NULL, "communicator", kind);
}

#endif
