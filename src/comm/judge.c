/*
 * Judging a wait: see judge.h.
 */
#include "comm/judge.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/service.h"

static const uint64_t MS = 1000000;
enum {
	SETTLE_MS = 100,
	NOTE_MS = 500,
	ASK_AFTER_MS = 250,
	LEFT_MS = 1000,
	SILENT_ASKS = 3, /* that many unanswered, however short the timeout: when this process itself was
	                  * stopped or starved, time has passed in which nobody was asked */
};

static int unfinished(const struct coll_wait *w)
{
	for (int i = 0; i < w->nruns; i++)
		if (coll_run_poll(w->runs[i], NULL) != COLL_OK)
			return i;
	return 0;
}

static void stamp(struct coll_comm *comm, const struct coll_wait *w, const struct coll_patience *p)
{
	struct coll_error_box *b = &comm->box;
	const char *kind = coll_record_kind_name(w->record->kind);

	snprintf(b->kind, sizeof(b->kind), "%s", kind ? kind : "");
	b->operation = w->record->sequence;
	b->elapsed_s = p->begun_ns ? (double)(coll_clock_ns() - p->begun_ns) * 1e-9 : 0;
}

static coll_status lose(struct coll_comm *comm, const struct coll_wait *w, const struct coll_patience *p,
                        coll_status status, int culprit, const char *cause)
{
	char call[128], circumstances[180];

	stamp(comm, w, p);
	coll_record_describe(w->record, call, sizeof(call));
	snprintf(circumstances, sizeof(circumstances), ", after %.3f s in %s", comm->box.elapsed_s, call);
	return coll_comm_fail(comm, status, culprit, cause, circumstances);
}

/* ---- Alarm ---- */

/* Whether a failure that is told is this communicator's. */
static bool concerns(const struct coll_comm *comm, const struct coll_note *n)
{
	return n->comm == comm->id ||
	       (n->comm == 0 && coll_comm_rank_of(comm, n->process) >= 0 && coll_comm_rank_of(comm, n->origin) >= 0);
}

/* Before a rank is blamed by time alone: this process may have been stopped or its service
 * thread starved, and the note that names who died first may lie unread. False: look again. */
static bool caught_up(struct coll_comm *comm, struct coll_patience *p)
{
	if (p->caught_up)
		return true;
	p->caught_up = true;
	coll_control_service(comm->ctx->control);
	return false;
}

/* The first failure told for this communicator, else (settled) the first death of a member. */
static coll_status look_at_notes(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p)
{
	struct coll_note note, death = {.kind = 0};
	char text[400];
	int dead;

	for (int i = 0; coll_control_notes(comm->ctx->control, i, &note, 1) > i; i++) {
		if (note.kind == COLL_NOTE_FAIL && concerns(comm, &note)) {
			if (note.origin == comm->ctx->rank)
				snprintf(text, sizeof(text), "%s", note.text);
			else
				snprintf(text, sizeof(text), "%s (told by %s)", note.text,
				         coll_comm_name(comm, coll_comm_rank_of(comm, note.origin)).text);
			return lose(comm, w, p, (coll_status)note.status, coll_comm_rank_of(comm, note.process), text);
		}
		if (note.kind == COLL_NOTE_DEATH && !death.kind && coll_comm_rank_of(comm, note.process) >= 0)
			death = note;
	}
	if (!death.kind)
		return COLL_OK;
	if (!p->death_ns)
		p->death_ns = coll_clock_ns();
	if (coll_clock_ns() - p->death_ns < SETTLE_MS * MS || !caught_up(comm, p))
		return COLL_AGAIN;
	dead = coll_comm_rank_of(comm, death.process);
	snprintf(text, sizeof(text), "%s on host %.63s (process %d) is dead or unreachable: %.200s",
	         coll_comm_name(comm, dead).text, coll_comm_card(comm, dead)->host_name,
	         coll_comm_card(comm, dead)->process, death.text);
	return lose(comm, w, p, COLL_ERR_PEER_DEAD, dead, text);
}

coll_status coll_comm_heed_alarm(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p)
{
	unsigned now = atomic_load_explicit(&comm->ctx->alarm, memory_order_acquire);
	coll_status st;

	if (atomic_load_explicit(&comm->aborted, memory_order_acquire))
		return lose(comm, w, p, COLL_ERR_ABORTED, comm->rank, comm->abort_text);
	if (now == comm->alarm_seen)
		return COLL_OK;
	st = look_at_notes(comm, w, p);
	if (st == COLL_AGAIN)
		return COLL_OK; /* look again: alarm_seen stays behind */
	comm->alarm_seen = now;
	return st;
}

