/*
 * A peer that knows the key and then talks nonsense: random bytes, damaged heads,
 * well-formed heads with absurd members, valid streams cut anywhere. The link
 * ends as corrupt or dead, or goes on; nothing crashes, nothing is written where
 * it does not belong (run it under AddressSanitizer), and other links live.
 * The seed is printed; COLL_FUZZ_SEED repeats one, COLL_FUZZ_RUNS sets how many.
 */
#include "transports/tcp/raw_peer_test.h"

enum { SLOT = 300, SLOTS = 4, CHANNELS = 3 };

struct bench {
	struct station s;
	struct raw_peer p;
	void *link;
	void *rx[CHANNELS], *tx;
	char user[SLOT];
	struct coll_completion completion;
	uint32_t id[CHANNELS]; /* as granted to the peer */
	uint32_t index[CHANNELS];
	struct coll_rng rng;
};

static uint64_t seed_now(void)
{
	const char *given = getenv("COLL_FUZZ_SEED");

	return given ? strtoull(given, NULL, 0) : coll_clock_ns();
}

static int runs(int standard)
{
	const char *given = getenv("COLL_FUZZ_RUNS");

	return given ? atoi(given) : standard;
}

static bool bench_open(struct bench *b, uint64_t seed)
{
	struct coll_tcp_head grant;

	memset(b, 0, sizeof(*b));
	b->rng.state = seed;
	if (station_open(&b->s, 1) != COLL_OK || !raw_connect(&b->p, &b->s, 2))
		return false;
	b->link = raw_link(&b->s, 2, 1);
	if (!UNTIL(&b->s, b->s.t->link_status(b->link) != COLL_AGAIN))
		return false;
	for (unsigned i = 0; i < CHANNELS; i++) {
		const struct coll_channel_key key = {.comm = 5, .lane = (uint16_t)i};

		if (b->s.t->channel_open(b->link, &key, COLL_DIR_RECV, SLOT, SLOTS, &b->rx[i]) != COLL_OK ||
		    !raw_hear(&b->p, &b->s, &grant, sizeof(grant)) || grant.type != COLL_TCP_GRANT)
			return false;
		b->id[i] = grant.channel;
	}
	const struct coll_channel_key back = {.comm = 6};

	return b->s.t->channel_open(b->link, &back, COLL_DIR_SEND, SLOT, SLOTS, &b->tx) == COLL_OK;
}

static void bench_close(struct bench *b)
{
	for (int i = 0; i < CHANNELS; i++)
		b->s.t->channel_close(b->rx[i]);
	b->s.t->channel_close(b->tx);
	b->s.t->link_close(b->link);
	close(b->p.fd);
	station_close(&b->s);
}

/* Consume whatever has come; every frame is within its bounds. */
static int drain(struct bench *b)
{
	struct coll_frame f;
	const void *p;
	void *slot;
	int n = 0;

	station_turn(&b->s);
	if (coll_completion_pending(&b->completion) == 0 && coll_rng_below(&b->rng, 4) == 0) {
		const struct coll_frame expect = {1, 1, coll_rng_below(&b->rng, SLOT + 1)};

		b->s.t->recv_into(b->rx[0], b->user, NULL, &expect, &b->completion);
	}
	for (int i = coll_completion_pending(&b->completion) ? 1 : 0; i < CHANNELS; i++)
		while (b->s.t->view(b->rx[i], &p, &f) == COLL_OK) {
			unsigned sum = 0;

			CHECK(f.len_bytes <= SLOT);
			for (uint32_t k = 0; k < f.len_bytes; k++)
				sum += ((const unsigned char *)p)[k];
			n += sum > 0 || f.len_bytes == 0 || true;
			b->s.t->done(b->rx[i]);
		}
	if (b->s.t->slot(b->tx, SLOT, &slot) == COLL_OK) {
		const struct coll_frame mine = {1, 2, SLOT};

		memset(slot, 3, SLOT);
		b->s.t->post(b->tx, &mine);
	}
	return n;
}

static bool over(const struct bench *b)
{
	return b->s.t->link_status(b->link) != COLL_OK;
}

