/*
 * Memory that was loaned and is wanted back while somebody reads it, or whose owner or reader
 * dies meanwhile. One rule: what view and done, or a completion word, say is good, is what was sent,
 * whole; and once the owner's close has returned the memory is the owner's.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/conform/conform.h"

enum { LEN = 100000, RACES = 400 };

/* Memory that can be loaned, of the transport where it has some. */
static char *lendable(struct world *w, int i, struct coll_memory *mem)
{
	*mem = (struct coll_memory){.size = sizeof(*mem)};
	if (w->t->mem_alloc(w->node[i]->inst, LEN, mem) != COLL_OK)
		*mem = (struct coll_memory){.size = sizeof(*mem), .base = malloc(LEN), .len_bytes = LEN};
	return mem->base;
}

static void give_up(struct world *w, int i, struct coll_memory *mem)
{
	if (mem->keys || strcmp(conform_name, "loop") == 0)
		w->t->mem_free(w->node[i]->inst, mem);
	else
		free(mem->base);
}

/* False: it went by value. */
static bool lend(struct world *w, void *tx, const struct coll_memory *mem, uint64_t stream,
                 struct coll_completion *completion)
{
	const struct coll_frame head = head_of(stream, 0, LEN);
	coll_status status = COLL_AGAIN;

	fill(mem->base, stream, 0, LEN);
	AWAIT(w, (status = w->t->post_ref(tx, mem->base, mem, &head, completion)) != COLL_AGAIN);
	CHECK(status == COLL_OK || status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
	if (status == COLL_OK)
		return true;
	*completion = (struct coll_completion){0, COLL_OK};
	send_one(w, tx, stream, 0, LEN);
	return false;
}

/* ---- The owner takes it back -------------------------------------------------------- */

TEST_IN_WORLD(loaned, the_owner_closes_under_a_view, 2, true)
{
	struct coll_completion completion = {0};
	struct coll_memory mem;
	struct coll_frame f;
	const void *q = NULL;
	void *tx, *rx;
	coll_status status = COLL_AGAIN;
	bool whole;

	tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
	rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
	lendable(w, 0, &mem);
	lend(w, tx, &mem, 1, &completion);
	CHECK(AWAIT(w, (status = w->t->view(rx, &q, &f)) != COLL_AGAIN) && status == COLL_OK);
	w->t->channel_close(tx);
	CHECK(!coll_completion_pending(&completion));
	memset(mem.base, 0x77, LEN);
	whole = intact(q, 1, 0, LEN);
	status = w->t->done(rx);
	CHECK(whole || status != COLL_OK, "done says that what was overwritten is good");
	w->t->channel_close(rx);
	give_up(w, 0, &mem);
}

/* Freed under the view of another process, which looks at all of it afterwards. */
static void free_under_a_view(struct world *w, void *arg)
{
	void *ch = channel(w, w->me, !w->me, w->me ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
	struct coll_completion completion = {0};
	struct coll_memory mem;
	struct coll_frame f;
	const void *q = NULL;
	coll_status status = COLL_AGAIN;

	if (w->me == 0) {
		lendable(w, 0, &mem);
		lend(w, ch, &mem, 1, &completion);
		world_barrier(w);
		w->t->channel_close(ch);
		give_up(w, 0, &mem);
		world_barrier(w);
		return;
	}
	CHECK(AWAIT(w, (status = w->t->view(ch, &q, &f)) != COLL_AGAIN) && status == COLL_OK);
	CHECK(intact(q, 1, 0, LEN));
	world_barrier(w);
	world_barrier(w);
	for (int i = 0; i < 100; i++)
		world_progress(w);
	if (!intact(q, 1, 0, LEN)) /* no crash either way */
		CHECK(w->t->done(ch) != COLL_OK);
	w->t->channel_close(ch);
}

TEST(loaned, freed_under_a_view)
{
	world_processes(free_under_a_view, NULL);
}

/* The owner closes and overwrites at any moment of the reader's looking, copying or pulling. */
static void hurry(struct coll_rng *rng)
{
	const uint32_t n = coll_rng_below(rng, 4) ? coll_rng_below(rng, 3000) : coll_rng_below(rng, 60000);

	for (volatile uint32_t i = 0; i < n; i++)
		coll_cpu_relax();
}

static void lend_and_take_back(struct world *w, struct coll_rng *rng, uint64_t round, struct coll_memory *mem)
{
	void *tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(100 + round, 0, 0), LEN, 2);
	struct coll_completion completion = {0};

	lend(w, tx, mem, round, &completion);
	hurry(rng);
	w->t->channel_close(tx);
	CHECK(!coll_completion_pending(&completion));
	memset(mem->base, 0x77, LEN);
}

/* What was accepted. */
static int look(struct world *w, uint64_t round, char *to, bool announced)
{
	void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(100 + round, 0, 0), LEN, 2);
	const struct coll_frame head = head_of(round, 0, LEN);
	struct coll_completion completion = {0};
	struct coll_frame f;
	const void *q = NULL;
	coll_status status = COLL_AGAIN;

