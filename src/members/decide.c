/*
 * See decide.h. The places named planted() are the defects that the explorer must find.
 */
#include "members/decide.h"

#include <string.h>

#include "base/planted.h"

/* ---- Voter ---- */

static struct coll_voter_acts refuse(void)
{
	return (struct coll_voter_acts){.answer = COLL_VOTE_REFUSED};
}

/* The words have changed: the answer waits until they are written. */
static struct coll_voter_acts write_then(struct coll_voter *v, enum coll_vote answer)
{
	v->owed = answer;
	if (!planted(DECIDE_EARLY_ANSWER))
		return (struct coll_voter_acts){.write = true};
	v->owed = COLL_VOTE_NONE;
	return (struct coll_voter_acts){.write = true, .answer = answer};
}

/* Asked once more: as before, if that has gone. */
static struct coll_voter_acts again(const struct coll_voter *v, enum coll_vote answer)
{
	return (struct coll_voter_acts){.answer = v->owed ? COLL_VOTE_NONE : answer};
}

struct coll_voter_acts coll_decide_prepare(struct coll_voter *v, uint64_t ballot)
{
	if (ballot < v->words.promised)
		return refuse();
	if (ballot == v->words.promised)
		return again(v, COLL_VOTE_PROMISE);
	v->words.promised = ballot;
	if (planted(DECIDE_FORGETS))
		v->words.accepted = 0;
	return write_then(v, COLL_VOTE_PROMISE);
}

struct coll_voter_acts coll_decide_propose(struct coll_voter *v, uint64_t ballot, const struct coll_member_set *value)
{
	if (ballot < v->words.promised && !planted(DECIDE_LATE_ACCEPT))
		return refuse();
	if (ballot == v->words.accepted)
		return again(v, COLL_VOTE_ACCEPTED);
	if (!planted(DECIDE_KEEPS_PROMISED))
		v->words.promised = ballot;
	v->words.accepted = ballot;
	v->words.value = *value;
	return write_then(v, COLL_VOTE_ACCEPTED);
}

enum coll_vote coll_decide_written(struct coll_voter *v)
{
	const enum coll_vote answer = v->owed;

	v->owed = COLL_VOTE_NONE;
	return answer;
}

/* ---- Proposer ---- */

void coll_decide_begin(struct coll_ballot *b, uint64_t number, int size)
{
	const uint64_t above = b->above > number ? b->above : number;

	memset(b, 0, sizeof(*b));
	b->number = number;
	b->above = above;
	b->size = size;
	b->phase = COLL_BALLOT_PREPARES;
}

/* The value of the highest ballot that anybody has accepted may have been decided: it is proposed as it is. */
static void take_accepted(struct coll_ballot *b, const struct coll_words *words)
{
	if (words->accepted == 0 || planted(DECIDE_OWN_VALUE))
		return;
	if (b->best == 0 || (planted(DECIDE_LOWEST) ? words->accepted < b->best : words->accepted > b->best)) {
		b->best = words->accepted;
		b->value = words->value;
	}
}

void coll_decide_promised(struct coll_ballot *b, int member, uint64_t number, bool leaves,
                          const struct coll_words *words)
{
	if (b->phase != COLL_BALLOT_PREPARES || number != b->number || member < 0 || member >= b->size)
		return;
	b->said[member] |= (uint8_t)(COLL_SAID_PROMISE | (leaves ? COLL_SAID_LEAVES : 0));
	take_accepted(b, words);
}

void coll_decide_accepted(struct coll_ballot *b, int member, uint64_t number)
{
	if (b->phase == COLL_BALLOT_PROPOSES && number == b->number && member >= 0 && member < b->size)
		b->said[member] |= COLL_SAID_ACCEPTED;
}

void coll_decide_refused(struct coll_ballot *b, uint64_t promised)
{
	if (promised > b->above)
		b->above = promised;
}

