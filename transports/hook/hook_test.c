/*
 * hook: every fault strikes the frame it names, once, and nothing else; malformed
 * texts are refused.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "tests/plain.h"
#include "transports/hook/hook.h"
#include "transports/hook/rules.h"
#include "transports/loop/group.h"

struct bench {
	struct coll_transport t;
	void *state;
	struct coll_loop_group *group;
	void *inst[2], *link[2], *tx, *rx;
	int downs;
};

static const char *no_setting(void *ctx, const char *name)
{
	return "";
}

static void no_log(void *ctx, int level, const char *format, ...)
{
}

static void count_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	((struct bench *)ctx)->downs++;
}

/* Instance 0 sends through the hook, instance 1 receives without it. */
static void bench_open(struct bench *b, const char *spec)
{
	static const struct coll_process_id id[2] = {{{1, 1}}, {{2, 2}}};
	const struct coll_channel_key key = {.comm = 1};
	const struct coll_transport *plain = &coll_transport_loop;
	char address[2][64];
	size_t len[2];

	memset(b, 0, sizeof(*b));
	REQUIRE(coll_transport_hook_wrap(plain, spec, 0, &b->t, &b->state, NULL) == COLL_OK);
	REQUIRE(b->state != NULL);
	REQUIRE(coll_loop_group_create(&b->group) == COLL_OK);
	for (int i = 0; i < 2; i++) {
		const struct coll_transport_env env = {.size = sizeof(env),
		                                       .self = id[i],
		                                       .host_id = "h",
		                                       .group = b->group,
		                                       .wake_fd = -1,
		                                       .ctx = b,
		                                       .setting = no_setting,
		                                       .log = no_log,
		                                       .link_down = count_down,
		                                       .hook = i ? NULL : b->state};

		REQUIRE((i ? plain : &b->t)->open(&env, &b->inst[i]) == COLL_OK);
		REQUIRE((i ? plain : &b->t)->address(b->inst[i], address[i], 64, &len[i]) == COLL_OK);
	}
	REQUIRE(b->t.link_open(b->inst[0], &id[1], address[1], len[1], &b->link[0]) == COLL_OK);
	REQUIRE(plain->link_open(b->inst[1], &id[0], address[0], len[0], &b->link[1]) == COLL_OK);
	REQUIRE(b->t.channel_open(b->link[0], &key, COLL_DIR_SEND, 256, 4, &b->tx) == COLL_OK);
	REQUIRE(plain->channel_open(b->link[1], &key, COLL_DIR_RECV, 256, 4, &b->rx) == COLL_OK);
}

static void bench_close(struct bench *b)
{
	const struct coll_transport *plain = &coll_transport_loop;

	b->t.channel_close(b->tx);
	plain->channel_close(b->rx);
	b->t.link_close(b->link[0]);
	plain->link_close(b->link[1]);
	b->t.fini(b->inst[0]);
	plain->fini(b->inst[1]);
	coll_loop_group_destroy(&b->group);
	coll_transport_hook_unwrap(b->state);
}

enum { LEN = 100 };

static coll_status send(struct bench *b, uint64_t i, bool by_ref)
{
	static char memory[LEN];
	struct coll_frame head = {.sequence = i, .signature = 5, .len_bytes = LEN};
	static struct coll_completion completions[64]; /* settled later */
	coll_status status = COLL_ERR_UNSUPPORTED;
	void *p;

	memset(memory, (int)i, LEN);
	if (by_ref)
		status = b->t.post_ref(b->tx, memory, NULL, &head, &completions[i % 64]);
	if (status != COLL_ERR_UNSUPPORTED)
		return status;
	status = b->t.slot(b->tx, LEN, &p);
	if (status != COLL_OK)
		return status;
	memset(p, (int)i, LEN);
	return b->t.post(b->tx, &head);
}

/* The next frame: how many of its bits are wrong, -1 when there is none. */
static int recv(struct bench *b, struct coll_frame *head)
{
	const struct coll_transport *plain = &coll_transport_loop;
	const void *p;
	int wrong = 0;

	if (plain->view(b->rx, &p, head) != COLL_OK)
		return -1;
	for (int k = 0; k < LEN; k++)
		wrong += __builtin_popcount((unsigned)(((const unsigned char *)p)[k] ^ (head->sequence & 255)));
	plain->done(b->rx);
	return wrong;
}

