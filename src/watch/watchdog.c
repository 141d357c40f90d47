/*
 * Judging a wait: see watchdog.h. Owns the deadlines; the alarm is alarm.c's, and a run that ends with an error of
 * its own is diagnose.c's.
 */
#include "watch/watchdog.h"
#include "core/label.h"
#include "watch/alarm.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/error.h"
#include "engine/position.h"
#include "engine/run.h"
#include "watch/late.h"
#include "watch/left.h"
#include "watch/minority.h"
#include "watch/mismatch.h"
#include "watch/wait_chain.h"

enum {
	SILENT_ASKS = 3, /* unanswered pings that are required, however short the timeout: while this process itself was
	                  * stopped or had no core, it sent none */
};

/* *moved reports to the waiter that a poll moved something. */
static int unfinished(const struct coll_wait *w, bool *moved)
{
	for (int i = 0; i < w->nruns; i++)
		if (coll_run_poll(w->runs[i], moved) != COLL_OK || *moved)
			return i;
	return 0;
}

coll_status coll_wait_fail(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                           coll_status status, int culprit, const char *cause)
{
	char circumstances[180];

	coll_wait_describe(comm, w, p, circumstances);
	return coll_comm_fail(comm, status, culprit, cause, circumstances);
}

coll_status coll_wait_fail_by(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                              const struct coll_end *e)
{
	char circumstances[180];

	coll_wait_describe(comm, w, p, circumstances);
	return coll_comm_fail_for(comm, e->status, e->process, e->text, circumstances);
}

enum suspicion { LEAVES = 1, LEFT, SILENT, LATE, LOST, SUSPICIONS };

/* The same at the looks of coll_comm_inspect(), of which every one polls first: what time alone says of a
 * rank must hold at two of them, between which all that had come was read. This process may have been stopped
 * between its last poll and the clock, and the answer or the frame itself may lie unread. */
static bool seen_twice(struct coll_comm *comm, struct coll_wait_timer *p, int peer, enum suspicion of)
{
	const int suspicion = peer * SUSPICIONS + (int)of;

	if (p->suspected != suspicion && comm->ctx->control)
		coll_control_service(comm->ctx->control);
	/* The first of a look counts: they are tried from the most precise to the least. */
	if (!p->suspects)
		p->suspects = suspicion;
	return p->suspected == suspicion;
}

/* ---- Deadlines ---- */

/* Say once whom this rank waits for, and what that one is doing. */
static void warn(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p, int peer,
                 uint64_t stalled)
{
	const uint64_t after = (uint64_t)comm->ctx->settings.warn_ms * COLL_NS_PER_MS;
	char text[COLL_CHAIN_TEXT];

	if (p->warned || after == 0 || stalled <= after ||
	    !coll_wait_chain_describe(comm, w->record, peer, stalled > after + COLL_DELAY_NS(CHAIN), text))
		return;
	p->warned = true;
	coll_log(&comm->ctx->logger, COLL_LOG_WARN, "[COLL-5101] %swaiting %.0f s for %s on host %s: %s",
	         coll_comm_label(comm).text, (double)stalled * 1e-9, coll_comm_name(comm, peer).text,
	         coll_comm_peer_info(comm, peer)->host_name, text);
}

/* The rank that is waited for waits for this one on another communicator: if neither has
 * another thread that makes the missing call, neither goes on. */
static void warn_abroad(struct coll_comm *comm, const struct coll_record *mine, struct coll_wait_timer *p, int peer,
                        const struct coll_record *abroad, uint64_t stalled)
{
	char here[100], there[100];

	if (p->warned_abroad || stalled < COLL_DELAY_NS(OTHER_COMM) || comm->ctx->settings.warn_ms == 0)
		return;
	p->warned_abroad = true;
	coll_record_describe(mine, here, sizeof(here));
	coll_record_describe(abroad, there, sizeof(there));
	coll_log(&comm->ctx->logger, COLL_LOG_WARN,
	         "[COLL-5108] %sthis rank waits in %s for %s on host %s, which waits for this rank on another "
	         "communicator, in %s: compare the order of calls",
	         coll_comm_label(comm).text, here, coll_comm_name(comm, peer).text,
	         coll_comm_peer_info(comm, peer)->host_name, there);
}

