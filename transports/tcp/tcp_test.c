/*
 * What the conformance suite cannot ask because it looks inside: addresses,
 * counts of credit frames, strangers at the door, descriptors running out,
 * connections that cannot be made, both ends dialling at once.
 */
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "transports/tcp/address.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/link.h"
#include "transports/tcp/raw_peer_test.h"

/* ---- addresses ------------------------------------------------------------- */

static struct coll_tcp_address made_up(uint64_t id, uint64_t ns, bool ip4, bool ip6)
{
	struct coll_tcp_address a = {.machine = 1, .name_space = ns, .id = {{id, id}}};

	if (ip4)
		a.candidate[a.count++] = (struct coll_tcp_candidate){.port = 1000, .ip = {192, 0, 2, (uint8_t)id}};
	if (ip6)
		a.candidate[a.count++] =
		        (struct coll_tcp_candidate){.ip6 = 1, .port = 1000, .ip = {0xfd, [15] = (uint8_t)id}};
	a.candidate[a.count++] = (struct coll_tcp_candidate){.loopback = 1, .port = 1000, .ip = {127, 0, 0, 1}};
	return a;
}

TEST(tcp, addresses_survive_their_text)
{
	const struct coll_tcp_address a = made_up(3, 9, true, true);
	struct coll_tcp_address b;
	char text[200];
	size_t len = 0;

	REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &len) == COLL_OK);
	REQUIRE(coll_tcp_address_decode(&b, text, len));
	CHECK(b.count == 3 && b.machine == 1 && b.name_space == 9 && b.id.word[0] == 3);
	for (unsigned i = 0; i < a.count; i++) {
		const struct coll_tcp_candidate *x = &a.candidate[i], *y = &b.candidate[i];

		CHECK(x->ip6 == y->ip6 && x->loopback == y->loopback && x->port == y->port && x->prefix == y->prefix);
		CHECK(x->interface == y->interface && x->mbps == y->mbps && memcmp(x->ip, y->ip, sizeof(x->ip)) == 0);
	}
	for (size_t cut = 0; cut < len; cut++)
		CHECK(!coll_tcp_address_decode(&b, text, cut), "%zu of %zu bytes", cut, len);
	CHECK(coll_tcp_address_encode(&a, text, 20, &len) == COLL_ERR_ARGUMENT);
}

TEST(tcp, damaged_addresses_do_no_harm)
{
	struct coll_rng rng = {coll_clock_ns()};
	const struct coll_tcp_address a = made_up(3, 9, true, true);
	struct coll_tcp_address b;
	char text[200];
	size_t len = 0;

	printf("seed %llu\n", (unsigned long long)rng.state);
	REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &len) == COLL_OK);
	for (int i = 0; i < 20000; i++) {
		char *copy = malloc(len);

		memcpy(copy, text, len);
		copy[coll_rng_below(&rng, (uint32_t)len)] = (char)coll_rng_next(&rng);
		if (coll_tcp_address_decode(&b, copy, len))
			CHECK(b.count <= TCP_CANDIDATES_MAX);
		free(copy);
	}
}

TEST(tcp, both_ends_decide_alike_who_is_reachable)
{
	for (int k = 0; k < 64; k++) {
		const struct coll_tcp_address a = made_up(1, k & 1, k & 2, k & 4);
		const struct coll_tcp_address b = made_up(2, k >> 5, k & 8, k & 16);
		const bool near = a.name_space == b.name_space;
		char why[100] = "";
		const bool there = coll_tcp_address_reachable(&a, &b, why, sizeof(why));

		CHECK(there == coll_tcp_address_reachable(&b, &a, NULL, 0));
		/* Near: both have 127.0.0.1. Far: a family in common beside it. */
		CHECK(there == (near || (k & 2 && k & 8) || (k & 4 && k & 16)), "case %d: %s", k, why);
		CHECK(there || why[0] != '\0');
	}
}

static coll_status local(struct coll_tcp_address *a, const char *interfaces, bool ip6, char *why, size_t why_bytes)
{
	const struct coll_tcp_allowed allowed = {.interfaces = interfaces, .ip6 = ip6};

	return coll_tcp_address_local(a, &allowed, why, why_bytes);
}

TEST(tcp, the_interface_setting_chooses)
{
	struct coll_tcp_address a = {0};
	char why[200] = "";

	CHECK(local(&a, "lo", true, why, sizeof(why)) == COLL_OK);
	for (unsigned i = 0; i < a.count; i++)
		CHECK(a.candidate[i].loopback);
	if (local(&a, "^lo", true, why, sizeof(why)) == COLL_OK)
		for (unsigned i = 0; i < a.count; i++)
			CHECK(!a.candidate[i].loopback);
	CHECK(local(&a, "no_such_interface", true, why, sizeof(why)) == COLL_ERR_CONFIG);
	CHECK(strstr(why, "no_such_interface") != NULL, "%s", why);
	CHECK(local(&a, "no_such_interface,lo", false, why, sizeof(why)) == COLL_OK);
	CHECK(a.count == 1 && !a.candidate[0].ip6);
}

