/*
 * Verdicts: see hang.h.
 *
 * Ranks are named by their number in the job. A rank that is held up waits for another one, by its
 * own dump, or by its last answer to a rank that pinged it. Following these waits from rank to
 * rank ends at one that waits for no rank (the culprit), at one without information, or
 * in a cycle.
 */
#include "hang.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Less is no wait worth a word: the job moves. */
static const uint64_t STALL_NS = 500000000;

enum { WAITERS_SHOWN = 16 };

/* ---- Looking things up ---- */

static const struct dump *find_dump(const struct dump_list *l, uint64_t job, int process)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->dumps[i].job == job && l->dumps[i].process == process)
			return &l->dumps[i];
	return NULL;
}

static uint64_t begun(const struct dump_op *o)
{
	return o->begin_ns ? o->begin_ns : o->queued_ns;
}

/* A receive that is posted holds nobody up, unless it says whom a thread waits for in it. */
static bool is_posted(const struct dump_op *o)
{
	return strcmp(o->kind, "irecv") == 0 && o->state == DUMP_RUNNING && o->waits_for < 0;
}

/* The operation a rank is held up in: of those that have begun and not ended, the oldest
 * that names whom it waits for, else the oldest. */
static const struct dump_op *stuck_op(const struct dump *d)
{
	const struct dump_op *best = NULL;

	for (size_t i = 0; i < d->nops; i++) {
		const struct dump_op *o = &d->ops[i];

		if (o->state != DUMP_RUNNING || is_posted(o))
			continue;
		if (!best || (o->waits_for >= 0) > (best->waits_for >= 0) ||
		    ((o->waits_for >= 0) == (best->waits_for >= 0) && begun(o) < begun(best)))
			best = o;
	}
	return best && d->now_ns > begun(best) + STALL_NS ? best : NULL;
}

static const struct dump_op *last_ended(const struct dump *d)
{
	const struct dump_op *best = NULL;

	for (size_t i = 0; i < d->nops; i++)
		if (d->ops[i].state == DUMP_ENDED && (!best || d->ops[i].end_ns > best->end_ns))
			best = &d->ops[i];
	return best;
}

static const struct dump_peer *find_peer(const struct dump *d, int process)
{
	for (size_t i = 0; i < d->npeers; i++)
		if (d->peers[i].process == process)
			return &d->peers[i];
	return NULL;
}

/* The most recent information of any rank about a process. */
static const struct dump_peer *heard_of(const struct dump_list *l, uint64_t job, int process)
{
	const struct dump_peer *best = NULL;

	for (size_t i = 0; i < l->n; i++) {
		const struct dump_peer *p = l->dumps[i].job == job ? find_peer(&l->dumps[i], process) : NULL;

		if (p && (!best || p->heard_ns > best->heard_ns))
			best = p;
	}
	return best;
}

static const struct dump_note *death_of(const struct dump_list *l, uint64_t job, int process)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; l->dumps[i].job == job && k < l->dumps[i].nnotes; k++)
			if (l->dumps[i].notes[k].process == process && strcmp(l->dumps[i].notes[k].about, "death") == 0)
				return &l->dumps[i].notes[k];
	return NULL;
}

/* "is stopped: ..."; NULL: it answered. pid 0: not known. */
static const char *why_silent(const struct door_silent *s, int pid, int process)
{
	for (int i = 0; i < s->n; i++)
		if (pid ? s->who[i].pid == pid : s->who[i].process == process)
			return s->who[i].why;
	return NULL;
}

/* ---- Words ---- */

static void add_rank(struct coll_text *t, const struct dump_list *l, uint64_t job, int process)
{
	const struct dump *d = find_dump(l, job, process);
	const struct dump_peer *p = d ? NULL : heard_of(l, job, process);

	coll_text_add(t, "rank %d", process);
	if (d)
		coll_text_add(t, " (pid %d, host %s)", d->pid, d->host);
	else if (p)
		coll_text_add(t, " (pid %d, host %s)", p->pid, p->host);
}

static double seconds(uint64_t from, uint64_t to)
{
	return to > from ? (double)(to - from) * 1e-9 : 0;
}