/* Those whose last words were read do not count, in either number. */
static bool counts(const struct coll_member_state *m)
{
	return m->standing == COLL_STANDING_LIVES ||
	       (m->standing == COLL_STANDING_SUSPECTED && !planted(DECIDE_SUSPECTED));
}

static bool has_said(const struct coll_ballot *b, const struct coll_member_state *member, int r, int what)
{
	if (planted(DECIDE_WORDS_ACCEPT) && what == COLL_SAID_ACCEPTED && member[r].standing == COLL_STANDING_ENDED &&
	    member[r].words.accepted == b->number)
		return true;
	return b->said[r] & what;
}

/* More than half of those that count have said it. */
static bool majority(const struct coll_ballot *b, const struct coll_member_state *member, int what)
{
	int voters = 0, said = 0;

	for (int r = 0; r < b->size; r++) {
		const bool one = counts(&member[r]);

		voters += one;
		said += (one || planted(DECIDE_WORDS_ACCEPT)) && has_said(b, member, r, what);
	}
	if (planted(DECIDE_HALF))
		return 2 * said >= voters;
	if (planted(DECIDE_ANSWERS_ONLY) && what == COLL_SAID_PROMISE)
		return said > 0;
	return 2 * said > voters;
}

/* Whether the last words of one that has ended name a higher ballot: it cannot have promised this one then. */
static bool overtaken(struct coll_ballot *b, const struct coll_member_state *member)
{
	for (int r = 0; r < b->size; r++)
		if (member[r].standing == COLL_STANDING_ENDED)
			coll_decide_refused(b, planted(DECIDE_UNREAD) ? 0 : member[r].words.promised);
	return b->above > b->number && !planted(DECIDE_GOES_ON);
}

static bool all_said(const struct coll_ballot *b, const struct coll_member_state *member, int what)
{
	for (int r = 0; r < b->size; r++)
		if (member[r].standing == COLL_STANDING_LIVES && !(b->said[r] & what))
			return false;
	return true;
}

/* Who has promised, lives and does not leave. */
static void choose_value(struct coll_ballot *b, const struct coll_member_state *member)
{
	for (int r = 0; r < b->size; r++)
		if (member[r].standing == COLL_STANDING_ENDED && !planted(DECIDE_UNREAD))
			take_accepted(b, &member[r].words);
	for (int r = 0; r < b->size && b->best == 0; r++)
		if (member[r].standing == COLL_STANDING_LIVES && (b->said[r] & COLL_SAID_PROMISE) &&
		    !(b->said[r] & COLL_SAID_LEAVES))
			coll_set_add(&b->value, r);
	b->phase = COLL_BALLOT_PROPOSES;
}

enum coll_ballot_act coll_decide_look(struct coll_ballot *b, const struct coll_member_state *member)
{
	if (b->phase == COLL_BALLOT_IDLE)
		return COLL_ACT_WAIT;
	if (b->phase == COLL_BALLOT_DECIDED)
		return COLL_ACT_DECIDED;
	if (overtaken(b, member))
		return COLL_ACT_GIVE_UP;
	if (b->phase == COLL_BALLOT_PREPARES) {
		if (!all_said(b, member, COLL_SAID_PROMISE) || !majority(b, member, COLL_SAID_PROMISE))
			return COLL_ACT_WAIT;
		choose_value(b, member);
		return COLL_ACT_PROPOSE;
	}
	if (!majority(b, member, COLL_SAID_ACCEPTED))
		return COLL_ACT_WAIT;
	b->phase = COLL_BALLOT_DECIDED;
	return COLL_ACT_DECIDED;
}

bool coll_decide_is_stuck(const struct coll_ballot *b, const struct coll_member_state *member)
{
	const int what = b->phase == COLL_BALLOT_PREPARES ? COLL_SAID_PROMISE : COLL_SAID_ACCEPTED;

	return (b->phase == COLL_BALLOT_PREPARES || b->phase == COLL_BALLOT_PROPOSES) && all_said(b, member, what) &&
	       !majority(b, member, what);
}