/* A frame that is right. */
static size_t good_frame(struct bench *b, char *out)
{
	const unsigned c = coll_rng_below(&b->rng, CHANNELS);
	struct coll_tcp_head h = {
	        .type = COLL_TCP_DATA,
	        .channel = b->id[c],
	        .len_bytes = coll_rng_below(&b->rng, SLOT + 1),
	        .signature = 1,
	        .sequence = 1,
	        .credit_channel = COLL_TCP_NO_CHANNEL,
	        .index = b->index[c]++,
	};

	raw_seal(&b->p, &h);
	memcpy(out, &h, sizeof(h));
	memset(out + sizeof(h), 7, h.len_bytes);
	return sizeof(h) + h.len_bytes;
}

/* A head with the right check and absurd members. */
static size_t absurd_frame(struct bench *b, char *out)
{
	struct coll_rng *r = &b->rng;
	static const uint32_t odd[] = {0, 1, 2, 3, 4, 5, 255, 299, 300, 301, 65535, 65536, 0x7fffffff, 0xffffffff};
	enum { ODD = sizeof(odd) / sizeof(odd[0]) };
	struct coll_tcp_head h = {
	        .type = (uint8_t)coll_rng_below(r, 9),
	        .channel = odd[coll_rng_below(r, ODD)],
	        .len_bytes = odd[coll_rng_below(r, ODD)],
	        .signature = odd[coll_rng_below(r, 3)],
	        .sequence = coll_rng_below(r, 2) ? 6 : coll_rng_next(r),
	        .credit_channel = odd[coll_rng_below(r, ODD)],
	        .credits = odd[coll_rng_below(r, ODD)],
	        .index = odd[coll_rng_below(r, ODD)],
	};

	if (coll_rng_below(r, 2))
		h.credit_channel = COLL_TCP_NO_CHANNEL;
	raw_seal(&b->p, &h);
	memcpy(out, &h, sizeof(h));
	return sizeof(h);
}

static size_t random_bytes(struct bench *b, char *out)
{
	const size_t n = 1 + coll_rng_below(&b->rng, 200);

	for (size_t i = 0; i < n; i++)
		out[i] = (char)coll_rng_next(&b->rng);
	return n;
}

static size_t damaged_frame(struct bench *b, char *out)
{
	const size_t n = good_frame(b, out);
	const size_t at = coll_rng_below(&b->rng, sizeof(struct coll_tcp_head));

	out[at] = (char)(out[at] ^ (1 << coll_rng_below(&b->rng, 8)));
	return n;
}

typedef size_t (*talk_fn)(struct bench *b, char *out);

/* Good frames with nonsense among them, in pieces of any size. */
static void babble(uint64_t seed, talk_fn nonsense, bool must_break)
{
	struct bench *b = malloc(sizeof(*b));
	char *out = malloc(64 + SLOT + 300);
	bool spoke = false;

	if (!bench_open(b, seed)) {
		CHECK(false, "no link, seed %llu", (unsigned long long)seed);
		free(b);
		free(out);
		return;
	}
	for (int i = 0; i < 40 && !over(b); i++) {
		/* Good frames stay within credit: three channels, never more than SLOTS unread. */
		const bool bad = coll_rng_below(&b->rng, 8) == 0;
		const size_t n = bad ? nonsense(b, out) : good_frame(b, out);
		const size_t cut = coll_rng_below(&b->rng, (uint32_t)n + 1);

		raw_send(&b->p, &b->s, out, cut);
		if (coll_rng_below(&b->rng, 2))
			drain(b);
		raw_send(&b->p, &b->s, out + cut, n - cut);
		spoke |= bad;
		while (drain(b) > 0)
			;
	}
	shutdown(b->p.fd, SHUT_WR);
	UNTIL(&b->s, (drain(b), over(b)));
	CHECK(over(b), "the link goes on, seed %llu", (unsigned long long)seed);
	if (must_break && spoke)
		CHECK(b->s.why == COLL_ERR_CORRUPT, "status %d (%s), seed %llu", (int)b->s.why, b->s.cause,
		      (unsigned long long)seed);
	CHECK(b->s.downs <= 1);
	bench_close(b);
	free(b);
	free(out);
}

