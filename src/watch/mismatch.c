/*
 * Inquiries: see mismatch.h.
 *
 * Nothing is kept here: calls are read off the communicator's call runs, messages off the
 * flight recorder, and both may be overwritten at any moment by the thread that calls. What
 * is not on record does not count as different.
 */
#include "watch/mismatch.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/planted.h"
#include "core/error.h"
#include "watch/deadlock.h"
#include "watch/pair_counts.h"

/* ---- What is on record ---- */

/* Stretches of equal calls, newest first: *at is one above the next to read, to begin with
 * UINT_MAX. The last member of each is one before the first of the next newer one. */
static bool previous(const struct coll_comm *comm, unsigned *at, struct coll_record *first)
{
	const unsigned top = atomic_load_explicit(&comm->call_runs, memory_order_acquire);
	uint64_t newer = UINT64_MAX;

	if (*at > top)
		*at = top;
	else
		newer = first->sequence;
	if (*at == 0 || top - *at >= COLL_CALL_RUNS)
		return false;
	--*at;
	/* Overwritten meanwhile: newer than what came before. */
	return coll_record_read(&comm->call_run[*at % COLL_CALL_RUNS], first) && first->sequence < newer;
}

/* Number of the last collective call made here, as far as this thread can tell: all of them
 * are in call runs it can see. The record shows what runs, which may be an older one. */
static bool last_call(const struct coll_comm *comm, struct coll_record *now, uint64_t *last)
{
	const uint64_t handed_in = atomic_load_explicit(&comm->handed_in, memory_order_acquire);

	if (!coll_record_read(&comm->record, now))
		return false;
	*last = now->sequence > handed_in && !(now->flags & COLL_RECORD_CAPTURED) ? now->sequence : handed_in;
	return true;
}

static bool find_call(const struct coll_comm *comm, uint64_t sequence, struct coll_record *call)
{
	struct coll_record now;
	unsigned at = UINT_MAX;
	uint64_t last;

	if (!last_call(comm, &now, &last) || last < sequence)
		return false;
	while (previous(comm, &at, call))
		if (call->sequence <= sequence) {
			call->sequence = sequence;
			call->active = now.sequence == sequence && now.kind != COLL_KIND_SEND_RECV &&
			               !(now.flags & COLL_RECORD_CAPTURED) && now.active;
			return true;
		}
	return false;
}

static bool find_message(const struct coll_comm *comm, int half, int peer, uint64_t sequence, struct coll_record *call)
{
	const struct coll_recorder *r = &comm->recorder;
	const uint64_t top = atomic_load_explicit(&r->next, memory_order_acquire);
	const uint64_t last = top > COLL_RECORDER_ENTRIES ? top - COLL_RECORDER_ENTRIES : 0;
	struct coll_op_record op;

	for (uint64_t i = top; r->entries && i > last; i--)
		if (coll_recorder_read(r, i - 1, comm->id, &op) && op.kind == COLL_KIND_SEND_RECV && op.op == half &&
		    op.root == peer && op.sequence == sequence) {
			coll_op_record_call(&op, call);
			return true;
		}
	return false;
}

/* ---- Question ---- */

static void about_calls(const struct coll_comm *comm, struct coll_mismatch_msg *q)
{
	struct coll_call_run newest_first[COLL_MISMATCH_CALL_RUNS];
	struct coll_record first;
	unsigned at = UINT_MAX;
	uint32_t n = 0;

	while (n < COLL_MISMATCH_CALL_RUNS && previous(comm, &at, &first))
		if (first.sequence <= q->sequence)
			newest_first[n++] =
			        (struct coll_call_run){.first = first.sequence, .signature = first.signature};
	for (uint32_t i = 0; i < n; i++)
		q->call_run[i] = newest_first[n - 1 - i];
	q->call_runs = n;
}

void coll_mismatch_question(const struct coll_comm *comm, const struct coll_record *mine,
                            const struct coll_entry *entry, uint64_t newest, struct coll_mismatch_msg *q)
{
	const uint64_t version = entry ? atomic_load_explicit(&entry->version, memory_order_relaxed) : 0;
	struct coll_op_record op;

	*q = (struct coll_mismatch_msg){.record = *mine, .sequence = mine->sequence, .third = comm->rank};
	if (mine->flags & COLL_RECORD_CAPTURED) {
		q->about = COLL_ABOUT_NOTHING; /* what graphs have called is not on record */
		q->sequence = 0;
	} else if (mine->kind != COLL_KIND_SEND_RECV) {
		q->pair_counts = mine->sequence < newest ? mine->sequence : newest;
		about_calls(comm, q);
	} else if (!coll_message_has_tag(mine->op) && version >= 2 &&
	           coll_recorder_read(&comm->recorder, version / 2 - 1, comm->id, &op)) {
		q->about = op.op ? COLL_ABOUT_SENT : COLL_ABOUT_RECEIVED;
		q->sequence = op.sequence < newest ? op.sequence : newest;
	} else {
		q->about = COLL_ABOUT_SENT;
		q->sequence = 0; /* no message has that number */
	}
}

/* ---- Answer ---- */

