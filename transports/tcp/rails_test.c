/*
 * Links of several sockets: channels are spread over them, one that is lost goes on, and the last one's end is the
 * link's.
 */
#include "base/delay.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/link.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/raw_peer_test.h"
#include "transports/tcp/rx.h"
#include "transports/tcp/tx.h"

#define RAIL(l, k) ((struct tcp_link *)(l)->base.rail[k])

enum { SLOT = 4096, SLOTS = 4, RAILS = 3 };

TEST(rails, the_setting_is_checked)
{
	static const struct {
		const char *text;
		int sockets; /* -1: refused */
	} cases[] = {{"", 0},   {"auto", 0}, {"1", 1},  {"3", 3},   {"8", 8},   {"9", -1},
	             {"0", -1}, {"-1", -1},  {"x", -1}, {"2x", -1}, {" 2", -1}, {"18446744073709551617", -1}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned n = 99;
		const bool good = coll_tcp_rails_parse(cases[i].text, &n);

		CHECK(good == (cases[i].sockets >= 0), "'%s'", cases[i].text);
		CHECK(!good || n == (unsigned)cases[i].sockets, "'%s': %u", cases[i].text, n);
	}
}

/* ---- two stations -------------------------------------------------------------- */

struct pair {
	struct station s[2];
	struct tcp_link *link[2];
};

#define BOTH(p, cond) UNTIL(&(p)->s[0], (station_turn(&(p)->s[1]), (cond)))

static coll_status status_of(struct pair *p, int i)
{
	return p->s[i].t->link_status(p->link[i]);
}

static void open_link(struct pair *p, int i)
{
	char text[400];
	size_t len = 0;
	void *link = NULL;

	CHECK(p->s[!i].t->address(p->s[!i].in, text, sizeof(text), &len) == COLL_OK);
	CHECK(p->s[i].t->link_open(p->s[i].in, &p->s[!i].env.self, text, len, &link) == COLL_OK);
	p->link[i] = link;
}

static bool all_up(const struct tcp_link *l)
{
	for (unsigned i = 0; i < l->base.rails; i++)
		if (RAIL(l, i)->state != LINK_UP)
			return false;
	return true;
}

static bool both_up(struct pair *p)
{
	return BOTH(p, all_up(p->link[0]) && all_up(p->link[1]));
}

static bool pair_open(struct pair *p)
{
	*p = (struct pair){.s = {{.sockets = "3"}, {.sockets = "3"}}};
	if (station_open(&p->s[0], 1) != COLL_OK || station_open(&p->s[1], 2) != COLL_OK)
		return false;
	open_link(p, 0);
	open_link(p, 1);
	return both_up(p);
}

static void close_link(struct pair *p, int i)
{
	if (p->link[i])
		p->s[i].t->link_close(p->link[i]);
	p->link[i] = NULL;
}

static void pair_close(struct pair *p)
{
	close_link(p, 0);
	close_link(p, 1);
	station_close(&p->s[0]);
	station_close(&p->s[1]);
}

struct lane {
	void *tx, *rx;
};

/* From station 0 to 1. */
static struct lane lane_open(struct pair *p, uint64_t comm, uint16_t window)
{
	const struct coll_channel_key key = {.comm = comm, .window = window, .rail = window};
	struct lane l = {0};

	CHECK(p->s[0].t->channel_open(p->link[0], &key, COLL_DIR_SEND, SLOT, SLOTS, &l.tx) == COLL_OK);
	CHECK(p->s[1].t->channel_open(p->link[1], &key, COLL_DIR_RECV, SLOT, SLOTS, &l.rx) == COLL_OK);
	return l;
}

static void lane_close(struct pair *p, struct lane *l)
{
	p->s[0].t->channel_close(l->tx);
	p->s[1].t->channel_close(l->rx);
}

