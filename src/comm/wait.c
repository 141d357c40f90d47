/*
 * Waiting: spin a little, then sleep on descriptors; look at the alarm; ask the
 * rank that keeps us waiting; end every wait with an error that names it.
 *
 * Deadlines (from two settings, timeout_ms and arrival_timeout_ms):
 *   dead       a note of the control plane: at once, after a short settle time in
 *              which the note of a better informed rank may arrive;
 *   silent     asked, and its service thread has not answered for timeout_ms;
 *   late       it answers but has not entered the call for arrival_timeout_ms
 *              (a warning after 30 s);
 *   lost       both ranks wait for each other, or it has left the call behind,
 *              and no step retires for timeout_ms: a frame was lost.
 */
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/service.h"

static const uint64_t MS = 1000000;
enum {
	SPINS_PER_CLOCK = 64,
	SETTLE_MS = 100,
	NOTE_MS = 500,
	ASK_AFTER_MS = 250,
	LEFT_MS = 1000,
	SILENT_ASKS = 3, /* that many unanswered, however short the timeout: when this process itself was
	                  * stopped or starved, time has passed in which nobody was asked */
	LATE_WARNING_MS = 30000
};
enum { EAGER_POLLS = 24 };
enum { SLEEP_SHORT_MS = 5, SLEEP_LONG_MS = 50 };

/* One wait's patience. */
struct patience {
	unsigned idle;     /* polls without movement */
	uint64_t since_ns; /* first clock look after the last movement, 0: not looked */
	uint64_t asked_ns; /* last time the peer was asked */
	uint64_t begun_ns; /* of the wait, 0: not looked */
	bool warned;
	uint64_t death_ns; /* when a death was first seen, 0: none */
};

static struct coll_run *unfinished(const struct coll_wait *w)
{
	for (int i = 0; i < w->nruns; i++)
		if (coll_run_poll(w->runs[i], NULL) != COLL_OK)
			return w->runs[i];
	return w->runs[0];
}

static void stamp(struct coll_comm *comm, const struct coll_wait *w, const struct patience *p)
{
	struct coll_error_box *b = &comm->box;
	const char *kind = coll_plan_kind_name((enum coll_kind)w->record->kind);

	snprintf(b->kind, sizeof(b->kind), "%s", kind ? kind : "");
	b->operation = w->record->sequence;
	b->elapsed_s = p->begun_ns ? (double)(coll_clock_ns() - p->begun_ns) * 1e-9 : 0;
}

static coll_status lose(struct coll_comm *comm, const struct coll_wait *w, const struct patience *p, coll_status status,
                        int culprit, const char *cause)
{
	char call[128], circumstances[180];

	stamp(comm, w, p);
	coll_record_describe(w->record, call, sizeof(call));
	snprintf(circumstances, sizeof(circumstances), ", after %.3f s in %s", comm->box.elapsed_s, call);
	return coll_comm_fail(comm, status, culprit, cause, circumstances);
}

/* ---- Alarm ---- */

/* The first failure told for this communicator, else (settled) the first death. */
static coll_status look_at_notes(struct coll_comm *comm, const struct coll_wait *w, struct patience *p)
{
	struct coll_note notes[16];
	const struct coll_note *death = NULL;
	int n = coll_control_notes(comm->ctx->control, 0, notes, 16);
	char text[400];

	for (int i = 0; i < n && i < 16; i++) {
		if (notes[i].kind == COLL_NOTE_FAIL && (notes[i].comm == comm->id || notes[i].comm == 0)) {
			if (notes[i].origin == comm->rank)
				snprintf(text, sizeof(text), "%s", notes[i].text);
			else
				snprintf(text, sizeof(text), "%s (told by rank %d)", notes[i].text, notes[i].origin);
			return lose(comm, w, p, (coll_status)notes[i].status, notes[i].rank, text);
		}
		if (notes[i].kind == COLL_NOTE_DEATH && !death)
			death = &notes[i];
	}
	if (!death)
		return COLL_OK;
	if (!p->death_ns)
		p->death_ns = coll_clock_ns();
	if (coll_clock_ns() - p->death_ns < SETTLE_MS * MS)
		return COLL_AGAIN;
	return lose(comm, w, p, COLL_ERR_PEER_DEAD, death->rank, death->text);
}

