/*
 * The properties of a job of coll-faults. Safety is looked at with each decision, progress when all faults are over.
 */
#include <stdarg.h>
#include <stdio.h>

#include "control/state.h"
#include "members/changes_state.h"
#include "sim/faults/world.h"
#include "sim/jobs/machine.h"

static const uint64_t LIMIT_NS = 12000000000u;

void check_violation(struct world *w, const char *format, ...)
{
	va_list ap;

	if (w->outcome->violation[0])
		return;
	va_start(ap, format);
	vsnprintf(w->outcome->violation, sizeof(w->outcome->violation), format, ap);
	va_end(ap);
}

/* One list, over all that ever lived. */
void check_decision(struct world *w, const struct member *m, const struct coll_member_set *value)
{
	if (w->decided && !coll_set_same(&w->value, value))
		check_violation(w, "two lists: member %d has %llx, another one %llx", m->rank,
		                (unsigned long long)value->bits[0], (unsigned long long)w->value.bits[0]);
	if (!coll_set_within(value, w->plan->members))
		check_violation(w, "member %d: a member that there is not", m->rank);
	w->decided = true;
	w->value = *value;
}

/* An answer goes to the owner of the ballot, who alone can make something of it. */
void check_message(struct world *w, const struct member *m, const uint8_t *bytes)
{
	struct coll_change_msg msg;

	if (coll_change_parse(&msg, bytes) &&
	    (msg.kind == COLL_CHANGE_PROMISE || msg.kind == COLL_CHANGE_ACCEPTED || msg.kind == COLL_CHANGE_REFUSED) &&
	    coll_ballot_owner(msg.ballot) != m->rank)
		check_violation(w, "member %d gets an answer to a ballot of member %d", m->rank,
		                coll_ballot_owner(msg.ballot));
}

static int living(const struct world *w)
{
	int n = 0;

	for (int m = 0; m < w->plan->members; m++)
		n += !w->member[m].ended;
	return n;
}

/* A member that makes the call can count on more than half of the voters but the dead of its host. */
bool check_can_decide(const struct world *w)
{
	for (int m = 0; m < w->plan->members; m++) {
		int voters = w->plan->members;

		if (w->member[m].ended || m == w->plan->leaver)
			continue;
		for (int q = 0; q < w->plan->members; q++)
			voters -= w->member[q].ended && w->plan->host_of[q] == w->plan->host_of[m];
		if (2 * living(w) > voters)
			return true;
	}
	return false;
}

bool check_all_decided(const struct world *w)
{
	for (int m = 0; m < w->plan->members; m++)
		if (!w->member[m].ended && m != w->plan->leaver && !w->member[m].decided)
			return false;
	return true;
}

static void check_list(struct world *w)
{
	for (int m = 0; m < w->plan->members; m++) {
		const struct member *it = &w->member[m];
		const bool in = coll_set_has(&w->value, m);

		if (in && m == w->plan->leaver)
			check_violation(w, "member %d is in the list, and had left before", m);
		if (in && it->ended && it->ended_ns < w->first_call_ns)
			check_violation(w, "member %d is in the list, and was dead before the call", m);
		if (!in && !it->ended && m != w->plan->leaver && w->plan->gentle)
			check_violation(w, "member %d is out, without a cause that lasted", m);
	}
}

static void check_bounds(struct world *w, const struct member *m)
{
	const struct coll_changes *changes = m->ctx->changes;
	int words = 0;

	if (m->ended || !changes)
		return;
	for (const struct coll_left_words *at = changes->first->words; at; at = at->next)
		words++;
	if (changes->count != 1 || words >= w->plan->members)
		check_violation(w, "member %d keeps %d changes, %d words", m->rank, changes->count, words);
	if (m->ctx->control->nlinks > 3 * w->plan->members + 16)
		check_violation(w, "member %d has %d links", m->rank, m->ctx->control->nlinks);
}

void check_end(struct world *w)
{
	struct outcome *o = w->outcome;

	if (w->decided)
		check_list(w);
	if (check_can_decide(w) && !check_all_decided(w) && sim_now_ns() >= w->healed_ns + LIMIT_NS)
		for (int m = 0; m < w->plan->members; m++)
			if (!w->member[m].ended && m != w->plan->leaver && !w->member[m].decided)
				check_violation(w, "member %d has no decision %.1f s after the last fault", m,
				                (double)(sim_now_ns() - w->healed_ns) * 1e-9);
	for (int m = 0; m < w->plan->members; m++) {
		const bool out = w->decided && !w->member[m].ended && !coll_set_has(&w->value, m);

		check_bounds(w, &w->member[m]);
		o->count[WORLD_EXCLUDED] += out;
		o->count[WORLD_LEAVERS] += out && m == w->plan->leaver;
	}
	o->count[w->decided ? WORLD_DECIDED : WORLD_UNDECIDED]++;
	if (w->decided_ns > w->healed_ns)
		o->healed_s = (double)(w->decided_ns - w->healed_ns) * 1e-9;
}
