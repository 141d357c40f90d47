/*
 * What a member counts as: every combination of facts.
 */
#include "members/detect.h"

#include "tests/plain.h"

static struct coll_detect_facts facts_of(unsigned bits)
{
	return (struct coll_detect_facts){.here = bits & 1,
	                                  .ended = bits & 2,
	                                  .words_read = bits & 4,
	                                  .reported = bits & 8,
	                                  .heard = bits & 16,
	                                  .silent = bits & 32};
}

TEST(members_detect, only_who_ended_here_with_its_words_read_is_not_counted)
{
	for (unsigned bits = 0; bits < 64; bits++) {
		const struct coll_detect_facts f = facts_of(bits);

		CHECK((coll_detect_standing(&f) == COLL_STANDING_ENDED) == ((bits & 7) == 7));
	}
}

TEST(members_detect, who_answers_and_is_not_reported_lives)
{
	for (unsigned bits = 0; bits < 64; bits++) {
		const struct coll_detect_facts f = facts_of(bits);
		const bool lives = !f.ended && !f.reported && (f.heard || !f.silent);

		CHECK((coll_detect_standing(&f) == COLL_STANDING_LIVES) == lives);
	}
}
