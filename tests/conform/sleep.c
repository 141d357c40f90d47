/*
 * Sleeping: whoever was refused and then armed is woken by what it waits for. A
 * lost wake-up shows as a sleep that ends by its deadline.
 */
#include "tests/conform/conform.h"

struct game {
	int rounds;
	uint64_t seed;
};

/* Burn a little, differently each time, so that the race is met at all its points. */
static void dither(struct coll_rng *rng)
{
	const uint32_t n = coll_rng_below(rng, 8) ? coll_rng_below(rng, 200) : coll_rng_below(rng, 20000);

	for (volatile uint32_t i = 0; i < n; i++)
		coll_cpu_relax();
}

static bool sleep_for_frame(struct world *w, void *rx, uint64_t i)
{
	const void *p;
	struct coll_frame got, head = head_of(21 + (uint64_t)!w->me, i, 8);
	coll_status status;

	while ((status = w->t->view(rx, &p, &got)) == COLL_AGAIN) {
		if (w->t->progress(w->node[w->me]->inst))
			continue;
		if (!node_sleep(w, w->node[w->me])) {
			CHECK(false, "nothing woke node %d, which waits for frame %llu", w->me, (unsigned long long)i);
			return false;
		}
	}
	CHECK(status == COLL_OK && same_frame(&got, &head), "frame %llu: %s", (unsigned long long)i,
	      coll_status_string(status));
	return status == COLL_OK && w->t->done(rx) == COLL_OK;
}

static bool sleep_for_credit(struct world *w, void *tx, uint64_t i)
{
	struct coll_frame head = head_of(21 + (uint64_t)w->me, i, 8);
	coll_status status;
	void *p;

	while ((status = w->t->slot(tx, 8, &p)) == COLL_AGAIN) {
		if (w->t->progress(w->node[w->me]->inst))
			continue;
		if (!node_sleep(w, w->node[w->me])) {
			CHECK(false, "nothing woke node %d, which waits for credit %llu", w->me, (unsigned long long)i);
			return false;
		}
	}
	CHECK(status == COLL_OK);
	fill(p, 21 + (uint64_t)w->me, i, 8);
	return status == COLL_OK && w->t->post(tx, &head) == COLL_OK;
}

/* A frame to and fro, both ends asleep in between. */
static void ping_pong(struct world *w, void *arg)
{
	const struct game *g = arg;
	struct coll_rng rng = {g->seed + (uint64_t)w->me};
	void *tx = channel(w, w->me, !w->me, COLL_DIR_SEND, key_of(1, 0, 0), 64, 2);
	void *rx = channel(w, w->me, !w->me, COLL_DIR_RECV, key_of(1, 0, 0), 64, 2);

	for (uint64_t i = 0; i < (uint64_t)g->rounds; i++) {
		if (w->me == 0 && !sleep_for_credit(w, tx, i))
			break;
		if (!sleep_for_frame(w, rx, i))
			break;
		dither(&rng);
		if (w->me == 1 && !sleep_for_credit(w, tx, i))
			break;
	}
	world_barrier(w);
	w->t->channel_close(tx);
	w->t->channel_close(rx);
}

/* A stream through two slots: the sender sleeps for credits, the receiver for frames. */
static void stream(struct world *w, void *arg)
{
	const struct game *g = arg;
	struct coll_rng rng = {g->seed + (uint64_t)w->me};
	void *ch = channel(w, w->me, !w->me, w->me ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(2, 0, 0), 64, 2);

	for (uint64_t i = 0; i < (uint64_t)g->rounds; i++) {
		if (w->me == 0 ? !sleep_for_credit(w, ch, i) : !sleep_for_frame(w, ch, i))
			break;
		dither(&rng);
	}
	world_barrier(w);
	w->t->channel_close(ch);
}

static struct game game = {2000, 77};

TEST(sleeping, ping_pong_between_threads)
{
	world_threads(2, ping_pong, &game);
}

TEST(sleeping, stream_between_threads)
{
	world_threads(2, stream, &game);
}

TEST(sleeping, ping_pong_between_processes)
{
	world_processes(ping_pong, &game);
}

TEST(sleeping, stream_between_processes)
{
	world_processes(stream, &game);
}

/* The receiving end sleeps; the peer closes its link for good. */
static void sleep_until_closed(struct world *w, void *arg)
{
	const struct game *g = arg;
	struct node *node = w->node[w->me];
	void *ch = channel(w, w->me, !w->me, w->me ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(3, 0, 0), 64, 2);
	struct coll_rng rng = {g->seed};
	coll_status status = COLL_AGAIN;
	struct coll_frame got;
	const void *p;

	if (w->me == 0) {
		/* One frame first, so that the link stands. */
		send_one(w, ch, 5, 0, 8);
		world_barrier(w);
		dither(&rng);
		w->t->channel_close(ch);
		w->t->link_close(w->link[0][1]);
		w->link[0][1] = NULL;
		w->t->close(node->inst);
		world_barrier(w);
		return;
	}
	recv_one(w, ch, 5, 0, 8);
	world_barrier(w);
	for (;;) {
		status = w->t->view(ch, &p, &got);
		if (status != COLL_AGAIN || w->t->link_status(w->link[1][0]) > COLL_AGAIN)
			break;
		if (w->t->progress(node->inst))
			continue;
		if (!node_sleep(w, node)) {
			CHECK(false, "nothing woke the sleeper when its peer closed");
			break;
		}
	}
	world_barrier(w);
	w->t->channel_close(ch);
}

