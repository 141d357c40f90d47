/*
 * Messages about a change of members: what is packed is parsed again, and what no member sends is refused.
 */
#include "members/wire.h"

#include "base/hash.h"
#include "tests/plain.h"

static struct coll_change_msg sample(enum coll_change_kind kind)
{
	struct coll_change_msg m = {.kind = kind, .size = 200, .comm = 77};
	const bool valued = kind == COLL_CHANGE_PROPOSE || kind == COLL_CHANGE_DECIDED;

	if (kind != COLL_CHANGE_DECIDED && kind != COLL_CHANGE_WORDS)
		m.ballot = coll_ballot_number(3, 150);
	if (kind == COLL_CHANGE_PROMISE || kind == COLL_CHANGE_WORDS)
		m.words = (struct coll_words){.promised = coll_ballot_number(3, 150),
		                              .accepted = coll_ballot_number(2, 199)};
	if (kind == COLL_CHANGE_REFUSED)
		m.words.promised = coll_ballot_number(9, 0);
	if (valued || m.words.accepted)
		coll_set_add(&m.words.value, 199);
	m.leaves = kind == COLL_CHANGE_PROMISE;
	return m;
}

static bool comes_back(const struct coll_change_msg *m)
{
	uint8_t bytes[COLL_CARRIED_BYTES], again[COLL_CARRIED_BYTES];
	struct coll_change_msg back;

	coll_change_pack(m, bytes);
	if (!coll_change_parse(&back, bytes))
		return false;
	coll_change_pack(&back, again);
	return memcmp(bytes, again, sizeof(bytes)) == 0;
}

TEST(members_wire, every_kind_comes_back)
{
	for (int kind = COLL_CHANGE_PREPARE; kind < COLL_CHANGE_KINDS; kind++) {
		const struct coll_change_msg m = sample((enum coll_change_kind)kind);

		CHECK(comes_back(&m), "kind %d", kind);
	}
}

TEST(members_wire, what_no_member_sends_is_refused)
{
	for (int kind = 0; kind <= COLL_CHANGE_KINDS; kind++) {
		const struct coll_change_msg good = sample((enum coll_change_kind)kind);
		struct coll_change_msg m = good;

		m.comm = 0;
		CHECK(!comes_back(&m), "kind %d, comm 0", kind);
		m = good;
		m.size = COLL_MEMBERS_MAX + 1;
		CHECK(!comes_back(&m), "kind %d, too large", kind);
		m = good;
		m.size = 150;
		CHECK(!comes_back(&m) || kind == COLL_CHANGE_KINDS, "kind %d, beyond its size", kind);
		m = good;
		m.ballot = good.ballot ? 0 : coll_ballot_number(1, 1);
		CHECK(!comes_back(&m), "kind %d, ballot", kind);
		m = good;
		coll_set_add(&m.words.value, 201);
		CHECK(!comes_back(&m), "kind %d, a member that there is not", kind);
		m = good;
		m.leaves = kind != COLL_CHANGE_PROMISE;
		CHECK(!comes_back(&m) || kind == COLL_CHANGE_PROMISE, "kind %d, leaves", kind);
	}
}

TEST(members_wire, any_bytes_are_refused_or_come_back)
{
	struct coll_rng rng = {5};
	long parsed = 0;

	for (int i = 0; i < 200000; i++) {
		struct coll_change_msg m = sample((enum coll_change_kind)(1 +
		                                                          coll_rng_below(&rng, COLL_CHANGE_KINDS - 1))),
		                       back;
		uint8_t bytes[COLL_CARRIED_BYTES], again[COLL_CARRIED_BYTES];

		coll_change_pack(&m, bytes);
		for (uint32_t k = coll_rng_below(&rng, 3); k > 0; k--)
			bytes[coll_rng_below(&rng, 72)] ^= (uint8_t)(1u << coll_rng_below(&rng, 8));
		if (!coll_change_parse(&back, bytes))
			continue;
		parsed++;
		coll_change_pack(&back, again);
		CHECK(memcmp(bytes, again, 72) == 0 && back.size <= COLL_MEMBERS_MAX &&
		      coll_set_within(&back.words.value, back.size));
	}
	CHECK(parsed > 1000);
}
