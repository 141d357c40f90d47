/*
 * Frames: order, credits, sizes, the four verbs and the two by reference.
 */
#include <stdlib.h>

#include "tests/conform/conform.h"

enum { SLOTS_MAX = 8 };

/* A pair of nodes driven by this thread and one open channel from 0 to 1. */
struct lane {
	struct world w;
	void *tx;
	void *rx;
};

static bool lane_open(struct lane *l, size_t slot_bytes, uint32_t slots)
{
	if (!world_open(&l->w, 2, true))
		return false;
	l->tx = channel(&l->w, 0, 1, COLL_DIR_SEND, key_of(7, 0, 0), slot_bytes, slots);
	l->rx = channel(&l->w, 1, 0, COLL_DIR_RECV, key_of(7, 0, 0), slot_bytes, slots);
	return l->tx && l->rx;
}

static void lane_close(struct lane *l)
{
	l->w.t->channel_close(l->tx);
	l->w.t->channel_close(l->rx);
	world_close(&l->w);
}

static coll_status next_view(struct lane *l, const void **p, struct coll_frame *f)
{
	coll_status status = COLL_AGAIN;

	AWAIT(&l->w, (status = l->w.t->view(l->rx, p, f)) != COLL_AGAIN);
	return status;
}

TEST_IN_WORLD(data, caps_are_sane, 1, false)
{
	struct coll_transport_caps caps = {0};

	w->t->caps(w->node[0]->inst, &caps);
	CHECK(caps.latency_ns > 0 && caps.overhead_ns > 0 && caps.bytes_per_ns > 0);
	CHECK(caps.depth >= 2);
	CHECK(caps.slot_bytes_max >= 65536);
}

TEST(data, exactly_the_granted_slots)
{
	struct lane l;
	void *p;
	const void *q;
	struct coll_frame f;

	if (!lane_open(&l, 1024, 2))
		return;
	for (uint64_t i = 0; i < 2; i++)
		send_one(&l.w, l.tx, 1, i, 1000);
	/* Both are there, none is given back: no credit, whoever progresses. */
	CHECK(next_view(&l, &q, &f) == COLL_OK);
	for (int i = 0; i < 200; i++) {
		world_progress(&l.w);
		CHECK(l.w.t->slot(l.tx, 8, &p) == COLL_AGAIN);
	}
	for (uint64_t i = 0; i < 50; i++) {
		recv_one(&l.w, l.rx, 1, i, 1000);
		send_one(&l.w, l.tx, 1, i + 2, 1000);
		for (int k = 0; k < 20; k++) {
			world_progress(&l.w);
			CHECK(l.w.t->slot(l.tx, 8, &p) == COLL_AGAIN);
		}
	}
	lane_close(&l);
}

/* A receiver that holds a view still gets the second frame's bytes into the other slot. */
TEST(data, a_held_view_does_not_move)
{
	struct lane l;
	const void *q, *again;
	struct coll_frame f, f2;

	if (!lane_open(&l, 4096, 2))
		return;
	send_one(&l.w, l.tx, 3, 0, 4096);
	CHECK(next_view(&l, &q, &f) == COLL_OK);
	send_one(&l.w, l.tx, 3, 1, 4096);
	for (int i = 0; i < 100; i++)
		world_progress(&l.w);
	CHECK(l.w.t->view(l.rx, &again, &f2) == COLL_OK);
	CHECK(again == q && same_frame(&f, &f2));
	CHECK(intact(q, 3, 0, 4096));
	recv_one(&l.w, l.rx, 3, 0, 4096);
	recv_one(&l.w, l.rx, 3, 1, 4096);
	lane_close(&l);
}

TEST_IN_WORLD(data, nothing_before_the_receiver_opens, 2, true)
{
	void *tx, *rx, *p;

	tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(7, 1, 0), 256, 2);
	REQUIRE(tx);
	for (int i = 0; i < 1000; i++) {
		world_progress(w);
		REQUIRE(w->t->slot(tx, 8, &p) == COLL_AGAIN);
		sched_yield();
	}
	rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(7, 1, 0), 256, 2);
	REQUIRE(rx);
	send_one(w, tx, 1, 0, 200);
	recv_one(w, rx, 1, 0, 200);
	w->t->channel_close(tx);
	w->t->channel_close(rx);
}

TEST(data, the_slot_is_ours_until_posted)
{
	struct lane l;
	void *p = NULL, *again = NULL;
	struct coll_frame head = head_of(2, 0, 100);

	if (!lane_open(&l, 512, 2))
		return;
	CHECK(AWAIT(&l.w, l.w.t->slot(l.tx, 10, &p) == COLL_OK));
	REQUIRE(p);
	fill(p, 2, 0, 10);
	world_progress(&l.w);
	CHECK(l.w.t->slot(l.tx, 100, &again) == COLL_OK);
	CHECK(p == again);
	CHECK(intact(p, 2, 0, 10));
	fill(p, 2, 0, 100);
	CHECK(l.w.t->post(l.tx, &head) == COLL_OK);
	recv_one(&l.w, l.rx, 2, 0, 100);
	lane_close(&l);
}

