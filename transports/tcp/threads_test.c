/*
 * Two communicators per process on one link: four threads, each with channels of
 * its own, all making progress for everybody, some asleep. Cookies are settled by
 * whichever thread finds them.
 */
#define PLAIN_OWN_MAIN
#include <sched.h>

#include "transports/tcp/raw_peer_test.h"

enum { FRAMES = 2000, SLOT = 5000, SLOTS = 2, COMMS = 2 };

struct crew {
	struct station s;
	pthread_t service;
	atomic_bool stop;
	void *link;
};

struct player {
	struct crew *crew;
	unsigned comm;
	bool first; /* plays the first ball */
	bool sleepy;
	bool by_ref;
	uint64_t sleeps;
};

static void *serve(void *arg)
{
	struct crew *c = arg;
	struct pollfd p = {c->s.t->service_fd(c->s.in), POLLIN, 0};

	while (!atomic_load(&c->stop))
		if (poll(&p, 1, 20) > 0)
			c->s.t->service(c->s.in);
	return NULL;
}

static void rest(struct player *p, uint64_t since)
{
	const struct coll_transport *t = p->crew->s.t;
	struct tcp_inst *in = p->crew->s.in;
	struct pollfd fds[2] = {{p->crew->s.env.wake_fd, POLLIN, 0}, {t->poll_fd(in), POLLIN, 0}};
	uint64_t count;

	if (t->progress(in) > 0)
		return;
	if (!p->sleepy) {
		sched_yield();
		return;
	}
	if (t->arm(in) != COLL_OK)
		return;
	/* Bounded as every sleep of the library: a wakeup may be eaten by the other sleeper. */
	p->sleeps += poll(fds, 2, 100) > 0;
	t->disarm(in);
	if (read(p->crew->s.env.wake_fd, &count, sizeof(count)) < 0)
		return;
	CHECK(coll_clock_ns() - since < 20000000000u);
}

static void send_ball(struct player *p, void *tx, char *memory, uint64_t i)
{
	const struct coll_transport *t = p->crew->s.t;
	const struct coll_frame f = {i, p->comm, SLOT};
	const uint64_t since = coll_clock_ns();
	struct coll_cookie cookie = {0};
	coll_status status;
	void *slot;

	if (p->by_ref) {
		memset(memory, (int)i & 255, SLOT);
		while ((status = t->post_ref(tx, memory, NULL, &f, &cookie)) == COLL_AGAIN)
			rest(p, since);
		CHECK(status == COLL_OK);
		while (coll_cookie_pending(&cookie))
			rest(p, since);
		CHECK(cookie.status == COLL_OK);
		memset(memory, 0, SLOT);
		return;
	}
	while ((status = t->slot(tx, SLOT, &slot)) == COLL_AGAIN)
		rest(p, since);
	REQUIRE(status == COLL_OK);
	memset(slot, (int)i & 255, SLOT);
	CHECK(t->post(tx, &f) == COLL_OK);
}

static void catch_ball(struct player *p, void *rx, char *memory, uint64_t i)
{
	const struct coll_transport *t = p->crew->s.t;
	const struct coll_frame f = {i, p->comm, SLOT};
	const uint64_t since = coll_clock_ns();
	struct coll_cookie cookie = {0};
	coll_status status;

	while ((status = t->recv_into(rx, memory, NULL, &f, &cookie)) == COLL_AGAIN)
		rest(p, since);
	REQUIRE(status == COLL_OK);
	while (coll_cookie_pending(&cookie))
		rest(p, since);
	CHECK(cookie.status == COLL_OK);
	CHECK((memory[0] & 255) == (int)(i & 255) && (memory[SLOT - 1] & 255) == (int)(i & 255));
}

static void *play(void *arg)
{
	struct player *p = arg;
	const struct coll_transport *t = p->crew->s.t;
	const struct coll_channel_key there = {.comm = p->comm, .lane = 1}, back = {.comm = p->comm, .lane = 2};
	char *memory = malloc(SLOT);
	void *tx, *rx;

	CHECK(t->channel_open(p->crew->link, p->first ? &there : &back, COLL_DIR_SEND, SLOT, SLOTS, &tx) == COLL_OK);
	CHECK(t->channel_open(p->crew->link, p->first ? &back : &there, COLL_DIR_RECV, SLOT, SLOTS, &rx) == COLL_OK);
	for (uint64_t i = 0; i < FRAMES && atomic_load(&plain_failures) == 0; i++) {
		if (p->first)
			send_ball(p, tx, memory, i);
		catch_ball(p, rx, memory, i);
		if (!p->first)
			send_ball(p, tx, memory, i);
	}
	t->channel_close(tx);
	t->channel_close(rx);
	free(memory);
	return NULL;
}

static void meet(struct crew *c)
{
	char text[2][400];
	size_t len[2];

	for (int i = 0; i < 2; i++)
		CHECK(c[i].s.t->address(c[i].s.in, text[i], sizeof(text[i]), &len[i]) == COLL_OK);
	for (int i = 0; i < 2; i++)
		CHECK(c[i].s.t->link_open(c[i].s.in, &c[!i].s.env.self, text[!i], len[!i], &c[i].link) == COLL_OK);
}

static void match(bool sleepy, bool by_ref)
{
	struct crew c[2] = {0};
	struct player p[2][COMMS];
	pthread_t thread[2][COMMS];

	for (int i = 0; i < 2; i++) {
		REQUIRE(station_open(&c[i].s, 1 + (uint64_t)i) == COLL_OK);
		CHECK(pthread_create(&c[i].service, NULL, serve, &c[i]) == 0);
	}
	meet(c);
	for (int i = 0; i < 2; i++)
		for (unsigned k = 0; k < COMMS; k++) {
			p[i][k] = (struct player){&c[i], 10 + k, i == 0, sleepy, by_ref, 0};
			CHECK(pthread_create(&thread[i][k], NULL, play, &p[i][k]) == 0);
		}
	for (int i = 0; i < 2; i++)
		for (unsigned k = 0; k < COMMS; k++)
			pthread_join(thread[i][k], NULL);
	CHECK(c[0].s.downs == 0 && c[1].s.downs == 0);
	for (int i = 0; i < 2; i++)
		c[i].s.t->link_close(c[i].link);
	for (int i = 0; i < 2; i++) {
		atomic_store(&c[i].stop, true);
		pthread_join(c[i].service, NULL);
		station_close(&c[i].s);
	}
}

static void spinning_by_value(void)
{
	match(false, false);
}

static void spinning_by_reference(void)
{
	match(false, true);
}

static void sleeping_by_value(void)
{
	match(true, false);
}

static void sleeping_by_reference(void)
{
	match(true, true);
}

int main(void)
{
	PLAIN_RUN(spinning_by_value);
	PLAIN_RUN(spinning_by_reference);
	PLAIN_RUN(sleeping_by_value);
	PLAIN_RUN(sleeping_by_reference);
	return plain_summary();
}
