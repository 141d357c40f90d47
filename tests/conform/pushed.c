/*
 * Memory that a receiver offers to have written by its peer. What view shows of a frame that
 * was written there is the place itself; a frame that is not the one that was expected is not
 * written there; and once the receiver's close has returned nobody writes there, though the
 * writer was stopped in the middle of it, or has died.
 *
 * A transport that takes no offers passes: then frames come in slots.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/conform/conform.h"
#include "transport/transport_shared.h"

enum { LEN = 64 << 10, ROUNDS = 200 };

static bool places(struct world *w, int i, struct coll_memory *mem)
{
	*mem = (struct coll_memory){.size = sizeof(*mem)};
	return w->t->mem_alloc(w->node[i]->inst, 4 * LEN, mem) == COLL_OK;
}

/* A slot or the place; *pushed says which. */
static char *somewhere(struct world *w, void *tx, const struct coll_frame *head, bool *pushed)
{
	void *p = NULL;
	coll_status status = COLL_AGAIN;

	AWAIT(w, (status = w->t->shared->push(tx, head, &p)) != COLL_AGAIN);
	CHECK(status == COLL_OK || status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
	*pushed = status == COLL_OK;
	if (status == COLL_ERR_UNSUPPORTED)
		AWAIT(w, (status = w->t->slot(tx, head->len_bytes, &p)) != COLL_AGAIN);
	CHECK(status == COLL_OK, "%s", coll_status_string(status));
	return status == COLL_OK ? p : NULL;
}

/* Send frame i of a stream, where the peer wants it if it says so. */
static bool give(struct world *w, void *tx, uint64_t stream, uint64_t i)
{
	const struct coll_frame head = head_of(stream, i, LEN);
	bool pushed = false;
	char *p = somewhere(w, tx, &head, &pushed);

	if (p) {
		fill(p, stream, i, LEN);
		CHECK(w->t->post(tx, &head) == COLL_OK);
	}
	return pushed;
}

/* Take frame i; true: it was where it was offered to be taken. */
static bool take(struct world *w, void *rx, uint64_t stream, uint64_t i, const char *place)
{
	const struct coll_frame head = head_of(stream, i, LEN);
	struct coll_frame f = {0};
	const void *q = NULL;
	coll_status status = COLL_AGAIN;

	CHECK(AWAIT(w, (status = w->t->view(rx, &q, &f)) != COLL_AGAIN) && status == COLL_OK, "%s",
	      coll_status_string(status));
	if (status != COLL_OK)
		return false;
	CHECK(same_frame(&f, &head));
	CHECK(intact(q, stream, i, LEN));
	CHECK(w->t->done(rx) == COLL_OK);
	return q == place;
}

/* The first offers may come before the peer knows the memory. */
static void exchange(struct world *w, uint64_t comm, bool page_aligned)
{
	void *tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(comm, 0, 0), LEN, 3);
	void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(comm, 0, 0), LEN, 3);
	struct coll_memory mem;
	int pushed = 0, placed = 0;

	if (!places(w, 1, &mem)) {
		w->t->channel_close(tx);
		w->t->channel_close(rx);
		return;
	}
	for (uint64_t i = 0; i < ROUNDS; i += 2) { /* every other frame has a place, known one frame ahead */
		const struct coll_frame head = head_of(comm, i + 1, LEN);
		char *place = mem.base + (page_aligned ? LEN * (i / 2 % 3) : 64);

		w->t->shared->invite(rx, 1, place, &mem, &head);
		CHECK(!give(w, tx, comm, i), "a frame without a place was pushed");
		CHECK(!take(w, rx, comm, i, place));
		pushed += give(w, tx, comm, i + 1);
		placed += take(w, rx, comm, i + 1, place);
		for (int k = 0; k < 20; k++) {
			world_progress(w);
			sched_yield();
		}
	}
	CHECK(pushed == placed, "%d pushed, %d in place", pushed, placed);
	if (strcmp(conform_name, "shm") == 0)
		CHECK(page_aligned ? pushed > ROUNDS / 4 : pushed == 0, "%d pushed", pushed);
	w->t->channel_close(tx);
	w->t->channel_close(rx);
	w->t->mem_free(w->node[1]->inst, &mem);
}

TEST_IN_WORLD(pushed, frames_come_where_they_are_wanted, 2, true)
{
	exchange(w, 1, true);
	exchange(w, 2, false); /* parts of pages: never */
}

/* Until the peer knows the memory: then the answer is as it stays. */
static bool known(struct world *w, struct coll_memory *mem)
{
	void *tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(77, 0, 0), LEN, 2);
	void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(77, 0, 0), LEN, 2);
	bool pushed = false;

	for (uint64_t i = 0; i < 100 && !pushed; i++) {
		const struct coll_frame head = head_of(7, i, LEN);

		w->t->shared->invite(rx, 0, mem->base, mem, &head);
		pushed = give(w, tx, 7, i);
		take(w, rx, 7, i, mem->base);
		for (int k = 0; k < 50; k++) {
			world_progress(w);
			sched_yield();
		}
	}
	w->t->channel_close(tx);
	w->t->channel_close(rx);
	return pushed;
}

/* Two nodes, and memory of the second that the first knows. */
struct stand {
	struct world w;
	struct coll_memory mem;
	void *tx, *rx;
};

static void join(struct stand *s, uint64_t comm)
{
	s->tx = channel(&s->w, 0, 1, COLL_DIR_SEND, key_of(comm, 0, 0), LEN, 2);
	s->rx = channel(&s->w, 1, 0, COLL_DIR_RECV, key_of(comm, 0, 0), LEN, 2);
}

