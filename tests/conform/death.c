/*
 * A peer that ends without a word: killed, or gone by exit. The survivor is told
 * once, in less than two seconds, and every operation on that link ends.
 */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/conform/conform.h"
#include "tests/holdings.h"
#include "tests/multi/starved.h"

enum ending { KILLED, EXITS };

struct scene {
	enum ending ending;
	bool by_ref;   /* a loaned frame, an announced destination: pending when it happens */
	bool sleeping; /* the survivor is asleep */
};

enum { LEN = 65536 };

static char loaned[LEN], announced[LEN];

static void victim(struct world *w, void *arg)
{
	const struct scene *s = arg;
	void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(1, 0, 0), LEN, 2);
	void *tx = channel(w, 1, 0, COLL_DIR_SEND, key_of(2, 0, 0), LEN, 2);

	recv_one(w, rx, 1, 0, LEN);
	send_one(w, tx, 2, 0, LEN);
	world_barrier(w);
	/* Whatever is posted now is never read. */
	for (;;) {
		char c;

		if (s->ending == EXITS && read(w->pipe_fd, &c, 1) == 1)
			_exit(0);
		world_progress(w);
		usleep(1000);
	}
}

static bool all_settled(struct world *w, void *tx, void *rx, const struct coll_completion *out,
                        const struct coll_completion *in)
{
	const void *p;
	struct coll_frame f;
	void *q;

	if (coll_completion_pending(out) || coll_completion_pending(in))
		return false;
	return w->t->slot(tx, 8, &q) > COLL_AGAIN && w->t->view(rx, &p, &f) > COLL_AGAIN;
}

static void end_victim(struct world *w, const struct scene *s)
{
	char c = 'x';

	if (s->ending == KILLED)
		kill(w->child, SIGKILL);
	else
		CHECK(write(w->pipe_fd, &c, 1) == 1);
}

static void survive(const struct scene *s)
{
	struct world w;
	void *tx, *rx;
	struct coll_completion out = {0}, in = {0};
	const struct coll_frame head_out = head_of(1, 1, LEN), head_in = head_of(2, 1, LEN);
	uint64_t killed_at;
	bool seen;

	if (!world_fork(&w, victim, (void *)s))
		return;
	tx = channel(&w, 0, 1, COLL_DIR_SEND, key_of(1, 0, 0), LEN, 2);
	rx = channel(&w, 0, 1, COLL_DIR_RECV, key_of(2, 0, 0), LEN, 2);
	send_one(&w, tx, 1, 0, LEN);
	recv_one(&w, rx, 2, 0, LEN);
	world_barrier(&w);
	if (s->by_ref) {
		coll_status status = COLL_AGAIN;

		AWAIT(&w, (status = w.t->post_ref(tx, loaned, NULL, &head_out, &out)) != COLL_AGAIN);
		if (status != COLL_OK)
			out.pending = 0;
		if (w.t->recv_into(rx, announced, NULL, &head_in, &in) != COLL_OK)
			in.pending = 0;
	}
	CHECK(holdings_mappings("/dev/shm/") == 0, "memory with a name would outlive us");
	killed_at = coll_clock_ns();
	end_victim(&w, s);
	if (s->sleeping) {
		while (atomic_load(&w.node[0]->downs) == 0 && w.t->link_status(w.link[0][1]) <= COLL_AGAIN) {
			const void *p;
			struct coll_frame f;

			if (!coll_completion_pending(&in) && w.t->view(rx, &p, &f) > COLL_AGAIN)
				break;
			if (w.t->progress(w.node[0]->inst))
				continue;
			if (!node_sleep(&w, w.node[0])) {
				CHECK(false, "nothing woke the survivor");
				break;
			}
		}
	}
	seen = AWAIT(&w, atomic_load(&w.node[0]->downs) > 0);
	CHECK(seen, "link_down was not called");
	printf("     told after %.1f ms\n", (double)(atomic_load(&w.node[0]->down_at_ns) - killed_at) * 1e-6);
	CHECK(atomic_load(&w.node[0]->down_at_ns) - killed_at < 2000000000u + starved_ns());
	CHECK(atomic_load(&w.node[0]->down_why) == COLL_ERR_PEER_DEAD);
	CHECK(atomic_load(&w.node[0]->down_peer) == w.node[1]->env.self.word[1]);
	CHECK(AWAIT(&w, all_settled(&w, tx, rx, &out, &in)), "completion words pending: %u %u",
	      coll_completion_pending(&out), coll_completion_pending(&in));
	if (s->by_ref)
		CHECK(in.status != COLL_OK);
	for (int i = 0; i < 100; i++) {
		world_progress(&w);
		CHECK(w.t->link_status(w.link[0][1]) == COLL_ERR_PEER_DEAD);
	}
	CHECK(atomic_load(&w.node[0]->downs) == 1, "link_down was called %d times", atomic_load(&w.node[0]->downs));
	world_reap(&w, s->ending == KILLED ? SIGKILL : 0);
	w.t->channel_close(tx);
	w.t->channel_close(rx);
	world_close(&w);
}

TEST(death, killed)
{
	survive(&(struct scene){KILLED, false, false});
}

TEST(death, killed_while_the_survivor_sleeps)
{
	survive(&(struct scene){KILLED, false, true});
}

TEST(death, killed_with_memory_loaned)
{
	survive(&(struct scene){KILLED, true, false});
	survive(&(struct scene){KILLED, true, true});
}

TEST(death, exits_without_closing)
{
	survive(&(struct scene){EXITS, false, false});
	survive(&(struct scene){EXITS, true, true});
}

/* The lender dies with its record unread: view or done says so, or gives the true bytes. */
static void lender(struct world *w, void *arg)
{
	const struct coll_frame head = head_of(3, 0, LEN);
	void *tx = channel(w, 1, 0, COLL_DIR_SEND, key_of(3, 0, 0), LEN, 2);
	struct coll_completion completion;
	coll_status status = COLL_AGAIN;

	fill(loaned, 3, 0, LEN);
	AWAIT(w, (status = w->t->post_ref(tx, loaned, NULL, &head, &completion)) != COLL_AGAIN);
	if (status == COLL_ERR_UNSUPPORTED)
		send_one(w, tx, 3, 0, LEN);
	for (int i = 0; i < 1000; i++)
		world_progress(w);
	world_barrier(w);
	for (;;)
		pause();
}

TEST(death, the_lender_dies_before_we_look)
{
	struct world w;
	void *rx;
	const void *p;
	struct coll_frame f;
	coll_status status = COLL_AGAIN;
	bool whole;

	if (!world_fork(&w, lender, NULL))
		return;
	rx = channel(&w, 0, 1, COLL_DIR_RECV, key_of(3, 0, 0), LEN, 2);
	world_barrier(&w);
	kill(w.child, SIGKILL);
	world_reap(&w, SIGKILL);
	CHECK(AWAIT(&w, (status = w.t->view(rx, &p, &f)) != COLL_AGAIN));
	if (status == COLL_OK) {
		whole = f.len_bytes == LEN && intact(p, 3, 0, LEN);
		CHECK(w.t->done(rx) != COLL_OK || whole);
	}
	CHECK(AWAIT(&w, atomic_load(&w.node[0]->downs) == 1));
	w.t->channel_close(rx);
	world_close(&w);
}