static void pass(struct pair *p, const struct lane *l, uint64_t n)
{
	const struct coll_frame f = {n, 1, SLOT};
	struct coll_frame g = {0};
	const void *q;
	void *slot;

	REQUIRE(BOTH(p, p->s[0].t->slot(l->tx, SLOT, &slot) == COLL_OK));
	memset(slot, (int)n & 255, SLOT);
	CHECK(p->s[0].t->post(l->tx, &f) == COLL_OK);
	REQUIRE(BOTH(p, p->s[1].t->view(l->rx, &q, &g) == COLL_OK));
	CHECK(g.sequence == n && ((const unsigned char *)q)[SLOT - 1] == (n & 255));
	CHECK(p->s[1].t->done(l->rx) == COLL_OK);
}

static uint32_t far_away(void *ctx, const struct coll_process_id *peer)
{
	return 40000;
}

/* As both ends find it, and as the communicator counts its rails. */
TEST(rails, a_long_path_has_four)
{
	struct pair p = {.s = {{.sockets = "auto"}, {.sockets = "auto"}}};
	struct coll_transport_path path = {.round_trip_us = 40000};
	char address[2][400];
	size_t len[2];

	for (int i = 0; i < 2; i++) {
		REQUIRE(station_open(&p.s[i], 1 + (uint64_t)i) == COLL_OK);
		p.s[i].in->env.round_trip_us = far_away;
		REQUIRE(p.s[i].t->address(p.s[i].in, address[i], sizeof(address[i]), &len[i]) == COLL_OK);
	}
	for (int i = 0; i < 2; i++)
		open_link(&p, i);
	CHECK(both_up(&p));
	for (int i = 0; i < 2; i++)
		CHECK(p.link[i]->base.rails == TCP_LONG_SOCKETS, "%u", p.link[i]->base.rails);
	p.s[0].t->path(p.s[0].in, address[0], len[0], address[1], len[1], &path);
	CHECK(path.rails == TCP_LONG_SOCKETS, "%u", path.rails);
	path.round_trip_us = 40;
	p.s[0].t->path(p.s[0].in, address[0], len[0], address[1], len[1], &path);
	CHECK(path.rails == 1, "%u", path.rails);
	pair_close(&p);
}

TEST(rails, windows_are_spread_over_the_sockets)
{
	struct pair p;
	struct lane lane[RAILS];

	REQUIRE(pair_open(&p));
	CHECK(p.link[0]->base.rails == RAILS && p.link[1]->base.rails == RAILS);
	for (unsigned w = 0; w < RAILS; w++)
		lane[w] = lane_open(&p, 1, (uint16_t)w);
	for (uint64_t n = 0; n < 30; n++)
		pass(&p, &lane[n % RAILS], n);
	for (unsigned i = 0; i < RAILS; i++) {
		CHECK(RAIL(p.link[0], i)->data_out == 10 && RAIL(p.link[1], i)->data_in == 10, "socket %u", i);
		for (unsigned k = 0; k < i; k++)
			CHECK(RAIL(p.link[0], i)->fd != RAIL(p.link[0], k)->fd);
	}
	for (unsigned w = 0; w < RAILS; w++)
		lane_close(&p, &lane[w]);
	pair_close(&p);
}