static coll_status check_alarm(struct coll_comm *comm, const struct coll_wait *w, struct patience *p)
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

static coll_status mismatch(struct coll_comm *comm, const struct coll_wait *w, const struct patience *p, int peer,
                            const struct coll_record *theirs)
{
	char mine_text[128], their_text[128], text[400];

	coll_record_describe(w->record, mine_text, sizeof(mine_text));
	coll_record_describe(theirs, their_text, sizeof(their_text));
	snprintf(text, sizeof(text), "calls differ: rank %d calls %s, rank %d calls %s", comm->rank, mine_text, peer,
	         their_text);
	return lose(comm, w, p, COLL_ERR_MISMATCH, peer, text);
}

/* What the answers of the rank we wait for say. */
static coll_status judge(struct coll_comm *comm, const struct coll_wait *w, struct patience *p, int peer, uint64_t now)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const char *host = comm->ctx->cards[peer].host_name;
	uint64_t stalled = now - p->since_ns, heard;
	struct coll_peer_state state;
	bool same_comm, behind, lost;
	char text[400], doing[128];

	coll_control_peer(comm->ctx->control, peer, &state);
	/* Not before we began to ask this one: we may have waited for another rank until now. */
	heard = state.last_answer_ns > state.asked_ns ? state.last_answer_ns : state.asked_ns;
	if (heard < p->since_ns)
		heard = p->since_ns;
	same_comm = state.have_record && state.record.comm == comm->id;
	if (same_comm && w->record->kind != COLL_KIND_SEND_RECV && state.record.kind != COLL_KIND_SEND_RECV &&
	    state.record.sequence == w->record->sequence && state.record.signature != w->record->signature)
		return mismatch(comm, w, p, peer, &state.record);
	if (state.left && stalled > LEFT_MS * MS) {
		snprintf(text, sizeof(text), "rank %d on host %s left: it destroyed its communicator", peer, host);
		return lose(comm, w, p, COLL_ERR_PEER_DEAD, peer, text);
	}
	if (now > heard && now - heard > (uint64_t)s->timeout_ms * MS && state.unanswered >= SILENT_ASKS) {
		snprintf(text, sizeof(text), "rank %d on host %s (process %d) is silent: no answer for %d ms", peer,
		         host, comm->ctx->cards[peer].process, s->timeout_ms);
		return lose(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
	}
	coll_record_describe(&state.record, doing, sizeof(doing));
	behind = !same_comm || state.record.sequence < w->record->sequence || !state.record.active;
	lost = same_comm && (state.record.sequence > w->record->sequence ||
	                     (state.record.sequence == w->record->sequence &&
	                      (!state.record.active || state.record.waits_for == comm->rank)));
	if (w->record->kind != COLL_KIND_SEND_RECV && lost && stalled > (uint64_t)s->timeout_ms * MS) {
		snprintf(text, sizeof(text),
		         "nothing moves between rank %d and rank %d on host %s for %d ms though both "
		         "are alive: a frame was lost",
		         comm->rank, peer, host, s->timeout_ms);
		return lose(comm, w, p, COLL_ERR_CORRUPT, peer, text);
	}
	if (!p->warned && stalled > LATE_WARNING_MS * MS) {
		p->warned = true;
		coll_log(&comm->ctx->logger, COLL_LOG_WARN, "waiting %.0f s for rank %d on host %s: alive, %s %s",
		         (double)stalled * 1e-9, peer, host, behind ? "last seen after" : "in", doing);
	}
	if (stalled > (uint64_t)s->arrival_timeout_ms * MS) {
		snprintf(text, sizeof(text), "rank %d on host %s is late: alive but %s %s", peer, host,
		         behind ? "last seen after" : "still in", doing);
		return lose(comm, w, p, COLL_ERR_PEER_LATE, peer, text);
	}
	return COLL_OK;
}

