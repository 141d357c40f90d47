/*
 * The last words of a process whose control link is half made: three control planes in one process, each served by
 * hand, so that each test stops where it wants. The ends of links that are proved, and deaths, are tested with
 * processes (tests/multi).
 */
#define PLAIN_OWN_MAIN
#include <errno.h>
#include <ifaddrs.h>
#include <linux/tcp.h>
#include <netinet/in.h>

#include "base/delay.h"
#include "control/gossip.h"
#include "control/liveness.h"
#include "control/ping.h"
#include "control/planes_test.h"
#include "net/net.h"
#include "tests/plain.h"

/* From one to another, made by the first. */
static struct coll_control_link *made(const struct job *j, int from, int to)
{
	for (int i = 0; i < j->c[from]->nlinks; i++)
		if (j->c[from]->links[i]->peer == to && !j->c[from]->links[i]->inbound)
			return j->c[from]->links[i];
	return NULL;
}

/* Rank 0 has greeted rank 1, which has not read that yet. */
static bool greet(struct job *j)
{
	serve(j, 1);
	for (int i = 0; i < TURNS && !(made(j, 0, 1) && made(j, 0, 1)->greeted); i++)
		serve(j, 0);
	return made(j, 0, 1) && made(j, 0, 1)->greeted && !made(j, 0, 1)->ready;
}

static void the_cause_goes_before_the_goodbye(void)
{
	const struct coll_note note = {
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_ABORTED, .process = -1, .comm = COMM, .text = "enough"};
	struct coll_note told = {0};
	struct job j;

	REQUIRE(begin(&j) && greet(&j));
	CHECK(coll_control_report(j.c[0], &note));
	coll_control_close(&j.c[0], 0);
	for (int i = 0; i < TURNS && !j.c[1]->peers[0].life.left; i++)
		serve(&j, 1);
	CHECK(j.c[1]->peers[0].life.left, "its goodbye has come");
	CHECK(coll_control_failure(j.c[1], COMM, &told) && told.status == COLL_ERR_ABORTED, "without the cause");
	CHECK(!j.c[1]->peers[0].dead);
	end(&j);
}

/* Rank 1 has proved the link meanwhile. Then nobody listens at rank 0's door any more: it may have told others why, so
 * that these are given their time. */
static void a_link_given_up_is_not_read_to_its_end(void)
{
	struct job j;

	REQUIRE(begin(&j) && greet(&j));
	made(&j, 0, 1)->deadline_ns = 0;
	coll_control_expire(j.c[0], coll_clock_ns());
	for (int i = 0; i < 20; i++)
		serve(&j, 1);
	CHECK(!coll_control_find_link(j.c[1], 0) || !coll_control_find_link(j.c[1], 0)->ready);
	coll_control_gone(j.c[1], 0, "nobody listens");
	CHECK(!j.c[1]->peers[0].dead, "a death at once");
	coll_control_settle_suspects(j.c[1], coll_clock_ns() + 3600000 * COLL_NS_PER_MS);
	CHECK(j.c[1]->peers[0].dead, "and none when that time is over");
	end(&j);
}

/* What has been read to its end says nothing any more. */
static void who_was_read_and_is_gone_is_dead(void)
{
	struct job j;

	REQUIRE(begin(&j) && greet(&j));
	for (int i = 0; i < TURNS && !j.c[1]->peers[0].met; i++)
		serve(&j, 1);
	CHECK(j.c[1]->peers[0].met);
	while (coll_control_find_link(j.c[1], 0))
		coll_control_drop_link(j.c[1], coll_control_find_link(j.c[1], 0));
	coll_control_gone(j.c[1], 0, "nobody listens");
	CHECK(j.c[1]->peers[0].dead);
	end(&j);
}

/* The living go on without it: what it says of its own failures must not end them. */
static void who_is_taken_for_dead_says_nothing(void)
{
	const struct coll_note death = {.kind = COLL_GOSSIP_DEATH,
	                                .status = COLL_ERR_PEER_SILENT,
	                                .process = 1,
	                                .origin = 0,
	                                .text = "cut off"};
	const struct coll_note own = {
	        .kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_PEER_DEAD, .process = 1, .origin = 1, .comm = COMM};
	struct coll_note told;
	struct job j;

	REQUIRE(begin(&j));
	CHECK(coll_control_spread(j.c[1], &death, 0));
	CHECK(!coll_control_report(j.c[1], &own) && !coll_control_failure(j.c[1], COMM, &told));
	end(&j);
}

/* ---- Who found a failure first ---- */

static bool all_linked(struct job *j)
{
	bool linked = true;

	for (int r = 0; r < RANKS; r++)
		serve(j, r);
	for (int r = 1; r < RANKS; r++)
		for (int to = 0; to < r; to++)
			linked = linked && coll_control_find_link(j->c[r], to) &&
			         coll_control_find_link(j->c[r], to)->ready && coll_control_find_link(j->c[to], r) &&
			         coll_control_find_link(j->c[to], r)->ready;
	return linked;
}

