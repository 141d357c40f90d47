/*
 * The all-gather of bootstrap among real processes: every size that changes the
 * tree, over Unix sockets and TCP; ranks that never come, come twice, come with
 * another idea of the job, die on the way.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/proof.h"
#include "bootstrap/address.h"
#include "bootstrap/exchange.h"
#include "bootstrap/host_id.h"
#include "bootstrap/id.h"
#include "bootstrap/job_test.h"
#include "bootstrap/rendezvous_state.h"
#include "tests/plain.h"

enum { PAYLOAD_MAX = 5000 };

static coll_status gather_much(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, PAYLOAD_MAX, err);
}

static coll_status gather_nothing(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, 0, err);
}

static void run_all(struct job *j, void (*way)(struct job *))
{
	way(j);
	for (int r = 0; r < j->n; r++)
		job_start(j, r);
	job_wait(j);
	all_ok(j);
	job_free(j);
}

static const int sizes[] = {1, 2, 3, 5, 8, 9, 10, 16, 64};

TEST(exchange, every_size_over_unix)
{
	struct job j;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		job_init(&j, sizes[i], gather_200);
		run_all(&j, over_unix);
	}
}

TEST(exchange, every_size_over_tcp)
{
	struct job j;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		job_init(&j, sizes[i], gather_200);
		run_all(&j, over_tcp);
	}
}

TEST(exchange, empty_and_large_payloads)
{
	struct job j;

	job_init(&j, 12, gather_nothing);
	run_all(&j, over_tcp);
	job_init(&j, 20, gather_much);
	run_all(&j, over_unix);
	job_init(&j, 20, gather_much);
	run_all(&j, over_tcp);
}

/* ---- Ranks that are missing, double, different, or die ----------------- */

TEST(exchange, a_missing_rank_is_named_by_all)
{
	struct job j;

	job_init(&j, 5, gather_200);
	over_tcp(&j);
	j.settings.create_timeout_ms = 1500;
	start_all_but(&j, 3);
	job_wait(&j);
	all_say(&j, 3, COLL_ERR_BOOTSTRAP, "rank 3 of 5 did not connect");
	CHECK(j.result[0].culprit == 3);
	job_free(&j);
}

TEST(exchange, missing_ranks_are_named_through_the_tree)
{
	struct job j;

	job_init(&j, 40, gather_200);
	over_unix(&j);
	j.settings.create_timeout_ms = 2500;
	for (int r = 0; r < j.n; r++)
		if (r != 7 && r != 30 && r != 31 && r != 32)
			job_start(&j, r);
	job_wait(&j);
	for (int r = 0; r < j.n; r++) {
		if (r == 7 || (r >= 30 && r <= 32))
			continue;
		CHECK(strstr(j.result[r].message, "ranks 7, 30-32 of 40 did not connect") != NULL, "rank %d says: %s",
		      r, j.result[r].message);
	}
	job_free(&j);
}

TEST(exchange, a_missing_rank_zero_is_named)
{
	struct job j;

	job_init(&j, 3, gather_200);
	over_tcp(&j);
	j.settings.create_timeout_ms = 600;
	start_all_but(&j, 0);
	job_wait(&j);
	all_say(&j, 0, COLL_ERR_BOOTSTRAP, "rank 0 does not answer");
	CHECK(j.result[1].culprit == 0);
	job_free(&j);
}

TEST(exchange, two_processes_of_one_rank)
{
	struct job j;

	job_init(&j, 4, gather_200);
	over_unix(&j);
	start_all_but(&j, 3);
	job_start_as(&j, 100, 2);
	job_wait(&j);
	CHECK(j.result[0].status == COLL_ERR_BOOTSTRAP);
	CHECK(strstr(j.result[0].message, "two processes claim rank 2") != NULL, "%s", j.result[0].message);
	CHECK(strstr(j.result[1].message, "two processes claim rank 2") != NULL, "%s", j.result[1].message);
	job_free(&j);
}

