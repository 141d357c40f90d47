/*
 * Entry points that create communicators from communicators.
 */
#include "api/check.h"
#include "comm/group.h"
#include "comm/shrink.h"
#include "comm/split.h"
#include "core/entry.h"
#include "core/error.h"
#include "inflight/async.h"
#include "inflight/notify.h"

static coll_status check(coll_status st, coll_comm *parent, const char *kind, coll_comm **child)
{
	/* The call returns a result at once, so a group cannot defer it. */
	if (st == COLL_OK && coll_group.depth > 0)
		st = coll_comm_refuse(parent, kind, COLL_ERR_ARGUMENT, "not inside a group");
	if (st == COLL_OK && !child)
		st = coll_comm_refuse(parent, kind, COLL_ERR_ARGUMENT, "child is NULL");
	return st;
}

static coll_status check_call(coll_comm *parent, const char *kind, coll_comm **child)
{
	return check(coll_check_call(parent, kind, NULL, COLL_U32), parent, kind, child);
}

coll_status coll_comm_split(coll_comm *parent, int colour, int key, coll_comm **child)
{
	coll_status st = check_call(parent, "comm_split", child);

	return st == COLL_OK ? coll_comm_split_by_colour(parent, colour, key, child) : st;
}

coll_status coll_comm_duplicate(coll_comm *parent, coll_comm **child)
{
	coll_status st = check_call(parent, "comm_duplicate", child);

	return st == COLL_OK ? coll_comm_split_duplicate(parent, child) : st;
}

coll_status coll_comm_create_from_ranks(coll_comm *parent, const int *ranks, int n, coll_comm **child)
{
	coll_status st = check_call(parent, "comm_create_from_ranks", child);

	return st == COLL_OK ? coll_comm_split_from_ranks(parent, ranks, n, child) : st;
}

coll_status coll_comm_create_group(coll_comm *parent, const int *ranks, int n, uint64_t tag, coll_comm **child)
{
	coll_status st = coll_check_message(parent, "comm_create_group", NULL, COLL_U32);

	st = check(st, parent, "comm_create_group", child);
	if (st == COLL_OK)
		return coll_comm_group_create(parent, ranks, n, tag, child);
	if (parent && coll_group.depth >= 0) /* a function of an event may run in any thread */
		coll_comm_group_decline(parent, ranks, n, tag, st);
	return st;
}

/* The communicator may have failed. */
coll_status coll_comm_shrink(coll_comm *comm, coll_comm **shrunk, int *lost, int *nlost)
{
	static const char kind[] = "comm_shrink";

	if (coll_entry_no_comm(comm, kind) || coll_notify_forbids(comm->ctx, kind))
		return COLL_ERR_ARGUMENT;
	if (coll_group.depth > 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "not inside a group");
	if (!shrunk)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "shrunk is NULL");
	return coll_comm_shrink_living(comm, shrunk, lost, nlost);
}
