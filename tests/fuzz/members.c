/*
 * Target: messages about a change of members, from a member that sends what it likes. What the parser accepts has only
 * members that there are, and is what was packed.
 */
#include <string.h>

#include "members/wire.h"
#include "tests/fuzz/fuzz.h"

void fuzz_members(const uint8_t *data, size_t len_bytes);

static void holds(const struct coll_change_msg *m)
{
	const struct coll_words *w = &m->words;

	FUZZ_HOLDS(m->kind > 0 && m->kind < COLL_CHANGE_KINDS && m->comm != 0);
	FUZZ_HOLDS(m->size > 0 && m->size <= COLL_MEMBERS_MAX && coll_set_within(&w->value, m->size));
	FUZZ_HOLDS(w->accepted <= w->promised && coll_ballot_owner(w->promised) < m->size);
	FUZZ_HOLDS(coll_ballot_owner(w->accepted) < m->size && coll_ballot_owner(m->ballot) < m->size);
}

void fuzz_members(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};

	while (in.left > 0) {
		uint8_t bytes[COLL_CARRIED_BYTES] = {0}, again[COLL_CARRIED_BYTES];
		struct coll_change_msg m, back;

		fuzz_bytes(&in, bytes, sizeof(bytes));
		if (!coll_change_parse(&m, bytes))
			continue;
		holds(&m);
		coll_change_pack(&m, again);
		FUZZ_HOLDS(coll_change_parse(&back, again) && memcmp(&m.words, &back.words, sizeof(m.words)) == 0);
	}
}