/* What waits on any of them ends. */
TEST(rails, all_that_break_end_the_link_once)
{
	struct pair p;
	struct lane lane[RAILS];
	const struct coll_frame expect = {1, 1, SLOT};
	struct coll_completion completion[RAILS];
	char into[RAILS][SLOT];

	REQUIRE(pair_open(&p));
	for (unsigned w = 0; w < RAILS; w++) {
		lane[w] = lane_open(&p, 1, (uint16_t)w);
		CHECK(p.s[1].t->recv_into(lane[w].rx, into[w], NULL, &expect, &completion[w]) == COLL_OK);
	}
	for (unsigned i = 0; i < RAILS; i++)
		shutdown(RAIL(p.link[0], i)->fd, SHUT_RDWR);
	CHECK(BOTH(&p, p.s[0].downs > 0 && p.s[1].downs > 0));
	for (unsigned k = 0; k < 2; k++)
		CHECK(strncmp(p.s[k].cause, "rail 1 of 3: ", 13) == 0, "%s", p.s[k].cause);
	for (unsigned w = 0; w < RAILS; w++) {
		const void *q;
		struct coll_frame f;
		void *slot;

		CHECK(BOTH(&p, coll_completion_pending(&completion[w]) == 0) &&
		      completion[w].status == COLL_ERR_PEER_DEAD);
		CHECK(p.s[1].t->view(lane[w].rx, &q, &f) == COLL_ERR_PEER_DEAD);
		CHECK(p.s[0].t->slot(lane[w].tx, 8, &slot) == COLL_ERR_PEER_DEAD);
	}
	CHECK(status_of(&p, 0) == COLL_ERR_PEER_DEAD && status_of(&p, 1) == COLL_ERR_PEER_DEAD);
	for (unsigned w = 0; w < RAILS; w++)
		lane_close(&p, &lane[w]);
	for (int k = 0; k < 20; k++) {
		station_turn(&p.s[0]);
		station_turn(&p.s[1]);
	}
	CHECK(p.s[0].downs == 1 && p.s[1].downs == 1, "told %d and %d times", p.s[0].downs, p.s[1].downs);
	pair_close(&p);
}

/* ---- one is lost, and goes on -------------------------------------------------------- */

enum { ROUNDS = 12 };

/* Frames of both kinds, some of them under way when the socket is lost. */
static void cross(struct pair *p, const struct lane *l, unsigned rail, uint64_t round)
{
	static char loaned[SLOTS][SLOT];
	struct coll_completion completion[SLOTS];
	const uint64_t cut = round % (SLOTS + 2);
	struct coll_frame g;
	const void *q;
	void *slot;

	for (uint64_t i = 0; i < SLOTS; i++) {
		const struct coll_frame f = {round * SLOTS + i, 1, SLOT};

		if (i == cut)
			shutdown(RAIL(p->link[round & 1], rail)->fd, SHUT_RDWR);
		completion[i].pending = 0;
		if (i % 2) {
			memset(loaned[i], (int)f.sequence & 127, SLOT);
			REQUIRE(BOTH(p, p->s[0].t->post_ref(l->tx, loaned[i], NULL, &f, &completion[i]) == COLL_OK));
			continue;
		}
		REQUIRE(BOTH(p, p->s[0].t->slot(l->tx, SLOT, &slot) == COLL_OK));
		memset(slot, (int)f.sequence & 127, SLOT);
		CHECK(p->s[0].t->post(l->tx, &f) == COLL_OK);
	}
	for (uint64_t i = 0; i < SLOTS; i++) {
		const uint64_t n = round * SLOTS + i;

		if (i + SLOTS == cut)
			shutdown(RAIL(p->link[round & 1], rail)->fd, SHUT_RDWR);
		if (i == SLOTS - 1)
			CHECK(coll_completion_pending(&completion[i]), "given back before the peer has it");
		REQUIRE(BOTH(p, p->s[1].t->view(l->rx, &q, &g) == COLL_OK));
		CHECK(g.sequence == n && ((const char *)q)[0] == (char)(n & 127) &&
		              ((const char *)q)[SLOT - 1] == (char)(n & 127),
		      "frame %u is %u", (unsigned)n, (unsigned)g.sequence);
		CHECK(p->s[1].t->done(l->rx) == COLL_OK);
	}
	for (uint64_t i = 1; i < SLOTS; i += 2)
		CHECK(BOTH(p, coll_completion_pending(&completion[i]) == 0) && completion[i].status == COLL_OK);
}