/* The signature of call number sequence at the rank that asks; false: the message does not have it. */
static bool told(const struct coll_mismatch_msg *q, uint64_t sequence, uint32_t *signature)
{
	if (q->call_runs == 0 || sequence < q->call_run[0].first || sequence > q->sequence)
		return false;
	for (uint32_t i = 0; i < q->call_runs && q->call_run[i].first <= sequence; i++)
		*signature = q->call_run[i].signature;
	return true;
}

/* The first call here that differs from the call of that number at the rank that asks, as far back as both
 * are recorded. */
static bool first_difference(const struct coll_comm *comm, const struct coll_mismatch_msg *q, struct coll_record *call)
{
	struct coll_record now, first;
	unsigned at = UINT_MAX;
	uint64_t last, differs = 0;
	uint32_t theirs = 0;

	if (!last_call(comm, &now, &last))
		return false;
	last = last < q->sequence ? last : q->sequence;
	while (previous(comm, &at, &first)) {
		/* Within this call run, the calls of the rank that asks change where its own call runs begin. */
		for (uint32_t i = 0; i < q->call_runs; i++)
			if (q->call_run[i].first >= first.sequence && q->call_run[i].first <= last &&
			    q->call_run[i].signature != first.signature)
				differs = q->call_run[i].first < differs || !differs ? q->call_run[i].first : differs;
		if (first.sequence <= last && told(q, first.sequence, &theirs) && theirs != first.signature)
			differs = first.sequence;
		if (first.sequence == 0)
			break;
		last = first.sequence - 1 < last ? first.sequence - 1 : last;
	}
	return differs && find_call(comm, differs, call);
}

static bool sane(const struct coll_mismatch_msg *q)
{
	return q->about < COLL_ABOUT_END && q->call_runs <= COLL_MISMATCH_CALL_RUNS;
}

/* The counters after the stall: they stand still while it is on. */
static void answer_stall(const struct coll_comm *comm, int rank, struct coll_answer *a)
{
	a->third = rank;
	a->blocked.peer = -1;
	if (coll_deadlock_look(comm, &a->blocked))
		a->blocked.shown_ns = coll_clock_ns() - a->blocked.shown_ns; /* clocks differ: its age */
	if (rank < 0 || rank >= comm->size)
		return;
	a->sent = atomic_load_explicit(&comm->pair_sequence[0][rank], memory_order_relaxed);
	a->received = atomic_load_explicit(&comm->pair_sequence[1][rank], memory_order_relaxed);
}

/* This rank waits for the rank that asks on another communicator. */
static void answer_abroad(const struct coll_context *c, uint64_t here, int process, struct coll_answer *a)
{
	struct coll_blocked s;

	for (const struct coll_comm *comm = c->comms; comm && !a->abroad.active; comm = comm->next)
		if (comm->id != here && coll_deadlock_look(comm, &s) && s.blocked &&
		    coll_comm_process(comm, s.peer) == process)
			a->abroad = s.call;
}

static void answer(const struct coll_comm *comm, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	bool known = false;

	if (!coll_record_read(&comm->record, &a->record))
		a->record.sequence = 0;
	a->record.comm = comm->id; /* nothing is published before the first call */
	if (q->about == COLL_ABOUT_CALLS)
		known = first_difference(comm, q, &a->call) || find_call(comm, q->sequence, &a->call) ||
		        (q->pair_counts < q->sequence && find_call(comm, q->pair_counts, &a->call));
	else if (q->about != COLL_ABOUT_NOTHING && q->about != COLL_ABOUT_TAGS)
		known = find_message(comm, q->about == COLL_ABOUT_RECEIVED, coll_comm_rank_of(comm, process),
		                     q->sequence, &a->call);
	if (!known)
		a->call.sequence = 0;
	if (q->about == COLL_ABOUT_CALLS && coll_pair_counts_find(&comm->pair_counts, q->pair_counts,
	                                                          coll_comm_rank_of(comm, process), &a->to, &a->from))
		a->pair_counts = q->pair_counts;
	a->in_stream = comm->stage && a->record.sequence < atomic_load_explicit(&comm->handed_in, memory_order_acquire);
	answer_stall(comm, q->third, a);
}

static bool is_gone(const struct coll_context *c, uint64_t id)
{
	for (unsigned i = 0; i < COLL_GONE_MAX && i < c->ngone; i++)
		if (c->gone[i] == id)
			return true;
	return false;
}

/* The rank that asks waits until a driver opens the channels. */
static void note_wake(struct coll_comm *comm, int process)
{
	const int rank = coll_comm_rank_of(comm, process);

	if (rank < 0 || !comm->tagged.wakes)
		return;
	atomic_store_explicit(&comm->tagged.wakes[rank], 1, memory_order_relaxed);
	/* Release: whoever sees it sees the rank. The counter comes last: who sees it looks at all communicators. */
	atomic_store_explicit(&comm->tagged.woken, true, memory_order_release);
	atomic_fetch_add_explicit(&comm->ctx->wakes, 1, memory_order_release);
	coll_context_wake(comm->ctx);
}

