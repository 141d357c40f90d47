/*
 * Diagnosis of a run that ended with an error of its own. Another rank may have better information about the cause. For
 * a frame of another call, the call is compared with the one its sender reports. For a broken link, the note that names
 * the failed or killed rank is awaited. Invariant: never blocks, and blames no rank before a note with the cause
 * had time to arrive. watchdog.c handles deaths and the deadlines of a wait without an error.
 */
#include "watch/diagnose.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "context/service.h"
#include "control/gossip.h"
#include "control/ping.h"
#include "core/error.h"
#include "core/fabric.h"
#include "engine/position.h"
#include "watch/alarm.h"
#include "watch/left.h"
#include "watch/minority.h"
#include "watch/mismatch.h"
#include "watch/watchdog.h"

/* Compare a frame of another call with the call that its sender reports. MISMATCH: e->text has both calls;
 * CORRUPT: it makes the same call, so the head of the frame is wrong; AGAIN: no answer yet; OK: others are asked. */
static coll_status inquire_of(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                              const struct coll_run_where *where, struct coll_end *e)
{
	const int process = coll_comm_process(comm, where->peer);
	struct coll_peer_state state;
	struct coll_mismatch_msg q;
	int culprit = where->peer, other;

	e->process = process;
	coll_mismatch_question(comm, w->record, w->entries[p->faulty == w->runs[1]],
	                       where->frame.sequence ? where->frame.sequence : UINT64_MAX, &q);
	if (!p->inquired)
		coll_control_ask(comm->ctx->control, process, &q);
	p->inquired = true;
	coll_control_peer(comm->ctx->control, process, comm->id, (int)q.about, &state);
	if (state.answered_ns <= p->fault_ns || !state.about_this)
		return COLL_AGAIN;
	if (coll_destroys_after_error(comm, where->peer, &state.answer, e))
		return e->status;
	if (w->record->flags & COLL_RECORD_CAPTURED) {
		coll_mismatch_text(comm, w->record, where->peer, &state.answer.record, e->text, sizeof(e->text));
		return COLL_ERR_MISMATCH;
	}
	if (coll_mismatch_differs(comm, where->peer, &q, &state.answer, e->text, sizeof(e->text))) {
		if (!coll_minority_find(comm, &q, where->peer, coll_clock_ns(), &culprit))
			return COLL_OK;
		e->process = culprit >= 0 ? coll_comm_process(comm, culprit) : -1;
		return COLL_ERR_MISMATCH;
	}
	/* It has destroyed the communicator; if it had failed before, its note has come by now. */
	if ((state.answer.record.flags & COLL_RECORD_GONE) && coll_clock_ns() - p->fault_ns > COLL_DELAY_NS(SETTLE) &&
	    coll_comm_caught_up(comm, &p->caught_up)) {
		coll_mismatch_text(comm, w->record, where->peer, &state.answer.record, e->text, sizeof(e->text));
		return COLL_ERR_MISMATCH;
	}
	if (!coll_mismatch_agrees(comm, where->peer, &q, &state.answer))
		return COLL_AGAIN;
	if (!coll_minority_behind(comm, &q, where->peer, coll_clock_ns(), &other, &culprit, e->text))
		return COLL_OK;
	if (other >= 0) {
		e->process = coll_comm_process(comm, culprit);
		return COLL_ERR_MISMATCH;
	}
	snprintf(e->text, sizeof(e->text),
	         "[COLL-3202] a frame from %s is corrupt: both ranks make the same call number %llu, but the head "
	         "of the frame belongs to another call",
	         coll_comm_name(comm, where->peer).text, (unsigned long long)w->record->sequence);
	return COLL_ERR_CORRUPT;
}

static coll_status inquire_mismatch(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                    const struct coll_run_where *where, uint64_t now)
{
	struct coll_end e;
	char text[400];
	coll_status st;

	if (comm->ctx->control && where->peer >= 0) {
		/* The sender may have failed, sent a note with the cause, and ended by now. */
		st = coll_comm_heed_alarm(comm, w, p);
		if (st != COLL_OK)
			return st;
		/* A member is dead, and the sender may have heeded that before us: it settles soon. */
		if (comm->death_ns)
			return COLL_OK;
		e.status = inquire_of(comm, w, p, where, &e);
		if (e.status == COLL_OK)
			return COLL_OK;
		if (e.status != COLL_AGAIN)
			return coll_wait_fail_by(comm, w, p, &e);
		if (!coll_uptime_reaches(&p->fault_age, now, COLL_DELAY_NS(CAUSE_QUESTION)))
			return COLL_OK;
	}
	snprintf(text, sizeof(text),
	         "[COLL-3101] calls differ: rank %d is in call number %llu, %s sent a frame of a different call number "
	         "%llu",
	         comm->rank, (unsigned long long)w->record->sequence, coll_comm_name(comm, where->peer).text,
	         (unsigned long long)where->frame.sequence);
	return coll_wait_fail(comm, w, p, COLL_ERR_MISMATCH, where->peer, text);
}