/* " of communicator 1a2b (ranks 0,2)" when the job has several, or its name. */
static void add_comm(struct coll_text *t, const struct dump *d, uint64_t comm)
{
	const struct dump_comm *c = dump_find_comm(d, comm);

	if (c && c->name[0])
		coll_text_add(t, " of communicator %s", c->name);
	else if (d->ncomms > 1)
		coll_text_add(t, " of communicator %08llx", (unsigned long long)(comm >> 32));
	if (c && !c->members && d->ncomms > 1)
		coll_text_add(t, " (all ranks)");
	if (!c || !c->members)
		return;
	coll_text_add(t, " (ranks ");
	for (int i = 0; i < c->nmembers && i < WAITERS_SHOWN; i++)
		coll_text_add(t, "%s%d", i ? "," : "", c->members[i]);
	coll_text_add(t, "%s)", c->nmembers > WAITERS_SHOWN ? ",..." : "");
}

static void add_op(struct coll_text *t, const struct dump *d, const struct dump_op *o)
{
	char text[160];

	dump_describe(o, text, sizeof(text));
	coll_text_add(t, "%s", text);
	add_comm(t, d, o->comm);
	if (o->stream >= 0)
		coll_text_add(t, " in stream %d", o->stream);
}

static const char *how_ended(const struct dump_note *death)
{
	return death->after_status ? "ended after an error" : "is dead or unreachable";
}

/* The information of a rank about the one it waits for. */
static void add_hearsay(struct coll_text *t, const struct dump_list *l, const struct dump *d, int process)
{
	const struct dump_note *dead = death_of(l, d->job, process);
	const struct dump_peer *p = find_peer(d, process);

	if (dead)
		coll_text_add(t, "    rank %d %s: %s\n", process, how_ended(dead), dead->text);
	else if (p && p->left && p->after[0])
		coll_text_add(t, "    rank %d left after an error: %s\n", process, p->after);
	else if (p && p->left)
		coll_text_add(t, "    rank %d left: it destroyed its communicator\n", process);
	else if (p && p->unanswered > 2)
		coll_text_add(t, "    rank %d does not answer (%u questions, 0.25 s apart)\n", process, p->unanswered);
	else if (p && p->doing[0])
		coll_text_add(t, "    rank %d is alive, %s %s\n", process,
		              p->in_call ? "in" : "not in the call, last seen after", p->doing);
}

/* Receives that wait for messages, whether or not a thread waits for them. */
static void add_posted(struct coll_text *t, const struct dump *d)
{
	const struct dump_op *oldest = NULL;
	int n = 0;

	for (size_t i = 0; i < d->nops; i++)
		if (is_posted(&d->ops[i]) && n++ == 0)
			oldest = &d->ops[i]; /* a dump is in the order of their beginnings */
	if (n == 0)
		return;
	coll_text_add(t, "    %d receive%s posted, the oldest for %.1f s: ", n, n == 1 ? " is" : "s are",
	              seconds(begun(oldest), d->now_ns));
	add_op(t, d, oldest);
	coll_text_add(t, "\n");
}

static void add_line(struct coll_text *t, const struct dump_list *l, const struct dump *d)
{
	const struct dump_op *o = stuck_op(d), *last = last_ended(d);
	int queued = 0;

	add_rank(t, l, d->job, d->process);
	if (o) {
		const int peer = dump_process(d, o->comm, o->waits_for);

		coll_text_add(t, ": in ");
		add_op(t, d, o);
		coll_text_add(t, " for %.1f s", seconds(begun(o), d->now_ns));
		if (o->way[0])
			coll_text_add(t, " by %s", o->way);
		if (peer >= 0)
			coll_text_add(t, ", waits for rank %d in step %d of lane %d", peer, o->step, o->lane);
		coll_text_add(t, "\n");
		if (peer >= 0)
			add_hearsay(t, l, d, peer);
	} else if (last) {
		coll_text_add(t, ": in no call for %.1f s; the last was ", seconds(last->end_ns, d->now_ns));
		add_op(t, d, last);
		coll_text_add(t, "%s%s\n", last->status ? ", which failed: " : "", last->status ? last->result : "");
	} else {
		coll_text_add(t, ": no call yet\n");
	}
	add_posted(t, d);
	for (size_t i = 0; i < d->nops; i++)
		queued += d->ops[i].state == DUMP_QUEUED;
	if (queued > 0)
		coll_text_add(t, "    %d more operations wait in streams\n", queued);
}

/* ---- The verdict ---- */