static void part(struct stand *s)
{
	s->w.t->channel_close(s->tx);
	s->w.t->channel_close(s->rx);
}

static void stand_close(struct stand *s)
{
	if (s->mem.base)
		s->w.t->mem_free(s->w.node[1]->inst, &s->mem);
	world_close(&s->w);
}

/* False: nothing is open, the transport takes no offers. */
static bool stand_open(struct stand *s)
{
	*s = (struct stand){0};
	if (!world_open(&s->w, 2, true))
		return false;
	if (places(&s->w, 1, &s->mem) && known(&s->w, &s->mem))
		return true;
	stand_close(s);
	return false;
}

static int bytes_other_than(const char *p, size_t len_bytes, char value)
{
	int n = 0;

	for (size_t i = 0; i < len_bytes; i++)
		n += p[i] != value;
	return n;
}

TEST(pushed, another_frame_than_expected_does_not_touch_the_place)
{
	struct stand s;
	struct coll_frame head = head_of(2, 5, LEN);

	if (!stand_open(&s))
		return;
	join(&s, 2);
	memset(s.mem.base, 0x55, LEN);
	head.sequence++;
	s.w.t->shared->invite(s.rx, 0, s.mem.base, &s.mem, &head);
	CHECK(!give(&s.w, s.tx, 2, 5));
	CHECK(!take(&s.w, s.rx, 2, 5, s.mem.base));
	CHECK(bytes_other_than(s.mem.base, LEN, 0x55) == 0);
	part(&s);
	stand_close(&s);
}

/* The writer holds its claim when the receiver closes, and goes on writing after that: as one
 * that was stopped and continued. */
TEST(pushed, a_writer_that_never_ends_is_left_behind)
{
	const struct coll_frame head = head_of(3, 0, LEN);
	struct stand s;
	bool pushed = false;
	char *p;

	if (!stand_open(&s))
		return;
	join(&s, 3);
	memset(s.mem.base, 0x55, 4 * LEN);
	s.w.t->shared->invite(s.rx, 0, s.mem.base + LEN, &s.mem, &head);
	p = somewhere(&s.w, s.tx, &head, &pushed);
	CHECK(pushed);
	memset(p, 0x66, LEN / 2);
	s.w.t->channel_close(s.rx); /* returns, though the claim stands */
	CHECK(s.mem.base[LEN] == 0x66, "what was there is there");
	memset(s.mem.base, 0x11, 4 * LEN); /* the owner's again */
	memset(p, 0x77, LEN);
	CHECK(bytes_other_than(s.mem.base, 4 * LEN, 0x11) == 0, "the owner's were written after its close");
	s.w.t->channel_close(s.tx);
	CHECK(!known(&s.w, &s.mem), "torn memory is not offered again");
	stand_close(&s);
}

/* The sender closes with a claim, or the receiver with an open offer: nothing hangs. */
TEST(pushed, either_end_closes_early)
{
	struct stand s;

	if (!stand_open(&s))
		return;
	for (uint64_t i = 0; i < 20; i++) {
		const struct coll_frame head = head_of(3, i, LEN);
		bool pushed = false;
		void *p;

		join(&s, 10 + i);
		s.w.t->shared->invite(s.rx, 0, s.mem.base, &s.mem, &head);
		if (i % 2) {
			CHECK(somewhere(&s.w, s.tx, &head, &pushed) && pushed);
			part(&s);
			continue;
		}
		CHECK(AWAIT(&s.w, s.w.t->slot(s.tx, LEN, &p) == COLL_OK));
		s.w.t->channel_close(s.rx);
		CHECK(s.w.t->shared->push(s.tx, &head, &p) != COLL_OK);
		s.w.t->channel_close(s.tx);
	}
	CHECK(known(&s.w, &s.mem), "the memory is whole");
	stand_close(&s);
}

/* Two processes; the writer is killed at any moment. */
static void push_for_ever(struct world *w, void *arg)
{
	void *tx = channel(w, w->me, !w->me, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);

	for (uint64_t i = 0;; i++)
		give(w, tx, 1, i);
}

TEST(pushed, the_writer_is_killed)
{
	for (int round = 0; round < 5; round++) {
		struct world w;
		struct coll_memory mem;
		void *rx;
		uint64_t n = 0;

		if (!world_fork(&w, push_for_ever, NULL))
			return;
		rx = channel(&w, w.me, !w.me, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
		if (!places(&w, w.me, &mem)) {
			kill(w.child, SIGKILL);
			w.t->channel_close(rx);
			world_reap(&w, SIGKILL);
			world_close(&w);
			return;
		}
		for (; n < 300 + 37 * (uint64_t)round; n++) {
			const struct coll_frame head = head_of(1, n, LEN);

			w.t->shared->invite(rx, 0, mem.base, &mem, &head);
			take(&w, rx, 1, n, mem.base);
		}
		kill(w.child, round % 2 ? SIGSTOP : SIGKILL);
		w.t->channel_close(rx);
		memset(mem.base, 0x11, LEN);
		if (round % 2)
			kill(w.child, SIGCONT);
		for (int i = 0; i < 1000; i++)
			sched_yield();
		CHECK(bytes_other_than(mem.base, LEN, 0x11) == 0);
		kill(w.child, SIGKILL);
		world_reap(&w, SIGKILL);
		w.t->mem_free(w.node[w.me]->inst, &mem);
		world_close(&w);
	}
}
