/*
 * The matcher against a reference that says the rules and nothing else: it keeps all messages and receives in arrays,
 * in order, and looks through all of them. Random programs, and the bounds of the pools.
 */
#include "match/matcher.h"

#include <stdlib.h>

#include "base/hash.h"
#include "tests/plain.h"

enum { SOURCES = 5, TAGS = 3, SHARE = 40, THINGS = 4000, BYTES_MAX = 3000 };

/* ---- The reference ---- */

struct thing {
	int source, tag;
	bool waits;
	uint32_t number; /* of the message */
	uint32_t len_bytes;
	struct coll_posted posted; /* of a receive in the matcher */
};

static struct thing messages[THINGS], receives[THINGS];
static int nmessages, nreceives;

static bool takes(const struct thing *receive, const struct thing *message)
{
	return (receive->source == COLL_MATCH_ANY || receive->source == message->source) &&
	       (receive->tag == COLL_MATCH_ANY || receive->tag == message->tag);
}

static int first_message_for(const struct thing *receive)
{
	for (int i = 0; i < nmessages; i++)
		if (messages[i].waits && takes(receive, &messages[i]))
			return i;
	return -1;
}

static int first_receive_for(const struct thing *message)
{
	for (int i = 0; i < nreceives; i++)
		if (receives[i].waits && takes(&receives[i], message))
			return i;
	return -1;
}

/* ---- Both ---- */

static uint32_t cells_in_use(int source)
{
	uint32_t n = 0;

	for (int i = 0; i < nmessages; i++)
		if (messages[i].waits && messages[i].source == source)
			n += coll_matcher_cells(messages[i].len_bytes);
	return n;
}

static char byte_of(uint32_t number, size_t at)
{
	return (char)(number * 31 + at * 7);
}

static void take(struct coll_matcher *m, struct coll_arrival *a, const struct thing *expected)
{
	static char got[BYTES_MAX];
	size_t wrong = 0;

	CHECK(a->head.id == expected->number && a->head.source == expected->source && a->head.tag == expected->tag,
	      "message %u instead of %u", (unsigned)a->head.id, expected->number);
	REQUIRE(a->head.len_bytes == expected->len_bytes);
	coll_matcher_read(a, got);
	for (size_t i = 0; i < expected->len_bytes; i++)
		wrong += got[i] != byte_of(expected->number, i);
	CHECK(wrong == 0, "%zu bytes of %u", wrong, expected->len_bytes);
	CHECK(coll_matcher_release(m, a) == coll_matcher_cells(expected->len_bytes));
}

static void post(struct coll_matcher *m, uint64_t *random)
{
	struct thing *r = &receives[nreceives++];
	struct coll_arrival *a;
	const struct coll_arrival *peeked;
	int expected;

	*random = coll_mix64(*random + 1);
	*r = (struct thing){.source = (int)(*random % (SOURCES + 1)) - 1, .tag = (int)(*random / 64 % (TAGS + 1)) - 1};
	r->posted = (struct coll_posted){.source = r->source, .tag = r->tag};
	expected = first_message_for(r);
	peeked = coll_matcher_peek(m, r->source, r->tag);
	a = coll_matcher_post(m, &r->posted);
	CHECK(a == peeked);
	CHECK((a != NULL) == (expected >= 0));
	r->waits = !a;
	if (!a || expected < 0)
		return;
	messages[expected].waits = false;
	take(m, a, &messages[expected]);
}

static void arrive(struct coll_matcher *m, uint64_t *random)
{
	static char payload[BYTES_MAX];
	struct thing *msg = &messages[nmessages++];
	struct coll_posted *p;
	coll_status st;
	int expected;

	*random = coll_mix64(*random + 1);
	*msg = (struct thing){.source = (int)(*random % SOURCES),
	                      .tag = (int)(*random / 64 % TAGS),
	                      .number = (uint32_t)nmessages,
	                      .len_bytes = (uint32_t)(*random / 1024 % (*random / 7 % 3 ? 200 : BYTES_MAX))};
	expected = first_receive_for(msg);
	p = coll_matcher_arrive(m, msg->source, msg->tag);
	CHECK((p != NULL) == (expected >= 0));
	if (p && expected >= 0) {
		CHECK(p == &receives[expected].posted);
		receives[expected].waits = false;
		return;
	}
	for (size_t i = 0; i < msg->len_bytes; i++)
		payload[i] = byte_of(msg->number, i);
	st = coll_matcher_keep(m,
	                       &(struct coll_message_head){.source = msg->source,
	                                                   .tag = msg->tag,
	                                                   .here = true,
	                                                   .len_bytes = msg->len_bytes,
	                                                   .id = msg->number},
	                       payload);
	/* What has no room counts as sent by a rank that breaks the rules. */
	CHECK((st == COLL_OK) == (cells_in_use(msg->source) + coll_matcher_cells(msg->len_bytes) <= SHARE));
	CHECK(st == COLL_OK || st == COLL_ERR_CORRUPT);
	msg->waits = st == COLL_OK;
	CHECK(m->source[msg->source].used == cells_in_use(msg->source));
}

