/*
 * Circles of waiting: see deadlock.h.
 */
#include "watch/deadlock.h"

#include <assert.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/error.h"
#include "watch/watchdog.h"

static_assert(sizeof(struct coll_blocked) % 8 == 0 && sizeof(struct coll_blocked) <= 128,
              "a stall is a few whole words");

enum { NODES_MAX = 8 };
/* Time limits of a cycle that was examined rank by rank. No rank has moved for DEADLOCK_UNMOVED; this
 * was observed at most DEADLOCK_FRESH ago and examined at most DEADLOCK_AGE ago. So there was a moment, less than
 * DEADLOCK_FRESH ago, at which all ranks waited. Any message sent before that had been in flight
 * for at least DEADLOCK_UNMOVED - DEADLOCK_FRESH - DEADLOCK_AGE when its receiver last found nothing. */

/* ---- Showing ---- */

void coll_deadlock_show(struct coll_comm *comm, struct coll_wait_timer *p, const struct coll_blocked *s)
{
	coll_words_publish(&comm->blocked.version, comm->blocked.word, s, COLL_BLOCKED_WORDS);
	p->shown = true;
}

void coll_deadlock_hide(struct coll_comm *comm, struct coll_wait_timer *p)
{
	const struct coll_blocked none = {.peer = -1};

	if (!p->shown)
		return;
	coll_words_publish(&comm->blocked.version, comm->blocked.word, &none, COLL_BLOCKED_WORDS);
	p->shown = false;
}

bool coll_deadlock_look(const struct coll_comm *comm, struct coll_blocked *s)
{
	return atomic_load_explicit(&comm->blocked.version, memory_order_relaxed) != 0 &&
	       coll_words_read(&comm->blocked.version, comm->blocked.word, s, COLL_BLOCKED_WORDS) && s->peer >= 0;
}

/* ---- Searching for a cycle ---- */

struct node {
	int rank;
	struct coll_blocked blocked;
	uint64_t sent, received; /* messages that it has begun with the node before */
	bool settled;            /* it has not moved for long, by recent information */
};

/* Its answer to this very wait, if it is stalled. before: who waits for it. */
static bool heard(const struct coll_comm *comm, const struct coll_wait_timer *p, int rank, int before,
                  const struct coll_peer_state *state, struct node *n)
{
	const struct coll_answer *a = &state->answer;
	const uint64_t now = coll_clock_ns();

	if (!state->answered_ns || a->wait != p->since_ns || a->third != before || a->record.comm != comm->id ||
	    !a->blocked.blocked || a->blocked.peer < 0 || a->blocked.peer >= comm->size)
		return false;
	*n = (struct node){.rank = rank, .blocked = a->blocked, .sent = a->sent, .received = a->received};
	n->settled = a->blocked.unmoved_ms >= COLL_DELAY_DEADLOCK_UNMOVED_MS &&
	             a->blocked.shown_ns <= COLL_DELAY_NS(DEADLOCK_AGE) &&
	             now - state->answered_ns <= COLL_DELAY_NS(DEADLOCK_FRESH);
	return true;
}

static bool ask(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine, int rank,
                int before, struct node *n)
{
	const struct coll_mismatch_msg q = {
	        .record = mine->call, .wait = p->since_ns, .third = before, .about = COLL_ABOUT_NOTHING};
	const int process = coll_comm_process(comm, rank);
	struct coll_peer_state state;

	coll_control_ask(comm->ctx->control, process, &q);
	coll_service_kick(comm->ctx);
	coll_control_peer(comm->ctx->control, process, comm->id, COLL_ABOUT_NOTHING, &state);
	return heard(comm, p, rank, before, &state, n);
}

static bool member(const struct node *nodes, int n, int rank)
{
	for (int i = 0; i < n; i++)
		if (nodes[i].rank == rank)
			return true;
	return false;
}

/* This rank first, each waits for the next, the last for the first. 0: there is no cycle
 * through this rank, as far as is known. */
static int collect(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine, int peer,
                   const struct coll_peer_state *state, struct node *nodes)
{
	int n = 2;

	nodes[0] = (struct node){.rank = comm->rank,
	                         .blocked = *mine,
	                         .settled = mine->unmoved_ms >= COLL_DELAY_DEADLOCK_UNMOVED_MS && mine->blocked};
	if (!heard(comm, p, peer, comm->rank, state, &nodes[1]))
		return 0;
	while (nodes[n - 1].blocked.peer != comm->rank) {
		const int next = nodes[n - 1].blocked.peer;

		if (n == NODES_MAX || member(nodes, n, next) || !ask(comm, p, mine, next, nodes[n - 1].rank, &nodes[n]))
			return 0;
		n++;
	}
	return n;
}

