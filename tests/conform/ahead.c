/*
 * Several announcements at once on a channel: frames go to where each was announced, in
 * order. A transport takes as many as it likes, one at least; rdma as many of registered
 * memory as there are slots, so that a stream of frames does not wait a round trip each.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/conform/conform.h"

enum { LEN = 20000, SLOTS = 5, GAP = 64 };

struct ahead {
	struct world w;
	void *tx, *rx;
	struct coll_memory from, to;
	struct coll_completion loaned[SLOTS], in[SLOTS];
	int announced;
};

static void own_memory(struct ahead *a, int node, struct coll_memory *mem)
{
	*mem = (struct coll_memory){.size = sizeof(*mem)};
	if (a->w.t->mem_alloc(a->w.node[node]->inst, (size_t)SLOTS * (LEN + GAP), mem) != COLL_OK)
		*mem = (struct coll_memory){.size = sizeof(*mem), .base = malloc((size_t)SLOTS * (LEN + GAP))};
}

static void give_up(struct ahead *a, int node, struct coll_memory *mem)
{
	if (mem->keys)
		a->w.t->mem_free(a->w.node[node]->inst, mem);
	else
		free(mem->base);
}

static char *piece(const struct coll_memory *mem, int k)
{
	return mem->base + (size_t)k * (LEN + GAP);
}

static bool untouched(const char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != (char)0xee)
			return false;
	return true;
}

static bool ahead_open(struct ahead *a)
{
	*a = (struct ahead){.announced = 0};
	if (!world_open(&a->w, 2, true))
		return false;
	a->tx = channel(&a->w, 0, 1, COLL_DIR_SEND, key_of(31, 0, 0), LEN, SLOTS);
	a->rx = channel(&a->w, 1, 0, COLL_DIR_RECV, key_of(31, 0, 0), LEN, SLOTS);
	own_memory(a, 0, &a->from);
	own_memory(a, 1, &a->to);
	return a->tx && a->rx && a->from.base && a->to.base;
}

static void ahead_close(struct ahead *a)
{
	a->w.t->channel_close(a->tx);
	if (a->rx)
		a->w.t->channel_close(a->rx);
	give_up(a, 0, &a->from);
	give_up(a, 1, &a->to);
	world_close(&a->w);
}

/* As many as are taken, for the frames from first on; false: none, ever. wrong: of the first one. */
static bool announce(struct ahead *a, uint64_t first, bool wrong)
{
	memset(a->to.base, 0xee, (size_t)SLOTS * (LEN + GAP));
	for (a->announced = 0; a->announced < SLOTS; a->announced++) {
		const int k = a->announced;
		struct coll_frame head = head_of(31, first + (uint64_t)k, LEN);
		coll_status status;

		head.signature ^= wrong && k == 0;
		status = a->w.t->recv_into(a->rx, piece(&a->to, k), NULL, &head, &a->in[k]);
		if (status != COLL_OK) {
			CHECK(status == COLL_AGAIN || status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
			break;
		}
	}
	if (strcmp(conform_name, "rdma") == 0 && a->to.keys)
		CHECK(a->announced == SLOTS, "announced %d of %d", a->announced, SLOTS);
	return a->announced > 0;
}

/* By reference, or, odd ones, by value if mixed. */
static void send(struct ahead *a, uint64_t first, int from, int n, bool mixed)
{
	for (int k = from; k < n; k++) {
		const struct coll_frame head = head_of(31, first + (uint64_t)k, LEN);
		coll_status status = COLL_ERR_UNSUPPORTED;

		a->loaned[k] = (struct coll_completion){0, COLL_OK};
		fill(piece(&a->from, k), 31, first + (uint64_t)k, LEN);
		if (!mixed || k % 2 == 0)
			CHECK(AWAIT(&a->w, (status = a->w.t->post_ref(a->tx, piece(&a->from, k), &a->from, &head,
			                                              &a->loaned[k])) != COLL_AGAIN));
		if (status == COLL_ERR_UNSUPPORTED) {
			a->loaned[k].pending = 0;
			send_one(&a->w, a->tx, 31, first + (uint64_t)k, LEN);
		} else {
			CHECK(status == COLL_OK, "%s", coll_status_string(status));
		}
	}
}

static void await_loaned(struct ahead *a, int n)
{
	for (int k = 0; k < n; k++)
		CHECK(AWAIT(&a->w, !coll_completion_pending(&a->loaned[k])), "loaned %d", k);
}

/* One round of n frames; those that are not announced are viewed. A receiver that has emptied all slots
 * may keep some back until more are to be told: so not all are there for a sender that is early. */
static void round_of(struct ahead *a, uint64_t first, bool late, bool mixed)
{
	const int early = late ? SLOTS / 2 + 1 : 0;
	int n;

	send(a, first, 0, early, mixed);
	announce(a, first, false);
	n = a->announced > early ? a->announced : early > 0 ? early : 1;
	send(a, first, early, n, mixed);
	for (int k = 0; k < a->announced; k++) {
		CHECK(AWAIT(&a->w, !coll_completion_pending(&a->in[k])), "frame %llu + %d", (unsigned long long)first,
		      k);
		CHECK(a->in[k].status == COLL_OK, "%s", coll_status_string(a->in[k].status));
		CHECK(intact(piece(&a->to, k), 31, first + (uint64_t)k, LEN), "frame %llu + %d",
		      (unsigned long long)first, k);
		CHECK(untouched(piece(&a->to, k) + LEN, GAP), "behind frame %d", k);
	}
	for (int k = a->announced; k < n; k++)
		recv_one(&a->w, a->rx, 31, first + (uint64_t)k, LEN);
	await_loaned(a, n);
}

static void stream(bool late, bool mixed)
{
	struct ahead a;
	int least = SLOTS, most = 0;

	if (!ahead_open(&a))
		return;
	for (uint64_t i = 0; i < 20; i++) {
		round_of(&a, i * SLOTS, late, mixed);
		least = a.announced < least ? a.announced : least;
		most = a.announced > most ? a.announced : most;
	}
	printf("     %d to %d announcements at once\n", least, most);
	ahead_close(&a);
}

TEST(ahead, announced_before_they_are_sent)
{
	stream(false, false);
	stream(false, true);
}

TEST(ahead, sent_before_they_are_announced)
{
	stream(true, false);
	stream(true, true);
}

/* The first is not the one that was expected: it is viewed, whatever has come behind it; each of the
 * others goes where it was announced, or is viewed, too. */
TEST(ahead, a_mismatch_before_others)
{
	struct ahead a;

	for (int mixed = 0; mixed < 2; mixed++) {
		if (!ahead_open(&a))
			return;
		if (!announce(&a, 0, true)) {
			ahead_close(&a);
			SKIP("recv_into is not supported");
		}
		send(&a, 0, 0, a.announced, mixed);
		for (int k = 0; k < a.announced; k++) {
			CHECK(AWAIT(&a.w, !coll_completion_pending(&a.in[k])), "frame %d", k);
			CHECK(a.in[k].status == COLL_ERR_MISMATCH || (k > 0 && a.in[k].status == COLL_OK), "%s",
			      coll_status_string(a.in[k].status));
			if (a.in[k].status == COLL_OK)
				CHECK(intact(piece(&a.to, k), 31, (uint64_t)k, LEN), "frame %d", k);
			else
				CHECK(untouched(piece(&a.to, k), LEN + GAP), "frame %d", k);
		}
		for (int k = 0; k < a.announced; k++)
			if (a.in[k].status != COLL_OK)
				recv_one(&a.w, a.rx, 31, (uint64_t)k, LEN);
		await_loaned(&a, a.announced);
		for (uint64_t i = 100; i < 100 + 3 * SLOTS; i++) { /* the channel goes on, all its slots are back */
			send_one(&a.w, a.tx, 31, i, LEN);
			recv_one(&a.w, a.rx, 31, i, LEN);
		}
		ahead_close(&a);
	}
}

/* After channel_close all that was announced is the caller's again. */
TEST(ahead, close_takes_all_back)
{
	struct ahead a;

	for (int sent = 0; sent < 3; sent++) {
		int came = 0;

		if (!ahead_open(&a))
			return;
		if (!announce(&a, 0, false)) {
			ahead_close(&a);
			SKIP("recv_into is not supported");
		}
		send(&a, 0, 0, sent < a.announced ? sent : a.announced, false);
		a.w.t->channel_close(a.rx);
		a.rx = NULL;
		for (int k = 0; k < a.announced; k++) {
			CHECK(!coll_completion_pending(&a.in[k]), "announcement %d", k);
			came += a.in[k].status == COLL_OK;
		}
		CHECK(came <= sent, "%d came of %d", came, sent);
		memset(a.to.base, 0xee, (size_t)SLOTS * (LEN + GAP));
		for (int i = 0; i < 1000; i++)
			world_progress(&a.w);
		CHECK(untouched(a.to.base, (size_t)SLOTS * (LEN + GAP)));
		ahead_close(&a);
	}
}