/* The process that a process waits for: by its own dump, else by what others report; -1: unknown or none. */
static int next_of(const struct dump_list *l, uint64_t job, int process)
{
	const struct dump *d = find_dump(l, job, process);
	const struct dump_op *o = d ? stuck_op(d) : NULL;
	const struct dump_peer *p;

	if (d)
		return o ? dump_process(d, o->comm, o->waits_for) : -1;
	p = heard_of(l, job, process);
	if (!p || !p->in_call || p->waits_for < 0)
		return -1;
	/* A record speaks of ranks of its communicator; any member can translate. */
	for (size_t i = 0; i < l->n; i++)
		if (l->dumps[i].job == job && dump_find_comm(&l->dumps[i], p->comm))
			return dump_process(&l->dumps[i], p->comm, p->waits_for);
	return -1;
}

/* Where the waiting of a process ends: the last in the chain; when it comes round
 * (*circle), the lowest of the circle. */
static int end_of_chain(const struct dump_list *l, uint64_t job, int process, bool *circle)
{
	int slow = process, fast = process, lowest;

	*circle = false;
	/* Two walkers, one twice as fast, meet in a cycle (Floyd). */
	for (;;) {
		int next = next_of(l, job, fast);

		if (next < 0)
			return fast;
		fast = next;
		next = next_of(l, job, fast);
		if (next < 0)
			return fast;
		fast = next;
		slow = next_of(l, job, slow);
		if (slow == fast)
			break;
	}
	*circle = true;
	lowest = fast;
	for (int p = next_of(l, job, fast); p != fast; p = next_of(l, job, p))
		lowest = p < lowest ? p : lowest;
	return lowest;
}

/* The calls that two dumps are held up in have one number. */
static bool same_number(const struct dump *x, const struct dump *y)
{
	const struct dump_op *a = stuck_op(x), *b = stuck_op(y);

	return a && b && x->job == y->job && a->comm == b->comm && a->sequence == b->sequence && !dump_is_message(a) &&
	       !dump_is_message(b);
}

static bool same_call(const struct dump *x, const struct dump *y)
{
	return same_number(x, y) && strcmp(stuck_op(x)->signature, stuck_op(y)->signature) == 0;
}

static size_t how_many_call(const struct dump_list *l, const struct dump *d)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		n += same_call(&l->dumps[i], d);
	return n;
}

/* Two ranks that call different things under one number: says so. The call that the fewest make comes first. */
static bool add_difference(struct coll_text *t, const struct dump_list *l)
{
	const struct dump *odd = NULL, *usual = NULL;

	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->n; k++) {
			const struct dump *a = &l->dumps[i], *b = &l->dumps[k];

			if (same_number(a, b) && !same_call(a, b) &&
			    (!odd || how_many_call(l, a) < how_many_call(l, odd) ||
			     (how_many_call(l, a) == how_many_call(l, odd) &&
			      how_many_call(l, b) > how_many_call(l, usual)))) {
				odd = a;
				usual = b;
			}
		}
	if (!odd)
		return false;
	coll_text_add(t, "verdict: calls differ: rank %d calls ", odd->process);
	add_op(t, odd, stuck_op(odd));
	coll_text_add(t, ", rank %d calls ", usual->process);
	add_op(t, usual, stuck_op(usual));
	coll_text_add(t, "\n");
	return true;
}

/* "ranks 0,1,3": those whose waiting ends at the culprit. Returns how many; *longest is
 * how long they have waited. */
static int add_waiters(struct coll_text *t, const struct dump_list *l, uint64_t job, int culprit, double *longest)
{
	struct coll_text who = {0};
	int n = 0;

	*longest = 0;
	for (size_t i = 0; i < l->n; i++) {
		const struct dump *d = &l->dumps[i];
		const struct dump_op *o = d->job == job && d->process != culprit ? stuck_op(d) : NULL;
		bool circle;

		if (!o || end_of_chain(l, job, d->process, &circle) != culprit)
			continue;
		n++;
		if (n <= WAITERS_SHOWN)
			coll_text_add(&who, "%s%d", n > 1 ? "," : "", d->process);
		if (seconds(begun(o), d->now_ns) > *longest)
			*longest = seconds(begun(o), d->now_ns);
	}
	if (n > 0)
		coll_text_add(t, "rank%s %s%s", n > 1 ? "s" : "", who.p ? who.p : "", n > WAITERS_SHOWN ? ",..." : "");
	coll_text_free(&who);
	return n;
}

