/*
 * One bit of what an rdma device writes at the peer is changed: in a payload, or in the head and the sums behind it.
 * Two instances over the device in software. Frames of up to three pieces go by value and by reference, whole and in
 * several messages, with and without immediates, and are received in each way. With COLL_CHECK=all what came before the
 * bit is right, nothing wrong is received, and the link ends as corrupt; with none the same bits of payloads are
 * received as they are, and no byte more goes out.
 *
 * The seed is printed; COLL_FLIPS_SEED repeats one, COLL_FLIPS sets how many.
 */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"
#include "transports/rdma/sides_test.h"

enum { FRAMES = 4, SLOT = 700 * 1024, PIECE = 256 * 1024 };

enum part { PAYLOAD, TAIL, PARTS };

static const char *check, *message_max, *immediates;

static const char *some_setting(void *ctx, const char *name)
{
	return strcmp(name, "COLL_CHECK") == 0              ? check
	       : strcmp(name, "COLL_RDMA_MESSAGE_MAX") == 0 ? message_max
	       : strcmp(name, "COLL_RDMA_IMMEDIATE") == 0   ? immediates
	                                                    : "";
}

static struct {
	struct coll_rng rng;
	uint32_t len[FRAMES];
	struct coll_memory data[FRAMES], into;
	char plain[SLOT];
	void *tx, *rx;
	struct coll_completion sent[FRAMES], received;
	uint32_t next, came;
	bool wrong, waits;
} x;

/* The bit to be changed, and how much of which frame has been written. */
static struct {
	uint32_t frame, bit;
	enum part part;
	uint32_t at, seen;
	bool done;
} flip;

static void change(char *to, uint64_t bit)
{
	to[bit / 8] ^= (char)(1 << bit % 8);
	flip.done = true;
}

/* Payloads come first, at the beginning of a write; what is behind a payload and its padding is head and sums. */
static void written(char *to, size_t len_bytes)
{
	const uint32_t left = flip.at < FRAMES ? x.len[flip.at] - flip.seen : 0;
	const uint32_t n = len_bytes < left ? (uint32_t)len_bytes : left;
	const uint32_t pieces = flip.at < FRAMES ? (x.len[flip.at] + PIECE - 1) / PIECE : 0;
	const uint32_t tail = (uint32_t)sizeof(struct coll_rdma_head) + (*check == 'a' ? 4 * pieces : 0);

	if (flip.at >= FRAMES)
		return;
	if (flip.at == flip.frame && flip.part == PAYLOAD && flip.bit / 8 >= flip.seen && flip.bit / 8 < flip.seen + n)
		change(to, flip.bit - 8 * (uint64_t)flip.seen);
	flip.seen += n;
	if (n == len_bytes)
		return;
	if (flip.at == flip.frame && flip.part == TAIL)
		change(to + len_bytes - tail, flip.bit % (8 * tail));
	flip.at++;
	flip.seen = 0;
}

static struct coll_frame frame_of(uint32_t i)
{
	return (struct coll_frame){.sequence = 1 + i, .signature = 7, .len_bytes = x.len[i]};
}

static void scene_open(uint64_t seed)
{
	static const uint32_t most[] = {64, 9000, 70000, SLOT};
	const struct coll_channel_key key = {.comm = 5, .epoch = 1};

	memset(&x, 0, sizeof(x));
	memset(&flip, 0, sizeof(flip));
	flip.frame = FRAMES;
	x.rng.state = seed;
	message_max = coll_rng_below(&x.rng, 2) ? "65536" : "";
	immediates = coll_rng_below(&x.rng, 2) ? "0" : "";
	for (int i = 0; i < SIDES; i++)
		open_side(&side[i], some_setting);
	for (int i = 0; i < SIDES; i++) {
		open_link(&side[i], &side[!i]);
		CHECK(AWAIT(is_up(&side[i])));
	}
	for (int i = 0; i < FRAMES; i++) {
		x.len[i] = 1 + coll_rng_below(&x.rng, most[coll_rng_below(&x.rng, 4)]);
		CHECK(t->mem_alloc(side[0].in, x.len[i], &x.data[i]) == COLL_OK);
		for (uint32_t k = 0; k < x.len[i]; k++)
			((char *)x.data[i].base)[k] = (char)(seed + k * 131 + (k >> 9) + (uint32_t)i);
	}
	CHECK(t->mem_alloc(side[1].in, SLOT, &x.into) == COLL_OK);
	CHECK(t->channel_open(side[0].link, &key, COLL_DIR_SEND, SLOT, FRAMES, &x.tx) == COLL_OK);
	CHECK(t->channel_open(side[1].link, &key, COLL_DIR_RECV, SLOT, FRAMES, &x.rx) == COLL_OK);
	fabric_written(written);
}

