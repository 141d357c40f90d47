/*
 * The alarm: what notes of deaths, failures and aborts do to a communicator. See watchdog.h. A death ends what needs
 * the dead, everything else ends the communicator.
 */
#include "watch/alarm.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "control/gossip.h"
#include "core/dead.h"
#include "core/error.h"
#include "watch/late.h"
#include "watch/left.h"

static void stamp(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p)
{
	struct coll_error_box *b = &comm->box;
	const char *kind = coll_record_kind_name(w->record->kind);

	snprintf(b->kind, sizeof(b->kind), "%s", kind ? kind : "");
	b->operation = w->record->sequence;
	b->elapsed_s = p->begun_ns ? (double)(coll_clock_ns() - p->begun_ns) * 1e-9 : 0;
}

void coll_wait_describe(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                        char circumstances[180])
{
	char call[128];

	stamp(comm, w, p);
	coll_record_describe(w->record, call, sizeof(call));
	snprintf(circumstances, 180, ", after %.3f s in %s", comm->box.elapsed_s, call);
}

/* A link between two members. That a link to the dead is lost, too, is no news. */
static bool joins_living(const struct coll_comm *comm, const struct coll_note *n)
{
	const int a = coll_comm_rank_of(comm, n->process), b = coll_comm_rank_of(comm, n->origin);

	return a >= 0 && b >= 0 && !coll_comm_is_dead(comm, a) && !coll_comm_is_dead(comm, b);
}

/* Whether a reported failure concerns this communicator. */
static bool concerns(const struct coll_comm *comm, const struct coll_note *n)
{
	return n->comm == comm->id || (n->comm == 0 && joins_living(comm, n));
}

bool coll_comm_caught_up(struct coll_comm *comm, bool *done)
{
	if (*done)
		return true;
	*done = true;
	coll_control_service(comm->ctx->control);
	return false;
}

/* What the notes say of this communicator. */
struct verdict {
	coll_status status; /* OK: nothing */
	int process;        /* to blame, of the job; -1: nobody */
	int dead;           /* the member that has died */
	int death;          /* 1: it has died; 2: and this rank is the one that found out */
	bool told;          /* of a failure that another rank found */
	char text[400];
};

/* The process at the other end of a lost link of this one; -1: none is lost. */
static int other_end(struct coll_comm *comm)
{
	const int self = comm->ctx->rank;
	const struct coll_held_note *at = NULL;
	struct coll_note n;

	while (coll_control_fact(comm->ctx->control, &at, &n))
		if (n.kind == COLL_GOSSIP_FAIL && concerns(comm, &n) && (n.process == self || n.origin == self))
			return n.process == self ? n.origin : n.process;
	return -1;
}

/* A link has two ends, and whoever reads that its own is lost names the other. One that ended for lack of something: of
 * what its writer lacks. */
static int culprit_of(struct coll_comm *comm, const struct coll_note *n)
{
	if (n->comm == 0 && (n->status == COLL_ERR_SYSTEM || n->status == COLL_ERR_MEMORY))
		return n->origin;
	if (n->process == comm->ctx->rank && n->status == COLL_ERR_PEER_DEAD) {
		const int other = other_end(comm);

		return other >= 0 ? other : n->process;
	}
	return n->process;
}

static void failure_verdict(struct coll_comm *comm, const struct coll_note *n, struct verdict *v)
{
	v->status = (coll_status)n->status;
	v->process = culprit_of(comm, n);
	v->told = n->origin != comm->ctx->rank;
	if (v->status == COLL_ERR_ABORTED && n->exit_status != 0 && !comm->ended)
		atomic_store_explicit(&comm->exit_status, n->exit_status, memory_order_relaxed);
	if (v->status == COLL_ERR_PEER_LATE)
		coll_late_read(comm, coll_comm_rank_of(comm, v->process),
		               n->comm == comm->id ? n->text : ""); /* ranks of another one */
	if (n->origin == comm->ctx->rank)
		snprintf(v->text, sizeof(v->text), "%s", n->text);
	else if (coll_comm_rank_of(comm, n->origin) < 0) /* a member of the parent */
		snprintf(v->text, sizeof(v->text), "%s (reported by rank %d of the job)", n->text, n->origin);
	else
		snprintf(v->text, sizeof(v->text), "%s (reported by %s)", n->text,
		         coll_comm_name(comm, coll_comm_rank_of(comm, n->origin)).text);
}

static void death_verdict(struct coll_comm *comm, const struct coll_note *n, struct verdict *v)
{
	const int found = coll_comm_rank_of(comm, n->process);
	const int dead = planted(WRONG_RANK) ? (found + 1) % comm->size : found;

	struct coll_end e;

	v->status = COLL_ERR_PEER_DEAD;
	v->dead = dead;
	v->process = coll_comm_process(comm, dead);
	/* The others go on without this rank: for it, the communicator ends. The control plane tells them nothing of
	 * that. */
	if (dead == comm->rank && !planted(WRONG_RANK)) {
		snprintf(v->text, sizeof(v->text),
		         "[COLL-2104] the other ranks take this rank for dead, since rank %d of the job reported it: "
		         "%.200s",
		         n->origin, n->text);
		return;
	}
	v->death = n->origin == comm->ctx->rank ? 2 : 1;
	coll_died_describe(comm, dead, &e);
	v->status = e.status;
	v->process = e.process;
	snprintf(v->text, sizeof(v->text), "%s", e.text);
}