TEST(sleeping, woken_when_the_peer_closes)
{
	for (int i = 0; i < 20; i++) {
		struct game g = {0, (uint64_t)i};

		world_threads(2, sleep_until_closed, &g);
	}
}

/* A second thread closes the instance under a sleeper; from then on arm says AGAIN. */
static atomic_bool is_closed;

static void *close_it(void *arg)
{
	struct node *node = arg;
	struct coll_rng rng = {node->env.self.word[0]};

	dither(&rng);
	conform_table->close(node->inst);
	atomic_store(&is_closed, true);
	return NULL;
}

TEST(sleeping, woken_when_its_own_instance_is_closed)
{
	struct world w;
	pthread_t thread;
	const void *p;
	void *rx;
	struct coll_frame got;

	for (int i = 0; i < 20; i++) {
		if (!world_open(&w, 2, true))
			return;
		w.me = 1;
		rx = channel(&w, 1, 0, COLL_DIR_RECV, key_of(4, 0, 0), 64, 2);
		atomic_store(&is_closed, false);
		CHECK(pthread_create(&thread, NULL, close_it, w.node[1]) == 0);
		while (!atomic_load(&is_closed) && w.t->view(rx, &p, &got) == COLL_AGAIN) {
			if (!node_sleep(&w, w.node[1])) {
				CHECK(false, "nothing woke the sleeper when its instance was closed");
				break;
			}
		}
		pthread_join(thread, NULL);
		w.t->channel_close(rx);
		w.me = -1;
		world_close(&w);
	}
}

/* The completion of a by-reference send wakes the sender that has nothing else to wait for. */
static void sleep_for_completion(struct world *w, void *arg)
{
	static char from[65536]; /* of the sender's thread only */
	const struct game *g = arg;
	struct coll_rng rng = {g->seed + (uint64_t)w->me};
	void *ch = channel(w, w->me, !w->me, w->me ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(5, 0, 0), sizeof(from), 2);
	struct node *node = w->node[w->me];

	for (uint64_t i = 0; i < (uint64_t)g->rounds; i++) {
		struct coll_frame head = head_of(6, i, sizeof(from));
		struct coll_completion completion = {0};
		coll_status status = COLL_AGAIN;

		if (w->me == 1) {
			recv_one(w, ch, 6, i, sizeof(from));
			dither(&rng);
			continue;
		}
		fill(from, 6, i, sizeof(from));
		AWAIT(w, (status = w->t->post_ref(ch, from, NULL, &head, &completion)) != COLL_AGAIN);
		if (status == COLL_ERR_UNSUPPORTED) {
			send_one(w, ch, 6, i, sizeof(from));
			continue;
		}
		while (coll_completion_pending(&completion)) {
			if (w->t->progress(node->inst) || !coll_completion_pending(&completion))
				continue;
			if (!node_sleep(w, node)) {
				CHECK(false, "nothing woke the lender at frame %llu", (unsigned long long)i);
				i = (uint64_t)g->rounds;
				break;
			}
		}
	}
	world_barrier(w);
	w->t->channel_close(ch);
}

TEST(sleeping, woken_by_a_completion)
{
	struct game g = {300, 5};

	world_threads(2, sleep_for_completion, &g);
}

/* Frames that nobody asks for must not keep a sleeper awake for ever. */
TEST_IN_WORLD(sleeping, a_frame_nobody_waits_for, 2, true)
{
	void *tx, *rx, *idle_rx;
	const void *p;
	struct coll_frame got;
	int refused = 0;

	tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(8, 0, 0), 64, 2);
	rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(8, 0, 0), 64, 2);
	idle_rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(8, 1, 0), 64, 2);
	send_one(w, tx, 1, 0, 8);
	CHECK(AWAIT(w, w->t->view(rx, &p, &got) == COLL_OK));
	CHECK(w->t->view(idle_rx, &p, &got) == COLL_AGAIN);
	for (int i = 0; i < 100; i++) {
		if (w->t->arm(w->node[1]->inst) == COLL_OK)
			w->t->disarm(w->node[1]->inst);
		else
			refused++;
		w->t->progress(w->node[1]->inst);
	}
	CHECK(refused < 90, "arm refused %d times of 100 for a frame that is being viewed", refused);
	w->t->channel_close(tx);
	w->t->channel_close(rx);
	w->t->channel_close(idle_rx);
}
