/*
 * The decision, event by event: what a voter answers and when, what a proposer makes of answers and last words. All
 * orders of events are the explorer's (tests/members/explore.c).
 */
#include "members/decide.h"

#include "tests/plain.h"

static struct coll_member_set set_of(int a, int b)
{
	struct coll_member_set s = {{0}};

	coll_set_add(&s, a);
	coll_set_add(&s, b);
	return s;
}

static struct coll_ballot begun(int size)
{
	struct coll_ballot b = {0};

	coll_decide_begin(&b, coll_ballot_number(2, 0), size);
	return b;
}

static const struct coll_words no_words;

TEST(members_decide, a_promise_goes_when_its_words_are_written)
{
	struct coll_voter v = {0};
	struct coll_voter_acts acts = coll_decide_prepare(&v, 5);

	CHECK(acts.write && acts.answer == COLL_VOTE_NONE && v.words.promised == 5);
	acts = coll_decide_prepare(&v, 5);
	CHECK(!acts.write && acts.answer == COLL_VOTE_NONE);
	CHECK(coll_decide_written(&v) == COLL_VOTE_PROMISE);
	CHECK(coll_decide_written(&v) == COLL_VOTE_NONE);
	acts = coll_decide_prepare(&v, 5);
	CHECK(!acts.write && acts.answer == COLL_VOTE_PROMISE);
}

TEST(members_decide, a_lower_ballot_is_refused)
{
	const struct coll_member_set value = set_of(0, 1);
	struct coll_voter v = {0};

	coll_decide_prepare(&v, 5);
	CHECK(coll_decide_prepare(&v, 4).answer == COLL_VOTE_REFUSED);
	CHECK(coll_decide_propose(&v, 4, &value).answer == COLL_VOTE_REFUSED);
	CHECK(v.words.accepted == 0 && v.words.promised == 5);
}

TEST(members_decide, accepting_promises)
{
	const struct coll_member_set value = set_of(1, 2);
	struct coll_voter v = {0};
	struct coll_voter_acts acts = coll_decide_propose(&v, 7, &value);

	CHECK(acts.write && v.words.promised == 7 && v.words.accepted == 7 && coll_set_same(&v.words.value, &value));
	CHECK(coll_decide_written(&v) == COLL_VOTE_ACCEPTED);
	CHECK(coll_decide_propose(&v, 7, &value).answer == COLL_VOTE_ACCEPTED);
}

TEST(members_decide, those_that_answered_and_live_are_the_members)
{
	struct coll_member_state m[4] = {{.standing = COLL_STANDING_LIVES}};
	struct coll_ballot b = begun(4);

	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT);
	for (int r = 0; r < 3; r++)
		coll_decide_promised(&b, r, b.number, r == 1, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT);
	m[3].standing = COLL_STANDING_SUSPECTED;
	CHECK(coll_decide_look(&b, m) == COLL_ACT_PROPOSE);
	CHECK(coll_set_has(&b.value, 0) && !coll_set_has(&b.value, 1) && coll_set_has(&b.value, 2) &&
	      !coll_set_has(&b.value, 3));
	for (int r = 0; r < 2; r++)
		coll_decide_accepted(&b, r, b.number);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT);
	coll_decide_accepted(&b, 2, b.number);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_DECIDED);
}

TEST(members_decide, last_words_read_leave_the_majority)
{
	struct coll_member_state m[5];
	struct coll_ballot b = begun(5);

	for (int r = 0; r < 5; r++)
		m[r] = (struct coll_member_state){.standing = r ? COLL_STANDING_SUSPECTED : COLL_STANDING_LIVES};
	coll_decide_promised(&b, 0, b.number, false, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT);
	for (int r = 1; r < 5; r++)
		m[r].standing = COLL_STANDING_ENDED;
	CHECK(coll_decide_look(&b, m) == COLL_ACT_PROPOSE);
	coll_decide_accepted(&b, 0, b.number);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_DECIDED);
}

/* Three of one host have ended with two of another one: of those that live, each alone on its host, one can go on. */
TEST(members_decide, who_cannot_count_on_a_majority_is_stuck_and_others_may_not_be)
{
	struct coll_member_state m[5] = {{.standing = COLL_STANDING_LIVES}, {.standing = COLL_STANDING_LIVES}};
	struct coll_ballot b = begun(5);

	for (int r = 2; r < 5; r++)
		m[r].standing = COLL_STANDING_SUSPECTED;
	coll_decide_promised(&b, 0, b.number, false, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT && !coll_decide_is_stuck(&b, m)); /* member 1 may answer */
	coll_decide_promised(&b, 1, b.number, false, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT && coll_decide_is_stuck(&b, m));
	for (int r = 2; r < 5; r++)
		m[r].standing = COLL_STANDING_ENDED;
	CHECK(!coll_decide_is_stuck(&b, m));
	CHECK(coll_decide_look(&b, m) == COLL_ACT_PROPOSE);
	m[2].standing = m[3].standing = COLL_STANDING_SUSPECTED;
	coll_decide_accepted(&b, 0, b.number);
	CHECK(!coll_decide_is_stuck(&b, m));
	coll_decide_accepted(&b, 1, b.number);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT && coll_decide_is_stuck(&b, m));
}

TEST(members_decide, what_was_accepted_is_taken_over_from_answers_and_from_last_words)
{
	struct coll_member_state m[3] = {{.standing = COLL_STANDING_LIVES}};
	const struct coll_words low = {.promised = 3, .accepted = 3, .value = set_of(0, 1)};
	struct coll_ballot b = begun(3);

	coll_decide_promised(&b, 0, b.number, false, &no_words);
	coll_decide_promised(&b, 1, b.number, false, &low);
	m[2].standing = COLL_STANDING_ENDED;
	m[2].words = (struct coll_words){.promised = 4, .accepted = 4, .value = set_of(1, 2)};
	CHECK(coll_decide_look(&b, m) == COLL_ACT_PROPOSE);
	CHECK(coll_set_same(&b.value, &m[2].words.value));
}

TEST(members_decide, a_higher_promise_in_last_words_ends_the_ballot)
{
	struct coll_member_state m[2] = {{.standing = COLL_STANDING_LIVES}};
	struct coll_ballot b = begun(2);

	m[1].standing = COLL_STANDING_ENDED;
	m[1].words.promised = b.number + 1;
	coll_decide_promised(&b, 0, b.number, false, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_GIVE_UP);
	CHECK(b.above == m[1].words.promised);
}

TEST(members_decide, answers_to_other_ballots_do_not_count)
{
	struct coll_member_state m[1] = {{.standing = COLL_STANDING_LIVES}};
	struct coll_ballot b = begun(1);

	coll_decide_promised(&b, 0, b.number - 1, false, &no_words);
	coll_decide_promised(&b, 1, b.number, false, &no_words);
	coll_decide_accepted(&b, 0, b.number);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_WAIT);
	coll_decide_promised(&b, 0, b.number, false, &no_words);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_PROPOSE);
	coll_decide_refused(&b, b.number + 9);
	CHECK(coll_decide_look(&b, m) == COLL_ACT_GIVE_UP);
}