static coll_status without_control(struct coll_comm *comm, const struct coll_wait *w, struct patience *p, int peer,
                                   uint64_t now)
{
	char text[200];

	if (now - p->since_ns <= (uint64_t)comm->ctx->settings.timeout_ms * MS)
		return COLL_OK;
	snprintf(text, sizeof(text), "nothing heard from rank %d for %d ms", peer, comm->ctx->settings.timeout_ms);
	return lose(comm, w, p, COLL_ERR_PEER_SILENT, peer, text);
}

/* Called with the clock once spinning is over. */
static coll_status lose_patience(struct coll_comm *comm, const struct coll_wait *w, struct patience *p, uint64_t now)
{
	struct coll_run_where where;
	struct coll_record mine = *w->record;

	if (now - p->since_ns < ASK_AFTER_MS * MS || now - p->asked_ns < ASK_AFTER_MS / 5 * MS)
		return COLL_OK;
	p->asked_ns = now;
	coll_run_where(unfinished(w), &where);
	if (where.peer < 0 || where.peer == comm->rank)
		return COLL_OK;
	comm->box.step = (int)where.step;
	if (!comm->ctx->control)
		return without_control(comm, w, p, where.peer, now);
	mine.active = 1;
	mine.waits_for = where.peer;
	coll_record_publish(&comm->record, &mine);
	coll_control_ask(comm->ctx->control, where.peer, &mine);
	coll_service_kick(comm->ctx);
	return judge(comm, w, p, where.peer, now);
}

/* ---- Sleep ---- */

static void sleep_a_while(struct coll_context *ctx, int ms)
{
	struct pollfd p[1 + COLL_CARD_TRANSPORTS] = {{.fd = ctx->wake_fd, .events = POLLIN}};
	bool armed[COLL_CARD_TRANSPORTS] = {false};
	bool quiet = true;
	uint64_t count;

	for (int i = 0; i < ctx->nwires && quiet; i++) {
		struct coll_wire *w = &ctx->wires[i];

		p[1 + i].fd = -1;
		if (!w->active)
			continue;
		/* Armed only when it says OK: to disarm what is not armed would leave the
		 * peers' bells ringing for ever. */
		quiet = armed[i] = w->table.arm(w->inst) == COLL_OK;
		p[1 + i] = (struct pollfd){.fd = w->table.poll_fd(w->inst), .events = POLLIN};
	}
	if (quiet && poll(p, (nfds_t)(1 + ctx->nwires), ms) > 0 && (p[0].revents & POLLIN))
		if (read(ctx->wake_fd, &count, sizeof(count)) < 0) {
			/* Another thread of this context was faster. */
		}
	for (int i = 0; i < ctx->nwires; i++)
		if (armed[i])
			ctx->wires[i].table.disarm(ctx->wires[i].inst);
}

/* Nothing moved: pause, and once in a while look at the clock. */
static coll_status idle(struct coll_comm *comm, const struct coll_wait *w, struct patience *p)
{
	struct coll_context *ctx = comm->ctx;
	uint64_t now;
	coll_status st;

	if (ctx->alone_on_cores) {
		coll_cpu_relax();
		if (++p->idle % SPINS_PER_CLOCK)
			return COLL_OK;
	} else {
		sched_yield();
		if (++p->idle % (SPINS_PER_CLOCK / 16))
			return COLL_OK;
	}
	now = coll_clock_ns();
	if (!p->begun_ns)
		p->begun_ns = now;
	if (!p->since_ns)
		p->since_ns = now;
	if (now - p->since_ns < (uint64_t)ctx->settings.spin_us * 1000)
		return COLL_OK;
	st = lose_patience(comm, w, p, now);
	if (st == COLL_OK)
		sleep_a_while(ctx, now - p->since_ns < 100 * MS ? SLEEP_SHORT_MS : SLEEP_LONG_MS);
	return st;
}

