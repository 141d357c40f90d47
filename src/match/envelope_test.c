/*
 * Envelopes: what a rank that keeps the rules sends is accepted, and nothing that the rest could not bear.
 */
#include "match/envelope.h"

#include <stdlib.h>

#include "base/hash.h"
#include "coll/coll.h"
#include "tests/plain.h"

enum { EAGER_MAX = 4096, HEAD = sizeof(struct coll_envelope) };

static bool fine(struct coll_envelope e, size_t payload_bytes)
{
	return !coll_envelope_wrong(&e, HEAD + payload_bytes, EAGER_MAX);
}

TEST(envelope, what_is_sent_is_accepted)
{
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = COLL_F64, .tag = 9, .count = 512},
	           4096));
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = COLL_U8, .cells = 200}, 0));
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_OFFER, .type = COLL_F64, .count = 513, .id = 1}, 0));
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_PULL, .id = 4}, 0));
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_DROP, .id = 4}, 0));
	CHECK(fine((struct coll_envelope){.kind = COLL_ENVELOPE_CREDIT, .cells = 4}, 0));
}

TEST(envelope, what_breaks_the_rules_is_not)
{
	CHECK(!fine((struct coll_envelope){.kind = 0}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_END}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_CREDIT, .pad = 1}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = 99, .count = 1}, 4));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = COLL_U8, .tag = -1, .count = 4}, 4));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = COLL_U8, .count = 5}, 4));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_EAGER, .type = COLL_U8, .count = 5000}, 5000));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_OFFER, .type = COLL_F64, .count = SIZE_MAX, .id = 1},
	            0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_OFFER, .type = COLL_F64, .count = 1000}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_OFFER, .type = COLL_F64, .count = 1000, .id = 1}, 8));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_OFFER, .type = COLL_U8, .count = 1, .id = 1}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_PULL}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_PULL, .id = 1, .count = 1}, 0));
	CHECK(!fine((struct coll_envelope){.kind = COLL_ENVELOPE_CREDIT, .id = 1}, 0));
}

/* Whatever bytes come: a message that is accepted has the length that its envelope says. */
TEST(envelope, any_bytes)
{
	uint64_t random = 7;
	unsigned accepted = 0;

	for (int i = 0; i < 2000000; i++) {
		struct coll_envelope e;
		uint64_t words[4];
		size_t payload_bytes;

		for (int k = 0; k < 4; k++)
			words[k] = random = coll_mix64(random + 1);
		memcpy(&e, words, sizeof(e));
		/* Some that are almost right. */
		e.kind = random % 3 ? (uint8_t)(e.kind % 7) : e.kind;
		e.type = random % 5 ? (uint8_t)(e.type % 13) : e.type;
		e.pad = random % 7 ? 0 : e.pad;
		e.pad2 = random % 11 ? 0 : e.pad2;
		e.count = random % 2 ? e.count % 2000 : e.count;
		e.id = random % 4 < 2 ? 0 : e.id;
		payload_bytes = random % 13 < 9 ? e.count * coll_dtype_size((coll_dtype)e.type) % 5000 : random % 5000;
		if (coll_envelope_wrong(&e, HEAD + payload_bytes, EAGER_MAX))
			continue;
		accepted++;
		if (e.kind == COLL_ENVELOPE_EAGER)
			CHECK(payload_bytes <= EAGER_MAX &&
			      payload_bytes == e.count * coll_dtype_size((coll_dtype)e.type) && e.tag >= 0);
		else
			CHECK(payload_bytes == 0);
	}
	CHECK(accepted > 1000, "%u", accepted);
}
