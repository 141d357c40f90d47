/*
 * One bit of a link between two hosts flips on its way: in a head, in a payload or in a check behind one. Two
 * instances, and a relay between them that flips a chosen bit. Frames of up to three pieces go by value and by
 * reference, and are received in each way. What came before the bit is right, nothing wrong is received, no
 * call whose taker had a wrong byte succeeds, and the link ends as corrupt; with COLL_CHECK=none the same bits are
 * received as they are.
 *
 * The seed is printed; COLL_FLIPS_SEED repeats one, COLL_FLIPS sets how many.
 */
#include "transports/tcp/check.h"
#include "transports/tcp/raw_peer_test.h"

enum { FRAMES = 4, SLOT = 700 * 1024, HELLO_BYTES = 2 * (int)sizeof(struct coll_tcp_hello) };

struct relay {
	int listener, fd[2];
	uint16_t port;
	size_t gone; /* bytes from the first end to the second */
	size_t flip; /* the bit */
	char buffer[2][65536];
	size_t held[2];
};

struct scene {
	struct station a, b;
	struct relay relay;
	void *link[2], *tx, *rx;
	struct coll_rng rng;
	uint32_t len[FRAMES];
	char *data[FRAMES], *into;
	struct coll_completion sent[FRAMES], received;
	uint32_t came; /* frames that arrived as they were sent */
	bool wrong, waits;
	bool taken_wrong; /* a taker has had a byte that was not sent so */
	struct coll_taker taker;
};

static bool relay_open(struct relay *r)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);

	r->fd[0] = r->fd[1] = -1;
	r->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(r->listener, (struct sockaddr *)&sa, len) != 0 || listen(r->listener, 4) != 0)
		return false;
	getsockname(r->listener, (struct sockaddr *)&sa, &len);
	r->port = ntohs(sa.sin_port);
	return true;
}