TEST(rails, one_that_breaks_goes_on)
{
	for (unsigned i = 0; i < RAILS; i++) {
		struct pair p;
		struct lane lane[RAILS];

		REQUIRE(pair_open(&p));
		for (unsigned w = 0; w < RAILS; w++)
			lane[w] = lane_open(&p, 1, (uint16_t)w);
		for (uint64_t round = 0; round < ROUNDS; round++) {
			cross(&p, &lane[i], i, round);
			for (unsigned w = 0; w < RAILS; w++)
				if (w != i)
					pass(&p, &lane[w], round);
			REQUIRE(both_up(&p));
		}
		CHECK(RAIL(p.link[0], i)->made > ROUNDS / 2 && RAIL(p.link[0], i)->made == RAIL(p.link[1], i)->made,
		      "%u and %u sockets", RAIL(p.link[0], i)->made, RAIL(p.link[1], i)->made);
		CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
		for (unsigned w = 0; w < RAILS; w++)
			lane_close(&p, &lane[w]);
		CHECK(status_of(&p, 0) == COLL_OK && status_of(&p, 1) == COLL_OK);
		pair_close(&p);
	}
}

enum { LONG = 1 << 20 };

struct taken {
	size_t bytes;
	bool wrong;
};

static void take(void *arg, const void *bytes, size_t at, size_t len_bytes)
{
	const char *from = bytes;
	struct taken *t = arg;

	t->wrong |= at != t->bytes;
	for (size_t i = 0; i < len_bytes; i++)
		t->wrong |= from[i] != (char)((at + i) % 251);
	t->bytes = at + len_bytes;
}

