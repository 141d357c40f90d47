/*
 * How often a sleeper is woken by a long frame: counted, never timed. A raw peer sends a frame bit by bit; whoever
 * sleeps for it is woken when it is whole, not for each bit (TCP_WAKE_BYTES).
 */
#include <stdio.h>

#include "transports/tcp/raw_peer_test.h"

enum { FRAME_BYTES = TCP_SLOT_BYTES, BIT_BYTES = 32 << 10, WAKES_MAX = 4 };

/* The kernel's largest receive buffer, of which a mark may be half. */
static size_t receive_max(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_rmem", "r");
	size_t least, usual, most = 0;

	if (!f || fscanf(f, "%zu %zu %zu", &least, &usual, &most) != 3)
		most = 0;
	if (f)
		fclose(f);
	return most;
}

/* Some kernels take the mark and do nothing with it: a byte that has come below it must not wake. */
static bool marks_work(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	const int door = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0), mark = 64 << 10;
	struct pollfd to = {.fd = -1, .events = POLLIN};
	char byte = 1;
	bool works = false;

	if (bind(door, (struct sockaddr *)&a, len) == 0 && listen(door, 1) == 0 &&
	    getsockname(door, (struct sockaddr *)&a, &len) == 0 && connect(from, (struct sockaddr *)&a, len) == 0)
		to.fd = accept(door, NULL, NULL);
	if (to.fd >= 0 && send(from, &byte, 1, 0) == 1 && recv(to.fd, &byte, 1, MSG_PEEK) == 1)
		works = setsockopt(to.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)) == 0 && poll(&to, 1, 0) == 0;
	close(door);
	close(from);
	close(to.fd);
	return works;
}

static bool is_woken(const struct station *s, int wait_ms)
{
	struct pollfd p = {.fd = s->t->poll_fd(s->in), .events = POLLIN};

	return poll(&p, 1, wait_ms) > 0;
}

static bool falls_asleep(struct station *s)
{
	return UNTIL(s, s->t->arm(s->in) == COLL_OK);
}

/* The first bit has been read; the others come to somebody asleep. How often was he woken? */
static void count_wakes(struct station *s, struct raw_peer *p, const char *bytes, int *woken)
{
	REQUIRE(falls_asleep(s));
	for (size_t at = BIT_BYTES; at < FRAME_BYTES; at += BIT_BYTES) {
		const bool last = at + BIT_BYTES >= FRAME_BYTES;

		raw_send(p, s, bytes + at, BIT_BYTES);
		if (!is_woken(s, last ? 20000 : 0))
			continue;
		++*woken;
		s->t->disarm(s->in);
		station_turn(s);
		if (!last)
			REQUIRE(falls_asleep(s));
	}
}

TEST(tcp_wake, a_long_frame_wakes_its_sleeper_when_it_is_whole)
{
	static char bytes[FRAME_BYTES];
	const struct coll_channel_key key = {.comm = 5};
	struct coll_tcp_head grant, head = {.type = COLL_TCP_DATA,
	                                    .len_bytes = FRAME_BYTES,
	                                    .signature = 1,
	                                    .sequence = 1,
	                                    .credit_channel = COLL_TCP_NO_CHANNEL};
	struct coll_frame frame;
	struct station s = {0};
	struct raw_peer p;
	struct tcp_link *l;
	const void *got;
	void *rx;
	int woken = 0;

	if (receive_max() < 4 * (size_t)FRAME_BYTES)
		SKIP("the kernel's receive buffers are small: it wakes when one is full");
	if (!marks_work())
		SKIP("the kernel wakes for every byte");
	REQUIRE(station_open(&s, 1) == COLL_OK && raw_connect(&p, &s, 2));
	l = raw_link(&s, 2, 1);
	REQUIRE(UNTIL(&s, s.t->link_status(l) != COLL_AGAIN));
	REQUIRE(s.t->channel_open(l, &key, COLL_DIR_RECV, FRAME_BYTES, 2, &rx) == COLL_OK);
	REQUIRE(raw_hear(&p, &s, &grant, sizeof(grant)) && grant.type == COLL_TCP_GRANT);
	head.channel = grant.channel;
	raw_seal(&p, &head);
	raw_send(&p, &s, &head, sizeof(head));
	raw_send(&p, &s, bytes, BIT_BYTES);
	REQUIRE(UNTIL(&s, l->into_left == FRAME_BYTES - BIT_BYTES));
	count_wakes(&s, &p, bytes, &woken);
	printf("woken %d times\n", woken);
	CHECK(woken >= 1 && woken <= WAKES_MAX, "woken %d times for a frame of %d bytes", woken, (int)FRAME_BYTES);
	CHECK(UNTIL(&s, s.t->view(rx, &got, &frame) == COLL_OK) && frame.len_bytes == FRAME_BYTES);
	s.t->channel_close(rx);
	s.t->link_close(l);
	station_close(&s);
	close(p.fd);
}