static bool find(struct job *j, int rank)
{
	const struct coll_note note = {.kind = COLL_GOSSIP_FAIL,
	                               .status = COLL_ERR_MISMATCH,
	                               .process = 0,
	                               .origin = rank,
	                               .comm = COMM,
	                               .text = "calls differ"};

	return coll_control_report(j->c[rank], &note);
}

static bool decided(struct job *j)
{
	bool all = true;

	for (int r = 0; r < RANKS; r++)
		serve(j, r);
	for (int r = 0; r < RANKS; r++)
		all = all && coll_control_first(j->c[r], COMM) >= 0;
	return all;
}

static void of_two_finders_one_is_the_first(void)
{
	struct job j;
	bool linked = false, over = false;

	REQUIRE(begin(&j));
	for (int i = 0; i < TURNS && !linked; i++)
		linked = all_linked(&j);
	REQUIRE(linked && find(&j, 2) && find(&j, 1));
	CHECK(coll_control_first(j.c[1], COMM) < 0 && coll_control_first(j.c[2], COMM) < 0, "before any can tell");
	for (int i = 0; i < TURNS && !over; i++)
		over = decided(&j);
	CHECK(over && coll_control_first(j.c[0], COMM) > 0);
	for (int r = 1; r < RANKS; r++)
		CHECK(coll_control_first(j.c[r], COMM) == coll_control_first(j.c[0], COMM), "rank %d: %d", r,
		      coll_control_first(j.c[r], COMM));
	end(&j);
}

static void who_found_it_before_it_had_links_learns_it(void)
{
	struct job j;
	bool over = false;

	REQUIRE(begin(&j) && find(&j, 0) && find(&j, 1));
	for (int i = 0; i < TURNS && !over; i++)
		over = decided(&j);
	CHECK(over && coll_control_first(j.c[1], COMM) == 0, "%d", coll_control_first(j.c[1], COMM));
	end(&j);
}

static void the_lowest_that_is_there_decides(void)
{
	struct job j;

	REQUIRE(begin(&j));
	for (int r = 1; r < RANKS; r++)
		j.c[r]->peers[0].life.left = true;
	CHECK(find(&j, 1) && find(&j, 2));
	CHECK(coll_control_first(j.c[1], COMM) == 1 && coll_control_first(j.c[2], COMM) < 0);
	j.c[2]->peers[1].dead = true;
	CHECK(coll_control_first(j.c[2], COMM) == 2, "nobody is left to ask");
	end(&j);
}

/* ---- Time by hand ---- */

static uint64_t now_ns;

static uint64_t by_hand(void *arg)
{
	return now_ns;
}

static const struct coll_clock_source hand = {.now_ns = by_hand};

static bool begin_by_hand(struct job *j)
{
	now_ns = 1000 * COLL_NS_PER_MS;
	coll_clock_take(&hand);
	return begin(j);
}

static void end_by_hand(struct job *j)
{
	coll_clock_take(NULL); /* a close with notes waits for some time to pass */
	end(j);
}

/* Others may know why rank 0 has gone: they have LIVENESS to say so, and not a moment longer. */
static void a_liveness_check_ends_with_its_delay(void)
{
	struct job j;

	REQUIRE(begin_by_hand(&j) && greet(&j));
	coll_control_gone(j.c[1], 0, "nobody listens");
	CHECK(!j.c[1]->peers[0].dead && j.c[1]->nsuspects == 1);
	now_ns += COLL_DELAY_NS(LIVENESS) - 1;
	coll_control_settle_suspects(j.c[1], coll_clock_ns());
	CHECK(!j.c[1]->peers[0].dead && j.c[1]->nsuspects == 1, "a nanosecond too early");
	now_ns++;
	coll_control_settle_suspects(j.c[1], coll_clock_ns());
	CHECK(j.c[1]->peers[0].dead && j.c[1]->nsuspects == 0, "too late");
	end_by_hand(&j);
}

/* The same, if its host stopped acknowledging: the kernel has taken most of the time that there is. */
static void an_unreachable_host_has_less_time(void)
{
	struct job j;

	REQUIRE(begin_by_hand(&j) && greet(&j));
	coll_control_suspect(j.c[1], 0, "no acknowledgement", COLL_SUSPECT_UNREACHED);
	now_ns += COLL_DELAY_NS(LIVENESS_UNREACHED) - 1;
	coll_control_settle_suspects(j.c[1], now_ns);
	CHECK(!j.c[1]->peers[0].dead, "a nanosecond too early");
	now_ns++;
	coll_control_settle_suspects(j.c[1], now_ns);
	CHECK(j.c[1]->peers[0].dead, "too late");
	end_by_hand(&j);
}