static void two_processes_of_rank_zero(void (*way)(struct job *))
{
	struct job j;
	const char *m0, *m1;

	job_init(&j, 2, gather_200);
	way(&j);
	j.settings.create_timeout_ms = 6000;
	job_start_as(&j, 0, 0);
	job_start_as(&j, 1, 0);
	job_wait(&j);
	m0 = j.result[0].message;
	m1 = j.result[1].message;
	CHECK(strstr(m0, "(a second process claims rank 0)") || strstr(m1, "(a second process claims rank 0)"),
	      "%s / %s", m0, m1);
	job_free(&j);
}

static void over_derived_ports(struct job *j)
{
	over_tcp(j);
	j->id.root_port = 0;
	j->id.root_ports = true;
	CHECK(coll_random(j->id.job_key, sizeof(j->id.job_key)));
	j->id.port_seed = j->id.job_key[1];
}

TEST(exchange, rank_zero_twice)
{
	two_processes_of_rank_zero(over_unix);
	two_processes_of_rank_zero(over_derived_ports);
}

/* Another user holds the first port that the job derives, and says nothing to who connects. How often rank 0 does,
 * which comes alone. */
static int connections_to_a_holder(struct job *j)
{
	const uint64_t seed = j->id.port_seed;
	uint16_t ports[COLL_RENDEZVOUS_PORTS], first, last, real;
	struct coll_address a;
	int told[2], fd, seen = 0;
	pid_t holder;
	char ready;

	CHECK(coll_port_range(&j->settings, &first, &last, NULL) == COLL_OK && pipe(told) == 0);
	coll_rendezvous_ports(seed, 0, first, last, ports);
	holder = fork();
	if (holder == 0) {
		if (setuid(65534) != 0)
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		coll_address_numeric(&a, j->id.root_host, ports[0]);
		fd = coll_listen_tcp(&a, ports[0], &real);
		ready = fd >= 0;
		while (write(told[1], &ready, 1) == 1 && ready && poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1) == 1)
			accept(fd, NULL, NULL);
		_exit(0);
	}
	close(told[1]);
	CHECK(read(told[0], &ready, 1) == 1 && ready);
	job_start(j, 0);
	job_wait(j);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	while (read(told[0], &ready, 1) == 1)
		seen++;
	close(told[0]);
	return seen;
}

TEST(exchange, rank_zero_asks_no_other_user_who_holds_its_port)
{
	struct job j;
	int seen;

	if (geteuid() != 0)
		SKIP("another user is needed");
	job_init(&j, 2, gather_200);
	over_derived_ports(&j);
	j.settings.create_timeout_ms = 1000;
	seen = connections_to_a_holder(&j);
	CHECK(strstr(j.result[0].message, "rank 1 of 2 did not connect"), "%s", j.result[0].message);
	CHECK(seen == 0, "%d connections", seen);
	job_free(&j);
}

/* The first address of this host that others can reach; interface "": there is none. */
static struct coll_ip outer_address(void)
{
	struct coll_ip ip = {.interface = ""};
	struct coll_ips ips;
	struct ifaddrs *all;

	if (getifaddrs(&all) != 0)
		return ip;
	coll_ips_read(&ips, all, "");
	freeifaddrs(all);
	for (unsigned i = 0; i < ips.count && !ip.interface[0]; i++)
		if (!ips.at[i].loopback)
			ip = ips.at[i];
	return ip;
}

/* The root's address is that of a router which hands on to this host. */
static void over_an_interface(struct job *j)
{
	over_derived_ports(j);
	snprintf(j->id.root_host, sizeof(j->id.root_host), "192.0.2.1");
	snprintf(j->settings.interface, sizeof(j->settings.interface), "%s", outer_address().interface);
}

TEST(exchange, rank_zero_twice_at_an_interface)
{
	if (!outer_address().interface[0])
		SKIP("no address but loopback here");
	two_processes_of_rank_zero(over_an_interface);
}