/* A frame that its reader takes in pieces is half taken: no byte is taken twice. */
TEST(rails, a_frame_that_is_half_taken_goes_on)
{
	const struct coll_channel_key key = {.comm = 1, .window = 1, .rail = 1};
	struct pair p;
	struct lane l;

	REQUIRE(pair_open(&p));
	CHECK(p.s[0].t->channel_open(p.link[0], &key, COLL_DIR_SEND, LONG, SLOTS, &l.tx) == COLL_OK);
	CHECK(p.s[1].t->channel_open(p.link[1], &key, COLL_DIR_RECV, LONG, SLOTS, &l.rx) == COLL_OK);
	for (uint64_t n = 0; n < 8; n++) {
		const struct coll_frame f = {n, 1, LONG};
		struct taken t = {0};
		const struct coll_taker taker = {.take = take, .arg = &t};
		struct tcp_link *rail = RAIL(p.link[1], 1);
		const int bytes = 16384;
		struct coll_completion c;
		void *slot;

		REQUIRE(BOTH(&p, p.s[0].t->slot(l.tx, LONG, &slot) == COLL_OK) && both_up(&p));
		setsockopt(RAIL(p.link[0], 1)->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
		for (size_t i = 0; i < LONG; i++)
			((char *)slot)[i] = (char)(i % 251);
		CHECK(p.s[1].t->recv_through(l.rx, &taker, &f, &c) == COLL_OK);
		CHECK(p.s[0].t->post(l.tx, &f) == COLL_OK);
		REQUIRE(BOTH(&p, t.bytes > 0));
		CHECK(t.bytes < LONG, "all of it came at once");
		shutdown(n % 2 ? rail->fd : RAIL(p.link[0], 1)->fd, SHUT_RDWR);
		CHECK(BOTH(&p, coll_completion_pending(&c) == 0) && c.status == COLL_OK);
		CHECK(t.bytes == LONG && !t.wrong, "%zu bytes", t.bytes);
	}
	lane_close(&p, &l);
	CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
	pair_close(&p);
}

/* Frames of a channel that is closed while its rail has no socket arrive all the same. */
TEST(rails, a_channel_is_closed_while_its_rail_is_lost)
{
	const struct coll_frame f = {5, 1, SLOT};
	static char loaned[SLOT];
	struct coll_completion c;
	struct coll_frame g;
	struct pair p;
	struct lane l;
	const void *q;
	void *slot;

	REQUIRE(pair_open(&p));
	l = lane_open(&p, 1, 2);
	REQUIRE(BOTH(&p, p.s[0].t->slot(l.tx, SLOT, &slot) == COLL_OK));
	shutdown(RAIL(p.link[0], 2)->fd, SHUT_RDWR);
	memset(loaned, 3, SLOT);
	CHECK(p.s[0].t->post_ref(l.tx, loaned, NULL, &f, &c) == COLL_OK && coll_completion_pending(&c));
	p.s[0].t->channel_close(l.tx);
	CHECK(coll_completion_pending(&c) == 0 && c.status == COLL_OK);
	memset(loaned, 4, SLOT);
	REQUIRE(BOTH(&p, p.s[1].t->view(l.rx, &q, &g) == COLL_OK));
	CHECK(g.sequence == 5 && ((const char *)q)[SLOT - 1] == 3);
	p.s[1].t->channel_close(l.rx);
	CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
	pair_close(&p);
}

static void *leave_in_order(void *arg)
{
	struct pair *p = arg;

	p->s[0].t->close(p->s[0].in);
	close_link(p, 0);
	p->s[0].t->fini(p->s[0].in);
	p->s[0].in = NULL;
	return NULL;
}

/* What was posted last, to a rail that is lost, arrives before its sender has left. */
TEST(rails, the_last_frame_goes_over_another_rail)
{
	const struct coll_frame f = {7, 1, SLOT};
	struct coll_frame g;
	struct pair p;
	struct lane l;
	pthread_t leaver;
	const void *q;
	void *slot;

	REQUIRE(pair_open(&p));
	l = lane_open(&p, 1, 2);
	REQUIRE(BOTH(&p, p.s[0].t->slot(l.tx, SLOT, &slot) == COLL_OK));
	pthread_mutex_lock(&RAIL(p.link[0], 2)->base.lock);
	coll_tcp_kept_strand(RAIL(p.link[0], 2), "a test");
	pthread_mutex_unlock(&RAIL(p.link[0], 2)->base.lock);
	memset(slot, 5, SLOT);
	CHECK(p.s[0].t->post(l.tx, &f) == COLL_OK);
	p.s[0].t->channel_close(l.tx);
	REQUIRE(pthread_create(&leaver, NULL, leave_in_order, &p) == 0);
	CHECK(UNTIL(&p.s[1], p.s[1].t->view(l.rx, &q, &g) != COLL_AGAIN) && p.s[1].t->view(l.rx, &q, &g) == COLL_OK &&
	      g.sequence == 7 && ((const char *)q)[SLOT - 1] == 5);
	CHECK(UNTIL(&p.s[1], status_of(&p, 1) == COLL_ERR_PEER_DEAD) && p.s[1].downs == 0, "%s", p.s[1].cause);
	pthread_join(leaver, NULL);
	p.s[1].t->channel_close(l.rx);
	close_link(&p, 1);
	close(p.s[0].env.wake_fd);
	station_close(&p.s[1]);
}

/* The peer leaves while a rail has no socket, here or there: its goodbye on another rail is that of the link, and no
 * death. */
TEST(rails, a_link_is_closed_while_a_rail_is_lost)
{
	for (unsigned i = 0; i < RAILS; i++)
		for (int loser = 0; loser < 2; loser++) {
			struct pair p;

			REQUIRE(pair_open(&p));
			pthread_mutex_lock(&RAIL(p.link[loser], i)->base.lock);
			coll_tcp_kept_strand(RAIL(p.link[loser], i), "a test");
			pthread_mutex_unlock(&RAIL(p.link[loser], i)->base.lock);
			close_link(&p, 0);
			CHECK(BOTH(&p, status_of(&p, 1) == COLL_ERR_PEER_DEAD));
			for (int k = 0; k < 20; k++) {
				station_turn(&p.s[0]);
				station_turn(&p.s[1]);
			}
			CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "rail %u of %d: %s%s", i, loser, p.s[0].cause,
			      p.s[1].cause);
			pair_close(&p);
		}
}