/* ---- Deadlines ---- */

static coll_status mismatch(struct coll_comm *comm, const struct coll_wait *w, const struct coll_patience *p, int peer,
                            const struct coll_record *theirs)
{
	char mine_text[128], their_text[128], text[400];

	coll_record_describe(w->record, mine_text, sizeof(mine_text));
	coll_record_describe(theirs, their_text, sizeof(their_text));
	snprintf(text, sizeof(text), "calls differ: %s calls %s, %s calls %s", coll_comm_name(comm, comm->rank).text,
	         mine_text, coll_comm_name(comm, peer).text, their_text);
	return lose(comm, w, p, COLL_ERR_MISMATCH, peer, text);
}

/* What the answers of the rank we wait for say. */
static coll_status judge(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p, int peer,
                         uint64_t now)
{
	const struct coll_card *card = coll_comm_card(comm, peer);
	const char *host = card->host_name;
	const struct coll_rank_name name = coll_comm_name(comm, peer);
	uint64_t stalled = now - p->since_ns, heard;
	struct coll_peer_state state;
	bool same_comm, behind, lost;
	char text[400], doing[128];

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, peer), &state);
	/* Not before we began to ask this one: we may have waited for another rank until now. */
	heard = state.last_answer_ns > state.asked_ns ? state.last_answer_ns : state.asked_ns;
	if (heard < p->since_ns)
		heard = p->since_ns;
	same_comm = state.have_record && state.record.comm == comm->id;
	if (same_comm && w->record->kind != COLL_KIND_SEND_RECV && state.record.kind != COLL_KIND_SEND_RECV &&
	    state.record.sequence == w->record->sequence && state.record.signature != w->record->signature)
		return mismatch(comm, w, p, peer, &state.record);
	/* What it sent before may still be on its way: but not for long without a movement. */
	if (same_comm && stalled > LEFT_MS * MS &&
	    ((state.record.flags & COLL_RECORD_GONE) ||
	     (state.record.kind == COLL_RECORD_DESTROY && w->record->kind == COLL_KIND_SEND_RECV)))
		return mismatch(comm, w, p, peer, &state.record);
	/* Counted from its goodbye: whoever failed has told why before it left. */
	if (state.left && now > state.left_ns && now - state.left_ns > LEFT_MS * MS) {
		snprintf(text, sizeof(text), "%s on host %s left: it destroyed its communicator", name.text, host);
		return lose(comm, w, p, COLL_ERR_PEER_DEAD, peer, text);
	}
	if (now > heard && now - heard > (uint64_t)comm->timeout_ms * MS && state.unanswered >= SILENT_ASKS) {
		snprintf(text, sizeof(text), "%s on host %s (process %d) is silent: no answer for %d ms", name.text,
		         host, card->process, comm->timeout_ms);
		return lose(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
	}
	coll_record_describe(&state.record, doing, sizeof(doing));
	behind = !same_comm || state.record.sequence < w->record->sequence || !state.record.active;
	lost = same_comm && (state.record.sequence > w->record->sequence ||
	                     (state.record.sequence == w->record->sequence &&
	                      (!state.record.active || state.record.waits_for == comm->rank)));
	if (w->record->kind != COLL_KIND_SEND_RECV && lost && stalled > (uint64_t)comm->timeout_ms * MS) {
		snprintf(text, sizeof(text),
		         "nothing moves between rank %d and %s on host %s for %d ms though both "
		         "are alive: a frame was lost",
		         comm->rank, name.text, host, comm->timeout_ms);
		return lose(comm, w, p, COLL_ERR_CORRUPT, peer, text);
	}
	if (!p->warned && comm->ctx->settings.warn_ms > 0 && stalled > (uint64_t)comm->ctx->settings.warn_ms * MS) {
		p->warned = true;
		coll_log(&comm->ctx->logger, COLL_LOG_WARN, "waiting %.0f s for %s on host %s: alive, %s %s",
		         (double)stalled * 1e-9, name.text, host, behind ? "last seen after" : "in", doing);
	}
	if (stalled > (uint64_t)comm->arrival_timeout_ms * MS) {
		snprintf(text, sizeof(text), "%s on host %s is late: alive but %s %s", name.text, host,
		         behind ? "last seen after" : "still in", doing);
		return lose(comm, w, p, COLL_ERR_PEER_LATE, peer, text);
	}
	return COLL_OK;
}

