/*
 * Shrinking: the members of a communicator agree who of them live (src/members), and those make a communicator. Nothing
 * is exchanged after the decision: each member makes its own from the list, whose hash is in the id. So all that return
 * have the same list, and who dies after the decision is a dead member of what was made.
 */
#include "comm/shrink.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "base/hash.h"
#include "comm/create.h"
#include "comm/devices.h"
#include "comm/split.h"
#include "core/error.h"
#include "inflight/drive.h"
#include "inflight/loop.h"
#include "members/proposal.h"

static const char name[] = "comm_shrink";

/* ---- Agreement ---- */

struct waiting {
	struct coll_context *ctx;
	struct coll_proposal *proposal;
	bool interrupted;
};

static coll_status look(void *arg, bool last, bool *moved)
{
	struct waiting *w = arg;

	(void)last;
	if (w->interrupted)
		return COLL_ERR_ABORTED;
	*moved = coll_context_progress(w->ctx) > 0;
	return coll_change_step(w->proposal, moved);
}

static void interrupt(void *arg)
{
	struct waiting *w = arg;

	w->interrupted = true;
}

static coll_status agree(struct coll_comm *comm, struct coll_proposal *proposal)
{
	struct waiting w = {.ctx = comm->ctx, .proposal = proposal};
	struct coll_wait_loop loop = {.ctxs = &comm->ctx,
	                              .n = 1,
	                              .look = look,
	                              .interrupt = interrupt,
	                              .arg = &w,
	                              .until_ns = coll_clock_ns() + (uint64_t)comm->timeout_ms * COLL_NS_PER_MS + 1,
	                              .nap_ms = COLL_DELAY_MEMBERS_LOOK_MS,
	                              .no_spin = true};

	return coll_wait_loop_run(&loop);
}

/* OK: *members is the decision. The words of this process stay, also if nothing is decided yet. */
static coll_status decide(struct coll_comm *comm, struct coll_member_set *members)
{
	struct coll_proposal *proposal = NULL;
	coll_status st;

	memset(members, 0, sizeof(*members));
	if (comm->size == 1) {
		coll_set_add(members, 0);
		return COLL_OK;
	}
	st = coll_change_begin(comm, &proposal);
	if (st == COLL_ERR_ARGUMENT)
		return coll_comm_refuse(comm, name, st, "the communicator has been shrunk: shrink what was made of it");
	if (st != COLL_OK)
		return coll_comm_refuse(comm, name, st, "out of memory");
	st = agree(comm, proposal);
	if (st == COLL_OK)
		coll_change_take(proposal, members);
	coll_change_end(&proposal);
	if (st == COLL_ERR_ABORTED)
		return coll_comm_refuse(comm, name, st, "[COLL-3301] " COLL_INTERRUPTED);
	return st;
}

/* ---- The child ---- */

static coll_status make(struct coll_comm *comm, const struct coll_member_set *members, struct coll_comm **shrunk)
{
	const uint64_t of_comm = coll_hash_combine(coll_hash_combine(comm->id, comm->epoch), UINT64_MAX - 1);
	const uint64_t id = coll_hash_combine(of_comm, coll_hash_bytes(1, members, sizeof(*members))) | 1;
	int *process_of = malloc((size_t)comm->size * sizeof(*process_of)), n = 0;
	struct coll_comm *made = NULL;
	coll_status st;

	for (int r = 0; process_of && r < comm->size; r++)
		if (coll_set_has(members, r))
			process_of[n++] = coll_comm_process(comm, r);
	st = coll_comm_make_child(comm, name, process_of, n, id, &made);
	if (st == COLL_OK && (st = coll_comm_devices_connect(made)) != COLL_OK) {
		coll_comm_refuse(comm, name, st, "%s", made->lost.message);
		coll_comm_destroy(&made);
	}
	if (st != COLL_OK)
		return st;
	coll_comm_describe(made);
	*shrunk = made;
	return COLL_OK;
}

/* What pends on it ends, and the members that are still in calls come here. */
static void end_communicator(struct coll_comm *comm)
{
	coll_comm_abort(comm, "shrunk");
	coll_comm_usable(comm, name, true); /* it reads that note */
	coll_comm_drain(comm);
}

static void report_lost(const struct coll_comm *comm, const struct coll_member_set *members, int *lost, int *nlost)
{
	int n = 0;

	for (int r = 0; r < comm->size; r++) {
		if (coll_set_has(members, r))
			continue;
		if (lost)
			lost[n] = r;
		n++;
	}
	if (nlost)
		*nlost = n;
}

coll_status coll_comm_shrink_living(struct coll_comm *comm, struct coll_comm **shrunk, int *lost, int *nlost)
{
	struct coll_member_set members;
	coll_status st;

	if (comm->size > COLL_MEMBERS_MAX)
		return coll_comm_refuse(comm, name, COLL_ERR_UNSUPPORTED, "%d ranks, at most %d", comm->size,
		                        COLL_MEMBERS_MAX);
	if (comm->size > 1 && !comm->ctx->settings.service)
		return coll_comm_refuse(comm, name, COLL_ERR_UNSUPPORTED,
		                        "COLL_SERVICE_THREAD=0: nobody answers for ranks that are not in the call");
	end_communicator(comm);
	st = decide(comm, &members);
	if (st != COLL_OK)
		return st;
	if (!coll_set_has(&members, comm->rank))
		return coll_comm_refuse(comm, name, COLL_ERR_EXCLUDED,
		                        "the other members go on without this rank, which had not answered them");
	st = make(comm, &members, shrunk);
	if (st == COLL_OK)
		report_lost(comm, &members, lost, nlost);
	return st;
}