TEST(tcp, a_rate_that_is_given_replaces_the_reported_one)
{
	struct coll_tcp_allowed allowed = {.interfaces = "lo", .rate = {{"nonesuch0", 7}, {"lo", 250}}, .rates = 2};
	struct coll_tcp_address a = {0};
	char why[200] = "";

	REQUIRE(coll_tcp_address_local(&a, &allowed, why, sizeof(why)) == COLL_OK);
	CHECK(a.count == 1 && a.candidate[0].mbps == 250, "%u", (unsigned)a.candidate[0].mbps);
	CHECK(a.candidate[0].origin == COLL_RATE_USER);
}

/* From 1 Mb/s on, in steps of one. A rate that no link has is damage. */
TEST(tcp, rates_survive_their_text)
{
	static const uint32_t rates[] = {0, 1, 2, 250, 255, 256, 999999, 1000000, COLL_LINK_RATE_MAX};
	char text[200];
	size_t len = 0;

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		struct coll_tcp_address a = made_up(3, 9, true, false), b;

		a.candidate[0].mbps = rates[i];
		REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &len) == COLL_OK);
		REQUIRE(coll_tcp_address_decode(&b, text, len));
		CHECK(b.candidate[0].mbps == rates[i] && b.candidate[1].mbps == 0);
		a.candidate[0].mbps = COLL_LINK_RATE_MAX + 1;
		REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &len) == COLL_OK);
		CHECK(!coll_tcp_address_decode(&b, text, len));
	}
}

/* Who tells a rate travels with it, and the name of the interface where no address needs the room. */
TEST(tcp, origins_and_names_survive_their_text)
{
	struct coll_tcp_address a = made_up(3, 9, true, true), b;
	char text[400];
	size_t len = 0, bare;

	REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &bare) == COLL_OK);
	for (unsigned i = 0; i < a.count; i++) {
		a.candidate[i].mbps = COLL_LINK_RATE_MAX;
		a.candidate[i].origin = (uint8_t)(1 + i % 3);
		snprintf(a.candidate[i].name, TCP_INTERFACE_NAME, "interface%u", i);
	}
	REQUIRE(coll_tcp_address_encode(&a, text, sizeof(text), &len) == COLL_OK && len > bare);
	REQUIRE(coll_tcp_address_decode(&b, text, len));
	for (unsigned i = 0; i < a.count; i++)
		CHECK(b.candidate[i].origin == 1 + i % 3 && b.candidate[i].mbps == COLL_LINK_RATE_MAX &&
		      strcmp(b.candidate[i].name, a.candidate[i].name) == 0);
	for (size_t cut = 0; cut < len; cut++)
		CHECK(!coll_tcp_address_decode(&b, text, cut), "%zu of %zu bytes", cut, len);
	REQUIRE(coll_tcp_address_encode(&a, text, bare + 12, &len) == COLL_OK);
	REQUIRE(coll_tcp_address_decode(&b, text, len));
	CHECK(b.count == a.count && b.candidate[0].name[0] && !b.candidate[1].name[0], "a name that has no room");
}

TEST(tcp, ports_come_from_the_range)
{
	struct station a = {.port_range = "41000-41003"}, b = {.port_range = "41000-41003"};
	struct station bad = {.port_range = "41003-41000"};

	REQUIRE(station_open(&a, 1) == COLL_OK);
	REQUIRE(station_open(&b, 2) == COLL_OK);
	CHECK(station_port(&a) >= 41000 && station_port(&a) <= 41003);
	CHECK(station_port(&b) >= 41000 && station_port(&b) <= 41003);
	CHECK(station_port(&a) != station_port(&b));
	CHECK(station_open(&bad, 3) == COLL_ERR_CONFIG);
	station_close(&a);
	station_close(&b);
	close(bad.env.wake_fd);
}

/* ---- two stations ------------------------------------------------------------- */

struct pair {
	struct station s[2];
	void *link[2];
};

static void *link_to(struct station *from, struct station *to)
{
	char text[400];
	size_t len = 0;
	void *link = NULL;

	CHECK(to->t->address(to->in, text, sizeof(text), &len) == COLL_OK);
	CHECK(from->t->link_open(from->in, &to->env.self, text, len, &link) == COLL_OK);
	return link;
}

#define BOTH(p, cond) UNTIL(&(p)->s[0], (station_turn(&(p)->s[1]), (cond)))

static bool pair_open(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	if (station_open(&p->s[0], 1) != COLL_OK || station_open(&p->s[1], 2) != COLL_OK)
		return false;
	for (int i = 0; i < 2; i++)
		p->link[i] = link_to(&p->s[i], &p->s[!i]);
	return BOTH(p, p->s[0].t->link_status(p->link[0]) == COLL_OK && p->s[1].t->link_status(p->link[1]) == COLL_OK);
}

