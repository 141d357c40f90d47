/*
 * See turn.h.
 */
#include "members/turn.h"

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "members/words.h"

enum { DOUBLED_MAX = 3 };

/* From once to twice a length that doubles with each ballot that was overtaken: so at some time a pause is longer than
 * a ballot takes, however slow messages are. */
static uint64_t pause_ns(struct coll_turn *t)
{
	const unsigned doubled = t->overtaken < DOUBLED_MAX ? t->overtaken : DOUBLED_MAX;
	const uint32_t length_ns = (uint32_t)COLL_DELAY_NS(MEMBERS_BALLOT) << doubled;

	return length_ns + coll_rng_below(&t->rng, length_ns);
}

bool coll_turn_is_mine(struct coll_turn *t, const struct coll_turn_facts *f)
{
	const bool others = f->running && coll_ballot_owner(f->running) != f->self;

	if (t->at_ns == 0)
		t->at_ns = f->now_ns + (f->lowest ? 0 : pause_ns(t));
	/* As long as its owner may wait for others. */
	if (f->running != t->seen && others)
		t->at_ns = f->now_ns + COLL_DELAY_NS(SUSPECT) + pause_ns(t);
	if (f->running != t->seen)
		t->yielded = false;
	t->seen = f->running;
	/* Once for a ballot, and never at once: its owner may live all the same, and then it is about to decide. */
	if (others && f->lost && !t->yielded) {
		const uint64_t soon = f->now_ns + (planted(CHANGE_AT_LOST) && f->lowest ? 0 : pause_ns(t));

		t->yielded = true;
		t->at_ns = soon < t->at_ns ? soon : t->at_ns;
	}
	if (planted(CHANGE_FIRST_ONLY) && f->self > 0)
		return false;
	return f->now_ns >= t->at_ns;
}

void coll_turn_overtaken(struct coll_turn *t, uint64_t now_ns)
{
	t->overtaken++;
	t->at_ns = now_ns + pause_ns(t);
}