static void relay_turn(struct relay *r, uint16_t to)
{
	if (r->fd[0] < 0) {
		r->fd[0] = accept(r->listener, NULL, NULL);
		if (r->fd[0] >= 0)
			r->fd[1] = dial_port(to);
	}
	for (int way = 0; way < 2 && r->fd[1] >= 0; way++) {
		char *at = r->buffer[way];
		ssize_t n;

		if (r->held[way] == 0) {
			n = recv(r->fd[way], at, sizeof(r->buffer[way]), MSG_DONTWAIT);
			if (n == 0)
				shutdown(r->fd[1 - way], SHUT_WR);
			if (n <= 0)
				continue;
			r->held[way] = (size_t)n;
			if (way == 0 && r->flip / 8 >= r->gone && r->flip / 8 < r->gone + (size_t)n)
				at[r->flip / 8 - r->gone] ^= (char)(1 << r->flip % 8);
			r->gone += way == 0 ? (size_t)n : 0;
		}
		n = send(r->fd[1 - way], at, r->held[way], MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			memmove(at, at + n, r->held[way] -= (size_t)n);
	}
}

static void turn(struct scene *x)
{
	station_turn(&x->a);
	relay_turn(&x->relay, station_port(&x->b));
	station_turn(&x->b);
}

#define SOON(x, cond)                                                     \
	({                                                                \
		const uint64_t until_ = coll_clock_ns() + 20000000000ull; \
                                                                          \
		while (!(cond) && coll_clock_ns() < until_)               \
			turn(x);                                          \
		(cond);                                                   \
	})

static struct coll_frame frame_of(const struct scene *x, uint32_t i)
{
	return (struct coll_frame){.sequence = 1 + i, .signature = 7, .len_bytes = x->len[i]};
}

static void take(void *arg, const void *bytes, size_t at, size_t len_bytes)
{
	struct scene *x = arg;

	x->taken_wrong |= memcmp(bytes, x->data[x->came] + at, len_bytes) != 0;
}

static bool scene_open(struct scene *x, uint64_t seed, const char *check)
{
	const struct coll_channel_key key = {.comm = 5};

	memset(x, 0, sizeof(*x));
	x->rng.state = seed;
	x->relay.flip = SIZE_MAX;
	x->a.host = "a";
	x->b.host = "b";
	x->a.check = x->b.check = check;
	x->taker = (struct coll_taker){.take = take, .arg = x};
	x->into = malloc(SLOT);
	for (int i = 0; i < FRAMES; i++) {
		static const uint32_t most[] = {64, 9000, 70000, SLOT};

		x->len[i] = 1 + coll_rng_below(&x->rng, most[coll_rng_below(&x->rng, 4)]);
		x->data[i] = malloc(x->len[i]);
		for (uint32_t k = 0; k < x->len[i]; k++)
			x->data[i][k] = (char)(seed + k * 131 + (k >> 9) + (uint32_t)i);
	}
	if (!relay_open(&x->relay) || station_open(&x->a, 1) != COLL_OK || station_open(&x->b, 2) != COLL_OK)
		return false;
	x->link[0] = raw_link(&x->a, 2, x->relay.port);
	if (!SOON(x, x->a.t->link_status(x->link[0]) != COLL_AGAIN))
		return false;
	x->link[1] = raw_link(&x->b, 1, 1);
	return x->a.t->channel_open(x->link[0], &key, COLL_DIR_SEND, SLOT, FRAMES, &x->tx) == COLL_OK &&
	       x->b.t->channel_open(x->link[1], &key, COLL_DIR_RECV, SLOT, FRAMES, &x->rx) == COLL_OK;
}

static void scene_close(struct scene *x)
{
	x->a.t->channel_close(x->tx);
	x->b.t->channel_close(x->rx);
	x->a.t->link_close(x->link[0]);
	x->b.t->link_close(x->link[1]);
	for (int i = 0; i < 2; i++)
		if (x->relay.fd[i] >= 0)
			close(x->relay.fd[i]);
	close(x->relay.listener);
	station_close(&x->a);
	station_close(&x->b);
	for (int i = 0; i < FRAMES; i++)
		free(x->data[i]);
	free(x->into);
}

/* By value or by reference; false: not yet. */
static bool send_one(struct scene *x, uint32_t i)
{
	const struct coll_frame f = frame_of(x, i);
	void *slot;

	if (i % 2)
		return x->a.t->post_ref(x->tx, x->data[i], NULL, &f, &x->sent[i]) != COLL_AGAIN;
	if (x->a.t->slot(x->tx, f.len_bytes, &slot) != COLL_OK)
		return false;
	memcpy(slot, x->data[i], f.len_bytes);
	x->a.t->post(x->tx, &f);
	return true;
}

static void receive(struct scene *x, unsigned how)
{
	struct coll_frame f, seen;
	const void *p;

	if (x->came == FRAMES)
		return;
	f = frame_of(x, x->came);
	if (!x->waits && how == 0) {
		if (x->b.t->view(x->rx, &p, &seen) != COLL_OK)
			return;
		x->wrong |= memcmp(p, x->data[x->came], f.len_bytes) != 0;
		x->came++;
		x->b.t->done(x->rx);
		return;
	}
	if (!x->waits)
		x->waits = (how == 1 ? x->b.t->recv_into(x->rx, x->into, NULL, &f, &x->received)
		                     : x->b.t->recv_through(x->rx, &x->taker, &f, &x->received)) == COLL_OK;
	if (!x->waits || coll_completion_pending(&x->received))
		return;
	x->waits = false;
	if (x->received.status != COLL_OK)
		return;
	x->wrong |= how == 1 ? memcmp(x->into, x->data[x->came], f.len_bytes) != 0 : x->taken_wrong;
	x->came++;
}

enum part { HEAD, PAYLOAD, TRAILER, PARTS };

/* A bit of that part of frame i: where it is in the stream. */
static size_t choose(struct scene *x, uint32_t i, enum part part, bool checked)
{
	const uint32_t pieces = (x->len[i] + TCP_CHECK_BYTES - 1) / TCP_CHECK_BYTES;
	size_t at = HELLO_BYTES;
	uint32_t byte;

	for (uint32_t k = 0; k < i; k++)
		at += sizeof(struct coll_tcp_head) + x->len[k] +
		      (checked ? (x->len[k] + TCP_CHECK_BYTES - 1) / TCP_CHECK_BYTES * TCP_TRAILER_BYTES : 0);
	byte = coll_rng_below(&x->rng, part == PAYLOAD ? x->len[i] : sizeof(struct coll_tcp_head));
	if (part == PAYLOAD)
		byte += (uint32_t)sizeof(struct coll_tcp_head) +
		        (checked ? byte / TCP_CHECK_BYTES * TCP_TRAILER_BYTES : 0);
	if (part == TRAILER) {
		const uint32_t end = (1 + coll_rng_below(&x->rng, pieces)) * TCP_CHECK_BYTES,
		               pairs = end / TCP_CHECK_BYTES;

		byte = (uint32_t)sizeof(struct coll_tcp_head) + (end < x->len[i] ? end : x->len[i]) +
		       (pairs - 1) * TCP_TRAILER_BYTES + coll_rng_below(&x->rng, TCP_TRAILER_BYTES);
	}
	return (at + byte) * 8 + coll_rng_below(&x->rng, 8);
}

/* Whether a frame was received that had not been sent so. */
static bool flip_one(uint64_t seed, const char *check, enum part part)
{
	const bool checked = strcmp(check, "none") != 0;
	struct scene *x = malloc(sizeof(*x));
	uint32_t victim, next = 0;
	unsigned how;
	bool wrong;

	if (!scene_open(x, seed, check)) {
		CHECK(false, "no link, seed %llu", (unsigned long long)seed);
		free(x);
		return false;
	}
	victim = coll_rng_below(&x->rng, FRAMES);
	how = coll_rng_below(&x->rng, 3);
	x->relay.flip = choose(x, victim, part, checked);
	CHECK(SOON(x, ({
		           while (next < FRAMES && send_one(x, next))
			           next++;
		           receive(x, how);
		           x->b.downs > 0 || x->came == FRAMES;
	           })),
	      "seed %llu", (unsigned long long)seed);
	wrong = x->wrong;
	if (checked || part == HEAD) {
		CHECK(!wrong && x->came <= victim, "part %d, way %u, frame %u, %u came, seed %llu", (int)part, how,
		      victim, x->came, (unsigned long long)seed);
		CHECK(x->b.why == COLL_ERR_CORRUPT, "part %d: %d: %s, seed %llu", (int)part, (int)x->b.why, x->b.cause,
		      (unsigned long long)seed);
		CHECK(strstr(x->b.cause, part == HEAD ? "frame" : "fail their check: CRC-32C"), "%s", x->b.cause);
	}
	scene_close(x);
	free(x);
	return wrong;
}

static uint64_t number(const char *name, uint64_t standard)
{
	const char *given = getenv(name);

	return given ? strtoull(given, NULL, 0) : standard;
}

TEST(tcp_flips, none_is_received)
{
	const uint64_t seed = number("COLL_FLIPS_SEED", coll_clock_ns()), flips = number("COLL_FLIPS", 210);
	uint64_t done[PARTS] = {0}, wrong = 0;

	printf("seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < flips; i++) {
		const enum part part = (enum part)(i % PARTS);

		wrong += flip_one(seed + i, "links", part);
		done[part]++;
	}
	printf("%llu bits in heads, %llu in payloads, %llu in checks: %llu wrong\n", (unsigned long long)done[HEAD],
	       (unsigned long long)done[PAYLOAD], (unsigned long long)done[TRAILER], (unsigned long long)wrong);
	CHECK(wrong == 0);
}

TEST(tcp_flips, without_a_check_each_is_received)
{
	const uint64_t seed = number("COLL_FLIPS_SEED", coll_clock_ns());

	printf("seed %llu\n", (unsigned long long)seed);
	for (uint64_t i = 0; i < 12; i++)
		CHECK(flip_one(seed + i, "none", PAYLOAD), "seed %llu", (unsigned long long)(seed + i));
	CHECK(!flip_one(seed, "none", HEAD));
}

TEST(tcp_flips, what_comes_whole_passes)
{
	struct scene *x = malloc(sizeof(*x));

	for (uint64_t i = 0; i < 30; i++) {
		uint32_t next = 0;

		REQUIRE(scene_open(x, i, i % 2 ? "all" : "links"));
		x->relay.flip = SIZE_MAX;
		CHECK(SOON(x, ({
			           while (next < FRAMES && send_one(x, next))
				           next++;
			           receive(x, (unsigned)i % 3);
			           x->came == FRAMES;
		           })));
		CHECK(!x->wrong && x->a.downs + x->b.downs == 0, "%s", x->b.cause);
		CHECK(x->b.in->links.at[0] && ((struct tcp_link *)x->b.in->links.at[0])->check);
		scene_close(x);
	}
	free(x);
}

/* Copies of a machine have one boot id, and addresses of their own. */
TEST(tcp_flips, copies_of_a_machine_are_two_places)
{
	for (uint32_t other = 5; other <= 6; other++) {
		struct station here = {.host = "copy", .mark = 5}, there = {.host = "copy", .mark = other};
		struct coll_tcp_hello peer = {0};

		REQUIRE(station_open(&here, 1) == COLL_OK && station_open(&there, 2) == COLL_OK);
		peer.place = there.in->place;
		CHECK((coll_tcp_check_between(here.in, &peer) != NULL) == (other != 5), "%u", other);
		station_close(&here);
		station_close(&there);
	}
}