static void sizes_up_to(size_t slot_bytes)
{
	const size_t some[] = {0, 1, 7, 8, 40, 41, 63, 64, 65, 4095, 4096, 65535, 65536, 1 << 20};
	struct lane l;
	uint64_t i = 0;

	if (!lane_open(&l, slot_bytes, 2))
		return;
	for (size_t k = 0; k < sizeof(some) / sizeof(some[0]) && some[k] <= slot_bytes; k++, i++) {
		send_one(&l.w, l.tx, slot_bytes, i, some[k]);
		recv_one(&l.w, l.rx, slot_bytes, i, some[k]);
	}
	for (uint64_t end = i + 4; i < end; i++) {
		send_one(&l.w, l.tx, slot_bytes, i, slot_bytes);
		recv_one(&l.w, l.rx, slot_bytes, i, slot_bytes);
	}
	lane_close(&l);
}

TEST(data, every_size_of_slot)
{
	struct world w;
	struct coll_transport_caps caps = {0};

	if (!world_open(&w, 1, false))
		return;
	w.t->caps(w.node[0]->inst, &caps);
	world_close(&w);
	sizes_up_to(1);
	sizes_up_to(8);
	sizes_up_to(63);
	sizes_up_to(4097);
	sizes_up_to(caps.slot_bytes_max);
}

/* Send by reference if the transport accepts it, else by value. */
static coll_status send_ref(struct lane *l, const char *from, uint64_t stream, uint64_t i, size_t len,
                            struct coll_completion *completion)
{
	const struct coll_frame head = head_of(stream, i, len);
	coll_status status = COLL_AGAIN;

	AWAIT(&l->w, (status = l->w.t->post_ref(l->tx, from, NULL, &head, completion)) != COLL_AGAIN);
	return status;
}

