/*
 * The states of slot_policy.h.
 */
#include "engine/slot_policy.h"

enum {
	EVERY = 4,    /* of the cached fills, one is timed */
	IN_A_ROW = 3, /* slow fills before anything is tried: one may have been interrupted */
	TRIED = 4,    /* fills of a TRIAL or PROBE; the first finds lines where the other way left them */
	HOLD_TIMES = 4,
	HOLD_MOST = 64,
};

void coll_slot_policy_init(struct coll_slot_policy *p, const struct coll_slot_policy_rule *rule)
{
	*p = (struct coll_slot_policy){.rule = *rule, .fresh = rule->fresh, .hold = HOLD_TIMES * rule->probe_bytes};
}

static void enter(struct coll_slot_policy *p, enum coll_slot_policy_state state, uint64_t left)
{
	const bool streams = p->state == COLL_SLOT_POLICY_FAR || p->state == COLL_SLOT_POLICY_TRIAL;

	p->turns += streams != (state == COLL_SLOT_POLICY_FAR || state == COLL_SLOT_POLICY_TRIAL);
	p->state = state;
	p->fills = 0;
	p->slow = 0;
	p->best = 0;
	p->left = left;
}

/* Count down; true when nothing is left. */
static bool spent(struct coll_slot_policy *p, size_t len_bytes)
{
	p->left -= len_bytes < p->left ? len_bytes : p->left;
	return p->left == 0;
}

bool coll_slot_policy_streams(struct coll_slot_policy *p, size_t len_bytes, bool *timed)
{
	*timed = false;
	if (p->rule.way != COLL_SLOT_POLICY_AUTO)
		return p->rule.way == COLL_SLOT_POLICY_STREAMED;
	if (p->state == COLL_SLOT_POLICY_FAR && spent(p, len_bytes))
		enter(p, COLL_SLOT_POLICY_PROBE, 0);
	switch (p->state) {
	case COLL_SLOT_POLICY_FAR: return true;
	case COLL_SLOT_POLICY_TRIAL: *timed = true; return true;
	case COLL_SLOT_POLICY_PROBE: *timed = true; return false;
	default: break;
	}
	if (p->fresh)
		p->fresh--;
	else if (spent(p, len_bytes))
		*timed = p->slow || p->fills++ % EVERY == 0;
	return false;
}

static void assess_near(struct coll_slot_policy *p, double rate)
{
	p->slow = rate < p->rule.slow_bytes_per_ns ? p->slow + 1 : 0;
	p->best = p->slow && rate > p->best ? rate : p->slow ? p->best : 0;
	if (p->slow < IN_A_ROW)
		return;
	p->cached = p->best;
	enter(p, COLL_SLOT_POLICY_TRIAL, 0);
}

static void assess_trial(struct coll_slot_policy *p)
{
	if (p->best >= p->rule.gain * p->cached) {
		p->hold = HOLD_TIMES * p->rule.probe_bytes;
		enter(p, COLL_SLOT_POLICY_FAR, p->rule.probe_bytes);
		return;
	}
	enter(p, COLL_SLOT_POLICY_NEAR, p->hold);
	if (p->hold < HOLD_MOST * p->rule.probe_bytes)
		p->hold *= 2;
}

static void assess_probe(struct coll_slot_policy *p)
{
	if (p->best >= p->rule.slow_bytes_per_ns)
		enter(p, COLL_SLOT_POLICY_NEAR, 0);
	else
		enter(p, COLL_SLOT_POLICY_FAR, p->rule.probe_bytes);
}

void coll_slot_policy_took(struct coll_slot_policy *p, size_t len_bytes, uint64_t ns)
{
	const double rate = (double)len_bytes / (double)(ns ? ns : 1);

	if (p->state == COLL_SLOT_POLICY_NEAR) {
		assess_near(p, rate);
		return;
	}
	if (p->fills++ && rate > p->best)
		p->best = rate;
	if (p->fills < TRIED)
		return;
	if (p->state == COLL_SLOT_POLICY_TRIAL)
		assess_trial(p);
	else if (p->state == COLL_SLOT_POLICY_PROBE)
		assess_probe(p);
}