/* A peer that has destroyed the communicator; for a rank that waits for a message also one that is about to. */
static bool leaves(const struct coll_record *theirs, const struct coll_record *mine)
{
	return (theirs->flags & COLL_RECORD_GONE) ||
	       (theirs->kind == COLL_RECORD_DESTROY && mine->kind == COLL_KIND_SEND_RECV);
}

/* Whether the calls of the two differ, as far as the answer tells; *culprit is the other. */
static bool differ(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p, int *culprit,
                   const struct coll_mismatch_msg *q, const struct coll_blocked *mine,
                   const struct coll_peer_state *state, char *text, size_t len_bytes)
{
	const struct coll_record *theirs = &state->answer.record;
	const int peer = *culprit;
	struct coll_deadlock cycle;

	if (comm->death_ns || theirs->comm != comm->id)
		return false;
	if (coll_mismatch_differs(comm, peer, q, &state->answer, text, len_bytes))
		return true;
	if (mine->blocked && coll_deadlock_closes(comm, p, mine, peer, state, &cycle)) {
		*culprit = cycle.missing == comm->rank ? cycle.waiting : cycle.missing;
		snprintf(text, len_bytes, "%s", cycle.text);
		return true;
	}
	/* What it sent before may still be on its way, or have come after this rank last looked: its
	 * answer is of a later moment. If it failed before, its note comes first, or soon. */
	if (!leaves(theirs, w->record) || !coll_uptime_reaches(&p->leaving_age, coll_clock_ns(), COLL_DELAY_NS(LEFT)) ||
	    !seen_twice(comm, p, peer, LEAVES))
		return false;
	coll_mismatch_text(comm, w->record, peer, theirs, text, len_bytes);
	return true;
}

/* The rank waited for is in the call, but waits for another one: that other one is late, or whom it waits for. Its name
 * and what it does; false: not known yet. */
static bool follow(struct coll_comm *comm, const struct coll_wait *w, int *peer, uint64_t stalled, bool *behind,
                   char *doing, size_t len_bytes)
{
	const uint64_t limit = (uint64_t)comm->arrival_timeout_ms * COLL_NS_PER_MS + COLL_DELAY_NS(CHAIN);
	struct coll_record r;
	const int last = coll_wait_chain_end(comm, w->record, *peer, stalled > limit, &r);

	if (last < 0)
		return false;
	if (last != *peer) {
		*behind = r.comm != comm->id || !r.active || coll_record_is_before(&r, w->record);
		coll_record_describe(&r, doing, len_bytes);
		*peer = last;
	}
	return true;
}

/* Alive, and not here for too long? */
static coll_status assess_lateness(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                   int peer, const struct coll_answer *a, bool behind, uint64_t stalled)
{
	bool abroad = a && p->blocking && a->wait == p->since_ns && a->abroad.active;
	/* Its own limit for its stream comes first: that error says more. */
	const uint64_t in_stream = a && a->in_stream ? COLL_DELAY_NS(CHAIN) : 0;
	char text[640], others[COLL_LATE_TEXT], doing[128] = "no call yet", there[100] = "";
	const int first = peer;

	if (abroad)
		warn_abroad(comm, w->record, p, peer, &a->abroad, stalled);
	warn(comm, w, p, peer, stalled);
	if (stalled <= (uint64_t)comm->arrival_timeout_ms * COLL_NS_PER_MS + in_stream ||
	    !seen_twice(comm, p, peer, LATE))
		return COLL_OK;
	if (a)
		coll_record_describe(&a->record, doing, sizeof(doing));
	if (!follow(comm, w, &peer, stalled, &behind, doing, sizeof(doing)))
		return COLL_OK;
	if (!coll_late_find(comm, w, p, peer, p->since_ns + stalled))
		return COLL_OK;
	coll_late_describe(comm, coll_record_kind_name(w->record->kind), others);
	abroad = abroad && peer == first;
	if (abroad)
		coll_record_describe(&a->abroad, there, sizeof(there));
	snprintf(text, sizeof(text), "[COLL-2301] %s%s on host %s is late: alive but %s %s%s%s%s", others,
	         coll_comm_name(comm, peer).text, coll_comm_peer_info(comm, peer)->host_name,
	         behind ? "last seen after" : "still in", doing,
	         abroad ? ", and waits for this rank on another communicator, in " : "", there,
	         in_stream && peer == first ? "; it has made this call, but its stream does not come to it, perhaps in "
	                                      "a shared hardware queue"
	                                    : "");
	return coll_wait_fail(comm, w, p, COLL_ERR_PEER_LATE, peer, text);
}

