/*
 * A reactor with a transport that counts: events come with their tags, a kick and a tick make
 * the set readable, and what is left behind is looked at until nothing is.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/delay.h"
#include "tests/plain.h"
#include "transports/common/reactor.h"

enum { TAG = 5, LIMIT_MS = 20000 };

struct counts {
	struct coll_reactor r;
	uint64_t tag;
	int events, ticks, soon, rounds;
	int left;           /* ticks that leave something */
	uint32_t wanted_ms; /* interval */
	int fd;
};

static void event(void *inst, uint64_t tag)
{
	struct counts *c = inst;
	uint64_t n;

	c->tag = tag;
	c->events += read(c->fd, &n, sizeof(n)) > 0;
}

static bool tick(void *inst, bool soon)
{
	struct counts *c = inst;

	c->ticks++;
	c->soon += soon;
	return soon && c->left-- > 0;
}

static void after(void *inst)
{
	((struct counts *)inst)->rounds++;
}

static uint32_t interval_ms(void *inst)
{
	return ((struct counts *)inst)->wanted_ms;
}

static const struct coll_reactor_table table = {event, tick, after, interval_ms};

static bool start(struct counts *c)
{
	*c = (struct counts){.fd = eventfd(0, EFD_NONBLOCK)};
	coll_reactor_init(&c->r, &table, c);
	return coll_reactor_open(&c->r) && coll_reactor_watch(&c->r, c->fd, EPOLLIN, TAG, EPOLL_CTL_ADD);
}

static void stop(struct counts *c)
{
	coll_reactor_fini(&c->r);
	close(c->fd);
}

static bool readable(struct counts *c, int ms)
{
	struct pollfd p = {c->r.epoll_fd, POLLIN, 0};

	return poll(&p, 1, ms) == 1;
}

#define COUNTS_TEST(suite, name) TEST_WITH(suite, name, struct counts, c, REQUIRE(start(&c)), stop(&c))

COUNTS_TEST(reactor, a_kick_and_an_event)
{
	CHECK(!readable(c, 0) && !coll_reactor_try(&c->r) && c->rounds == 1);
	coll_reactor_kick(&c->r);
	coll_reactor_kick(&c->r);
	CHECK(readable(c, 0) && coll_reactor_try(&c->r));
	CHECK(!readable(c, 0) && c->events == 0 && c->ticks == 0 && c->rounds == 2);
	coll_eventfd_raise(c->fd);
	CHECK(readable(c, 0));
	coll_reactor_serve(&c->r);
	CHECK(c->events == 1 && c->tag == TAG && !readable(c, 0));
}

COUNTS_TEST(reactor, nobody_serves_beside_another)
{
	coll_reactor_kick(&c->r);
	pthread_mutex_lock(&c->r.lock);
	CHECK(!coll_reactor_try(&c->r) && c->rounds == 0);
	pthread_mutex_unlock(&c->r.lock);
	CHECK(coll_reactor_try(&c->r) && c->rounds == 1);
}

/* What is asked for soon is looked at, and again as long as something is left; then the
 * timer is off. */
COUNTS_TEST(reactor, ticks_until_nothing_is_left)
{
	c->left = 3;
	coll_reactor_soon(&c->r);
	for (int i = 1; i <= 4; i++) {
		REQUIRE(readable(c, LIMIT_MS), "no tick %d", i);
		coll_reactor_serve(&c->r);
	}
	CHECK(c->soon == c->ticks && c->ticks == 4, "%d of %d ticks", c->soon, c->ticks);
	CHECK(c->r.tick_ms == 0 && !readable(c, 2 * COLL_DELAY_REACTOR_SOON_MS));
	/* Asked for again, it comes again. */
	coll_reactor_soon(&c->r);
	CHECK(readable(c, LIMIT_MS));
}

static long left_ns(const struct counts *c)
{
	struct itimerspec t = {0};

	CHECK(timerfd_gettime(c->r.timer_fd, &t) == 0);
	return t.it_value.tv_nsec;
}

/* Rounds do not begin the time anew: among events without end none would come. */
COUNTS_TEST(reactor, a_tick_comes_nearer_in_each_round)
{
	const struct timespec nap = {.tv_nsec = COLL_DELAY_REACTOR_SOON_MS * 1000000 / 2};
	long first_ns;

	coll_reactor_soon(&c->r);
	coll_reactor_serve(&c->r);
	first_ns = left_ns(c);
	nanosleep(&nap, NULL);
	coll_reactor_serve(&c->r);
	CHECK(c->ticks > 0 || left_ns(c) <= first_ns - nap.tv_nsec, "%ld ns, then %ld", first_ns, left_ns(c));
}

COUNTS_TEST(reactor, the_interval_is_the_transport_s)
{
	c->wanted_ms = 1;
	coll_reactor_kick(&c->r);
	coll_reactor_serve(&c->r);
	while (c->ticks < 3 && readable(c, LIMIT_MS))
		coll_reactor_serve(&c->r);
	CHECK(c->ticks == 3 && c->soon == 0 && c->r.tick_ms == 1);
	c->wanted_ms = 0;
	coll_reactor_kick(&c->r);
	coll_reactor_serve(&c->r);
	CHECK(c->r.tick_ms == 0 && !readable(c, 5));
}

/* After what was asked for soon the timer goes back to the transport's interval. */
COUNTS_TEST(reactor, soon_is_once)
{
	struct itimerspec t = {0};

	c->wanted_ms = 900;
	coll_reactor_kick(&c->r);
	coll_reactor_serve(&c->r);
	coll_reactor_soon(&c->r);
	REQUIRE(readable(c, LIMIT_MS));
	coll_reactor_serve(&c->r);
	REQUIRE(c->soon == 1 && timerfd_gettime(c->r.timer_fd, &t) == 0);
	CHECK(t.it_interval.tv_nsec == 900 * 1000000L, "%ld ns", (long)t.it_interval.tv_nsec);
}