/* ---- What its edges say ---- */

enum edge {
	NONE,    /* what is waited for does not depend on what the other shows */
	SAME,    /* both are in this collective */
	MISSING, /* what is waited for has not been made: nothing of it is under way */
};

/* What waits for room may get some from what the other does besides. */
static bool hard(const struct coll_blocked *s)
{
	return s->need == COLL_NEEDS_CALL || s->need == COLL_NEEDS_MESSAGE;
}

static uint64_t made(const struct coll_comm *comm, const struct coll_blocked *waiting, int waiting_rank,
                     const struct node *to)
{
	const bool of_mine = to->rank == comm->rank; /* its counts are local, no answer is needed */
	const int half = waiting->need == COLL_NEEDS_MESSAGE ? 0 : 1;

	if (waiting->need == COLL_NEEDS_CALL || waiting->need == COLL_NEEDS_ROOM)
		return to->blocked.issued;
	if (of_mine)
		return atomic_load_explicit(&comm->pair_sequence[half][waiting_rank], memory_order_relaxed);
	return half == 0 ? to->sent : to->received;
}

/* A call can progress while its rank is blocked in another one. Then the wait of that other call counts, and
 * no rank publishes it. */
static enum edge edge(const struct coll_comm *comm, const struct node *from, const struct node *to)
{
	const struct coll_blocked *w = &from->blocked, *t = &to->blocked;
	const bool of_call = w->need == COLL_NEEDS_CALL || w->need == COLL_NEEDS_ROOM;
	const bool in_call = t->need == COLL_NEEDS_CALL || t->need == COLL_NEEDS_ROOM;

	if (made(comm, w, from->rank, to) < w->number)
		return hard(w) || t->alone ? MISSING : NONE;
	return of_call && in_call && w->number == t->number ? SAME : NONE;
}

static void tell(const struct coll_comm *comm, const struct node *waiting, const struct node *missing, int n,
                 struct coll_deadlock *c)
{
	char of_waiting[100], of_missing[100];

	coll_record_describe(&waiting->blocked.call, of_waiting, sizeof(of_waiting));
	coll_record_describe(&missing->blocked.call, of_missing, sizeof(of_missing));
	c->waiting = waiting->rank;
	c->missing = missing->rank;
	snprintf(c->text, sizeof(c->text), "[COLL-3102] calls differ: %s calls %s, %s calls %s: %s",
	         coll_comm_name(comm, waiting->rank).text, of_waiting, coll_comm_name(comm, missing->rank).text,
	         of_missing, n == 2 ? "each waits for the other" : "they wait for each other in a cycle");
}

/* One is in a collective, the other waits for a message: such a pair differs. Of two in collectives one may only be
 * ahead, and be held up by a difference elsewhere in the cycle. */
static bool kinds_differ(const struct node *a, const struct node *b)
{
	const bool a_in_call = a->blocked.need == COLL_NEEDS_CALL || a->blocked.need == COLL_NEEDS_ROOM;
	const bool b_in_call = b->blocked.need == COLL_NEEDS_CALL || b->blocked.need == COLL_NEEDS_ROOM;

	return a_in_call != b_in_call;
}

bool coll_deadlock_closes(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine,
                          int peer, const struct coll_peer_state *state, struct coll_deadlock *cycle)
{
	struct node nodes[NODES_MAX];
	const int n = collect(comm, p, mine, peer, state, nodes);
	bool all_hard = true, all_settled = true, differs = false, sure = false;

	for (int i = n - 1; i >= 0; i--) {
		const struct node *from = &nodes[i], *to = &nodes[(i + 1) % n];
		const enum edge e = edge(comm, from, to);

		if (e == NONE)
			return false;
		all_hard = all_hard && e == MISSING && hard(&from->blocked);
		all_settled = all_settled && from->settled;
		if (e == MISSING && (!sure || kinds_differ(from, to)))
			tell(comm, from, to, n, cycle);
		sure = sure || (e == MISSING && kinds_differ(from, to));
		differs = differs || e == MISSING;
	}
	/* Two: this rank has been in its wait all along, so both were at the time of the answer. */
	return differs && (all_settled || (n == 2 && all_hard));
}