/* The others look for rank 0 where its name leads, whatever interface is chosen. */
TEST(exchange, rank_zero_listens_where_its_name_leads)
{
	const struct coll_ip outer = outer_address();
	struct coll_places found = {0};
	struct coll_settings s;
	struct coll_address a;
	struct coll_ips at;
	int there = 0;

	if (!outer.interface[0])
		SKIP("no address but loopback here");
	coll_settings_load(&s, NULL, NULL, NULL);
	snprintf(s.interface, sizeof(s.interface), "lo");
	a.len = coll_ip_to(&outer, 0, &a.at);
	coll_places_add(&found, &a);
	coll_address_numeric(&a, "192.0.2.1", 0); /* nobody's */
	coll_places_add(&found, &a);
	CHECK(coll_rendezvous_addresses(&s, &found, &at, NULL) == COLL_OK);
	for (unsigned i = 0; i < at.count; i++) {
		there += coll_ip_same(&at.at[i], &outer);
		CHECK(at.at[i].loopback || coll_ip_same(&at.at[i], &outer));
	}
	CHECK(there == 1);
}

TEST(exchange, an_interface_that_is_not_there_is_refused)
{
	struct coll_settings s;
	struct coll_error_box err;
	coll_unique_id id;
	struct coll_ips at;

	coll_settings_load(&s, NULL, NULL, NULL);
	coll_error_clear(&err);
	snprintf(s.interface, sizeof(s.interface), "nonesuch");
	CHECK(coll_bootstrap_unique_id(&s, &id, &err) == COLL_ERR_CONFIG);
	CHECK(strstr(err.message, "COLL_INTERFACE=nonesuch: this host has no such interface") != NULL, "%s",
	      err.message);
	snprintf(s.interface, sizeof(s.interface), "^lo");
	if (!outer_address().interface[0])
		CHECK(coll_rendezvous_addresses(&s, NULL, &at, NULL) == COLL_AGAIN);
}

static coll_status gather_with_other_size(struct job *j, int rank, struct coll_error_box *err)
{
	if (rank == 2)
		j->id.size = 7;
	return gather(j, rank, 200, err);
}

TEST(exchange, sizes_that_differ)
{
	struct job j;

	job_init(&j, 3, gather_with_other_size);
	over_tcp(&j);
	start_all_but(&j, -1);
	job_wait(&j);
	/* gather() of rank 2 has room for 7; the others stop before the table. */
	all_say(&j, -1, COLL_ERR_BOOTSTRAP, "rank 2 says that the job has 7 ranks, rank 0 says 3");
	job_free(&j);
}

static coll_status gather_with_other_length(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, rank == 1 ? 208 : 200, err);
}

TEST(exchange, lengths_that_differ)
{
	struct job j;

	job_init(&j, 3, gather_with_other_length);
	over_tcp(&j);
	start_all_but(&j, -1);
	job_wait(&j);
	all_say(&j, -1, COLL_ERR_BOOTSTRAP,
	        "rank 1 " COLL_VERSION_TEXT " (208 bytes), rank 0 " COLL_VERSION_TEXT " (200)");
	job_free(&j);
}

static coll_status gather_with_other_key(struct job *j, int rank, struct coll_error_box *err)
{
	struct job other = *j;

	if (rank != 2)
		return gather(j, rank, 200, err);
	/* It still tries when rank 0 has given up, and remembers who answered. */
	other.id.job_key[0]++;
	other.settings.create_timeout_ms += 1000;
	return gather(&other, rank, 200, err);
}

TEST(exchange, another_key_is_another_job)
{
	struct job j;

	job_init(&j, 3, gather_with_other_key);
	over_tcp(&j);
	j.settings.create_timeout_ms = 1500;
	start_all_but(&j, -1);
	job_wait(&j);
	CHECK(strstr(j.result[0].message, "rank 2 of 3 did not connect") != NULL, "%s", j.result[0].message);
	CHECK(strstr(j.result[2].message, "is the key not the same on all hosts?") != NULL, "%s", j.result[2].message);
	job_free(&j);
}

/* Move bytes until a frame of that type has come; false after 20 s. */
static bool hear(struct coll_wire *w, uint32_t type)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;
	struct coll_wire_frame f;

	while (coll_clock_ns() < until) {
		struct pollfd p = {.fd = w->fd, .events = coll_wire_events(w)};

		while (coll_wire_peek(w, 1 << 20, &f)) {
			const uint32_t got = f.type;

			coll_wire_take(w, &f);
			if (got == type)
				return true;
		}
		poll(&p, 1, 10);
		coll_wire_pump(w, p.revents);
	}
	return false;
}