TEST(tcp_fuzz, random_bytes_end_the_link)
{
	const uint64_t seed = seed_now();

	printf("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < runs(150); i++)
		babble(seed + (uint64_t)i, random_bytes, false);
}

TEST(tcp_fuzz, a_flipped_bit_in_a_head_is_corruption)
{
	const uint64_t seed = seed_now();

	printf("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < runs(150); i++)
		babble(seed + (uint64_t)i, damaged_frame, true);
}

TEST(tcp_fuzz, absurd_members_do_no_harm)
{
	const uint64_t seed = seed_now();

	printf("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < runs(400); i++)
		babble(seed + (uint64_t)i, absurd_frame, false);
}

/* The same machinery with nothing wrong: every frame arrives, the end is a death. */
TEST(tcp_fuzz, good_frames_in_pieces_arrive)
{
	const uint64_t seed = seed_now();
	struct bench *b = malloc(sizeof(*b));
	char out[64 + SLOT];
	int got = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	REQUIRE(bench_open(b, seed));
	b->completion.pending = 1; /* no announcements here */
	for (int i = 0; i < 500; i++) {
		const size_t n = good_frame(b, out);
		const size_t cut = coll_rng_below(&b->rng, (uint32_t)n + 1);
		const int before = got;

		raw_send(&b->p, &b->s, out, cut);
		raw_send(&b->p, &b->s, out + cut, n - cut);
		CHECK(UNTIL(&b->s, ({
			struct coll_frame f;
			const void *p;

			for (int c = 0; c < CHANNELS; c++)
				if (b->s.t->view(b->rx[c], &p, &f) == COLL_OK) {
					got += f.len_bytes == 0 || *(const char *)p == 7;
					b->s.t->done(b->rx[c]);
				}
			got > before;
		})));
	}
	CHECK(got == 500);
	CHECK(b->s.downs == 0);
	close(b->p.fd);
	b->p.fd = -1;
	CHECK(UNTIL(&b->s, b->s.downs == 1));
	CHECK(b->s.why == COLL_ERR_PEER_DEAD, "%s", b->s.cause);
	bench_close(b);
	free(b);
}

/* Other links do not notice. */
TEST(tcp_fuzz, another_link_lives_on)
{
	const uint64_t seed = seed_now();
	struct bench *b = malloc(sizeof(*b));
	struct raw_peer mad;
	char out[400];

	printf("seed %llu\n", (unsigned long long)seed);
	REQUIRE(bench_open(b, seed));
	for (uint64_t i = 0; i < 30; i++) {
		void *link;
		size_t n;

		REQUIRE(raw_connect(&mad, &b->s, 100 + i));
		link = raw_link(&b->s, 100 + i, 1);
		n = random_bytes(b, out);
		memset(out, 0x55, 80); /* a whole head that is surely wrong */
		raw_send(&mad, &b->s, out, n < 80 ? 80 : n);
		CHECK(UNTIL(&b->s, b->s.t->link_status(link) == COLL_ERR_CORRUPT));
		b->s.t->link_close(link);
		close(mad.fd);
		CHECK(b->s.t->link_status(b->link) == COLL_OK);
	}
	CHECK(b->s.downs == 30, "%d", b->s.downs);
	bench_close(b);
	free(b);
}

/* Each single rule of the stream, broken alone, is found and named. */
struct crime {
	const char *cause;
	struct coll_tcp_head head;
};

static void commit(const struct crime *crime)
{
	struct bench *b = malloc(sizeof(*b));
	struct coll_tcp_head h = crime->head;
	char payload[SLOT + 8] = {0};

	REQUIRE(bench_open(b, 1));
	raw_seal(&b->p, &h);
	raw_send(&b->p, &b->s, &h, sizeof(h));
	raw_send(&b->p, &b->s, payload, sizeof(payload));
	CHECK(UNTIL(&b->s, b->s.downs == 1), "nobody minded %s", crime->cause);
	CHECK(b->s.why == COLL_ERR_CORRUPT);
	CHECK(strstr(b->s.cause, crime->cause) != NULL, "%s for %s", b->s.cause, crime->cause);
	bench_close(b);
	free(b);
}

TEST(tcp_fuzz, every_rule_is_kept)
{
	static const struct crime crimes[] = {
	        {"not open", {.type = COLL_TCP_DATA, .channel = 77, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"larger than its slot",
	         {.type = COLL_TCP_DATA, .len_bytes = SLOT + 1, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"missing or doubled", {.type = COLL_TCP_DATA, .index = 1, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"was not granted", {.type = COLL_TCP_CREDIT, .credit_channel = 3, .credits = 1}},
	        {"out of range", {.type = COLL_TCP_GRANT, .channel = TCP_CHANNELS_MAX, .credits = 2}},
	        {"out of range", {.type = COLL_TCP_GRANT, .credits = 1}},
	        {"not granted is closed",
	         {.type = COLL_TCP_CLOSE, .channel = 2, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"open channel is reported closed",
	         {.type = COLL_TCP_CLOSED, .channel = 0, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"state of a channel that was not",
	         {.type = COLL_TCP_STATE, .channel = 2, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"unknown type", {.type = 99, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"begin where it should", {.type = COLL_TCP_NOP, .flags = 1, .credit_channel = COLL_TCP_NO_CHANNEL}},
	        {"after the goodbye", {.type = COLL_TCP_BYE, .credit_channel = COLL_TCP_NO_CHANNEL}},
	};

	for (size_t i = 0; i < sizeof(crimes) / sizeof(crimes[0]); i++) {
		if (crimes[i].head.type == COLL_TCP_BYE) {
			/* The zeros that follow are no frame at all: a second head is needed. */
			struct bench *b = malloc(sizeof(*b));
			struct coll_tcp_head h[2] = {crimes[i].head, crimes[i].head};

			REQUIRE(bench_open(b, 1));
			raw_seal(&b->p, &h[0]);
			raw_seal(&b->p, &h[1]);
			raw_send(&b->p, &b->s, h, sizeof(h));
			CHECK(UNTIL(&b->s, b->s.downs == 1));
			CHECK(strstr(b->s.cause, crimes[i].cause) != NULL, "%s", b->s.cause);
			bench_close(b);
			free(b);
		} else {
			commit(&crimes[i]);
		}
	}
}

TEST(tcp_fuzz, a_frame_beyond_the_credit_is_refused)
{
	struct bench *b = malloc(sizeof(*b));

	REQUIRE(bench_open(b, 1));
	for (uint32_t i = 0; i <= SLOTS; i++) {
		struct coll_tcp_head h = {
		        .type = COLL_TCP_DATA, .channel = b->id[0], .credit_channel = COLL_TCP_NO_CHANNEL, .index = i};

		CHECK(b->s.downs == 0);
		raw_seal(&b->p, &h);
		raw_send(&b->p, &b->s, &h, sizeof(h));
		for (int k = 0; k < 50; k++)
			station_turn(&b->s);
	}
	CHECK(UNTIL(&b->s, b->s.downs == 1));
	CHECK(strstr(b->s.cause, "without credit") != NULL, "%s", b->s.cause);
	bench_close(b);
	free(b);
}

TEST(tcp_fuzz, credits_beyond_the_slots_are_refused)
{
	struct bench *b = malloc(sizeof(*b));
	struct coll_tcp_head h[2] = {
	        {.type = COLL_TCP_GRANT, .channel = 9, .len_bytes = SLOT, .sequence = 6, .credits = SLOTS},
	        {.type = COLL_TCP_CREDIT, .credit_channel = 9, .credits = 1},
	};

	REQUIRE(bench_open(b, 1));
	raw_seal(&b->p, &h[0]);
	raw_seal(&b->p, &h[1]);
	raw_send(&b->p, &b->s, h, sizeof(h));
	CHECK(UNTIL(&b->s, b->s.downs == 1));
	CHECK(strstr(b->s.cause, "more credits than slots") != NULL, "%s", b->s.cause);
	bench_close(b);
	free(b);
}
