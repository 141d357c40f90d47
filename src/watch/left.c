/*
 * Ranks that have ended: see left.h. The control plane knows the error; this says who is to blame for it here.
 */
#include "watch/left.h"

#include <stdio.h>

#include "control/last_error.h"
#include "core/error.h"

/* An abort is a decision of that rank. */
static void blame(const struct coll_note *why, int process, struct coll_end *e)
{
	const bool own = why->status == COLL_OK || why->status == COLL_ERR_ABORTED;

	e->status = own ? COLL_ERR_PEER_DEAD : (coll_status)why->status;
	e->process = own || why->process < 0 ? process : why->process;
}

bool coll_left_after_error(struct coll_comm *comm, int rank, bool presumed, struct coll_end *e)
{
	const int process = coll_comm_process(comm, rank);
	struct coll_note why;

	if (!coll_control_end_cause(comm->ctx->control, process, presumed, &why))
		return false;
	blame(&why, process, e);
	coll_ended_text(comm->ctx, process, coll_comm_name(comm, rank).text, &why, e->text, sizeof(e->text));
	return true;
}

static bool destroys(const struct coll_record *r)
{
	return (r->flags & COLL_RECORD_GONE) || r->kind == COLL_RECORD_DESTROY;
}

bool coll_destroys_after_error(struct coll_comm *comm, int rank, const struct coll_answer *a, struct coll_end *e)
{
	return (destroys(&a->record) || destroys(&a->call)) && coll_left_after_error(comm, rank, false, e);
}

void coll_left_describe(struct coll_comm *comm, int rank, bool presumed, struct coll_end *e)
{
	if (coll_left_after_error(comm, rank, presumed, e))
		return;
	e->status = COLL_ERR_PEER_DEAD;
	e->process = coll_comm_process(comm, rank);
	snprintf(e->text, sizeof(e->text), "[COLL-2102] %s on host %s left: %s", coll_comm_name(comm, rank).text,
	         coll_comm_peer_info(comm, rank)->host_name,
	         presumed ? "nobody listens where it did" : "it destroyed its communicator");
}

void coll_died_describe(struct coll_comm *comm, int rank, struct coll_end *e)
{
	if (coll_left_after_error(comm, rank, false, e))
		return;
	e->status = COLL_ERR_PEER_DEAD;
	e->process = coll_comm_process(comm, rank);
	coll_death_text(comm->ctx, e->process, coll_comm_name(comm, rank).text, e->text, sizeof(e->text));
}