/* Behind what the culprit has not done: "all_reduce(...) number 4 that ranks 0,1,2 wait in for 42.1 s" */
static void add_missed(struct coll_text *t, const struct dump_list *l, const struct dump *by,
                       const struct dump_op *call, int culprit)
{
	struct coll_text who = {0};
	double longest;
	const int n = add_waiters(&who, l, by->job, culprit, &longest);

	coll_text_add(t, " ");
	add_op(t, by, call);
	if (n > 0)
		coll_text_add(t, " that %s wait%s in for %.1f s", who.p ? who.p : "", n == 1 ? "s" : "", longest);
	coll_text_free(&who);
}

/* Behind what the culprit is: "; ranks 0,1,2 wait for it in all_reduce(...) number 4 for 42.1 s" */
static void add_kept(struct coll_text *t, const struct dump_list *l, const struct dump *by, const struct dump_op *call,
                     int culprit)
{
	struct coll_text who = {0};
	double longest;
	const int n = add_waiters(&who, l, by->job, culprit, &longest);

	if (n > 0) {
		coll_text_add(t, "; %s wait%s for it in ", who.p ? who.p : "", n == 1 ? "s" : "");
		add_op(t, by, call);
		coll_text_add(t, " for %.1f s", longest);
	}
	coll_text_free(&who);
}

/* The call that the chain's last link waits in: which the culprit should be in. */
static const struct dump_op *awaited(const struct dump_list *l, uint64_t job, int culprit, const struct dump **by)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct dump *d = &l->dumps[i];
		const struct dump_op *o = d->job == job ? stuck_op(d) : NULL;

		*by = d;
		if (o && dump_process(d, o->comm, o->waits_for) == culprit)
			return o;
	}
	return NULL;
}

static void add_circle(struct coll_text *t, const struct dump_list *l, uint64_t job, int first)
{
	int p = first;

	coll_text_add(t, "verdict: a cycle: rank %d", first);
	do {
		p = next_of(l, job, p);
		coll_text_add(t, " waits for rank %d%s", p, p == first ? "" : ", which");
	} while (p != first);
	coll_text_add(t, "; their calls do not match, or a frame was lost\n");
}

/* What keeps a rank from being in any call at all; false: nothing known. */
static bool add_state(struct coll_text *t, const struct dump_list *l, const struct door_silent *silent, uint64_t job,
                      int culprit)
{
	const struct dump_peer *p = heard_of(l, job, culprit);
	const struct dump_note *dead = death_of(l, job, culprit);
	const char *why = find_dump(l, job, culprit) ? NULL : why_silent(silent, p ? p->pid : 0, culprit);

	if (dead)
		coll_text_add(t, " %s (%s)", how_ended(dead), dead->text);
	else if (why)
		coll_text_add(t, " %s", why);
	else if (!find_dump(l, job, culprit) && p && p->unanswered > 2)
		coll_text_add(t, " does not answer: stopped, swapping, or its host hangs");
	else if (p && p->left && p->after[0])
		coll_text_add(t, " left after an error (%s)", p->after);
	else if (p && p->left)
		coll_text_add(t, " has destroyed its communicator");
	else
		return false;
	return true;
}

static void add_verdict(struct coll_text *t, const struct dump_list *l, const struct door_silent *silent, uint64_t job,
                        int culprit)
{
	const struct dump *d = find_dump(l, job, culprit), *by = NULL;
	const struct dump_op *call = awaited(l, job, culprit, &by), *own = d ? stuck_op(d) : NULL;
	const struct dump_peer *p = heard_of(l, job, culprit);
	const bool elsewhere = own && call && (own->comm != call->comm || own->sequence != call->sequence);
	bool missed = false;

	coll_text_add(t, "verdict: ");
	add_rank(t, l, job, culprit);
	if (add_state(t, l, silent, job, culprit)) {
	} else if (elsewhere && own->stream < 0) {
		coll_text_add(t, " is in ");
		add_op(t, d, own);
		coll_text_add(t, ", not in");
		missed = true;
	} else if (!elsewhere && (own || (!d && p && p->in_call))) {
		coll_text_add(t, " is in the call too and has not moved, although it waits for no rank: %s",
		              own && own->stream >= 0
		                      ? "no thread drives its streams (COLL_PROGRESS=on, coll_progress())"
		                      : "a callback, or a step that takes long");
	} else {
		coll_text_add(t, call && dump_is_message(call) ? " has not made the call that matches"
		                                               : " has not entered");
		missed = true;
	}
	if (call && missed)
		add_missed(t, l, by, call, culprit);
	else if (call)
		add_kept(t, l, by, call, culprit);
	if (elsewhere && missed && own->stream >= 0) {
		coll_text_add(t, "; in progress there is ");
		add_op(t, d, own);
	}
	coll_text_add(t, "\n");
}