static void raw_control(struct raw_peer *p, struct station *s, struct coll_tcp_head head)
{
	head.credit_channel = COLL_TCP_NO_CHANNEL;
	raw_seal(p, &head);
	raw_send(p, s, &head, sizeof(head));
}

/* A channel that is opened while its rail is lost is granted first on the next socket, and its state follows: frames
 * that are sent between the two are no fault of the peer. A state that cannot be is. */
TEST(rails, frames_go_out_before_the_first_state_comes)
{
	const struct coll_channel_key key = {.comm = 1};
	const struct coll_frame f = {0, 1, SLOT};
	struct station s = {.sockets = "3"};
	struct raw_peer p[RAILS];
	void *tx, *slot;
	struct tcp_link *l;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (unsigned k = 0; k < RAILS; k++)
		REQUIRE(raw_connect_rail(&p[k], &s, 2, (uint8_t)(COLL_TCP_SEVERAL | k)));
	l = raw_link(&s, 2, 1);
	REQUIRE(UNTIL(&s, all_up(l)));
	CHECK(s.t->channel_open(l, &key, COLL_DIR_SEND, SLOT, SLOTS, &tx) == COLL_OK);
	raw_control(&p[0], &s,
	            (struct coll_tcp_head){.type = COLL_TCP_GRANT, .sequence = 1, .len_bytes = SLOT, .credits = SLOTS});
	REQUIRE(UNTIL(&s, s.t->slot(tx, SLOT, &slot) == COLL_OK));
	CHECK(s.t->post(tx, &f) == COLL_OK);
	raw_control(&p[0], &s, (struct coll_tcp_head){.type = COLL_TCP_STATE, .credits = SLOTS});
	/* No frame counts twice: as many credits are left as before. */
	for (unsigned i = 1; i < SLOTS; i++) {
		REQUIRE(UNTIL(&s, s.t->slot(tx, SLOT, &slot) == COLL_OK));
		CHECK(s.t->post(tx, &f) == COLL_OK);
	}
	for (int k = 0; k < 20; k++)
		station_turn(&s);
	CHECK(s.t->slot(tx, SLOT, &slot) == COLL_AGAIN && s.downs == 0, "%s", s.cause);
	raw_control(&p[0], &s, (struct coll_tcp_head){.type = COLL_TCP_STATE, .credits = SLOTS - 1});
	CHECK(UNTIL(&s, s.downs == 1) && s.why == COLL_ERR_CORRUPT && strstr(s.cause, "an impossible state"), "%s",
	      s.cause);
	s.t->channel_close(tx);
	s.t->link_close(l);
	for (unsigned k = 0; k < RAILS; k++)
		close(p[k].fd);
	station_close(&s);
}

TEST(rails, a_link_is_closed_and_opened_again)
{
	struct pair p;

	REQUIRE(pair_open(&p));
	for (uint64_t k = 0; k < 20; k++) {
		struct lane lane = lane_open(&p, k, (uint16_t)(k % RAILS));

		pass(&p, &lane, k);
		lane_close(&p, &lane);
		close_link(&p, (int)k & 1);
		/* The one that is not closed yet sees the goodbye of all, and no death. */
		CHECK(BOTH(&p, status_of(&p, !(k & 1)) == COLL_ERR_PEER_DEAD));
		close_link(&p, !(k & 1));
		open_link(&p, k % 3 == 0);
		if (k % 2)
			for (int turn = 0; turn < 50; turn++) {
				station_turn(&p.s[0]);
				station_turn(&p.s[1]);
			}
		open_link(&p, k % 3 != 0);
		REQUIRE(both_up(&p));
	}
	CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
	pair_close(&p);
}