/* A process that knows the key comes first and says it is rank 2, to be found at
 * places; it has heard an answer of that type when this returns. */
static void play_rank_two(struct job *j, uint32_t version, const struct coll_places *places, uint32_t answer,
                          struct coll_wire *w)
{
	struct introduction in = {
	        .version = version, .size = (uint32_t)j->n, .rank = 2, .library = "9.8.7 (a)", .len_bytes = 200};
	unsigned char buf[sizeof(in) + COLL_PLACES_BYTES + 200] = {0}, *payload;
	struct coll_address a;

	in.places_bytes = (uint32_t)coll_places_pack(places, buf + sizeof(in), COLL_PLACES_BYTES);
	memcpy(buf, &in, sizeof(in));
	payload = buf + sizeof(in) + in.places_bytes;
	for (size_t i = 0; i < 200; i++)
		payload[i] = pattern(2, i);
	if (j->id.unix_name[0])
		a = meeting_place(j);
	else
		coll_address_numeric(&a, j->id.root_host, j->id.root_port);
	while (w->state != COLL_WIRE_OPEN) {
		struct pollfd p;

		if (w->state == COLL_WIRE_CLOSED) {
			coll_wire_close(w);
			coll_wire_connect(w, &a, j->id.job_key);
		}
		p = (struct pollfd){.fd = w->fd, .events = coll_wire_events(w)};
		poll(&p, 1, 10);
		coll_wire_pump(w, p.revents);
	}
	CHECK(coll_wire_send(w, FRAME_REGISTER, buf, sizeof(in) + in.places_bytes + 200, NULL, 0));
	CHECK(hear(w, answer));
}

TEST(exchange, a_rank_that_dies_on_the_way_is_named)
{
	struct coll_wire w = {.fd = -1, .state = COLL_WIRE_CLOSED};
	const struct coll_places nowhere = {0};
	struct job j;

	job_init(&j, 5, gather_200);
	over_unix(&j);
	for (int r = 0; r < 2; r++)
		job_start(&j, r);
	play_rank_two(&j, WIRE_VERSION, &nowhere, FRAME_STAY, &w);
	coll_wire_close(&w); /* registered, and gone; 3 and 4 never come */
	job_wait(&j);
	for (int r = 0; r < 2; r++) {
		CHECK(strstr(j.result[r].message, "rank 2 ended during creation") != NULL, "%s", j.result[r].message);
		CHECK(j.result[r].status == COLL_ERR_PEER_DEAD);
		CHECK(j.result[r].culprit == 2);
	}
	job_free(&j);
}

/* It is stopped when the table comes: the root waits as long as for any silent rank, not until the creation's limit.
 * The others have what they need. */
TEST(exchange, a_rank_that_stops_reading_is_silent)
{
	struct coll_wire w = {.fd = -1, .state = COLL_WIRE_CLOSED};
	const struct coll_places nowhere = {0};
	struct job j;

	job_init(&j, 3, gather_200);
	over_unix(&j);
	j.settings.timeout_ms = 300;
	j.settings.create_timeout_ms = 100000;
	start_all_but(&j, 2);
	play_rank_two(&j, WIRE_VERSION, &nowhere, FRAME_STAY, &w);
	job_wait(&j);
	coll_wire_close(&w);
	CHECK(j.result[0].status == COLL_ERR_PEER_SILENT && j.result[0].culprit == 2, "%s", j.result[0].message);
	CHECK(j.result[1].status == COLL_OK, "%s", j.result[1].message);
	job_free(&j);
}