static void pair_close(struct pair *p)
{
	for (int i = 0; i < 2; i++)
		if (p->link[i])
			p->s[i].t->link_close(p->link[i]);
	for (int i = 0; i < 2; i++)
		station_close(&p->s[i]);
}

/* One frame from side i to the other. */
static void pass(struct pair *p, int i, void *tx, void *rx, uint64_t n)
{
	const struct coll_frame f = {n, 1, 8};
	struct coll_frame g = {0};
	const void *q;
	void *slot;

	REQUIRE(BOTH(p, p->s[i].t->slot(tx, 8, &slot) == COLL_OK));
	memset(slot, 1, 8);
	CHECK(p->s[i].t->post(tx, &f) == COLL_OK);
	REQUIRE(BOTH(p, p->s[!i].t->view(rx, &q, &g) == COLL_OK));
	CHECK(g.sequence == n);
	CHECK(p->s[!i].t->done(rx) == COLL_OK);
}

#define PAIR_TEST(suite, name) TEST_WITH(suite, name, struct pair, p, REQUIRE(pair_open(&p)), pair_close(&p))

PAIR_TEST(tcp, credit_frames_are_few)
{
	const struct coll_channel_key key = {.comm = 1}, back = {.comm = 2};
	void *tx, *rx, *tx2, *rx2;
	struct tcp_link *l0, *l1;

	l0 = p->link[0];
	l1 = p->link[1];
	REQUIRE(p->s[0].t->channel_open(l0, &key, COLL_DIR_SEND, 64, 4, &tx) == COLL_OK);
	REQUIRE(p->s[1].t->channel_open(l1, &key, COLL_DIR_RECV, 64, 4, &rx) == COLL_OK);
	REQUIRE(p->s[1].t->channel_open(l1, &back, COLL_DIR_SEND, 64, 4, &tx2) == COLL_OK);
	REQUIRE(p->s[0].t->channel_open(l0, &back, COLL_DIR_RECV, 64, 4, &rx2) == COLL_OK);
	for (uint64_t i = 0; i < 100; i++)
		pass(p, 0, tx, rx, i);
	CHECK(l0->data_out == 100 && l1->data_in == 100);
	CHECK(l1->credit_out <= 50, "%llu credit frames for 100 one way", (unsigned long long)l1->credit_out);
	l0->credit_out = l1->credit_out = 0;
	for (uint64_t i = 0; i < 100; i++) {
		pass(p, 0, tx, rx, i);
		pass(p, 1, tx2, rx2, i);
	}
	CHECK(l0->credit_out + l1->credit_out <= 2, "%llu credit frames in a ping-pong",
	      (unsigned long long)(l0->credit_out + l1->credit_out));
	p->s[0].t->channel_close(tx);
	p->s[1].t->channel_close(rx);
	p->s[1].t->channel_close(tx2);
	p->s[0].t->channel_close(rx2);
}

/* Head and payload leave as one piece, in one segment, and are read by one call. */
PAIR_TEST(tcp, a_small_frame_is_one_call_and_one_segment)
{
	const struct coll_channel_key key = {.comm = 1}, back = {.comm = 2};
	void *tx, *rx, *tx2, *rx2;
	struct tcp_link *l[2];
	struct tcp_info before[2], after;
	socklen_t len = sizeof(after);

	l[0] = p->link[0];
	l[1] = p->link[1];
	REQUIRE(p->s[0].t->channel_open(l[0], &key, COLL_DIR_SEND, 64, 4, &tx) == COLL_OK);
	REQUIRE(p->s[1].t->channel_open(l[1], &key, COLL_DIR_RECV, 64, 4, &rx) == COLL_OK);
	REQUIRE(p->s[1].t->channel_open(l[1], &back, COLL_DIR_SEND, 64, 4, &tx2) == COLL_OK);
	REQUIRE(p->s[0].t->channel_open(l[0], &back, COLL_DIR_RECV, 64, 4, &rx2) == COLL_OK);
	for (uint64_t i = 0; i < 4; i++) {
		pass(p, 0, tx, rx, i);
		pass(p, 1, tx2, rx2, i);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(getsockopt(l[i]->fd, IPPROTO_TCP, TCP_INFO, &before[i], &len) == 0);
		l[i]->calls_out = l[i]->calls_in = 0;
	}
	for (uint64_t i = 4; i < 104; i++) {
		pass(p, 0, tx, rx, i);
		pass(p, 1, tx2, rx2, i);
	}
	for (int i = 0; i < 2; i++) {
		CHECK(l[i]->calls_out == 100 && l[i]->calls_in == 100, "end %d: %llu calls out, %llu in", i,
		      (unsigned long long)l[i]->calls_out, (unsigned long long)l[i]->calls_in);
		CHECK(getsockopt(l[i]->fd, IPPROTO_TCP, TCP_INFO, &after, &len) == 0);
		CHECK(after.tcpi_data_segs_out - before[i].tcpi_data_segs_out == 100);
	}
	p->s[0].t->channel_close(tx);
	p->s[1].t->channel_close(rx);
	p->s[1].t->channel_close(tx2);
	p->s[0].t->channel_close(rx2);
}