/* Behind an outage both answer before TCP sends a frame again, which may take as long as the outage. */
static int lost_ms(const struct coll_comm *comm)
{
	return comm->timeout_ms + coll_settings_unreachable_ms(&comm->ctx->settings);
}

/* What the answers of the rank we wait for say. */
static coll_status assess(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p, int peer,
                          const struct coll_mismatch_msg *q, const struct coll_blocked *mine, uint64_t now)
{
	const struct coll_peer_info *info = coll_comm_peer_info(comm, peer);
	const struct coll_rank_name name = coll_comm_name(comm, peer);
	uint64_t stalled = now - p->since_ns, heard;
	struct coll_peer_state state;
	const struct coll_peer_life *life = &state.life;
	const struct coll_record *theirs = &state.answer.record;
	int culprit = peer;
	bool same_comm, behind, lost;
	struct coll_end left;
	char text[400];

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, peer), comm->id, (int)q->about, &state);
	/* Not before we began to ask this one: we may have waited for another rank until now. */
	heard = life->last_answer_ns > life->asked_ns ? life->last_answer_ns : life->asked_ns;
	if (heard < p->since_ns)
		heard = p->since_ns;
	same_comm = state.answered_ns && theirs->comm == comm->id;
	if (same_comm && differ(comm, w, p, &culprit, q, mine, &state, text, sizeof(text))) {
		if (coll_destroys_after_error(comm, peer, &state.answer, &left))
			return coll_wait_fail_by(comm, w, p, &left);
		if (coll_mismatch_differs(comm, peer, q, &state.answer, text, sizeof(text)) &&
		    !coll_minority_find(comm, q, peer, now, &culprit))
			return COLL_OK;
		/* Who destroys late finds that others have not waited for that. */
		return coll_wait_fail(
		        comm, w, p, comm->closing && leaves(theirs, w->record) ? COLL_ERR_PEER_DEAD : COLL_ERR_MISMATCH,
		        culprit, text);
	}
	/* Counted from its goodbye: a rank that failed has sent the cause before it left. */
	if (life->left && now > life->left_ns && now - life->left_ns > COLL_DELAY_NS(LEFT) &&
	    coll_uptime_reaches(&p->left_age, now, COLL_DELAY_NS(SETTLE)) && seen_twice(comm, p, peer, LEFT)) {
		coll_left_describe(comm, peer, life->presumed, &left);
		return coll_wait_fail_by(comm, w, p, &left);
	}
	if (now > heard && now - heard > (uint64_t)comm->timeout_ms * COLL_NS_PER_MS &&
	    life->unanswered >= SILENT_ASKS && seen_twice(comm, p, peer, SILENT)) {
		snprintf(text, sizeof(text), "[COLL-2201] %s on host %s (process %d) is silent: no answer for %d ms",
		         name.text, info->host_name, info->process, comm->timeout_ms);
		return coll_wait_fail(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
	}
	behind = !same_comm || coll_record_is_before(theirs, w->record) || !theirs->active;
	lost = same_comm && !coll_record_is_before(theirs, w->record) &&
	       (theirs->sequence > w->record->sequence ||
	        (theirs->sequence == w->record->sequence && (!theirs->active || theirs->waits_for == comm->rank)));
	if (w->record->kind != COLL_KIND_SEND_RECV && lost && stalled > (uint64_t)lost_ms(comm) * COLL_NS_PER_MS &&
	    seen_twice(comm, p, peer, LOST)) {
		snprintf(text, sizeof(text),
		         "[COLL-3201] no progress between rank %d and %s on host %s for %d ms although both "
		         "are alive: a frame was lost",
		         comm->rank, name.text, info->host_name, lost_ms(comm));
		return coll_wait_fail(comm, w, p, COLL_ERR_CORRUPT, peer, text);
	}
	return assess_lateness(comm, w, p, peer, same_comm ? &state.answer : NULL, behind, stalled);
}

