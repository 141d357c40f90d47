/*
 * The words of a member: all that it has promised and accepted for one change of a communicator's members, and the sets
 * of members that are agreed upon. What it may still do follows from its words alone, so the words of a process that
 * has ended, read in full, say what it would have answered: they are then its last words.
 */
#ifndef COLL_MEMBERS_WORDS_H
#define COLL_MEMBERS_WORDS_H

#include <stdbool.h>
#include <stdint.h>

/* Of one communicator. The explorer has fewer, so that its states are small. */
#ifndef COLL_MEMBERS_MAX
#define COLL_MEMBERS_MAX 256
#endif

enum { COLL_SET_WORDS = (COLL_MEMBERS_MAX + 63) / 64 };

/* By rank. */
struct coll_member_set {
	uint64_t bits[COLL_SET_WORDS];
};

static inline bool coll_set_has(const struct coll_member_set *s, int member)
{
	return s->bits[member / 64] >> (member % 64) & 1;
}
static inline void coll_set_add(struct coll_member_set *s, int member)
{
	s->bits[member / 64] |= (uint64_t)1 << (member % 64);
}
static inline bool coll_set_same(const struct coll_member_set *a, const struct coll_member_set *b)
{
	for (int i = 0; i < COLL_SET_WORDS; i++)
		if (a->bits[i] != b->bits[i])
			return false;
	return true;
}
/* Whether all of it are below size. */
static inline bool coll_set_within(const struct coll_member_set *s, int size)
{
	for (int i = size; i < COLL_MEMBERS_MAX; i++)
		if (coll_set_has(s, i))
			return false;
	return true;
}

/* Ballots are ordered by round, then by the member that began them; 0: none. */
static inline uint64_t coll_ballot_number(uint64_t round, int member)
{
	return round << 16 | (uint64_t)member;
}
static inline uint64_t coll_ballot_round(uint64_t ballot)
{
	return ballot >> 16;
}
static inline int coll_ballot_owner(uint64_t ballot)
{
	return (int)(ballot & 0xffff);
}

struct coll_words {
	uint64_t promised, accepted;  /* ballots; promised >= accepted */
	struct coll_member_set value; /* of the accepted one */
};

#endif