/* The first death of a member that this communicator has not heeded. */
static const struct coll_held_note *find_death(struct coll_comm *comm, struct coll_note *death)
{
	const struct coll_held_note *at = NULL;

	while (coll_control_fact(comm->ctx->control, &at, death)) {
		const int rank = coll_comm_rank_of(comm, death->process);

		if (death->kind == COLL_GOSSIP_DEATH && !planted(DEAF) && rank >= 0 && !coll_comm_is_dead(comm, rank))
			return at;
	}
	return NULL;
}

/* The abort of this rank, else the first failure reported for this communicator, else the first
 * death of a member, after the settle time. False: look again, since that time is not over. */
static bool look_at_notes(struct coll_comm *comm, struct verdict *v)
{
	struct coll_note note, death;
	const struct coll_held_note *at = NULL, *dead;

	v->status = COLL_OK;
	v->death = 0;
	v->told = false;
	if (atomic_load_explicit(&comm->aborted, memory_order_acquire)) {
		v->status = COLL_ERR_ABORTED;
		v->process = comm->ctx->rank;
		snprintf(v->text, sizeof(v->text), "%s", comm->abort_text);
		return true;
	}
	if (!comm->ctx->control)
		return true;
	if (coll_control_failure(comm->ctx->control, comm->id, &note) ||
	    (comm->parent && coll_control_failure(comm->ctx->control, comm->parent, &note))) {
		failure_verdict(comm, &note, v);
		return true;
	}
	while (coll_control_fact(comm->ctx->control, &at, &note))
		if (note.kind == COLL_GOSSIP_FAIL && concerns(comm, &note)) {
			failure_verdict(comm, &note, v);
			return true;
		}
	dead = find_death(comm, &death);
	comm->death_ns = dead ? coll_clock_ns() : 0;
	if (!dead)
		return true;
	if (!coll_control_settled(comm->ctx->control, dead))
		return false;
	comm->death_ns = 0;
	death_verdict(comm, &death, v);
	return true;
}

/* What the notes say is done to the communicator. w NULL: in front of a call of that kind. */
static coll_status carry_out(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                             const char *kind, const struct verdict *v)
{
	char circumstances[180] = "";
	const bool first = !comm->failed;
	coll_status st;

	if (w) {
		coll_wait_describe(comm, w, p, circumstances);
	} else {
		snprintf(comm->box.kind, sizeof(comm->box.kind), "%s", kind);
		comm->box.operation = comm->sequence + 1;
	}
	comm->from_gossip |= !comm->ended;
	comm->told_failure |= v->told && !comm->ended;
	if (!v->death || planted(WRONG_RANK))
		return coll_comm_fail_for(comm, v->status, v->process, v->text, circumstances);
	st = coll_comm_lose_member(comm, v->dead, v->status, v->process, v->text, circumstances);
	/* Only this rank may know of it, and it may end now. */
	if (v->death == 2 && first && !comm->ended)
		coll_control_flush(comm->ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
	return st;
}

/* All that the notes say. now: of the alarm, before they were read. */
static coll_status heed(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                        const char *kind, unsigned now)
{
	coll_status st = COLL_OK;
	struct verdict v;

	atomic_fetch_and_explicit(&comm->attention, ~(unsigned)COLL_ATTENTION_ALARM, memory_order_acquire);
	do {
		if (!look_at_notes(comm, &v)) {
			/* alarm_seen stays behind. A call may go ahead meanwhile; the next one looks again. */
			atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_ALARM, memory_order_relaxed);
			return st;
		}
		if (v.status != COLL_OK)
			st = carry_out(comm, w, p, kind, &v);
	} while (v.death && !comm->ended);
	comm->alarm_seen = now;
	return st;
}

coll_status coll_comm_heed_alarm(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p)
{
	const unsigned now = atomic_load_explicit(&comm->ctx->alarm, memory_order_acquire);

	if (now == comm->alarm_seen && !atomic_load_explicit(&comm->aborted, memory_order_relaxed))
		return COLL_OK;
	return heed(comm, w, p, NULL, now);
}

coll_status coll_comm_attend(struct coll_comm *comm, const char *kind)
{
	const unsigned now = atomic_load_explicit(&comm->ctx->alarm, memory_order_acquire);

	return heed(comm, NULL, NULL, kind, now);
}

void coll_comm_alert(void *ctx, uint64_t id)
{
	struct coll_context *c = ctx;

	pthread_mutex_lock(&c->comms_lock);
	for (struct coll_comm *comm = c->comms; comm; comm = comm->next)
		if (id == 0 || comm->id == id)
			atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_ALARM, memory_order_release);
	pthread_mutex_unlock(&c->comms_lock);
}

bool coll_comm_needs_note(void *ctx, uint64_t id)
{
	struct coll_context *c = ctx;
	bool needs = false;

	pthread_mutex_lock(&c->comms_lock);
	for (const struct coll_comm *comm = c->comms; comm && !needs; comm = comm->next)
		needs = comm->id == id &&
		        (atomic_load_explicit(&comm->attention, memory_order_relaxed) & COLL_ATTENTION_ALARM);
	pthread_mutex_unlock(&c->comms_lock);
	return needs;
}
