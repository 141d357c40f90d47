/*
 * Late ranks: see late.h. A rank is late for a call if it answers that it has not begun it and that it
 * does not wait in an earlier one: there it would be held up itself. The list travels to the other ranks
 * in the text of the note, and is read from there.
 */
#include "watch/late.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"

/* At a time: less than the control plane can ask about. */
enum { TURN = 16 };

/* The text of the ranks, without what follows them. */
enum { LIST_BYTES = 120 };

static const char of_the_job[] = " of the job";

static void ask(struct coll_comm *comm, const struct coll_record *mine, int rank)
{
	const struct coll_mismatch_msg q = {.record = *mine, .about = COLL_ABOUT_NOTHING, .third = -1};

	coll_control_ask(comm->ctx->control, coll_comm_process(comm, rank), &q);
}

/* Whether it has answered since we began; *late: what that says. */
static bool has_answered(struct coll_comm *comm, const struct coll_record *mine, int rank, bool *late)
{
	struct coll_peer_state s;
	const struct coll_record *theirs = &s.answer.record;

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, rank), comm->id, -1, &s);
	if (!s.answered_ns || s.answered_ns < comm->late.begun_ns)
		return false;
	*late = theirs->comm != comm->id ||
	        (coll_record_is_before(theirs, mine) && !(theirs->active && theirs->waits_for >= 0));
	return true;
}

static bool need_list(struct coll_comm *comm)
{
	if (!comm->late.ranks)
		comm->late.ranks = calloc((size_t)comm->size, sizeof(int));
	return comm->late.ranks != NULL;
}

/* Without memory, the list has the one rank that is known. */
static void only(struct coll_late *l, int rank)
{
	l->one = rank;
	l->count = rank >= 0;
	if (l->ranks)
		l->ranks[0] = rank;
}

/* All ranks of this turn that have answered, or are what the wait is for. */
static void note_turn(struct coll_comm *comm, const struct coll_record *mine, int peer, int end)
{
	struct coll_late *l = &comm->late;

	for (int r = l->next; r < end; r++) {
		bool late = false;

		if (r != comm->rank && (r == peer || (has_answered(comm, mine, r, &late) && late)))
			l->ranks[l->count++] = r;
	}
	l->next = end;
}

bool coll_late_find(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p, int peer,
                    uint64_t now)
{
	struct coll_late *l = &comm->late;
	bool late, missing = false;
	int end;

	if (w->record->kind == COLL_KIND_SEND_RECV || comm->size == 2 || !need_list(comm)) {
		only(l, peer);
		return true;
	}
	if (l->wait_ns != p->since_ns) {
		*l = (struct coll_late){.wait_ns = p->since_ns, .begun_ns = now, .ranks = l->ranks};
		l->turn_ns = 0;
	}
	end = l->next + TURN < comm->size ? l->next + TURN : comm->size;
	if (!l->turn_ns) {
		l->turn_ns = now;
		for (int r = l->next; r < end; r++)
			if (r != comm->rank)
				ask(comm, w->record, r);
		coll_service_kick(comm->ctx);
	}
	for (int r = l->next; r < end && !missing; r++)
		missing = r != comm->rank && !has_answered(comm, w->record, r, &late);
	if (missing && now - l->turn_ns < COLL_DELAY_NS(LATE_TURN))
		return false;
	note_turn(comm, w->record, peer, end);
	l->turn_ns = 0;
	/* A member that failed first has left, and looks as if it had not come. Its note came before its answer, and is
	 * the better verdict: the wait reads it first. */
	if (atomic_load_explicit(&comm->ctx->alarm, memory_order_acquire) != comm->alarm_seen)
		return false;
	if (end < comm->size && now - l->begun_ns < COLL_DELAY_NS(LATE_ALL))
		return false;
	if (end <= peer)
		l->ranks[l->count++] = peer; /* its turn did not come */
	return true;
}

/* What the text calls a rank: a group that is being made has no numbers that the program knows. */
static int number_of(const struct coll_comm *comm, int rank)
{
	return comm->parent ? coll_comm_process(comm, rank) : rank;
}

/* The end of a run of consecutive numbers of the list, from at. */
static int run_end(const struct coll_comm *comm, int at)
{
	const struct coll_late *l = &comm->late;

	while (at + 1 < l->count && number_of(comm, l->ranks[at + 1]) == number_of(comm, l->ranks[at]) + 1)
		at++;
	return at;
}

void coll_late_describe(const struct coll_comm *comm, const char *kind, char text[COLL_LATE_TEXT])
{
	const struct coll_late *l = &comm->late;
	size_t used = 0;
	int at = 0;

	text[0] = 0;
	if (l->count < 2)
		return;
	used = (size_t)snprintf(text, COLL_LATE_TEXT, "ranks");
	while (at < l->count && used < LIST_BYTES) {
		/* Two neighbours are written as two ranks. */
		const int end = run_end(comm, at), last = end > at + 1 ? end : at;
		const char *before = at == 0 ? "" : last + 1 == l->count ? " and" : ",";

		used += (size_t)snprintf(text + used, COLL_LATE_TEXT - used, "%s %d", before,
		                         number_of(comm, l->ranks[at]));
		if (last > at)
			used += (size_t)snprintf(text + used, COLL_LATE_TEXT - used, "-%d",
			                         number_of(comm, l->ranks[last]));
		at = last + 1;
	}
	if (at < l->count)
		used += (size_t)snprintf(text + used, COLL_LATE_TEXT - used, " and %d more", l->count - at);
	snprintf(text + used, COLL_LATE_TEXT - used, "%s have not called %.20s; ", comm->parent ? of_the_job : "",
	         kind);
}

static bool take(const char **at, const char *word)
{
	const size_t n = strlen(word);

	if (strncmp(*at, word, n) != 0)
		return false;
	*at += n;
	return true;
}

/* One number of the list, from `least` on and below `end`. -1: it is none. */
static int take_number(const char **at, int least, int end)
{
	char *behind;
	const long n = **at >= '0' && **at <= '9' ? strtol(*at, &behind, 10) : -1;

	if (n < least || n >= end)
		return -1;
	*at = behind;
	return (int)n;
}

/* The same of ranks of the job, which need not be in order. */
static bool names_processes(const char *list)
{
	const char *end = strstr(list, " have not called ");
	const size_t n = strlen(of_the_job);

	return (size_t)(end - list) > n && strncmp(end - n, of_the_job, n) == 0;
}

void coll_late_read(struct coll_comm *comm, int culprit, const char *text)
{
	struct coll_late *l = &comm->late;
	const char *at = strstr(text, "ranks ");
	int next = 0, end;
	bool processes;

	only(l, culprit);
	if (!at || !strstr(at, " have not called ") || !need_list(comm))
		return;
	l->count = 0;
	at += strlen("ranks ");
	processes = names_processes(at);
	end = processes ? comm->ctx->size : comm->size;
	do {
		const int first = take_number(&at, processes ? 0 : next, end);
		const int last = first >= 0 && take(&at, "-") ? take_number(&at, first, end) : first;

		if (last < 0 || strncmp(at, " more", 5) == 0)
			break;
		for (int n = first; n <= last && l->count < comm->size; n++) {
			const int rank = processes ? coll_comm_rank_of(comm, n) : n;

			if (rank >= 0)
				l->ranks[l->count++] = rank;
		}
		next = last + 1;
	} while (take(&at, ", ") || take(&at, " and "));
	if (l->count == 0)
		only(l, culprit);
}