/* From now on packets that come for this socket are lost, and are not acknowledged. */
static bool lose_all(int fd)
{
	struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	const struct sock_fprog program = {1, &drop};

	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

/* Its host goes out of reach when the table comes: that is no silence, however short the time for one is. */
TEST(exchange, a_host_out_of_reach_is_not_silent)
{
	struct coll_wire w = {.fd = -1, .state = COLL_WIRE_CLOSED};
	const struct coll_places nowhere = {0};
	struct job j;

	job_init(&j, 3, gather_200);
	over_tcp(&j);
	j.settings.timeout_ms = j.settings.unreachable_ms = 1200;
	job_start(&j, 0);
	play_rank_two(&j, WIRE_VERSION, &nowhere, FRAME_STAY, &w);
	REQUIRE(lose_all(w.fd));
	job_start(&j, 1);
	job_wait(&j);
	coll_wire_close(&w);
	CHECK(j.result[0].status == COLL_ERR_PEER_DEAD && j.result[0].culprit == 2 &&
	              strstr(j.result[0].message, "rank 2 is dead or unreachable"),
	      "%s", j.result[0].message);
	CHECK(j.result[1].status == COLL_OK, "%s", j.result[1].message);
	job_free(&j);
}

/* The limit of a rank is over before that of rank 0, which has the verdict. */
TEST(exchange, a_rank_whose_time_is_over_names_who_is_missing)
{
	struct job j;

	job_init(&j, 3, gather_200);
	over_unix(&j);
	job_start(&j, 0);
	j.settings.create_timeout_ms = 1800;
	job_start(&j, 1);
	job_wait(&j);
	for (int r = 0; r < 2; r++)
		CHECK(strstr(j.result[r].message, "rank 2 of 3 did not connect") && j.result[r].culprit == 2,
		      "rank %d blames %d: %s", r, j.result[r].culprit, j.result[r].message);
	job_free(&j);
}

TEST(exchange, versions_that_differ)
{
	struct coll_wire w = {.fd = -1, .state = COLL_WIRE_CLOSED};
	const struct coll_places nowhere = {0};
	struct job j;

	job_init(&j, 3, gather_200);
	over_unix(&j);
	start_all_but(&j, 2);
	play_rank_two(&j, WIRE_VERSION + 8, &nowhere, FRAME_FAILED, &w);
	coll_wire_close(&w);
	job_wait(&j);
	all_say(&j, 2, COLL_ERR_BOOTSTRAP,
	        "different versions of this library: rank 2 9.8.7 (a), rank 0 " COLL_VERSION_TEXT);
	job_free(&j);
}

/* The first parent of the tree is at an address where nobody answers: rank 0 takes
 * its children. */
TEST(exchange, an_unreachable_parent_is_replaced)
{
	struct coll_wire w = {.fd = -1, .state = COLL_WIRE_CLOSED};
	struct coll_places wrong = {.count = 1};
	struct job j;

	job_init(&j, 12, gather_200);
	over_unix(&j);
	coll_address_unix(&wrong.place[0], "coll-test-nobody-is-here");
	job_start(&j, 0);
	play_rank_two(&j, WIRE_VERSION, &wrong, FRAME_STAY, &w);
	for (int r = 1; r < j.n; r++)
		if (r != 2)
			job_start(&j, r);
	CHECK(hear(&w, FRAME_TABLE));
	coll_wire_close(&w);
	job_wait(&j);
	j.result[2].status = COLL_OK; /* played here */
	all_ok(&j);
	job_free(&j);
}

/* ---- Ways to meet ------------------------------------------------------ */

TEST(exchange, rank_zero_may_come_last)
{
	struct job j;

	job_init(&j, 20, gather_200);
	over_tcp(&j);
	for (int r = j.n - 1; r >= 0; r--)
		job_start(&j, r);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
}

TEST(exchange, a_taken_port_is_avoided)
{
	struct coll_address a;
	uint16_t port;
	struct job j;
	int silent;

	coll_address_numeric(&a, "127.0.0.1", 0);
	silent = coll_listen_tcp(&a, 0, &port); /* nobody accepts there */
	REQUIRE(silent >= 0);
	job_init(&j, 3, gather_200);
	over_tcp(&j);
	j.id.root_port = port;
	j.id.root_ports = true;
	CHECK(coll_random(j.id.job_key, sizeof(j.id.job_key)));
	j.id.port_seed = j.id.job_key[1];
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
	close(silent);
}

TEST(exchange, a_taken_port_is_named)
{
	char owner[40];
	struct coll_address a;
	uint16_t port;
	struct job j;
	int silent;

	coll_address_numeric(&a, "127.0.0.1", 0);
	silent = coll_listen_tcp(&a, 0, &port);
	job_init(&j, 2, gather_200);
	over_tcp(&j);
	j.id.root_port = port;
	j.settings.create_timeout_ms = 500;
	job_start(&j, 0);
	job_wait(&j);
	CHECK(j.result[0].status == COLL_ERR_BOOTSTRAP);
	CHECK(strstr(j.result[0].message, "cannot listen at 127.0.0.1:") != NULL, "%s", j.result[0].message);
	snprintf(owner, sizeof(owner), "process %d (", (int)getpid());
	CHECK(strstr(j.result[0].message, owner) && strstr(j.result[0].message, "COLL_JOB_KEY"), "%s",
	      j.result[0].message);
	job_free(&j);
	close(silent);
}

TEST(exchange, over_ipv6_and_by_name)
{
	struct coll_address a;
	uint16_t port;
	struct job j;
	int fd;

	job_init(&j, 3, gather_200);
	over_tcp(&j);
	snprintf(j.id.root_host, sizeof(j.id.root_host), "localhost");
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
	coll_address_numeric(&a, "::1", 0);
	fd = coll_listen_tcp(&a, 0, &port);
	if (fd < 0)
		SKIP("no IPv6 loopback here");
	close(fd);
	job_init(&j, 12, gather_200);
	over_tcp(&j);
	snprintf(j.id.root_host, sizeof(j.id.root_host), "::1");
	j.id.root_port = port;
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
}

TEST(exchange, a_name_that_is_nobody)
{
	struct job j;

	job_init(&j, 2, gather_200);
	over_tcp(&j);
	snprintf(j.id.root_host, sizeof(j.id.root_host), "no-such-host.invalid");
	j.settings.create_timeout_ms = 700;
	job_start(&j, 1);
	job_wait(&j);
	CHECK(j.result[1].status == COLL_ERR_BOOTSTRAP);
	CHECK(strstr(j.result[1].message, "no-such-host.invalid") != NULL, "%s", j.result[1].message);
	job_free(&j);
}

TEST(exchange, port_ranges)
{
	struct coll_settings s;
	struct coll_error_box err;
	uint16_t first, last;

	coll_settings_load(&s, NULL, NULL, NULL);
	strcpy(s.port_range, "4000-4010");
	CHECK(coll_port_range(&s, &first, &last, NULL) == COLL_OK && first == 4000 && last == 4010);
	strcpy(s.port_range, "4000-4000");
	CHECK(coll_port_range(&s, &first, &last, NULL) == COLL_OK && first == 4000 && last == 4000);
	for (int i = 0; i < 4; i++) {
		static const char *const bad[] = {"10-5", "0-9", "1-70000", "a-b"};

		coll_error_clear(&err);
		strcpy(s.port_range, bad[i]);
		CHECK(coll_port_range(&s, &first, &last, &err) == COLL_ERR_CONFIG);
		CHECK(strstr(err.message, bad[i]) != NULL, "%s", err.message);
	}
}

TEST(exchange, host_ids)
{
	struct coll_settings s;
	char one[256], two[256];

	coll_settings_load(&s, NULL, NULL, NULL);
	s.host_id[0] = 0;
	coll_bootstrap_host_id(&s, one, sizeof(one));
	coll_bootstrap_host_id(NULL, two, sizeof(two));
	CHECK(strcmp(one, two) == 0 && strlen(one) > 10, "%s %s", one, two);
	strcpy(s.host_id, "mars");
	coll_bootstrap_host_id(&s, one, sizeof(one));
	coll_bootstrap_host_id(&s, two, sizeof(two));
	CHECK(strncmp(one, "mars/", 5) == 0 && strcmp(one, two) == 0, "%s %s", one, two);
	memset(s.host_id, 'm', sizeof(s.host_id) - 1);
	coll_bootstrap_host_id(&s, one, 64);
	s.host_id[200] = 'n';
	coll_bootstrap_host_id(&s, two, 64);
	CHECK(strcmp(one, two) != 0, "long names that differ at their ends");
}