static coll_status without_control(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                   int peer, uint64_t now)
{
	char text[200];

	if (now - p->since_ns <= (uint64_t)comm->timeout_ms * COLL_NS_PER_MS || !seen_twice(comm, p, peer, SILENT))
		return COLL_OK;
	snprintf(text, sizeof(text), "[COLL-2202] no message from %s for %d ms", coll_comm_name(comm, peer).text,
	         comm->timeout_ms);
	return coll_wait_fail(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
}

bool coll_wait_timer_is_due(const struct coll_wait_timer *p, uint64_t now)
{
	return p->since_ns && now - p->since_ns >= COLL_DELAY_NS(PING_AFTER) &&
	       now - p->asked_ns >= COLL_DELAY_PING_AFTER_MS / 5 * COLL_NS_PER_MS;
}

/* Not blocked: nothing can be made of it. Nor when it is the operation before that keeps
 * this one waiting, which has a wait of its own. */
static struct coll_blocked stall_of(const struct coll_comm *comm, const struct coll_wait_timer *p,
                                    const struct coll_mismatch_msg *q, const struct coll_run_where *where, uint64_t now)
{
	const enum coll_need of_call = where->sends ? COLL_NEEDS_ROOM : COLL_NEEDS_CALL;
	const enum coll_need of_message = q->about == COLL_ABOUT_SENT ? COLL_NEEDS_MESSAGE : COLL_NEEDS_TAKER;

	return (struct coll_blocked){.call = q->record,
	                             .issued = comm->sequence,
	                             .number = q->sequence,
	                             .shown_ns = now,
	                             .peer = where->peer,
	                             .need = q->about == COLL_ABOUT_CALLS ? of_call : of_message,
	                             .alone = p->alone,
	                             .unmoved_ms = (uint32_t)((now - p->since_ns) / COLL_NS_PER_MS),
	                             .blocked = p->blocking && !comm->closing && !where->behind && q->sequence != 0};
}

/* Of a wait that polls alone: which of two halves of an exchange is missing, its record says. */
static int missing(const struct coll_wait *w)
{
	struct coll_run_where where;

	if (w->nruns == 2 || w->record->kind == COLL_KIND_SEND_RECV)
		return w->record->root;
	coll_wait_where(w, w->nruns > 0 ? w->runs[0] : NULL, &where);
	return where.peer;
}

/* Collectives and messages of one peer, once the communicator is the program's. A blocking call counts from its
 * beginning (call/wait.c), a request from the first look at any. Until the first look it has only waited, as far as is
 * known: a call that moves is looked at when it does not. */
static void count(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p, uint64_t now)
{
	struct coll_waits *s = comm->waits;
	const int peer = s && !comm->closing ? missing(w) : -1;
	const bool first = s && atomic_load_explicit(&s->seen_ns, memory_order_relaxed) == 0;

	coll_waits_look(s, first, p->since_ns || !p->begun_ns, now,
	                peer < comm->size && peer != comm->rank ? peer : -1);
}

coll_status coll_comm_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                              uint64_t now)
{
	struct coll_run_where where;
	struct coll_record mine = *w->record;
	struct coll_mismatch_msg q;
	struct coll_blocked blocked;
	bool moved = false;
	int late;

	count(comm, w, p, now);
	if (!p->begun_ns)
		p->begun_ns = now;
	if (!p->since_ns)
		p->since_ns = now;
	if (!coll_wait_timer_is_due(p, now))
		return COLL_OK;
	p->asked_ns = now;
	p->suspected = p->suspects;
	p->suspects = 0;
	late = unfinished(w, &moved);
	if (moved) {
		coll_wait_timer_moved(comm, p);
		return COLL_OK;
	}
	coll_wait_where(w, w->nruns > 0 ? w->runs[late] : NULL, &where);
	if (w->nruns > 0)
		coll_recorder_way(w->entries[late], coll_run_way(w->runs[late]));
	coll_recorder_waits(w->entries[late], where.peer, where.step, where.lane);
	if (where.peer < 0 || where.peer == comm->rank)
		return COLL_OK;
	comm->box.step = (int)where.step;
	if (!comm->ctx->control)
		return without_control(comm, w, p, where.peer, now);
	mine.active = 1;
	mine.waits_for = where.peer;
	if (!p->aside)
		coll_record_publish(&comm->record, &mine);
	coll_mismatch_question(comm, &mine, w->entries[late], UINT64_MAX, &q);
	q.wait = p->since_ns;
	blocked = stall_of(comm, p, &q, &where, now);
	if (blocked.blocked)
		coll_deadlock_show(comm, p, &blocked);
	coll_control_ask(comm->ctx->control, coll_comm_process(comm, where.peer), &q);
	coll_service_kick(comm->ctx);
	if (planted(SLOW_JUDGE))
		nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
	return assess(comm, w, p, where.peer, &q, &blocked, now);
}