/* A process that left after an error on a communicator that no rank here has. */
static bool add_left(struct coll_text *t, const struct dump_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		for (size_t k = 0; k < l->dumps[i].npeers; k++) {
			const struct dump_peer *p = &l->dumps[i].peers[k];

			if (!p->left || !p->after[0])
				continue;
			coll_text_add(t, "verdict: ");
			add_rank(t, l, l->dumps[i].job, p->process);
			coll_text_add(t, " left after an error: %s; no call has been in progress since\n", p->after);
			return true;
		}
	return false;
}

/* No call is held up: a failure or a death has ended them, or none has been made. */
static bool add_end(struct coll_text *t, const struct dump_list *l, const struct door_silent *silent)
{
	for (int deaths = 1; deaths >= 0; deaths--)
		for (size_t i = 0; i < l->n; i++)
			for (size_t k = 0; k < l->dumps[i].nnotes; k++) {
				const struct dump_note *n = &l->dumps[i].notes[k];

				if ((strcmp(n->about, "death") == 0) != deaths ||
				    (!deaths && !dump_find_comm(&l->dumps[i], n->comm)))
					continue;
				coll_text_add(t, "verdict: ");
				if (deaths) {
					add_rank(t, l, l->dumps[i].job, n->process);
					coll_text_add(t, " %s: ", how_ended(n));
				}
				coll_text_add(t, "%s%s\n", n->text,
				              deaths ? "" : "; no call has been in progress since");
				return true;
			}
	if (add_left(t, l))
		return true;
	if (l->n == 0 && silent->n > 0 && strncmp(silent->who[0].why, "is stopped", 10) == 0) {
		coll_text_add(
		        t, "verdict: rank %d (pid %d) %s; no other rank is here: ask on another host of the job too\n",
		        silent->who[0].process, silent->who[0].pid, silent->who[0].why);
		return true;
	}
	if (l->n == 0)
		coll_text_add(t, "verdict: no rank has answered\n");
	else
		coll_text_add(t, "verdict: no rank is held up: no call has been in progress for %.1f s\n",
		              (double)STALL_NS * 1e-9);
	return false;
}

static int by_rank(const void *a, const void *b)
{
	const struct dump *x = a, *y = b;

	return x->job != y->job ? (x->job < y->job ? -1 : 1) : x->process - y->process;
}

bool hang_explain(struct dump_list *l, const struct door_silent *silent, struct coll_text *t)
{
	bool stuck = false;

	if (l->n) /* else there is no table */
		qsort(l->dumps, l->n, sizeof(*l->dumps), by_rank);
	for (size_t i = 0; i < l->n; i++)
		if (!l->dumps[i].heard)
			add_line(t, l, &l->dumps[i]);
	for (int i = 0; i < silent->n; i++)
		coll_text_add(t, "rank %d (pid %d) %s\n", silent->who[i].process, silent->who[i].pid,
		              silent->who[i].why);
	if (add_difference(t, l))
		return true;
	for (size_t i = 0; i < l->n; i++) {
		const struct dump *d = &l->dumps[i];
		bool circle, told = false, other;
		int end;

		if (!stuck_op(d))
			continue;
		stuck = true;
		end = end_of_chain(l, d->job, d->process, &circle);
		/* Once for all whose waiting ends at the same rank. */
		for (size_t k = 0; k < i && !told; k++)
			told = l->dumps[k].job == d->job && stuck_op(&l->dumps[k]) &&
			       end_of_chain(l, d->job, l->dumps[k].process, &other) == end;
		if (!told && circle)
			add_circle(t, l, d->job, end);
		else if (!told)
			add_verdict(t, l, silent, d->job, end);
	}
	return stuck || add_end(t, l, silent);
}