	memset(to, 0, LEN);
	if (announced && w->t->recv_into(rx, to, NULL, &head, &completion) == COLL_OK) {
		CHECK(AWAIT(w, !coll_completion_pending(&completion)));
		status = completion.status;
	} else {
		CHECK(AWAIT(w, (status = w->t->view(rx, &q, &f)) != COLL_AGAIN));
		if (status == COLL_OK) {
			memcpy(to, q, LEN);
			status = w->t->done(rx);
		}
	}
	if (status == COLL_OK)
		CHECK(intact(to, round, 0, LEN), "round %d, %s", (int)round, announced ? "announced" : "viewed");
	else
		CHECK(status == COLL_ERR_ABORTED, "%s", coll_status_string(status));
	w->t->channel_close(rx);
	return status == COLL_OK;
}

static void race(struct world *w, void *arg)
{
	struct coll_rng rng = {20261121 + (uint64_t)w->me};
	struct coll_memory mem = {0}, plain = {.size = sizeof(plain), .len_bytes = LEN};
	char *to = malloc(LEN);
	int accepted = 0;

	plain.base = malloc(LEN);
	if (w->me == 0)
		lendable(w, 0, &mem);
	for (uint64_t round = 0; round < RACES && atomic_load(&plain_failures) == 0; round++) {
		if (w->me == 0)
			lend_and_take_back(w, &rng, round, round % 3 ? &mem : &plain);
		else
			accepted += look(w, round, to, round % 2);
	}
	if (w->me)
		printf("     %d of %d frames came before their owner took them back\n", accepted, RACES);
	world_barrier(w);
	if (w->me == 0)
		give_up(w, 0, &mem);
	free(plain.base);
	free(to);
}

TEST(loaned, taken_back_at_any_moment_between_threads)
{
	world_threads(2, race, NULL);
}

TEST(loaned, taken_back_at_any_moment_between_processes)
{
	world_processes(race, NULL);
}

/* ---- One of them dies ---------------------------------------------------------------- */

static void dying_lender(struct world *w, void *arg)
{
	void *tx = channel(w, 1, 0, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
	struct coll_completion completion = {0};
	struct coll_memory mem;

	lendable(w, 1, &mem);
	lend(w, tx, &mem, 1, &completion);
	for (;;)
		world_progress(w);
}

TEST(loaned, the_lender_dies_under_a_view)
{
	struct world w;
	struct coll_frame f;
	const void *q = NULL;
	coll_status status = COLL_AGAIN;
	void *rx;

	if (!world_fork(&w, dying_lender, NULL))
		return;
	rx = channel(&w, 0, 1, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
	CHECK(AWAIT(&w, (status = w.t->view(rx, &q, &f)) != COLL_AGAIN) && status == COLL_OK);
	kill(w.child, SIGKILL);
	world_reap(&w, SIGKILL);
	CHECK(AWAIT(&w, atomic_load(&w.node[0]->downs) == 1));
	if (status == COLL_OK && !intact(q, 1, 0, LEN))
		CHECK(w.t->done(rx) != COLL_OK);
	w.t->channel_close(rx);
	world_close(&w);
}

static void dying_reader(struct world *w, void *arg)
{
	void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
	struct coll_frame f;
	const void *q;

	CHECK(AWAIT(w, w->t->view(rx, &q, &f) == COLL_OK));
	world_barrier(w);
	for (;;)
		pause();
}

TEST(loaned, the_reader_dies_while_it_looks)
{
	struct world w;
	struct coll_completion completion = {0};
	struct coll_memory mem;
	void *tx;

	if (!world_fork(&w, dying_reader, NULL))
		return;
	tx = channel(&w, 0, 1, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
	lendable(&w, 0, &mem);
	lend(&w, tx, &mem, 1, &completion);
	for (int i = 0; i < 1000; i++)
		world_progress(&w);
	world_barrier(&w);
	kill(w.child, SIGKILL);
	world_reap(&w, SIGKILL);
	CHECK(AWAIT(&w, atomic_load(&w.node[0]->downs) == 1));
	CHECK(AWAIT(&w, !coll_completion_pending(&completion)));
	w.t->channel_close(tx);
	give_up(&w, 0, &mem);
	world_close(&w);
}
