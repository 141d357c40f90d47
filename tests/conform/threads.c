/*
 * Two threads, two communicators, one link. Each node has two players, each with channels
 * of its own on the one link, and, if crowded, a visitor that opens and closes short-lived
 * channels there and a thread that only makes progress, and so takes in frames and settles
 * completion words for the players. Under ThreadSanitizer whatever is not ordered turns this red.
 */
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/conform/conform.h"

enum { SLOT = 40000, SLOTS = 2, PLAYERS = 2, FRAMES = 300, VISITS = 100 };

/* The sleepers of one node: who takes a wake-up rings the others, as a context does. */
struct dormitory {
	pthread_mutex_t lock;
	int bells[PLAYERS];
	int count;
};

struct match {
	struct world w[2]; /* each node's view */
	struct dormitory room[2];
	bool sleepy;
	atomic_bool over;
	atomic_int first_comm; /* players of communicator 0 that play */
};

struct player {
	struct match *m;
	int node;
	unsigned comm;
	int bell;
	void *tx, *rx;
	char *memory;
	const struct coll_completion *completion; /* what it waits for; else a credit, or a frame */
	bool credit;
};

static const struct coll_transport *table(const struct player *p)
{
	return p->m->w[p->node].t;
}

static struct node *node_of(const struct player *p)
{
	return p->m->w[p->node].node[p->node];
}

static bool ready(const struct player *p)
{
	struct coll_frame f;
	const void *q;
	void *slot;

	if (p->completion)
		return !coll_completion_pending(p->completion);
	return (p->credit ? table(p)->slot(p->tx, 8, &slot) : table(p)->view(p->rx, &q, &f)) != COLL_AGAIN;
}

static void ring_others(struct dormitory *d, int bell)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&d->lock);
	for (int i = 0; i < d->count; i++)
		CHECK(d->bells[i] == bell || write(d->bells[i], &one, sizeof(one)) == sizeof(one));
	pthread_mutex_unlock(&d->lock);
}

static void lie_down(struct dormitory *d, int bell)
{
	pthread_mutex_lock(&d->lock);
	d->bells[d->count++] = bell;
	pthread_mutex_unlock(&d->lock);
}

static void get_up(struct dormitory *d, int bell)
{
	uint64_t count;
	int i = 0;

	pthread_mutex_lock(&d->lock);
	while (d->bells[i] != bell)
		i++;
	d->bells[i] = d->bells[--d->count];
	if (read(bell, &count, sizeof(count)) < 0) {
		/* Nobody has rung. */
	}
	pthread_mutex_unlock(&d->lock);
}

static void doze(struct player *p)
{
	struct node *node = node_of(p);
	struct dormitory *room = &p->m->room[p->node];
	struct pollfd fds[3] = {
	        {node->wake_fd, POLLIN, 0}, {p->bell, POLLIN, 0}, {table(p)->poll_fd(node->inst), POLLIN, 0}};
	uint64_t count;

	lie_down(room, p->bell);
	if (table(p)->arm(node->inst) == COLL_OK) {
		if (!ready(p)) {
			CHECK(poll(fds, 3, WAIT_S * 1000) > 0, "nothing woke node %d's player %u", p->node, p->comm);
			if ((fds[0].revents & POLLIN) && read(node->wake_fd, &count, sizeof(count)) > 0)
				ring_others(room, p->bell);
		}
		table(p)->disarm(node->inst);
	}
	get_up(room, p->bell);
}

/* Wait for what p waits for. */
static void await(struct player *p)
{
	const uint64_t until = coll_clock_ns() + 3 * WAIT_S * 1000000000ull;

	while (!ready(p) && atomic_load(&plain_failures) == 0) {
		if (table(p)->progress(node_of(p)->inst) > 0)
			continue;
		if (p->m->sleepy)
			doze(p);
		else
			sched_yield();
		REQUIRE(coll_clock_ns() < until);
	}
	p->completion = NULL;
	p->credit = false;
}

static size_t len_of(uint64_t i)
{
	static const size_t lens[] = {8, 40, 5000, 0, SLOT, 300, SLOT - 7};

	return lens[i % 7];
}

/* Every third frame by reference, if the transport takes it. */
static void send_ball(struct player *p, uint64_t i)
{
	const struct coll_transport *t = table(p);
	const struct coll_frame f = head_of(p->comm, i, len_of(i));
	struct coll_completion completion = {0};
	coll_status status = COLL_ERR_UNSUPPORTED;
	void *slot;

	while (i % 3 == 0) {
		fill(p->memory, p->comm, i, len_of(i));
		status = t->post_ref(p->tx, p->memory, NULL, &f, &completion);
		if (status != COLL_AGAIN)
			break;
		p->credit = true;
		await(p);
	}
	if (status == COLL_OK) {
		p->completion = &completion;
		await(p);
		CHECK(completion.status == COLL_OK, "%s", coll_status_string(completion.status));
		memset(p->memory, 0xee, len_of(i)); /* ours again */
		return;
	}
	CHECK(status == COLL_ERR_UNSUPPORTED, "%s", coll_status_string(status));
	p->credit = true;
	await(p);
	REQUIRE(t->slot(p->tx, len_of(i), &slot) == COLL_OK);
	fill(slot, p->comm, i, len_of(i));
	CHECK(t->post(p->tx, &f) == COLL_OK);
}