static bool ended(struct pair *p, int i)
{
	return p->link[i] && status_of(p, i) == COLL_ERR_PEER_DEAD;
}

/* Both ends up; who finds its link closed opens it again. */
static bool settle(struct pair *p)
{
	for (int tries = 0; tries < 20; tries++) {
		if (!BOTH(p, ended(p, 0) || ended(p, 1) || (all_up(p->link[0]) && all_up(p->link[1]))))
			return false;
		if (!ended(p, 0) && !ended(p, 1))
			return true;
		for (int i = 0; i < 2; i++)
			if (ended(p, i)) {
				close_link(p, i);
				open_link(p, i);
			}
	}
	return false;
}

/* After so many turns, while some of its sockets are up and others half made: that is no death. */
TEST(rails, a_link_is_closed_while_it_is_made)
{
	for (int k = 0; k < 300; k++) {
		const char *sockets = k % 3 == 0 ? "1" : k % 3 == 1 ? "2" : "3";
		struct pair p = {.s = {{.sockets = sockets}, {.sockets = sockets}}};
		const int closer = k & 1;

		REQUIRE(station_open(&p.s[0], 1) == COLL_OK && station_open(&p.s[1], 2) == COLL_OK);
		open_link(&p, 0);
		open_link(&p, 1);
		for (int turn = 0; turn < k / 12; turn++)
			station_turn(&p.s[turn & 1 ? k >> 1 & 1 : !(k >> 1 & 1)]);
		close_link(&p, closer);
		open_link(&p, closer);
		CHECK(settle(&p), "%d", k);
		CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%d: %s%s", k, p.s[0].cause, p.s[1].cause);
		pair_close(&p);
	}
}

/* ---- raw peers ------------------------------------------------------------------- */

TEST(rails, a_damaged_head_on_any_socket_is_corrupt)
{
	for (unsigned i = 0; i < RAILS; i++) {
		struct station s = {.sockets = "3"};
		struct raw_peer p[RAILS];
		struct coll_tcp_head head = {.type = COLL_TCP_NOP, .credit_channel = COLL_TCP_NO_CHANNEL};
		void *link;

		REQUIRE(station_open(&s, 1) == COLL_OK);
		for (unsigned k = 0; k < RAILS; k++)
			REQUIRE(raw_connect_rail(&p[k], &s, 2, k));
		link = raw_link(&s, 2, 1);
		REQUIRE(UNTIL(&s, all_up(link)));
		raw_seal(&p[i], &head);
		raw_send(&p[i], &s, &head, sizeof(head));
		for (int k = 0; k < 20; k++)
			station_turn(&s);
		CHECK(s.t->link_status(link) == COLL_OK && s.downs == 0);
		/* The seed is that of one connection: a head of another one fails. */
		raw_seal(&p[(i + 1) % RAILS], &head);
		raw_send(&p[i], &s, &head, sizeof(head));
		CHECK(UNTIL(&s, s.downs == 1) && s.why == COLL_ERR_CORRUPT, "socket %u: %s", i, s.cause);
		CHECK(s.t->link_status(link) == COLL_ERR_CORRUPT);
		s.t->link_close(link);
		for (int k = 0; k < RAILS; k++)
			close(p[k].fd);
		station_close(&s);
	}
}