static void cancel(struct coll_matcher *m, uint64_t *random)
{
	struct thing *r;

	if (nreceives == 0)
		return;
	*random = coll_mix64(*random + 1);
	r = &receives[*random % (unsigned)nreceives];
	CHECK(coll_matcher_cancel(m, &r->posted) == r->waits);
	r->waits = false;
}

static void random_program(uint64_t seed, int steps)
{
	struct coll_matcher m;
	uint64_t random = seed;

	nmessages = nreceives = 0;
	REQUIRE(coll_matcher_init(&m, SOURCES, SHARE) == COLL_OK);
	for (int i = 0; i < steps; i++) {
		random = coll_mix64(random + 1);
		switch (random % 9) {
		case 0: cancel(&m, &random); break;
		case 1:
		case 2:
		case 3:
		case 4: post(&m, &random); break;
		default: arrive(&m, &random); break;
		}
	}
	for (int s = 0; s < SOURCES; s++)
		CHECK(m.source[s].used == cells_in_use(s));
	coll_matcher_fini(&m);
}

TEST(matcher, does_as_the_reference)
{
	for (uint64_t seed = 1; seed <= 300; seed++)
		random_program(seed, (int)(seed * 7 % 400));
	random_program(1000, THINGS);
}

TEST(matcher, an_idle_source_takes_no_memory)
{
	struct coll_matcher m;
	struct coll_posted p = {.source = 1, .tag = 5};

	REQUIRE(coll_matcher_init(&m, 3, 8) == COLL_OK);
	CHECK(!coll_matcher_post(&m, &p) && coll_matcher_arrive(&m, 1, 5) == &p);
	CHECK(!m.source[0].memory && !m.source[1].memory);
	CHECK(coll_matcher_keep(&m, &(struct coll_message_head){.source = 2}, NULL) == COLL_OK);
	CHECK(m.source[2].memory && m.source[2].used == 1 && !m.source[0].memory);
	coll_matcher_fini(&m);
	coll_matcher_fini(&m);
}

TEST(matcher, a_message_of_this_process_is_taken_back)
{
	struct coll_matcher m;
	struct coll_posted p = {.source = 1, .tag = 5};
	int mine, other;

	REQUIRE(coll_matcher_init(&m, 3, 8) == COLL_OK);
	for (int i = 0; i < 3; i++) {
		const struct coll_message_head head = {
		        .source = 1, .tag = 5, .id = (uint64_t)i, .sender = i == 1 ? &mine : &other};

		CHECK(coll_matcher_keep(&m, &head, NULL) == COLL_OK);
	}
	CHECK(!coll_matcher_withdraw(&m, 0, &mine) && !coll_matcher_withdraw(&m, 1, &m));
	CHECK(coll_matcher_release(&m, coll_matcher_withdraw(&m, 1, &mine)) == 1 && m.source[1].used == 2);
	CHECK(!coll_matcher_withdraw(&m, 1, &mine));
	for (uint64_t i = 0; i < 3; i += 2) {
		struct coll_arrival *a = coll_matcher_post(&m, &p);

		REQUIRE(a && a->head.id == i);
		coll_matcher_release(&m, a);
	}
	CHECK(!coll_matcher_peek(&m, COLL_MATCH_ANY, COLL_MATCH_ANY) && m.source[1].used == 0);
	coll_matcher_fini(&m);
}

TEST(matcher, cells_hold_what_they_are_counted_for)
{
	struct coll_matcher m;

	for (uint32_t n = 0; n < 2000; n += 13) {
		const struct coll_message_head head = {.source = 0, .here = true, .len_bytes = n};
		char *bytes = malloc(n + 1u), *back = malloc(n + 1u);
		struct coll_posted p = {.source = 0, .tag = 0};
		struct coll_arrival *a;

		REQUIRE(coll_matcher_init(&m, 1, coll_matcher_cells(n)) == COLL_OK);
		memset(bytes, (int)n, n + 1u);
		CHECK(coll_matcher_keep(&m, &head, bytes) == COLL_OK);
		CHECK(coll_matcher_keep(&m, &head, bytes) == COLL_ERR_CORRUPT, "the pool is full");
		a = coll_matcher_post(&m, &p);
		REQUIRE(a);
		coll_matcher_read(a, back);
		CHECK(n == 0 || memcmp(bytes, back, n) == 0);
		CHECK(coll_matcher_release(&m, a) == coll_matcher_cells(n) && m.source[0].used == 0);
		coll_matcher_fini(&m);
		free(bytes);
		free(back);
	}
}