/* A rank that is asked every PING counts the questions that its peer leaves unanswered; it stops asking PING_KEPT after
 * the last wait that wanted to know. */
static void pings_go_out_by_the_clock(void)
{
	const struct coll_mismatch_msg q = {.record = {.comm = COMM}};
	enum { PINGS = COLL_DELAY_PING_KEPT_MS / COLL_DELAY_PING_MS };
	struct job j;

	REQUIRE(begin_by_hand(&j));
	coll_control_ask(j.c[0], 1, &q);
	CHECK(j.c[0]->peers[1].life.unanswered == 1);
	for (unsigned i = 1; i <= PINGS; i++) {
		now_ns += COLL_DELAY_NS(PING) - 1;
		coll_control_send_pings(j.c[0], now_ns);
		CHECK(j.c[0]->peers[1].life.unanswered == i, "%u", j.c[0]->peers[1].life.unanswered);
		now_ns++;
		coll_control_send_pings(j.c[0], now_ns);
		CHECK(j.c[0]->peers[1].life.unanswered == i + 1, "%u", j.c[0]->peers[1].life.unanswered);
	}
	now_ns += COLL_DELAY_NS(PING);
	coll_control_send_pings(j.c[0], now_ns);
	CHECK(j.c[0]->peers[1].life.unanswered == PINGS + 1, "nobody waits any more");
	end_by_hand(&j);
}

/* Rank 0 has the table a minute before the others: their listeners answer nothing until they can tell who it is, and
 * that is no sign of death. */
static void who_joins_late_is_met_then(void)
{
	struct job j;
	int connected = 0;

	now_ns = 1000 * COLL_NS_PER_MS;
	coll_clock_take(&hand);
	REQUIRE(open_all(&j) && coll_control_join(j.c[0], j.peer_infos, 0, RANKS) == COLL_OK);
	for (int i = 0; i < 600; i++) {
		now_ns += 100 * COLL_NS_PER_MS;
		for (int r = 0; r < RANKS; r++)
			coll_control_service(j.c[r]);
		connected += coll_control_find_link(j.c[0], 1) != NULL;
	}
	CHECK(connected > 300, "rank 0 waits at the listener of rank 1: %d", connected);
	for (int r = 1; r < RANKS; r++) {
		CHECK(j.c[r]->nlinks == 0, "rank %d lets in before it can tell who it is", r);
		CHECK(!j.c[0]->peers[r].dead && !j.c[0]->peers[r].life.left && j.c[0]->nsuspects == 0);
		REQUIRE(coll_control_join(j.c[r], j.peer_infos, r, RANKS) == COLL_OK);
	}
	for (int i = 0; i < TURNS && !(coll_control_find_link(j.c[0], 1) && coll_control_find_link(j.c[0], 1)->ready);
	     i++) {
		now_ns += COLL_NS_PER_MS;
		for (int r = 0; r < RANKS; r++)
			coll_control_service(j.c[r]);
	}
	CHECK(coll_control_find_link(j.c[0], 1) && coll_control_find_link(j.c[0], 1)->ready);
	end_by_hand(&j);
}

/* ---- An outage while ranks leave ---- */

static uint64_t over_ns;

/* What is sent is acknowledged when the outage is over. */
static int counts_of_an_outage(int fd, int level, int option, void *value, socklen_t *len_bytes)
{
	struct tcp_info *info = value;

	if (level != IPPROTO_TCP || option != TCP_INFO)
		return getsockopt(fd, level, option, value, len_bytes);
	memset(info, 0, *len_bytes);
	info->tcpi_unacked = now_ns < over_ns;
	return 0;
}

static int poll_by_hand(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	now_ns += (uint64_t)timeout_ms * COLL_NS_PER_MS;
	return 0;
}

/* Rank 0 and rank 1 have proved their link. */
static bool meet(struct job *j)
{
	for (int i = 0; i < TURNS && !(made(j, 0, 1) && made(j, 0, 1)->ready); i++)
		for (int r = 0; r < RANKS; r++)
			serve(j, r);
	return made(j, 0, 1) && made(j, 0, 1)->ready;
}

/* Milliseconds that rank 0 needs to leave during an outage of so many. */
static int leaves_in_ms(struct job *j, int outage_ms)
{
	struct coll_net net = *coll_net;
	const uint64_t since_ns = now_ns;

	net.getsockopt = counts_of_an_outage;
	net.poll = poll_by_hand;
	over_ns = now_ns + (uint64_t)outage_ms * COLL_NS_PER_MS;
	j->settings.unreachable_ms = 2500;
	j->settings.timeout_ms = 30000;
	coll_net_take(&net);
	coll_control_close(&j->c[0], 0);
	coll_net_take(NULL);
	return (int)((now_ns - since_ns) / COLL_NS_PER_MS);
}