static void scene_close(void)
{
	t->channel_close(x.tx);
	t->channel_close(x.rx);
	for (int i = 0; i < SIDES; i++)
		close_link(&side[i]);
	fabric_written(NULL);
	for (int i = 0; i < FRAMES; i++)
		t->mem_free(side[0].in, &x.data[i]);
	t->mem_free(side[1].in, &x.into);
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

/* By value or by reference; false: not yet. */
static bool send_one(uint32_t i)
{
	const struct coll_frame f = frame_of(i);
	void *slot;

	if (i % 2)
		return t->post_ref(x.tx, x.data[i].base, NULL, &f, &x.sent[i]) == COLL_OK;
	if (t->slot(x.tx, f.len_bytes, &slot) != COLL_OK)
		return false;
	memcpy(slot, x.data[i].base, f.len_bytes);
	return t->post(x.tx, &f) == COLL_OK;
}

/* From its slot, into plain or into registered memory. */
static void receive(unsigned how)
{
	char *into = how == 1 ? x.plain : x.into.base;
	struct coll_frame f, seen;
	const void *p;

	if (x.came == FRAMES)
		return;
	f = frame_of(x.came);
	if (how == 0) {
		if (t->view(x.rx, &p, &seen) != COLL_OK)
			return;
		x.wrong |= memcmp(p, x.data[x.came++].base, f.len_bytes) != 0;
		t->done(x.rx);
		return;
	}
	if (!x.waits)
		x.waits = t->recv_into(x.rx, into, NULL, &f, &x.received) == COLL_OK;
	if (!x.waits || coll_completion_pending(&x.received))
		return;
	x.waits = false;
	if (x.received.status == COLL_OK)
		x.wrong |= memcmp(into, x.data[x.came++].base, f.len_bytes) != 0;
}

static bool over(unsigned how)
{
	while (x.next < FRAMES && send_one(x.next))
		x.next++;
	for (int i = 0; i < SIDES; i++)
		t->progress(side[i].in);
	receive(how);
	return side[1].downs > 0 || x.came == FRAMES;
}

/* Whether a frame was received that had not been sent so. */
static bool flip_one(uint64_t seed, enum part part)
{
	const bool checked = *check == 'a';
	uint32_t victim;
	unsigned how;

	scene_open(seed);
	victim = coll_rng_below(&x.rng, FRAMES);
	how = coll_rng_below(&x.rng, 3);
	flip.part = part;
	flip.bit = coll_rng_below(&x.rng, 8 * x.len[victim]);
	flip.frame = victim;
	CHECK(AWAIT_MS(over(how), 20000), "seed %llu", (unsigned long long)seed);
	CHECK(flip.done, "seed %llu", (unsigned long long)seed);
	if (checked) {
		CHECK(!x.wrong && x.came <= victim, "part %d, way %u, frame %u, %u came, seed %llu", (int)part, how,
		      victim, x.came, (unsigned long long)seed);
		CHECK(side[1].why == COLL_ERR_CORRUPT, "part %d: %d: %s, seed %llu", (int)part, (int)side[1].why,
		      side[1].cause, (unsigned long long)seed);
		CHECK(strstr(side[1].cause, "rdma fabric0") &&
		              strstr(side[1].cause, part == TAIL ? "frame" : "fail their check: CRC-32C"),
		      "%s", side[1].cause);
	}
	scene_close();
	return x.wrong;
}

static uint64_t number(const char *name, uint64_t standard)
{
	const char *given = getenv(name);

	return given ? strtoull(given, NULL, 0) : standard;
}

TEST(rdma_flips, none_is_received)
{
	const uint64_t seed = number("COLL_FLIPS_SEED", coll_clock_ns()), flips = number("COLL_FLIPS", 100);
	uint64_t wrong = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	check = "all";
	for (uint64_t i = 0; i < flips; i++)
		wrong += flip_one(seed + i, (enum part)(i % PARTS));
	CHECK(wrong == 0);
}

TEST(rdma_flips, without_a_check_each_is_received)
{
	const uint64_t seed = number("COLL_FLIPS_SEED", coll_clock_ns());

	printf("seed %llu\n", (unsigned long long)seed);
	check = "links";
	for (uint64_t i = 0; i < 12; i++)
		CHECK(flip_one(seed + i, PAYLOAD), "seed %llu", (unsigned long long)(seed + i));
}

/* All frames of this seed, and the bytes that the first device was given. */
static uint64_t whole(uint64_t seed, const char *how)
{
	const uint64_t before = fabric_sent(0);

	check = how;
	scene_open(seed);
	CHECK(AWAIT_MS(over((unsigned)seed % 3), 20000));
	CHECK(x.came == FRAMES && !x.wrong && side[0].downs + side[1].downs == 0, "%s", side[1].cause);
	scene_close();
	return fabric_sent(0) - before;
}

TEST(rdma_flips, what_comes_whole_passes_and_costs_four_bytes_a_piece)
{
	for (uint64_t seed = 0; seed < 18; seed++) {
		const uint64_t none = whole(seed, "none"), links = whole(seed, "links"), all = whole(seed, "all");
		uint64_t sums = 0;

		for (int i = 0; i < FRAMES; i++)
			sums += 4 * ((x.len[i] + PIECE - 1) / PIECE);
		CHECK(links == none && all == none + sums, "seed %llu: %llu, %llu, %llu bytes",
		      (unsigned long long)seed, (unsigned long long)none, (unsigned long long)links,
		      (unsigned long long)all);
	}
}