TEST(rails, a_socket_too_many_is_refused)
{
	struct station s = {.sockets = "3"};
	struct raw_peer q = {.self.env.self = {{2, ~2ull}}, .self.env.job_key = station_key};
	struct coll_tcp_hello m;
	const uint64_t nonce[2] = {2, 99};

	REQUIRE(station_open(&s, 1) == COLL_OK);
	q.fd = dial_port(station_port(&s));
	REQUIRE(q.fd >= 0);
	raw_hello(&q, &s, COLL_TCP_HELLO, TCP_RAILS_MAX, nonce, coll_tcp_no_nonce);
	REQUIRE(raw_hear_hello(&q, &s, &m));
	raw_hello(&q, &s, COLL_TCP_PROOF, TCP_RAILS_MAX, nonce, m.nonce);
	CHECK(UNTIL(&s, atomic_load(&s.in->refused) == 1));
	close(q.fd);
	/* The number is under the seal: one that was changed on its way is refused, too. */
	q.fd = dial_port(station_port(&s));
	raw_hello(&q, &s, COLL_TCP_HELLO, 1, nonce, coll_tcp_no_nonce);
	REQUIRE(raw_hear_hello(&q, &s, &m));
	const uint64_t challenge[2] = {m.nonce[0], m.nonce[1]};

	coll_tcp_hello_make(&m, &q.self, COLL_TCP_PROOF, &s.env.self, nonce, challenge);
	m.verdict = 1;
	coll_tcp_say(&q.self, q.fd, &m);
	CHECK(UNTIL(&s, atomic_load(&s.in->refused) == 2));
	close(q.fd);
	station_close(&s);
}

/* One thread reads the end of the first rail, and another delivers notices before anybody has looked for the cause. */
TEST(rails, the_cause_is_told_when_it_is_found)
{
	struct station s = {.sockets = "3"};
	struct raw_peer p[RAILS];
	struct tcp_link *l;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (unsigned k = 0; k < RAILS; k++)
		REQUIRE(raw_connect_rail(&p[k], &s, 2, k));
	l = raw_link(&s, 2, 1);
	REQUIRE(UNTIL(&s, all_up(l)));
	for (unsigned k = 0; k < RAILS; k++)
		close(p[k].fd);
	pthread_mutex_lock(&l->base.lock);
	coll_tcp_link_fail(l, COLL_ERR_CORRUPT, "a test");
	pthread_mutex_unlock(&l->base.lock);
	coll_link_table_notify(&s.in->links, &s.env, "tcp");
	CHECK(s.downs == 0, "%s", s.cause);
	CHECK(UNTIL(&s, s.downs == 1) && strncmp(s.cause, "rail 1 of 3: a test", 19) == 0, "%s", s.cause);
	s.t->link_close(l);
	station_close(&s);
}

/* The torn rails are looked at again before anybody has been told. */
TEST(rails, the_cause_is_found_once)
{
	struct station s = {.sockets = "3"};
	struct raw_peer p[RAILS];
	struct tcp_link *l;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (unsigned k = 0; k < RAILS; k++)
		REQUIRE(raw_connect_rail(&p[k], &s, 2, k));
	l = raw_link(&s, 2, 1);
	REQUIRE(UNTIL(&s, all_up(l)));
	for (unsigned k = 0; k < RAILS; k++)
		close(p[k].fd);
	for (int i = 0; i < 3; i++) {
		atomic_store(&s.in->links.torn, true);
		coll_tcp_rails_tear(s.in);
	}
	CHECK(UNTIL(&s, s.downs == 1) && strncmp(s.cause, "rail 1 of 3: ", 13) == 0 && !strstr(s.cause + 1, "rail "),
	      "%s", s.cause);
	s.t->link_close(l);
	station_close(&s);
}

/* Rails that a peer made and left again, before anybody opened the link, are not taken. */
TEST(rails, what_the_peer_has_closed_is_not_taken)
{
	struct pair p = {.s = {{.sockets = "3"}, {.sockets = "3"}}};

	REQUIRE(station_open(&p.s[0], 1) == COLL_OK);
	REQUIRE(station_open(&p.s[1], 2) == COLL_OK);
	for (int k = 0; k < 10; k++) {
		open_link(&p, 0);
		REQUIRE(BOTH(&p, all_up(p.link[0])));
		close_link(&p, 0);
		open_link(&p, 1);
		open_link(&p, 0);
		REQUIRE(both_up(&p), "%d", k);
		CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
		close_link(&p, 0);
		close_link(&p, 1);
	}
	pair_close(&p);
}
