/*
 * See wire.h. A message has one size, and what a kind does not use is zero, so that a parser has nothing to trust.
 */
#include "members/wire.h"

#include <assert.h>
#include <string.h>

struct packed {
	uint16_t kind, leaves;
	int32_t size;
	uint64_t comm, ballot, promised, accepted;
	struct coll_member_set value;
};
static_assert(sizeof(struct packed) <= COLL_CARRIED_BYTES, "one size for all");

void coll_change_pack(const struct coll_change_msg *m, uint8_t bytes[COLL_CARRIED_BYTES])
{
	const struct packed p = {.kind = (uint16_t)m->kind,
	                         .leaves = m->leaves,
	                         .size = m->size,
	                         .comm = m->comm,
	                         .ballot = m->ballot,
	                         .promised = m->words.promised,
	                         .accepted = m->words.accepted,
	                         .value = m->words.value};

	memset(bytes, 0, COLL_CARRIED_BYTES);
	memcpy(bytes, &p, sizeof(p));
}

static bool is_ballot(uint64_t ballot, int size)
{
	return coll_ballot_round(ballot) > 0 && coll_ballot_owner(ballot) < size;
}

static bool is_empty(const struct coll_member_set *s)
{
	const struct coll_member_set none = {{0}};

	return coll_set_same(s, &none);
}

/* A value is that of an accepted ballot, or it is what the message is about. */
static bool has_words(const struct coll_change_msg *m)
{
	const struct coll_words *w = &m->words;

	if (w->promised && !is_ballot(w->promised, m->size))
		return false;
	if (w->accepted && (!is_ballot(w->accepted, m->size) || w->accepted > w->promised))
		return false;
	return coll_set_within(&w->value, m->size) && is_empty(&w->value) == (w->accepted == 0);
}

static bool has_value_alone(const struct coll_change_msg *m)
{
	const struct coll_words *w = &m->words;

	return w->promised == 0 && w->accepted == 0 && !is_empty(&w->value) && coll_set_within(&w->value, m->size);
}

bool coll_change_parse(struct coll_change_msg *m, const uint8_t bytes[COLL_CARRIED_BYTES])
{
	struct packed p;

	memcpy(&p, bytes, sizeof(p));
	*m = (struct coll_change_msg){.kind = (enum coll_change_kind)p.kind,
	                              .leaves = p.leaves == 1,
	                              .size = p.size,
	                              .comm = p.comm,
	                              .ballot = p.ballot,
	                              .words = {.promised = p.promised, .accepted = p.accepted, .value = p.value}};
	if (p.leaves > 1 || p.comm == 0 || p.size < 1 || p.size > COLL_MEMBERS_MAX ||
	    (p.leaves && p.kind != COLL_CHANGE_PROMISE))
		return false;
	switch (m->kind) {
	case COLL_CHANGE_PREPARE:
	case COLL_CHANGE_YIELD:
	case COLL_CHANGE_ACCEPTED: return is_ballot(p.ballot, p.size) && p.promised == 0 && has_words(m);
	case COLL_CHANGE_REFUSED:
		return is_ballot(p.ballot, p.size) && p.promised > p.ballot && p.accepted == 0 && has_words(m);
	case COLL_CHANGE_PROMISE: return is_ballot(p.ballot, p.size) && p.promised >= p.ballot && has_words(m);
	case COLL_CHANGE_PROPOSE: return is_ballot(p.ballot, p.size) && has_value_alone(m);
	case COLL_CHANGE_DECIDED: return p.ballot == 0 && has_value_alone(m);
	case COLL_CHANGE_WORDS: return p.ballot == 0 && p.promised > 0 && has_words(m);
	default: return false;
	}
}