bool coll_mismatch_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	struct coll_context *c = ctx;
	bool found = false;

	*a = (struct coll_answer){
	        .record = {.comm = q->record.comm}, .sequence = q->sequence, .about = q->about, .wait = q->wait};
	a->blocked.peer = -1;
	if (!sane(q))
		return false;
	if (planted(SLOW_JUDGE))
		nanosleep(&(struct timespec){.tv_nsec = 15 * 1000 * 1000}, NULL);
	pthread_mutex_lock(&c->comms_lock);
	for (struct coll_comm *comm = c->comms; comm && !found; comm = comm->next)
		if (comm->id == q->record.comm) {
			answer(comm, process, q, a);
			if (q->about == COLL_ABOUT_TAGS)
				note_wake(comm, process);
			answer_abroad(c, comm->id, process, a);
			found = true;
		}
	/* Of one that has not been created here yet nothing is known. */
	if (!found && is_gone(c, q->record.comm)) {
		a->record.flags = COLL_RECORD_GONE;
		a->record.waits_for = -1;
		found = true;
	}
	pthread_mutex_unlock(&c->comms_lock);
	return found;
}

/* ---- Verdict ---- */

void coll_mismatch_text(const struct coll_comm *comm, const struct coll_record *mine, int peer,
                        const struct coll_record *theirs, char *text, size_t len_bytes)
{
	const bool left = theirs->kind == COLL_RECORD_DESTROY, leaves = mine->kind == COLL_RECORD_DESTROY;
	char mine_text[100], their_text[100];

	coll_record_describe(mine, mine_text, sizeof(mine_text));
	coll_record_describe(theirs, their_text, sizeof(their_text));
	if (left != leaves)
		snprintf(text, len_bytes,
		         "[COLL-3101] calls differ: %s calls %s, %s has left: it destroyed its communicator",
		         coll_comm_name(comm, left ? comm->rank : peer).text, left ? mine_text : their_text,
		         coll_comm_name(comm, left ? peer : comm->rank).text);
	else
		snprintf(text, len_bytes, "[COLL-3101] calls differ: %s calls %s, %s calls %s%s",
		         coll_comm_name(comm, comm->rank).text, mine_text, coll_comm_name(comm, peer).text, their_text,
		         strcmp(mine_text, their_text) == 0 ? " with different block lengths" : "");
}

/* Both make the same call, number q->pair counts, but for the lengths of their blocks. */
static bool lengths_differ(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                           const struct coll_answer *a, char *text, size_t len_bytes)
{
	struct coll_record call;
	uint64_t to, from;
	char what[100];

	if (q->about != COLL_ABOUT_CALLS || a->pair_counts != q->pair_counts ||
	    !coll_pair_counts_find(&comm->pair_counts, q->pair_counts, peer, &to, &from) ||
	    (to == a->from && from == a->to) || !find_call(comm, q->pair_counts, &call))
		return false;
	coll_record_describe(&call, what, sizeof(what));
	snprintf(text, len_bytes,
	         "[COLL-3101] calls differ: %s calls %s and %s %llu elements %s rank %d, %s calls %s and %s %llu %s "
	         "rank %d",
	         coll_comm_name(comm, comm->rank).text, what, to != a->from ? "sends" : "expects",
	         (unsigned long long)(to != a->from ? to : from), to != a->from ? "to" : "from", peer,
	         coll_comm_name(comm, peer).text, what, to != a->from ? "expects" : "sends",
	         (unsigned long long)(to != a->from ? a->from : a->to), to != a->from ? "from" : "to", comm->rank);
	return true;
}

/* The call or message that is answered with is another here. */
static bool calls_differ(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                         const struct coll_answer *a, char *text, size_t len_bytes)
{
	struct coll_record mine;

	if (q->about == COLL_ABOUT_CALLS) {
		if (!find_call(comm, a->call.sequence, &mine) || mine.signature == a->call.signature)
			return false;
	} else if (!find_message(comm, q->about == COLL_ABOUT_SENT, peer, q->sequence, &mine) ||
	           (mine.count == a->call.count && mine.type == a->call.type)) {
		return false;
	}
	coll_mismatch_text(comm, &mine, peer, &a->call, text, len_bytes);
	return true;
}

bool coll_mismatch_differs(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                           const struct coll_answer *a, char *text, size_t len_bytes)
{
	if (a->about != q->about || a->sequence != q->sequence || a->call.sequence == 0 || a->call.comm != comm->id)
		return false;
	return calls_differ(comm, peer, q, a, text, len_bytes) || lengths_differ(comm, peer, q, a, text, len_bytes);
}

bool coll_mismatch_agrees(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                          const struct coll_answer *a)
{
	uint64_t to, from;
	char text[400];

	/* Of calls that pairs make, the lengths must have been compared too. */
	if (a->pair_counts != q->pair_counts &&
	    coll_pair_counts_find(&comm->pair_counts, q->pair_counts, peer, &to, &from))
		return false;
	return a->about == q->about && a->sequence == q->sequence && a->call.comm == comm->id &&
	       a->call.sequence == q->sequence && !coll_mismatch_differs(comm, peer, q, a, text, sizeof(text));
}