static void progress_often(struct station *s)
{
	for (int i = 0; i <= TCP_UNHEARD_MAX; i++)
		s->t->progress(s->in);
}

/* A socket that is only ever looked at leaves the epoll set; a sleeper puts it back. */
PAIR_TEST(tcp, who_sleeps_hears_a_socket_that_was_only_looked_at)
{
	const struct coll_channel_key key = {.comm = 1};
	void *tx, *rx, *slot;
	const struct coll_frame f = {0, 1, 8};
	struct tcp_link *l;
	struct pollfd ready;

	l = p->link[1];
	REQUIRE(p->s[0].t->channel_open(p->link[0], &key, COLL_DIR_SEND, 64, 4, &tx) == COLL_OK);
	REQUIRE(p->s[1].t->channel_open(l, &key, COLL_DIR_RECV, 64, 4, &rx) == COLL_OK);
	REQUIRE(BOTH(p, p->s[0].t->slot(tx, 8, &slot) == COLL_OK));
	progress_often(&p->s[1]);
	CHECK(!l->watched);
	CHECK(p->s[1].in->unwatched == 1);
	REQUIRE(UNTIL(&p->s[0], p->s[1].t->arm(p->s[1].in) == COLL_OK));
	CHECK(l->watched && p->s[1].in->unwatched == 0);
	for (int i = 0; i <= TCP_UNHEARD_MAX; i++) {
		p->s[1].t->progress(p->s[1].in);
		CHECK(l->watched, "nobody takes it away from a sleeper");
	}
	CHECK(p->s[0].t->post(tx, &f) == COLL_OK);
	ready = (struct pollfd){p->s[1].t->poll_fd(p->s[1].in), POLLIN, 0};
	CHECK(poll(&ready, 1, 5000) == 1);
	p->s[1].t->disarm(p->s[1].in);
	p->s[0].t->channel_close(tx);
	p->s[1].t->channel_close(rx);
}

/* With a third link epoll says which to read: those it has not heard of must be there. */
TEST(tcp, a_third_link_puts_all_under_watch)
{
	const struct coll_channel_key key = {.comm = 1};
	const struct coll_frame f = {0, 1, 8};
	struct station s[4] = {0};
	struct coll_frame g;
	void *out[4], *back[4], *tx, *rx, *slot;
	const void *q;

	for (int i = 0; i < 4; i++)
		REQUIRE(station_open(&s[i], 1 + (uint64_t)i) == COLL_OK);
	for (int i = 1; i < 4; i++) {
		out[i] = link_to(&s[0], &s[i]);
		back[i] = link_to(&s[i], &s[0]);
		CHECK(UNTIL(&s[0], (station_turn(&s[i]), s[0].t->link_status(out[i]) == COLL_OK &&
		                                                 s[i].t->link_status(back[i]) == COLL_OK)));
		if (i == 2)
			progress_often(&s[0]);
		CHECK(s[0].in->unwatched == (i == 2 ? 2 : 0), "%u with %d links", s[0].in->unwatched, i);
	}
	REQUIRE(s[1].t->channel_open(back[1], &key, COLL_DIR_SEND, 64, 4, &tx) == COLL_OK);
	REQUIRE(s[0].t->channel_open(out[1], &key, COLL_DIR_RECV, 64, 4, &rx) == COLL_OK);
	REQUIRE(UNTIL(&s[0], (station_turn(&s[1]), s[1].t->slot(tx, 8, &slot) == COLL_OK)));
	CHECK(s[1].t->post(tx, &f) == COLL_OK);
	CHECK(UNTIL(&s[0], s[0].t->view(rx, &q, &g) == COLL_OK));
	CHECK(s[0].in->unwatched == 0);
	s[0].t->channel_close(rx);
	s[1].t->channel_close(tx);
	for (int i = 1; i < 4; i++) {
		s[0].t->link_close(out[i]);
		s[i].t->link_close(back[i]);
	}
	for (int i = 0; i < 4; i++)
		station_close(&s[i]);
}

static int looks;

static void count_look(void *inst)
{
	looks++;
	coll_tcp_service_table.after(inst);
}

static bool all_taken(struct tcp_inst *in)
{
	int unsent = 0, n = 0;

	for (uint32_t i = 0; i < in->links.count; i++, unsent += n)
		ioctl(tcp_link_at(in, i)->fd, SIOCOUTQ, &n);
	return unsent == 0;
}