static coll_status without_control(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p, int peer,
                                   uint64_t now)
{
	char text[200];

	if (now - p->since_ns <= (uint64_t)comm->timeout_ms * MS)
		return COLL_OK;
	snprintf(text, sizeof(text), "nothing heard from %s for %d ms", coll_comm_name(comm, peer).text,
	         comm->timeout_ms);
	return lose(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
}

coll_status coll_comm_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p, uint64_t now)
{
	struct coll_run_where where;
	struct coll_record mine = *w->record;
	int late;

	if (!p->begun_ns)
		p->begun_ns = now;
	if (!p->since_ns)
		p->since_ns = now;
	if (now - p->since_ns < ASK_AFTER_MS * MS || now - p->asked_ns < ASK_AFTER_MS / 5 * MS)
		return COLL_OK;
	p->asked_ns = now;
	late = unfinished(w);
	coll_run_where(w->runs[late], &where);
	coll_recorder_waits(w->entries[late], where.peer, where.step, where.lane);
	if (where.peer < 0 || where.peer == comm->rank)
		return COLL_OK;
	comm->box.step = (int)where.step;
	if (!comm->ctx->control)
		return without_control(comm, w, p, where.peer, now);
	mine.active = 1;
	mine.waits_for = where.peer;
	coll_record_publish(&comm->record, &mine);
	coll_control_ask(comm->ctx->control, coll_comm_process(comm, where.peer), &mine);
	coll_service_kick(comm->ctx);
	return judge(comm, w, p, where.peer, now);
}

/* ---- Faults ---- */

/* What a live peer was doing on this communicator when it was asked after fault_ns. */
static bool answered(struct coll_comm *comm, const struct coll_patience *p, int peer, struct coll_record *record)
{
	struct coll_peer_state state;

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, peer), &state);
	if (state.last_answer_ns <= p->fault_ns || !state.have_record || state.record.comm != comm->id)
		return false;
	*record = state.record;
	return true;
}

/* A frame of another call came: ask its sender what it calls. */
static coll_status inquire_mismatch(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p,
                                    const struct coll_run_where *where, uint64_t now)
{
	struct coll_record record;
	char text[400];
	coll_status st;

	if (comm->ctx->control && where->peer >= 0) {
		/* It may have failed, told why, and gone on: that tells more than what it does now. */
		st = coll_comm_heed_alarm(comm, w, p);
		if (st != COLL_OK)
			return st;
		if (!p->inquired)
			coll_control_ask(comm->ctx->control, coll_comm_process(comm, where->peer), w->record);
		p->inquired = true;
		if (answered(comm, p, where->peer, &record) &&
		    (!(record.flags & COLL_RECORD_GONE) || now - p->fault_ns > NOTE_MS * MS))
			return mismatch(comm, w, p, where->peer, &record);
		if (now - p->fault_ns < NOTE_MS * MS)
			return COLL_OK;
	}
	snprintf(text, sizeof(text),
	         "calls differ: rank %d is in call number %llu, %s sent a frame of a different call number %llu",
	         comm->rank, (unsigned long long)w->record->sequence, coll_comm_name(comm, where->peer).text,
	         (unsigned long long)where->frame.sequence);
	return lose(comm, w, p, COLL_ERR_MISMATCH, where->peer, text);
}

/* A link broke: who died first is the control plane's to say. Or the peer took back what
 * it had lent: it has failed, and has told why. */
static coll_status inquire_broken(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p,
                                  const struct coll_run_where *where, uint64_t now, const char *cause)
{
	struct coll_note note = {.kind = COLL_NOTE_DEATH, .origin = comm->ctx->rank};
	coll_status st;

	if (comm->ctx->control) {
		st = coll_comm_heed_alarm(comm, w, p);
		if (st != COLL_OK || now - p->fault_ns < NOTE_MS * MS || !caught_up(comm, p))
			return st;
		snprintf(note.text, sizeof(note.text), "its link broke");
		note.process = where->peer >= 0 ? coll_comm_process(comm, where->peer) : -1;
		if (p->fault == COLL_ERR_PEER_DEAD)
			coll_control_tell(comm->ctx->control, &note);
	}
	return lose(comm, w, p, p->fault, where->peer, cause);
}

coll_status coll_comm_inquire(struct coll_comm *comm, const struct coll_wait *w, struct coll_patience *p,
                              struct coll_run *run, coll_status status)
{
	const uint64_t now = coll_clock_ns();
	struct coll_run_where where;
	char text[400];

	if (!p->fault_ns) {
		p->fault_ns = now;
		p->fault = status;
		p->faulty = run;
	}
	coll_run_where(p->faulty, &where);
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
	default: return lose(comm, w, p, p->fault, where.peer, text);
	}
}
