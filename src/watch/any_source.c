/*
 * Waiting for a message of any rank: see any_source.h.
 *
 * Who can send no more never can again. So the ranks are asked in order, some at a time, and those that are through are
 * not asked again. A rank that only computes, or is silent, may still send.
 */
#include "watch/any_source.h"

#include <stdio.h>
#include <string.h>

#include "base/delay.h"
#include "base/text.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/dead.h"
#include "core/error.h"
#include "core/label.h"

/* At a time: less than the control plane can ask about. And how many a warning tells of. */
enum { TURN = 16, TOLD = 4 };

static void ask(struct coll_comm *comm, const struct coll_record *mine, int rank)
{
	const struct coll_mismatch_msg q = {.record = *mine, .about = COLL_ABOUT_NOTHING, .third = -1};

	coll_control_ask(comm->ctx->control, coll_comm_process(comm, rank), &q);
}

static void look_at(struct coll_comm *comm, int rank, struct coll_peer_state *s)
{
	coll_control_peer(comm->ctx->control, coll_comm_process(comm, rank), comm->id, COLL_ABOUT_NOTHING, s);
}

/* It has destroyed the communicator or is about to, has left the job, or is dead. */
static bool is_through(struct coll_comm *comm, int rank)
{
	struct coll_peer_state s;
	const struct coll_record *theirs = &s.answer.record;

	if (rank == comm->rank || coll_comm_is_dead(comm, rank))
		return true;
	look_at(comm, rank, &s);
	return s.life.left || (s.answered_ns && theirs->comm == comm->id &&
	                       ((theirs->flags & COLL_RECORD_GONE) || theirs->kind == COLL_RECORD_DESTROY));
}

bool coll_rank_is_through(struct coll_comm *comm, const struct coll_record *mine, int rank)
{
	if (is_through(comm, rank))
		return true;
	ask(comm, mine, rank);
	return false;
}

/* What the first ranks that may still send are doing. */
static void tell(struct coll_comm *comm, int from, struct coll_text *t)
{
	int told = 0, r = from;

	for (; r < comm->size && told < TOLD; r++) {
		struct coll_peer_state s;
		char doing[128] = "";

		if (is_through(comm, r))
			continue;
		look_at(comm, r, &s);
		if (s.answered_ns && s.answer.record.comm == comm->id)
			coll_record_describe(&s.answer.record, doing, sizeof(doing));
		coll_text_add(t, "%s%s on host %s %s%s", told++ ? "; " : "", coll_comm_name(comm, r).text,
		              coll_comm_peer_info(comm, r)->host_name,
		              !doing[0]                ? "has not answered"
		              : s.answer.record.active ? "is in "
		                                       : "was last seen in ",
		              doing);
	}
	coll_text_add(t, "%s", r < comm->size ? "; ..." : "");
}

static void warn(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p, uint64_t now)
{
	const uint64_t after = (uint64_t)comm->ctx->settings.warn_ms * COLL_NS_PER_MS;
	struct coll_text t = {0};
	char call[128];

	if (p->warned || after == 0 || now - p->since_ns <= after)
		return;
	p->warned = true;
	coll_record_describe(w->record, call, sizeof(call));
	tell(comm, p->next, &t);
	coll_log(&comm->ctx->logger, COLL_LOG_WARN, "[COLL-5101] %swaiting %.0f s in %s for any rank to send: %s",
	         coll_comm_label(comm).text, (double)(now - p->since_ns) * 1e-9, call, t.p ? t.p : "");
	coll_text_free(&t);
}

/* All others. The first that has not died is the one to name. */
static coll_status end(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p)
{
	struct coll_text t = {0};
	coll_status st;
	int culprit = -1;

	coll_text_add(&t, "[COLL-2102] no rank is left that could send this message:");
	for (int r = 0; r < comm->size; r++) {
		if (r == comm->rank)
			continue;
		coll_text_add(&t, "%s %s %s", culprit < 0 ? "" : ",", coll_comm_name(comm, r).text,
		              coll_comm_is_dead(comm, r) ? "is dead" : "has destroyed the communicator or left");
		if (culprit < 0 || (coll_comm_is_dead(comm, culprit) && !coll_comm_is_dead(comm, r)))
			culprit = r;
	}
	st = coll_wait_fail(comm, w, p, COLL_ERR_PEER_DEAD, culprit, t.p ? t.p : "");
	coll_text_free(&t);
	return st;
}

coll_status coll_any_source_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                    uint64_t now)
{
	struct coll_record mine = *w->record;

	if (!p->begun_ns)
		p->begun_ns = now;
	if (!p->since_ns)
		p->since_ns = now;
	if (!coll_wait_timer_is_due(p, now) || !comm->ctx->control || comm->size == 1)
		return COLL_OK;
	p->asked_ns = now;
	mine.active = 1;
	if (!p->aside)
		coll_record_publish(&comm->record, &mine);
	while (p->next < comm->size && is_through(comm, p->next))
		p->next++;
	for (int r = p->next; r < comm->size && r < p->next + TURN; r++)
		coll_rank_is_through(comm, &mine, r);
	coll_service_kick(comm->ctx);
	warn(comm, w, p, now);
	/* What it sent before may still be on its way. If it failed before, its note comes first, or soon. */
	if (p->next < comm->size || comm->death_ns || !coll_uptime_reaches(&p->leaving_age, now, COLL_DELAY_NS(LEFT)))
		return COLL_OK;
	return end(comm, w, p);
}