TEST(tcp, the_end_looks_at_all_links_once)
{
	struct coll_reactor_table counting = coll_tcp_service_table;
	struct station s[4] = {0};
	void *out[4];

	counting.after = count_look;
	for (int i = 0; i < 4; i++)
		REQUIRE(station_open(&s[i], 1 + (uint64_t)i) == COLL_OK);
	for (int i = 1; i < 4; i++) {
		out[i] = link_to(&s[0], &s[i]);
		CHECK(UNTIL(&s[0], (station_turn(&s[i]), s[0].t->link_status(out[i]) == COLL_OK)));
	}
	CHECK(UNTIL(&s[0], all_taken(s[0].in)));
	looks = 0;
	s[0].in->service.table = &counting;
	station_close(&s[0]);
	CHECK(looks == 1, "%d looks at 3 links", looks);
	for (int i = 1; i < 4; i++)
		station_close(&s[i]);
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Every interleaving of the two dials that turning one side first can give. */
TEST(tcp, two_dials_make_one_link)
{
	const unsigned before = open_descriptors();
	struct coll_rng rng = {coll_clock_ns()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	for (int k = 0; k < 200; k++) {
		struct pair p = {0};

		REQUIRE(station_open(&p.s[0], 1) == COLL_OK && station_open(&p.s[1], 2) == COLL_OK);
		const unsigned idle = open_descriptors();

		for (int i = 0; i < 2; i++) {
			const int first = coll_rng_below(&rng, 2);

			if (p.link[first] == NULL)
				p.link[first] = link_to(&p.s[first], &p.s[!first]);
			for (uint32_t t = coll_rng_below(&rng, 6); t > 0; t--)
				station_turn(&p.s[coll_rng_below(&rng, 2)]);
		}
		for (int i = 0; i < 2; i++)
			if (p.link[i] == NULL)
				p.link[i] = link_to(&p.s[i], &p.s[!i]);
		CHECK(UNTIL(
		        &p.s[coll_rng_below(&rng, 2)],
		        (station_turn(&p.s[coll_rng_below(&rng, 2)]), station_turn(&p.s[0]), station_turn(&p.s[1]),
		         p.s[0].t->link_status(p.link[0]) == COLL_OK && p.s[1].t->link_status(p.link[1]) == COLL_OK)));
		CHECK(p.s[0].downs == 0 && p.s[1].downs == 0, "%s%s", p.s[0].cause, p.s[1].cause);
		/* One socket at each end, whatever was dialled. */
		CHECK(BOTH(&p, open_descriptors() == idle + 2), "%u descriptors more", open_descriptors() - idle);
		pair_close(&p);
	}
	CHECK(open_descriptors() == before);
}

PAIR_TEST(tcp, links_come_and_go)
{
	struct tcp_inst *in;

	in = p->s[0].in;
	for (int k = 0; k < 50; k++) {
		for (int i = 0; i < 2; i++)
			p->s[(i + k) & 1].t->link_close(p->link[(i + k) & 1]);
		for (int i = 0; i < 2; i++)
			p->link[(i + k / 2) & 1] = link_to(&p->s[(i + k / 2) & 1], &p->s[!((i + k / 2) & 1)]);
		CHECK(BOTH(p, p->s[0].t->link_status(p->link[0]) != COLL_AGAIN &&
		                      p->s[1].t->link_status(p->link[1]) != COLL_AGAIN));
		CHECK(p->s[0].t->link_status(p->link[0]) == COLL_OK && p->s[1].t->link_status(p->link[1]) == COLL_OK);
	}
	CHECK(p->s[0].downs == 0 && p->s[1].downs == 0);
	CHECK(in->links.count <= 4, "%u link slots after 50 rounds", in->links.count);
}

/* ---- connections that cannot be made --------------------------------------------- */

static uint16_t port_of(int fd)
{
	struct sockaddr_in sa;
	socklen_t len = sizeof(sa);

	return getsockname(fd, (struct sockaddr *)&sa, &len) == 0 ? ntohs(sa.sin_port) : 0;
}

static int listener(int backlog)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(bind(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && (backlog == 0 || listen(fd, backlog) == 0));
	return fd;
}

/* The link ends, and link_down says why. */
static void expect_end(struct station *s, uint16_t port, coll_status why, const char *cause)
{
	void *link;

	REQUIRE(station_open(s, 1) == COLL_OK);
	link = raw_link(s, 2, port);
	CHECK(UNTIL(s, s->downs == 1));
	CHECK(s->why == why && s->t->link_status(link) == COLL_ERR_PEER_DEAD);
	CHECK(strstr(s->cause, cause) != NULL, "%s", s->cause);
	s->t->link_close(link);
	station_close(s);
}

TEST(tcp, nobody_listens_is_death)
{
	struct station s = {0};
	const int fd = listener(0);

	expect_end(&s, port_of(fd), COLL_ERR_PEER_DEAD, "refused");
	close(fd);
}

/* From another host a refusal may be of somebody between, or pass. */
TEST(tcp, a_refusal_of_another_host_is_tried_again)
{
	struct station s = {.unreachable_ms = "400"};
	const int fd = listener(0);
	void *link;
	struct tcp_link *l;
	uint64_t since;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	since = coll_clock_ns();
	link = raw_link(&s, 2, port_of(fd));
	l = link;
	l->target.name_space++;
	CHECK(UNTIL(&s, s.downs == 1));
	CHECK(s.why == COLL_ERR_PEER_SILENT && strstr(s.cause, "refused") != NULL, "%s", s.cause);
	CHECK(coll_clock_ns() - since >= UINT64_C(400000000) && l->round >= 3, "%u rounds", l->round);
	s.t->link_close(link);
	station_close(&s);
	close(fd);
}

/* Nobody listens for a while: the link is made as soon as somebody does. */
TEST(tcp, a_refusal_of_another_host_may_pass)
{
	struct station s = {.unreachable_ms = "20000"};
	const int fd = listener(0);
	struct tcp_link *l;
	void *link;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	link = raw_link(&s, 2, port_of(fd));
	l = link;
	l->target.name_space++;
	CHECK(UNTIL(&s, l->round >= 2) && s.downs == 0);
	CHECK(listen(fd, 5) == 0);
	CHECK(UNTIL(&s, l->attempt.stage == HANDSHAKE_CHALLENGE) && s.downs == 0);
	s.t->link_close(link);
	station_close(&s);
	close(fd);
}

TEST(tcp, a_listener_that_never_answers_ends_in_time)
{
	struct station s = {.timeout_ms = "200"};
	const int fd = listener(5);

	expect_end(&s, port_of(fd), COLL_ERR_PEER_DEAD, "no answer to the handshake");
	close(fd);
}

/* It may pass, but not for as long as a silent peer is waited for. */
TEST(tcp, a_link_that_gets_no_descriptor_ends)
{
	struct station s = {0};
	const int fd = listener(5);
	struct rlimit was, none;
	void *link;
	bool ended;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	REQUIRE(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = was;
	none.rlim_cur = 1;
	REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
	link = raw_link(&s, 2, port_of(fd));
	ended = UNTIL(&s, s.downs == 1);
	REQUIRE(setrlimit(RLIMIT_NOFILE, &was) == 0);
	CHECK(ended && strstr(s.cause, "Too many open files") != NULL, "%s", s.cause);
	s.t->link_close(link);
	station_close(&s);
	close(fd);
}

/* Closed by another thread in the middle of a round of the service: the attempt goes too. */
TEST(tcp, closed_while_it_connects)
{
	struct station s = {0};
	const int fd = listener(5);
	struct coll_tcp_hello hello;
	void *link;
	int at_peer;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	link = raw_link(&s, 2, port_of(fd));
	CHECK(UNTIL(&s, tcp_link_at(s.in, 0)->attempt.fd >= 0));
	at_peer = accept(fd, NULL, NULL);
	CHECK(UNTIL(&s, recv(at_peer, &hello, sizeof(hello), MSG_DONTWAIT) == sizeof(hello)));
	s.t->link_close(link);
	coll_tcp_link_compact(s.in);
	CHECK(UNTIL(&s, recv(at_peer, &hello, sizeof(hello), MSG_DONTWAIT) == 0));
	CHECK(UNTIL(&s, tcp_link_at(s.in, 0)->state == LINK_FREE));
	station_close(&s);
	close(at_peer);
	close(fd);
}

/* The peer alone has it open. It learns the reason before the socket ends. */
TEST(tcp, what_is_lacking_here_is_told_of_a_link_of_the_peer)
{
	struct station s = {0};
	struct raw_peer far;
	struct tcp_link *l;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	REQUIRE(raw_connect(&far, &s, 3));
	l = tcp_link_at(s.in, 0);
	pthread_mutex_lock(&l->base.lock);
	coll_tcp_link_fail(l, COLL_ERR_SYSTEM, "no memory");
	pthread_mutex_unlock(&l->base.lock);
	CHECK(UNTIL(&s, l->state == LINK_FREE) && s.downs == 1 && strstr(s.cause, "no memory"), "%d: %s", s.downs,
	      s.cause);
	station_close(&s);
	close(far.fd);
}

static const char *control_of(int fd, char name[TCP_CONTROL_NAME])
{
	socklen_t len = TCP_CONTROL_NAME - 1;

	memset(name, 0, TCP_CONTROL_NAME);
	CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len) == 0);
	return name;
}

static void expect_unpaced(const char *congestion)
{
	struct station s = {.congestion = congestion};
	char name[TCP_CONTROL_NAME], system[TCP_CONTROL_NAME];
	const int plain = listener(0), fd = listener(5);
	struct raw_peer far;
	int stranger;
	void *link;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	control_of(plain, system);
	CHECK(strcmp(s.in->system_control, system) == 0);
	link = raw_link(&s, 2, port_of(fd));
	CHECK(UNTIL(&s, tcp_link_at(s.in, 0)->attempt.fd >= 0));
	CHECK(strcmp(control_of(tcp_link_at(s.in, 0)->attempt.fd, name), "reno") == 0, "%s", name);
	stranger = dial_port(station_port(&s));
	REQUIRE(UNTIL(&s, s.in->pending_count == 1));
	for (unsigned i = 0; i < TCP_PENDING_MAX; i++)
		if (s.in->pending[i].fd >= 0)
			CHECK(strncmp(control_of(s.in->pending[i].fd, name), "bbr", 3) != 0, "%s", name);
	/* It tells another machine's name: the system's own. */
	REQUIRE(raw_connect(&far, &s, 3));
	CHECK(strcmp(control_of(tcp_link_at(s.in, 1)->fd, name), system) == 0, "%s", name);
	s.t->link_close(link);
	station_close(&s);
	close(stranger);
	close(far.fd);
	close(plain);
	close(fd);
}

/* A control that paces does so to the end of the connection if it is there at the beginning. */
TEST(tcp, nothing_paces_a_connection_on_this_machine_from_its_beginning)
{
	expect_unpaced(NULL);
}

TEST(tcp, a_congestion_control_that_the_system_refuses_is_as_none)
{
	expect_unpaced("nonsense");
}

/* One that does not pace must be there from the beginning, as dctcp, or is a route's: it is left to the system. */
TEST(tcp, a_control_that_does_not_pace_is_left_alone)
{
	static const char *const others[] = {"dctcp", "cubic"};
	struct tcp_inst in = {0};
	char name[TCP_CONTROL_NAME], system[TCP_CONTROL_NAME];

	for (unsigned i = 0; i < 2; i++) {
		const int fd = socket(AF_INET, SOCK_STREAM, 0);

		control_of(fd, system);
		snprintf(in.system_control, sizeof(in.system_control), "%s", others[i]);
		CHECK(coll_tcp_link_control(&in, fd, TCP_PATH_UNKNOWN));
		CHECK(strcmp(control_of(fd, name), system) == 0, "%s", name);
		CHECK(coll_tcp_link_control(&in, fd, TCP_PATH_AWAY));
		CHECK(strcmp(control_of(fd, name), system) == 0, "%s", name);
		CHECK(coll_tcp_link_control(&in, fd, TCP_PATH_HERE));
		CHECK(strcmp(control_of(fd, name), "reno") == 0, "%s", name);
		close(fd);
	}
}

TEST(tcp, another_process_at_the_address_is_death)
{
	struct station other = {0}, s = {0};
	void *link;

	REQUIRE(station_open(&other, 7) == COLL_OK);
	REQUIRE(station_open(&s, 1) == COLL_OK);
	link = raw_link(&s, 2, station_port(&other));
	/* That one refuses who looks for somebody else; asking again ends with the time. */
	tcp_link_at(s.in, 0)->deadline_ns = coll_clock_ns() + 200000000;
	CHECK(UNTIL(&s, (station_turn(&other), s.downs == 1)));
	CHECK(s.why == COLL_ERR_PEER_DEAD, "%s", s.cause);
	s.t->link_close(link);
	station_close(&s);
	station_close(&other);
}

/* ---- strangers --------------------------------------------------------------------- */

TEST(tcp, places_at_the_door_are_bounded)
{
	struct station s = {0};
	int fd[600];
	struct raw_peer p;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (int i = 0; i < 600; i++) {
		fd[i] = dial_port(station_port(&s));
		CHECK(fd[i] >= 0);
		/* Half of them say the first bytes of a real handshake and stop. */
		if (i & 1)
			CHECK(write(fd[i], "loc1", 4) == 4);
		s.t->service(s.in);
		CHECK(s.in->pending_count <= TCP_PENDING_MAX);
	}
	CHECK(s.in->pending_count == TCP_PENDING_MAX);
	CHECK(raw_connect(&p, &s, 2));
	close(p.fd);
	for (int i = 0; i < 600; i++)
		close(fd[i]);
	CHECK(UNTIL(&s, s.in->pending_count == 0));
	station_close(&s);
}

TEST(tcp, garbage_is_shown_out_at_once)
{
	struct station s = {0};
	char c;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (int i = 0; i < 300; i++) {
		const int fd = dial_port(station_port(&s));

		CHECK(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
		CHECK(UNTIL(&s, recv(fd, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET));
		close(fd);
	}
	CHECK(s.in->pending_count == 0);
	CHECK(s.in->refused == 300);
	station_close(&s);
}

TEST(tcp, without_descriptors_the_door_stays_shut_for_a_while)
{
	struct station s = {0};
	struct rlimit was, now;
	struct raw_peer p;
	int fd[20];

	REQUIRE(station_open(&s, 1) == COLL_OK);
	for (int i = 0; i < 20; i++)
		fd[i] = dial_port(station_port(&s));
	getrlimit(RLIMIT_NOFILE, &was);
	now = was;
	for (now.rlim_cur = 0; fcntl((int)now.rlim_cur, F_GETFD) >= 0; now.rlim_cur++)
		;
	setrlimit(RLIMIT_NOFILE, &now);
	for (int i = 0; i < 50; i++)
		s.t->service(s.in);
	CHECK(s.in->pending_count == 0);
	setrlimit(RLIMIT_NOFILE, &was);
	for (int i = 0; i < 20; i++)
		close(fd[i]);
	CHECK(raw_connect(&p, &s, 2));
	close(p.fd);
	station_close(&s);
}

static bool shows(const struct coll_tcp_hello *m, const struct coll_process_id *id)
{
	return memmem(m, sizeof(*m), &id->word[0], 8) || memmem(m, sizeof(*m), &id->word[1], 8);
}

/* What others see of it, and what they can do without the key. */
TEST(tcp, who_does_not_know_the_key_learns_and_gets_nothing)
{
	static const uint64_t zero[2], guess[2] = {9, 9};
	const uint64_t *const keys[] = {zero, guess, station_key};
	const struct coll_process_id me = {{0x6d79206964656e74, 0x6974792069732074}};
	const uint64_t nonce[2] = {5, 6};
	struct coll_tcp_hello m;
	struct station s = {0};
	char c;

	REQUIRE(station_open(&s, 0x7374617469) == COLL_OK);
	for (int i = 0; i < 3; i++) {
		struct raw_peer p = {.self.env.self = me, .self.env.job_key = keys[i]};

		p.fd = dial_port(station_port(&s));
		coll_tcp_hello_make(&m, &p.self, COLL_TCP_HELLO, &s.env.self, nonce, coll_tcp_no_nonce);
		CHECK(shows(&m, &me) && shows(&m, &s.env.self));
		CHECK(coll_tcp_say(&p.self, p.fd, &m));
		coll_tcp_hello_mask(&m, keys[i]);
		CHECK(!shows(&m, &me) && !shows(&m, &s.env.self), "in HELLO");
		if (keys[i] == station_key) {
			REQUIRE(raw_hear(&p, &s, &m, sizeof(m)));
			CHECK(m.type == COLL_TCP_CHALLENGE && !shows(&m, &me) && !shows(&m, &s.env.self),
			      "in CHALLENGE");
			coll_tcp_hello_mask(&m, station_key);
			CHECK(coll_tcp_hello_check(&m, &p.self, COLL_TCP_CHALLENGE, &s.env.self, nonce) == NULL);
		} else {
			CHECK(UNTIL(&s, recv(p.fd, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET), "key %d", i);
		}
		close(p.fd);
	}
	station_close(&s);
}

/* The proof of the station's own message, sent back to it, opens nothing. */
TEST(tcp, a_reflected_proof_is_refused)
{
	struct raw_peer p = {.self.env.self = {{2, ~2ull}}, .self.env.job_key = station_key};
	const uint64_t nonce[2] = {5, 6};
	struct coll_tcp_hello challenge, m;
	struct station s = {0};
	char c;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	p.fd = dial_port(station_port(&s));
	raw_hello(&p, &s, COLL_TCP_HELLO, 0, nonce, coll_tcp_no_nonce);
	REQUIRE(raw_hear_hello(&p, &s, &challenge));
	coll_tcp_hello_make(&m, &p.self, COLL_TCP_PROOF, &s.env.self, nonce, challenge.nonce);
	m.proof = challenge.proof;
	CHECK(coll_tcp_say(&p.self, p.fd, &m));
	CHECK(UNTIL(&s, recv(p.fd, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET));
	close(p.fd);
	station_close(&s);
}

/* A proof for another nonce (a replay) opens nothing. */
TEST(tcp, a_recorded_handshake_is_worth_nothing)
{
	struct station s = {0};
	struct raw_peer p = {0};
	const uint64_t nonce[2] = {5, 6};
	struct coll_tcp_hello hello, challenge, proof;
	char c;

	REQUIRE(station_open(&s, 1) == COLL_OK);
	p.self.env.self = (struct coll_process_id){{2, ~UINT64_C(2)}};
	p.self.env.job_key = s.env.job_key;
	coll_tcp_hello_make(&hello, &p.self, COLL_TCP_HELLO, &s.env.self, nonce, coll_tcp_no_nonce);
	for (int round = 0; round < 2; round++) {
		p.fd = dial_port(station_port(&s));
		CHECK(coll_tcp_say(&p.self, p.fd, &hello));
		REQUIRE(raw_hear_hello(&p, &s, &challenge));
		if (round == 0)
			coll_tcp_hello_make(&proof, &p.self, COLL_TCP_PROOF, &s.env.self, nonce, challenge.nonce);
		CHECK(coll_tcp_say(&p.self, p.fd, &proof));
		if (round == 0) {
			REQUIRE(raw_hear_hello(&p, &s, &challenge));
			CHECK(challenge.type == COLL_TCP_VERDICT && challenge.verdict == COLL_TCP_ACCEPT);
		} else {
			CHECK(UNTIL(&s, recv(p.fd, &c, 1, MSG_DONTWAIT) == 0 || errno == ECONNRESET));
		}
		close(p.fd);
	}
	station_close(&s);
}