static struct coll_peer_life life_of(const struct coll_comm *comm, int peer)
{
	struct coll_peer_state state = {.life.left = true};

	if (peer >= 0)
		coll_control_peer(comm->ctx->control, coll_comm_process(comm, peer), comm->id, -1, &state);
	return state.life;
}

/* Ping the peer, since its answer follows its notes; or start a liveness check, unless one is running. */
static void stir(struct coll_comm *comm, struct coll_wait_timer *p, int peer, enum coll_link_end end)
{
	const struct coll_mismatch_msg q = {.record.comm = comm->id, .about = COLL_ABOUT_NOTHING};
	struct coll_note note = {.kind = COLL_GOSSIP_DEATH, .origin = comm->ctx->rank, .text = "its link broke"};

	if (p->inquired || peer < 0 || end != COLL_LINK_STANDS)
		return;
	p->inquired = true;
	note.process = coll_comm_process(comm, peer);
	if (p->fault == COLL_ERR_PEER_DEAD)
		coll_control_report(comm->ctx->control, &note);
	else
		coll_control_ask(comm->ctx->control, note.process, &q);
	coll_service_kick(comm->ctx);
}

/* A link ended. A rank that failed has sent its note before; the control plane detects a rank that was
 * killed. No rank is blamed before either note had time to arrive. Or the peer revoked memory that it had
 * loaned: it has failed, and has sent its note. */
static coll_status inquire_broken(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                  const struct coll_run_where *where, uint64_t now, const char *cause)
{
	enum coll_link_end end;
	struct coll_end e;
	coll_status st;
	bool left;

	if (planted(DEAF))
		return COLL_OK;
	if (!comm->ctx->control)
		return coll_wait_fail(comm, w, p, p->fault, where->peer, cause);
	st = coll_comm_heed_alarm(comm, w, p);
	/* A death that has come in the last moment settles first. */
	if (st != COLL_OK || comm->death_ns)
		return st;
	end = coll_comm_link_end(comm, where->peer);
	stir(comm, p, where->peer, end);
	if (!coll_uptime_reaches(&p->fault_age, now,
	                         (end == COLL_LINK_UNREACHED ? COLL_DELAY_CAUSE_UNREACHED_MS : COLL_DELAY_CAUSE_MS) *
	                                 COLL_NS_PER_MS) ||
	    !coll_comm_caught_up(comm, &p->caught_up))
		return COLL_OK;
	left = end == COLL_LINK_CLOSED || life_of(comm, where->peer).left;
	/* An end says who died, or says nothing: it waits for the answer to that suspicion. */
	if (comm->closing && p->fault == COLL_ERR_PEER_DEAD && !left)
		return COLL_OK;
	if (!left || where->peer < 0)
		return coll_wait_fail(comm, w, p, p->fault, where->peer, cause);
	coll_left_describe(comm, where->peer, life_of(comm, where->peer).presumed, &e);
	return coll_wait_fail_by(comm, w, p, &e);
}

/* This rank lacks something, or has received what is damaged. What says so of a link is a note, which is on its way. */
static coll_status inquire_lack(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                uint64_t now, int culprit, const char *cause)
{
	coll_status st;

	if (comm->box.status == COLL_OK && comm->ctx->control) {
		st = coll_comm_heed_alarm(comm, w, p);
		if (st != COLL_OK || !coll_uptime_reaches(&p->fault_age, now, COLL_DELAY_NS(CAUSE)))
			return st;
	}
	return coll_wait_fail(comm, w, p, p->fault, culprit, cause);
}

coll_status coll_comm_inquire(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                              struct coll_run *run, coll_status status)
{
	const uint64_t now = coll_clock_ns();
	struct coll_run_where where;
	char text[400];

	if (!p->fault_ns) {
		p->fault_ns = now;
		p->fault = status;
		p->faulty = run;
		coll_wait_where(w, run, &where);
		p->broken = status == COLL_ERR_PEER_DEAD ? coll_comm_broken(comm, where.peer) : where.peer;
	}
	coll_wait_where(w, p->faulty, &where);
	where.peer = p->broken;
	comm->box.step = (int)where.step;
	if (comm->box.status != COLL_OK)
		snprintf(text, sizeof(text), "%.390s", comm->box.message);
	else
		snprintf(text, sizeof(text), "step %u with %s failed: %s", where.step,
		         coll_comm_name(comm, where.peer).text, coll_status_string(p->fault));
	switch (p->fault) {
	case COLL_ERR_PEER_DEAD:
	case COLL_ERR_ABORTED: return inquire_broken(comm, w, p, &where, now, text);
	case COLL_ERR_MISMATCH: return inquire_mismatch(comm, w, p, &where, now);
	case COLL_ERR_MEMORY:
	case COLL_ERR_SYSTEM: return inquire_lack(comm, w, p, now, comm->rank, text);
	case COLL_ERR_CORRUPT: return inquire_lack(comm, w, p, now, where.peer, text);
	default: return coll_wait_fail(comm, w, p, p->fault, where.peer, text);
	}
}