static void by_reference_of(size_t len, int rounds)
{
	struct lane l;
	char *from[2] = {aligned_alloc(64, (len + 127) & ~(size_t)63), aligned_alloc(64, (len + 127) & ~(size_t)63)};
	struct coll_completion completion[2];
	coll_status status = COLL_OK;
	int accepted = 0;

	if (!lane_open(&l, len ? len : 1, 2))
		return;
	for (int i = 0; i < rounds; i++) {
		const uint64_t a = 2 * (uint64_t)i;

		for (int k = 0; k < 2; k++) {
			fill(from[k], 9, a + (uint64_t)k, len);
			memset(&completion[k], 0x55, sizeof(completion[k]));
			status = send_ref(&l, from[k], 9, a + (uint64_t)k, len, &completion[k]);
			CHECK(status == COLL_OK || status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
			accepted += status == COLL_OK;
			if (status != COLL_OK) {
				send_one(&l.w, l.tx, 9, a + (uint64_t)k, len);
				completion[k] = (struct coll_completion){0, COLL_OK};
			}
		}
		for (int k = 0; k < 2; k++)
			recv_one(&l.w, l.rx, 9, a + (uint64_t)k, len);
		for (int k = 0; k < 2; k++) {
			CHECK(AWAIT(&l.w, coll_completion_pending(&completion[k]) == 0), "round %d", i);
			CHECK(completion[k].status == COLL_OK);
		}
	}
	printf("     by reference, %zu bytes: %d of %d frames accepted\n", len, accepted, 2 * rounds);
	lane_close(&l);
	free(from[0]);
	free(from[1]);
}

TEST(data, by_reference)
{
	by_reference_of(0, 3);
	by_reference_of(1, 20);
	by_reference_of(1000, 20);
	by_reference_of(65536 + 17, 50);
	by_reference_of(1 << 20, 10);
}

/* When a frame is announced; MEANWHILE: in the middle of its being sent, as far as a test can see to that. */
enum when { BEFORE, AFTER, MEANWHILE, WHENS };

enum { TAKEN = 0x5a };

/* What recv_through brings: the pieces are put together again, each byte changed once, and what is wrong with them is
 * counted. */
struct gathered {
	char *to;
	size_t len, have;
	int wrong;
};

static void gather(void *arg, const void *bytes, size_t at, size_t len)
{
	struct gathered *g = arg;

	g->wrong +=
	        at != g->have || at % 64 != 0 || len == 0 || len > g->len - at || (len % 64 != 0 && at + len != g->len);
	for (size_t i = 0; g->wrong == 0 && i < len; i++)
		g->to[at + i] = ((const char *)bytes)[i] ^ TAKEN;
	g->have += len;
}

/* Frame i of the lane, announced by recv_into or recv_through; of the latter every other one may be put where its
 * bytes go. False: not done so on this channel. */
static bool announced(struct lane *l, char *to, uint64_t i, size_t len, enum when when, bool through)
{
	const struct coll_frame head = head_of(4, i, len);
	struct gathered g = {.to = to, .len = len};
	const struct coll_taker taker = {gather, &g, i % 2 ? to : NULL};
	struct coll_completion completion = {0};
	coll_status status;

	memset(to, 0xee, len + 16);
	if (when != BEFORE) {
		send_one(&l->w, l->tx, 4, i, len);
		for (int k = 0; k < (when == MEANWHILE ? 1 : 20); k++)
			world_progress(&l->w);
	}
	status = through ? l->w.t->recv_through(l->rx, &taker, &head, &completion)
	                 : l->w.t->recv_into(l->rx, to, NULL, &head, &completion);
	if (when == BEFORE)
		send_one(&l->w, l->tx, 4, i, len);
	if (status == COLL_ERR_UNSUPPORTED) {
		recv_one(&l->w, l->rx, 4, i, len);
		return false;
	}
	CHECK(status == COLL_OK);
	CHECK(AWAIT(&l->w, coll_completion_pending(&completion) == 0), "frame %llu", (unsigned long long)i);
	CHECK(completion.status == COLL_OK, "%s", coll_status_string(completion.status));
	CHECK(!through || (g.have == len && g.wrong == 0), "%zu of %zu bytes, %d pieces wrong", g.have, len, g.wrong);
	for (size_t k = 0; through && k < len; k++)
		to[k] ^= TAKEN;
	CHECK(intact(to, 4, i, len));
	for (int k = 0; k < 16; k++)
		CHECK(to[len + (size_t)k] == (char)0xee);
	return status == COLL_OK;
}

static void announced_of(size_t len, enum when when, bool through)
{
	struct lane l;
	char *to = malloc(len + 16);

	if (lane_open(&l, len ? len : 1, 2)) {
		for (uint64_t i = 0; i < 30 && announced(&l, to, i, len, when, through); i++)
			;
		lane_close(&l);
	}
	free(to);
}

static void announced_of_all(bool through)
{
	const size_t lens[] = {0, 1, 40, 1000, 65536, 65536 + 17, 300001, 1 << 20};

	for (size_t k = 0; k < sizeof(lens) / sizeof(lens[0]); k++)
		for (enum when when = BEFORE; when < WHENS; when++)
			announced_of(lens[k], when, through);
}

TEST(data, recv_into)
{
	announced_of_all(false);
}

TEST(data, recv_through)
{
	announced_of_all(true);
}

/* A frame that is not the expected one: nothing is written, view still shows it. */
static void mismatch_of(struct coll_frame wrong, bool early, bool by_ref)
{
	struct lane l;
	static char from[65536];
	char *to = malloc(sizeof(from));
	struct coll_completion completion = {0}, loaned = {0};
	coll_status status;

	if (!lane_open(&l, sizeof(from), 2))
		return;
	memset(to, 0xee, sizeof(from));
	fill(from, 5, 0, 60000);
	status = early ? l.w.t->recv_into(l.rx, to, NULL, &wrong, &completion) : COLL_OK;
	if (!by_ref || send_ref(&l, from, 5, 0, 60000, &loaned) != COLL_OK) {
		loaned.pending = 0;
		send_one(&l.w, l.tx, 5, 0, 60000);
	}
	if (!early)
		status = l.w.t->recv_into(l.rx, to, NULL, &wrong, &completion);
	CHECK(status == COLL_OK || status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
	if (status == COLL_OK) {
		CHECK(AWAIT(&l.w, coll_completion_pending(&completion) == 0));
		CHECK(completion.status == COLL_ERR_MISMATCH, "%s", coll_status_string(completion.status));
		for (size_t k = 0; k < sizeof(from); k++)
			REQUIRE(to[k] == (char)0xee);
	}
	recv_one(&l.w, l.rx, 5, 0, 60000);
	CHECK(AWAIT(&l.w, coll_completion_pending(&loaned) == 0));
	/* The channel still works. */
	send_one(&l.w, l.tx, 5, 1, 10);
	recv_one(&l.w, l.rx, 5, 1, 10);
	lane_close(&l);
	free(to);
}

/* The same for a taker, which is not called; nor is one whose channel has closed. */
TEST(data, recv_through_takes_nothing_else)
{
	struct lane l;
	char to[64];
	struct gathered g = {.to = to, .len = sizeof(to)};
	const struct coll_taker taker = {gather, &g};
	struct coll_frame wrong = head_of(5, 0, 60000);
	struct coll_completion completion = {0};
	coll_status status;

	if (!lane_open(&l, 65536, 2))
		return;
	wrong.sequence++;
	status = l.w.t->recv_through(l.rx, &taker, &wrong, &completion);
	if (status == COLL_ERR_UNSUPPORTED) {
		lane_close(&l);
		SKIP("recv_through is not supported");
	}
	CHECK(status == COLL_OK);
	send_one(&l.w, l.tx, 5, 0, 60000);
	CHECK(AWAIT(&l.w, coll_completion_pending(&completion) == 0));
	CHECK(completion.status == COLL_ERR_MISMATCH, "%s", coll_status_string(completion.status));
	recv_one(&l.w, l.rx, 5, 0, 60000);
	wrong = head_of(5, 1, 60000);
	CHECK(l.w.t->recv_through(l.rx, &taker, &wrong, &completion) == COLL_OK);
	l.w.t->channel_close(l.rx);
	CHECK(coll_completion_pending(&completion) == 0);
	CHECK(completion.status != COLL_OK);
	CHECK(g.have == 0 && g.wrong == 0);
	l.w.t->channel_close(l.tx);
	world_close(&l.w);
}

TEST(data, recv_into_checks_every_member_of_the_head)
{
	const struct coll_frame right = head_of(5, 0, 60000);

	for (int k = 0; k < 4; k++) {
		struct coll_frame wrong = right;

		wrong.sequence += k == 0;
		wrong.signature += k == 1;
		wrong.len_bytes += k == 2;
		wrong.len_bytes -= k == 3;
		mismatch_of(wrong, false, false);
		mismatch_of(wrong, true, false);
		mismatch_of(wrong, false, true);
		mismatch_of(wrong, true, true);
	}
}

/* After channel_close the announced memory is the caller's again. */
TEST(data, close_takes_an_announcement_back)
{
	struct lane l;
	static char to[4096];
	struct coll_completion completion = {0};
	const struct coll_frame head = head_of(6, 0, sizeof(to));

	if (!lane_open(&l, sizeof(to), 2))
		return;
	memset(to, 0xee, sizeof(to));
	if (l.w.t->recv_into(l.rx, to, NULL, &head, &completion) == COLL_ERR_UNSUPPORTED) {
		lane_close(&l);
		SKIP("recv_into is not supported");
	}
	CHECK(AWAIT(&l.w, ({
		void *p;
		l.w.t->slot(l.tx, 8, &p) == COLL_OK;
	})));
	l.w.t->channel_close(l.rx);
	CHECK(coll_completion_pending(&completion) == 0 && completion.status != COLL_OK, "pending %u",
	      coll_completion_pending(&completion));
	send_one(&l.w, l.tx, 6, 0, sizeof(to));
	for (int i = 0; i < 1000; i++)
		world_progress(&l.w);
	for (size_t k = 0; k < sizeof(to); k++)
		REQUIRE(to[k] == (char)0xee);
	l.w.t->channel_close(l.tx);
	world_close(&l.w);
}

/* After channel_close the loaned memory is the caller's again. */
static void take_back(struct lane *l, char *from, size_t len, const struct coll_memory *mem)
{
	const struct coll_frame head = head_of(8, 0, len);
	struct coll_completion completion = {0};
	const void *q;
	struct coll_frame f;
	coll_status status = COLL_AGAIN;

	fill(from, 8, 0, len);
	AWAIT(&l->w, (status = l->w.t->post_ref(l->tx, from, mem, &head, &completion)) != COLL_AGAIN);
	if (status == COLL_ERR_UNSUPPORTED) {
		l->w.t->channel_close(l->tx);
		SKIP("post_ref is not supported");
	}
	l->w.t->channel_close(l->tx);
	CHECK(coll_completion_pending(&completion) == 0, "pending %u", coll_completion_pending(&completion));
	memset(from, 0, len);
	/* The reader gets what was sent, or an error from view or done: no other bytes for good. */
	status = l->w.t->view(l->rx, &q, &f);
	if (status == COLL_OK) {
		bool whole = f.len_bytes == len && intact(q, 8, 0, len);

		status = l->w.t->done(l->rx);
		CHECK(status != COLL_OK || whole);
	}
}

TEST(data, close_takes_loaned_memory_back)
{
	struct lane l;
	static char plain[65536];
	struct coll_memory mem = {.size = sizeof(mem)};
	coll_status status;

	if (!lane_open(&l, sizeof(plain), 2))
		return;
	/* Some transports lend their own memory only. */
	status = l.w.t->mem_alloc(l.w.node[0]->inst, sizeof(plain), &mem);
	take_back(&l, status == COLL_OK ? mem.base : plain, sizeof(plain), status == COLL_OK ? &mem : NULL);
	if (status == COLL_OK)
		l.w.t->mem_free(l.w.node[0]->inst, &mem);
	l.w.t->channel_close(l.rx);
	world_close(&l.w);
}