static void flips_one_bit(bool by_ref)
{
	struct bench b;
	struct coll_frame head;

	bench_open(&b, "flip:frame=10,byte=3,mask=1");
	for (uint64_t i = 0; i < 30; i++) {
		CHECK(send(&b, i, by_ref) == COLL_OK);
		CHECK(recv(&b, &head) == (i == 10), "frame %d", (int)i);
		CHECK(head.sequence == i && head.signature == 5);
		b.t.progress(b.inst[0]);
	}
	bench_close(&b);
}

TEST(hook, flips_one_bit_by_value)
{
	flips_one_bit(false);
}

TEST(hook, flips_one_bit_by_reference)
{
	flips_one_bit(true);
}

TEST(hook, changes_one_head)
{
	struct bench b;
	struct coll_frame head;

	bench_open(&b, "head:frame=4,every=5");
	for (uint64_t i = 0; i < 15; i++) {
		CHECK(send(&b, i, true) == COLL_OK);
		CHECK(recv(&b, &head) == 0);
		CHECK((head.signature != 5) == (i >= 4 && (i - 4) % 5 == 0));
	}
	bench_close(&b);
}

static void drops_one(bool by_ref)
{
	struct bench b;
	struct coll_frame head;

	bench_open(&b, "drop:frame=7");
	for (uint64_t i = 0; i < 20; i++) {
		CHECK(send(&b, i, by_ref) == COLL_OK);
		CHECK(recv(&b, &head) == (i == 7 ? -1 : 0));
		b.t.progress(b.inst[0]);
	}
	bench_close(&b);
}

TEST(hook, drops_one_frame)
{
	drops_one(false);
	drops_one(true);
}

TEST(hook, closes_the_link)
{
	struct bench b;
	struct coll_frame head;
	const void *p;

	bench_open(&b, "close:frame=3");
	for (uint64_t i = 0; i < 3; i++) {
		CHECK(send(&b, i, false) == COLL_OK);
		CHECK(recv(&b, &head) == 0);
	}
	CHECK(b.downs == 0);
	CHECK(send(&b, 3, false) == COLL_ERR_PEER_DEAD);
	CHECK(send(&b, 4, false) == COLL_ERR_PEER_DEAD);
	CHECK(recv(&b, &head) == -1);
	CHECK(b.downs == 1);
	CHECK(b.t.link_status(b.link[0]) == COLL_ERR_PEER_DEAD);
	CHECK(b.t.view(b.tx, &p, &head) == COLL_ERR_PEER_DEAD);
	bench_close(&b);
}

TEST(hook, delays_in_order)
{
	struct bench b;
	struct coll_frame head;
	int refused = 0;

	bench_open(&b, "delay:us=300,frame=2,every=3");
	for (uint64_t i = 0; i < 9; i++) {
		const uint64_t start = coll_clock_ns();
		coll_status status;

		while ((status = send(&b, i, false)) == COLL_AGAIN)
			refused++;
		CHECK(status == COLL_OK);
		if (i % 3 == 2)
			CHECK(coll_clock_ns() - start >= 300000);
		CHECK(recv(&b, &head) == 0);
		CHECK(head.sequence == i);
	}
	CHECK(refused > 0);
	bench_close(&b);
}

TEST(hook, only_at_its_rank_and_transport)
{
	struct coll_transport table;
	void *state = &table;

	CHECK(coll_transport_hook_wrap(&coll_transport_loop, "flip:rank=1", 0, &table, &state, NULL) == COLL_OK);
	CHECK(state == NULL && table.post == coll_transport_loop.post);
	CHECK(coll_transport_hook_wrap(&coll_transport_loop, "flip:transport=tcp", 0, &table, &state, NULL) == COLL_OK);
	CHECK(state == NULL);
	CHECK(coll_transport_hook_wrap(&coll_transport_loop, "flip:transport=loop,rank=1", 1, &table, &state, NULL) ==
	      COLL_OK);
	CHECK(state != NULL && table.post != coll_transport_loop.post);
	coll_transport_hook_unwrap(state);
}

TEST(hook, refuses_malformed_texts)
{
	static const char *const bad[] = {"flop",          "flip:frame",      "flip:frame=",          "flip:frame=x",
	                                  "flip:frame=3x", "flip:colour=3",   "delay:every=3",        "flip:frame=-1",
	                                  "flip:mask=0",   "drop:transport=", "drop:frame=1;whatever"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct coll_transport table;
		struct coll_error_box err;
		void *state = NULL;

		coll_error_clear(&err);
		CHECK(coll_transport_hook_wrap(&coll_transport_loop, bad[i], 0, &table, &state, &err) ==
		              COLL_ERR_CONFIG,
		      "%s", bad[i]);
		CHECK(state == NULL && err.message[0], "%s", bad[i]);
	}
}