/* What a live peer is doing on this communicator, asked now; bounded. */
static bool ask_record(struct coll_comm *comm, const struct coll_wait *w, int peer, struct coll_record *record)
{
	struct coll_peer_state state = {0};
	uint64_t begun = coll_clock_ns();

	if (!comm->ctx->control)
		return false;
	coll_control_ask(comm->ctx->control, peer, w->record);
	for (;;) {
		coll_control_peer(comm->ctx->control, peer, &state);
		if (state.last_answer_ns > begun && state.have_record && state.record.comm == comm->id) {
			*record = state.record;
			return true;
		}
		if (state.left || coll_clock_ns() - begun > 500 * MS)
			return false;
		coll_control_flush(comm->ctx->control, 1);
		poll(NULL, 0, 1);
	}
}

/* A run reported an error of its own. */
static coll_status run_failed(struct coll_comm *comm, const struct coll_wait *w, struct patience *p,
                              struct coll_run *run, coll_status status)
{
	struct coll_run_where where;
	struct coll_record record;
	char text[400];

	coll_run_where(run, &where);
	comm->box.step = (int)where.step;
	if (comm->box.status != COLL_OK)
		snprintf(text, sizeof(text), "%.390s", comm->box.message);
	else
		snprintf(text, sizeof(text), "step %u with rank %d failed: %s", where.step, where.peer,
		         coll_status_string(status));
	if ((status == COLL_ERR_PEER_DEAD || status == COLL_ERR_ABORTED) && comm->ctx->control) {
		/* A link broke: who died first is the control plane's to say. Or the peer took back what
		 * it had lent: it has failed, and has told why. */
		struct coll_note note = {.kind = COLL_NOTE_DEATH, .rank = where.peer, .origin = comm->rank};

		snprintf(note.text, sizeof(note.text), "its link broke");
		for (int i = 0; i < NOTE_MS; i++) {
			coll_status st = check_alarm(comm, w, p);

			if (st != COLL_OK)
				return st;
			if (!comm->ctx->service_running)
				coll_service_once(comm->ctx);
			poll(NULL, 0, 1);
		}
		if (status == COLL_ERR_PEER_DEAD)
			coll_control_tell(comm->ctx->control, &note);
	}
	if (status == COLL_ERR_MISMATCH && where.peer >= 0) {
		if (ask_record(comm, w, where.peer, &record))
			return mismatch(comm, w, p, where.peer, &record);
		snprintf(text, sizeof(text),
		         "calls differ: rank %d is in call number %llu, rank %d sent a frame of a different call "
		         "number %llu",
		         comm->rank, (unsigned long long)w->record->sequence, where.peer,
		         (unsigned long long)where.frame.sequence);
	}
	return lose(comm, w, p, status, where.peer, text);
}

/* What a frame takes from core to core, a few times over: while a peer is on time it
 * comes within these polls, and the rest of the loop only delays noticing it. Only
 * where each rank has a core. */
static coll_status poll_eagerly(struct coll_comm *comm, const struct coll_wait *w)
{
	for (int i = 0; i < EAGER_POLLS; i++) {
		coll_status st = coll_run_poll(w->runs[0], NULL);

		if (st != COLL_AGAIN)
			return st;
		if (coll_run_awaits_progress(w->runs[0]))
			coll_context_progress(comm->ctx);
	}
	return COLL_AGAIN;
}

coll_status coll_comm_wait(struct coll_comm *comm, const struct coll_wait *w)
{
	struct patience p = {0};

	if (w->nruns == 1 && comm->ctx->alone_on_cores && poll_eagerly(comm, w) == COLL_OK)
		return COLL_OK; /* an error is sticky: met again below */
	for (;;) {
		bool all_done = true, moved = false;
		coll_status st;

		for (int i = 0; i < w->nruns; i++) {
			bool m = false;

			st = coll_run_poll(w->runs[i], &m);
			moved |= m;
			if (st == COLL_AGAIN)
				all_done = false;
			else if (st != COLL_OK)
				return run_failed(comm, w, &p, w->runs[i], st);
		}
		if (all_done)
			return COLL_OK;
		if (moved) {
			p.idle = 0;
			p.since_ns = 0;
			p.warned = false;
			continue;
		}
		coll_context_progress(comm->ctx);
		st = check_alarm(comm, w, &p);
		if (st == COLL_OK)
			st = idle(comm, w, &p);
		if (st != COLL_OK)
			return st;
	}
}