/* Every other frame to an announced destination. */
static void catch_ball(struct player *p, uint64_t i)
{
	const struct coll_transport *t = table(p);
	const struct coll_frame f = head_of(p->comm, i, len_of(i));
	struct coll_completion completion = {0};
	struct coll_frame got;
	const void *q;

	if (i % 2 && t->recv_into(p->rx, p->memory, NULL, &f, &completion) == COLL_OK) {
		p->completion = &completion;
		await(p);
		CHECK(completion.status == COLL_OK, "%s", coll_status_string(completion.status));
		CHECK(intact(p->memory, p->comm, i, len_of(i)), "frame %d", (int)i);
		return;
	}
	await(p);
	REQUIRE(t->view(p->rx, &q, &got) == COLL_OK);
	CHECK(same_frame(&got, &f) && intact(q, p->comm, i, len_of(i)), "frame %d", (int)i);
	CHECK(t->done(p->rx) == COLL_OK);
}

/* A sleepy communicator 1 waits for its first ball until communicator 0 has played: it is
 * armed all the while, and takes wake-ups that are for the other. */
static void *play(void *arg)
{
	struct player *p = arg;
	struct world *w = &p->m->w[p->node];
	const int other = !p->node;

	p->memory = malloc(SLOT);
	p->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	p->tx = channel(w, p->node, other, COLL_DIR_SEND, key_of(p->comm, 0, 0), SLOT, SLOTS);
	p->rx = channel(w, p->node, other, COLL_DIR_RECV, key_of(p->comm, 0, 0), SLOT, SLOTS);
	if (p->m->sleepy && p->comm == 1 && p->node == 0)
		while (atomic_load(&p->m->first_comm) && atomic_load(&plain_failures) == 0)
			usleep(1000);
	for (uint64_t i = 0; i < FRAMES && atomic_load(&plain_failures) == 0; i++) {
		if (p->node == 0)
			send_ball(p, i);
		catch_ball(p, i);
		if (p->node == 1)
			send_ball(p, i);
	}
	if (p->comm == 0)
		atomic_fetch_sub(&p->m->first_comm, 1);
	w->t->channel_close(p->tx);
	w->t->channel_close(p->rx);
	close(p->bell);
	free(p->memory);
	return NULL;
}

/* A short-lived communicator after the other: opened, a frame each way, closed. */
static void *visit(void *arg)
{
	struct world *w = arg;
	const int me = w->me, other = !me;

	for (uint64_t c = 100; c < 100 + VISITS && atomic_load(&plain_failures) == 0; c++) {
		void *tx = channel(w, me, other, COLL_DIR_SEND, key_of(c, 0, 0), 100, SLOTS);
		void *rx = channel(w, me, other, COLL_DIR_RECV, key_of(c, 0, 0), 100, SLOTS);

		send_one(w, tx, c, 0, 90);
		recv_one(w, rx, c, 0, 90);
		w->t->channel_close(c % 2 ? tx : rx);
		w->t->channel_close(c % 2 ? rx : tx);
	}
	return NULL;
}

struct helper {
	struct match *m;
	int node;
};

static void *help(void *arg)
{
	struct helper *h = arg;
	struct world *w = &h->m->w[h->node];

	while (!atomic_load(&h->m->over)) {
		world_progress(w);
		sched_yield();
	}
	return NULL;
}

static void run_match(bool sleepy, bool crowded)
{
	struct match m = {.sleepy = sleepy, .first_comm = 2};
	struct player p[2][PLAYERS];
	struct helper h[2];
	pthread_t player[2][PLAYERS], visitor[2], helper[2];
	struct world w;

	if (!world_open(&w, 2, true))
		return;
	for (int i = 0; i < 2; i++) {
		m.w[i] = w;
		m.w[i].me = i;
		pthread_mutex_init(&m.room[i].lock, NULL);
		h[i] = (struct helper){&m, i};
		for (unsigned k = 0; k < PLAYERS; k++) {
			p[i][k] = (struct player){.m = &m, .node = i, .comm = k};
			CHECK(pthread_create(&player[i][k], NULL, play, &p[i][k]) == 0);
		}
		if (crowded)
			CHECK(pthread_create(&visitor[i], NULL, visit, &m.w[i]) == 0 &&
			      pthread_create(&helper[i], NULL, help, &h[i]) == 0);
	}
	for (int i = 0; i < 2; i++)
		for (unsigned k = 0; k < PLAYERS; k++)
			pthread_join(player[i][k], NULL);
	for (int i = 0; i < 2 && crowded; i++)
		pthread_join(visitor[i], NULL);
	atomic_store(&m.over, true);
	for (int i = 0; i < 2 && crowded; i++)
		pthread_join(helper[i], NULL);
	for (int i = 0; i < 2; i++) {
		CHECK(atomic_load(&w.node[i]->downs) == 0);
		pthread_mutex_destroy(&m.room[i].lock);
	}
	world_close(&w);
}

TEST(threads, two_communicators_on_one_link)
{
	run_match(false, false);
}

TEST(threads, two_communicators_with_visitors_and_a_progress_thread)
{
	run_match(false, true);
}

TEST(threads, two_communicators_asleep)
{
	run_match(true, false);
}