/* Its peers would meet a closed socket behind it, and take that for a death. */
static void a_rank_stays_until_its_goodbye_has_arrived(void)
{
	static const int cases[][2] = {{0, 0}, {1700, 1700}, {20000, 2500}};
	struct job j;

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int ms;

		REQUIRE(begin_by_hand(&j) && meet(&j));
		ms = leaves_in_ms(&j, cases[i][0]);
		CHECK(ms >= cases[i][1] && ms <= cases[i][1] + 1, "an outage of %d ms: %d ms", cases[i][0], ms);
		end_by_hand(&j);
	}
}

static void who_has_said_goodbye_is_not_waited_for(void)
{
	struct job j;
	int ms;

	REQUIRE(begin_by_hand(&j) && meet(&j));
	for (int i = 0; i < j.c[0]->nlinks; i++)
		j.c[0]->links[i]->bye = true;
	ms = leaves_in_ms(&j, 20000);
	CHECK(ms <= 1, "%d ms", ms);
	end_by_hand(&j);
}

/* ---- Interfaces that are planted ---- */

static struct ifaddrs bare = {.ifa_name = (char[]){"eth7"}};

static int no_list(struct ifaddrs **all)
{
	errno = EMFILE;
	return -1;
}

static int no_address(struct ifaddrs **all)
{
	*all = &bare;
	return 0;
}

static void keep_list(struct ifaddrs *all)
{
}

/* Opens a plane; false: it is refused, and err says so. *ports: how many listeners it has. */
static bool opens(bool one_host, const char *interface, int *ports, struct coll_error_box *err)
{
	struct coll_settings settings = {0};
	struct coll_logger logger = {0};
	struct coll_peer_info info = {0};
	atomic_uint alarm = 0;
	struct coll_control *c = NULL;
	const struct coll_control_env env = {.settings = &settings,
	                                     .logger = &logger,
	                                     .job_key = key,
	                                     .wake_fd = -1,
	                                     .alarm = &alarm,
	                                     .host_id = "here",
	                                     .one_host = one_host};

	*err = (struct coll_error_box){0};
	snprintf(settings.host_id, sizeof(settings.host_id), "here");
	snprintf(settings.interface, sizeof(settings.interface), "%s", interface);
	if (coll_control_open(&env, &info, &c, err) != COLL_OK)
		return false;
	*ports = c->tcp.count;
	coll_control_close(&c, 0);
	return true;
}

/* Without a choice one listener takes every address. A choice that leaves none is not that. */
static void a_choice_that_leaves_no_address_is_refused(void)
{
	struct coll_net net = *coll_net;
	struct coll_error_box err;
	int ports = 0;

	net.freeifaddrs = keep_list;
	net.getifaddrs = no_address;
	coll_net_take(&net);
	CHECK(opens(false, "", &ports, &err) && ports == 1, "%d: %s", ports, err.message);
	CHECK(!opens(false, "eth7", &ports, &err), "%d listeners", ports);
	CHECK(strstr(err.message, "no interface with an address matches COLL_INTERFACE=eth7"), "%s", err.message);
	CHECK(!opens(true, "", &ports, &err), "%d listeners", ports);
	CHECK(strstr(err.message, "no loopback"), "%s", err.message);
	net.getifaddrs = no_list;
	CHECK(!opens(false, "eth7", &ports, &err), "%d listeners", ports);
	CHECK(strstr(err.message, "getifaddrs: "), "%s", err.message);
	CHECK(!opens(true, "", &ports, &err), "%d listeners", ports);
	coll_net_take(NULL);
}

int main(void)
{
	PLAIN_RUN(a_choice_that_leaves_no_address_is_refused);
	PLAIN_RUN(who_joins_late_is_met_then);
	PLAIN_RUN(the_cause_goes_before_the_goodbye);
	PLAIN_RUN(a_link_given_up_is_not_read_to_its_end);
	PLAIN_RUN(who_was_read_and_is_gone_is_dead);
	PLAIN_RUN(who_is_taken_for_dead_says_nothing);
	PLAIN_RUN(of_two_finders_one_is_the_first);
	PLAIN_RUN(who_found_it_before_it_had_links_learns_it);
	PLAIN_RUN(the_lowest_that_is_there_decides);
	PLAIN_RUN(a_rank_stays_until_its_goodbye_has_arrived);
	PLAIN_RUN(who_has_said_goodbye_is_not_waited_for);
	PLAIN_RUN(a_liveness_check_ends_with_its_delay);
	PLAIN_RUN(an_unreachable_host_has_less_time);
	PLAIN_RUN(pings_go_out_by_the_clock);
	return plain_summary();
}
