/*
 * Links of several rails over devices in software: what each device carries, and what becomes of a link that loses one,
 * or all.
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>

#include "transports/rdma/rails.h"

#include "base/delay.h"
#include "transports/rdma/link.h"
#include "transports/rdma/sides_test.h"

enum { WINDOWS = 8, FRAME = 4096, SLOTS = 4 };

static const char *rates = "", *list = "", *unreachable = "";

static const char *settings(void *ctx, const char *name)
{
	if (strcmp(name, "COLL_LINK_RATES") == 0)
		return rates;
	if (strcmp(name, "COLL_UNREACHABLE_MS") == 0)
		return unreachable;
	return strcmp(name, "COLL_RDMA_DEVICE") == 0 ? list : "";
}

static void *tx[WINDOWS], *rx[WINDOWS];

static void open_links(void)
{
	for (int i = 0; i < SIDES; i++)
		open_link(&side[i], &side[!i]);
	CHECK(AWAIT(is_up(&side[0]) && is_up(&side[1])));
	for (int w = 0; w < WINDOWS; w++) {
		const struct coll_channel_key key = {.comm = 1, .epoch = 1, .window = (uint16_t)w, .rail = (uint32_t)w};

		tx[w] = rx[w] = NULL;
		CHECK(t->channel_open(side[0].link, &key, COLL_DIR_SEND, FRAME, SLOTS, &tx[w]) == COLL_OK);
		CHECK(t->channel_open(side[1].link, &key, COLL_DIR_RECV, FRAME, SLOTS, &rx[w]) == COLL_OK);
	}
}

static void open_job(int devices)
{
	fabric_devices(devices);
	for (int i = 0; i < SIDES; i++)
		open_side(&side[i], settings);
	open_links();
}

static void close_job(void)
{
	for (int w = 0; w < WINDOWS; w++) {
		t->channel_close(tx[w]);
		t->channel_close(rx[w]);
	}
	for (int i = 0; i < SIDES; i++)
		close_link(&side[i]);
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

static bool progress_both(void)
{
	for (int i = 0; i < SIDES; i++)
		t->progress(side[i].in);
	return true;
}

static bool both_down(void)
{
	return progress_both() && side[0].downs > 0 && side[1].downs > 0;
}

static bool view_one(int w, uint64_t number)
{
	struct coll_frame frame;
	const void *p;

	if (!progress_both() || t->view(rx[w], &p, &frame) != COLL_OK)
		return false;
	CHECK(frame.sequence == number && *(const unsigned char *)p == (unsigned char)number);
	t->done(rx[w]);
	return true;
}

/* Where it may not come at all. */
static bool comes_soon(int w, uint64_t number)
{
	for (int n = 0; n < 1000; n++)
		if (view_one(w, number))
			return true;
	return false;
}

/* One frame through each channel that can send within a while; how many came. */
static int round_of_frames(uint64_t number)
{
	int came = 0;

	for (int w = 0; w < WINDOWS; w++) {
		struct coll_frame frame = {.sequence = number, .len_bytes = FRAME};
		void *p;

		if (!AWAIT(progress_both() && t->slot(tx[w], FRAME, &p) != COLL_AGAIN) ||
		    t->slot(tx[w], FRAME, &p) != COLL_OK)
			continue;
		memset(p, (int)number, FRAME);
		CHECK(t->post(tx[w], &frame) == COLL_OK);
		came += t->link_status(side[1].link) == COLL_OK ? AWAIT(view_one(w, number)) : comes_soon(w, number);
	}
	return came;
}

/* Frames over each device, in a job of its own. */
static void carried(int devices, unsigned rounds, unsigned by[3])
{
	uint64_t before[3];

	open_job(devices);
	for (int i = 0; i < 3; i++)
		before[i] = fabric_sent(i);
	for (unsigned n = 0; n < rounds; n++)
		CHECK(round_of_frames(n) == WINDOWS);
	for (int i = 0; i < 3; i++)
		by[i] = (unsigned)((fabric_sent(i) - before[i]) / FRAME);
	close_job();
}

static void each_device_carries_its_channels(void)
{
	static const struct {
		const char *rates, *list;
		unsigned frames[3];
	} cases[] = {
	        {"", "", {40, 40, 0}},
	        {"", "fabric1", {0, 80, 0}},
	        {"", "fabric0:1", {80, 0, 0}},
	        {"fabric0:1000,fabric1:1000", "", {40, 40, 0}},
	        {"fabric0:300,fabric1:100", "", {40, 40, 0}},
	        {"fabric0:100,fabric1:100000", "", {0, 80, 0}},
	};

	for (unsigned k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		unsigned by[3];

		rates = cases[k].rates;
		list = cases[k].list;
		carried(2, 10, by);
		for (int i = 0; i < 3; i++)
			CHECK(by[i] == cases[k].frames[i], "case %u: device %d carried %u frames", k, i, by[i]);
	}
	rates = list = "";
}

static struct coll_transport_path path_of(void)
{
	char a[248], b[248];
	size_t na = 0, nb = 0;
	struct coll_transport_path path = {0}, back = {0};

	CHECK(t->address(side[0].in, a, sizeof(a), &na) == COLL_OK);
	CHECK(t->address(side[1].in, b, sizeof(b), &nb) == COLL_OK);
	t->path(side[0].in, a, na, b, nb, &path);
	t->path(side[1].in, b, nb, a, na, &back);
	CHECK(path.rails == back.rails);
	t->path(side[0].in, a, na - 1, b, nb, &back);
	CHECK(back.rails == 1 && back.rail[0].mbps == 0, "of an address that makes no sense");
	return path;
}

static void the_path_has_the_rates_of_all_ports(void)
{
	struct coll_transport_path path;

	rates = "fabric0:200,fabric1:100,fabric2:200";
	open_job(3);
	path = path_of();
	CHECK(path.rails == 3 && path.rail[0].mbps == 200 && path.rail[1].mbps == 100, "%u rails", path.rails);
	close_job();
	rates = "";
	open_job(1);
	path = path_of();
	CHECK(path.rails == 1 && path.rail[0].mbps == 0);
	close_job();
}

/* Both ends say so once, in time, and name the rail and the device. rail -1: whichever was found to be lost last. */
static void judge_end(int rail, const char *device, uint64_t since)
{
	char name[40];

	CHECK(AWAIT(both_down()));
	CHECK(coll_clock_ns() - since < 2000000000u, "after %llu ms",
	      (unsigned long long)(coll_clock_ns() - since) / 1000000);
	if (rail < 0)
		snprintf(name, sizeof(name), " of 2: ");
	else
		snprintf(name, sizeof(name), "rail %d of 2: ", rail + 1);
	for (int n = 0; n < 100; n++)
		both_down();
	for (int i = 0; i < SIDES; i++) {
		CHECK(side[i].downs == 1, "side %d: %d times", i, side[i].downs);
		CHECK(strstr(side[i].cause, name) && strstr(side[i].cause, device), "side %d: %s", i, side[i].cause);
		CHECK(t->link_status(side[i].link) == COLL_ERR_PEER_DEAD);
	}
}

/* The next instances do without it, and have it again when it is back. */
static void judge_next(int device)
{
	unsigned by[3];

	carried(2, 1, by);
	CHECK(by[device] == 0 && by[!device] == WINDOWS, "%u and %u", by[0], by[1]);
	fabric_unplug(device, false);
	carried(2, 1, by);
	CHECK(by[device] == WINDOWS / 2 && by[!device] == WINDOWS / 2, "%u and %u", by[0], by[1]);
}

/* More than the channels have slots, so that credits come back, too. */
static void judge_rounds(uint64_t first)
{
	const uint64_t since = coll_clock_ns();

	for (uint64_t n = first; n < first + 3 * SLOTS; n++)
		CHECK(round_of_frames(n) == WINDOWS, "round %u", (unsigned)n);
	CHECK(coll_clock_ns() - since < 4000000000u, "after %llu ms",
	      (unsigned long long)(coll_clock_ns() - since) / 1000000);
	CHECK(!both_down() && side[0].downs == 0 && side[1].downs == 0, "%s", side[0].cause);
}

/* One frame in each channel, whatever becomes of its device. */
static void post_all(uint64_t number)
{
	for (int w = 0; w < WINDOWS; w++) {
		const struct coll_frame frame = {.sequence = number, .len_bytes = FRAME};
		void *p;

		CHECK(t->slot(tx[w], FRAME, &p) == COLL_OK);
		memset(p, (int)number, FRAME);
		CHECK(t->post(tx[w], &frame) == COLL_OK);
	}
}

static void view_all(uint64_t number)
{
	for (int w = 0; w < WINDOWS; w++)
		CHECK(AWAIT(view_one(w, number)), "window %d", w);
}

static bool moved(int device)
{
	progress_both();
	for (int i = 0; i < SIDES; i++) {
		const struct rdma_link *l = side[i].link;

		for (unsigned k = 0; k < l->base.rails; k++) {
			const struct rdma_link *r = (const struct rdma_link *)l->base.rail[k];

			if (r->state != LINK_UP || (int)r->at == device)
				return false;
		}
	}
	return true;
}

/* Its rail goes on over the other one: no call fails, and nothing is lost or doubled. */
static void a_device_is_lost(int device, bool under_traffic)
{
	open_job(2);
	CHECK(round_of_frames(1) == WINDOWS);
	fabric_unplug(device, true);
	if (under_traffic) {
		post_all(2);
		view_all(2);
	} else {
		CHECK(AWAIT(moved(device)), "a rail that carries nothing is asked for a sign of life");
	}
	judge_rounds(3);
	CHECK(moved(device));
	close_job();
	judge_next(device);
}

static void a_device_is_lost_under_traffic(void)
{
	a_device_is_lost(0, true);
	a_device_is_lost(1, true);
}

static void a_device_is_lost_between_frames(void)
{
	a_device_is_lost(0, false);
	a_device_is_lost(1, false);
}

/* A device that never gives up by itself: the other rail shows that the peer is there. */
static void a_device_says_nothing_any_more(void)
{
	for (int device = 0; device < 2; device++) {
		open_job(2);
		CHECK(round_of_frames(1) == WINDOWS);
		fabric_mute(device, true);
		post_all(2);
		view_all(2);
		judge_rounds(3);
		fabric_mute(device, false);
		close_job();
	}
}

/* What was lost first works again when the other is lost. */
static void one_device_then_the_other(void)
{
	open_job(2);
	CHECK(round_of_frames(1) == WINDOWS);
	for (int k = 0; k < 4; k++) {
		fabric_unplug(k % 2, true);
		post_all((uint64_t)(10 * k));
		view_all((uint64_t)(10 * k));
		CHECK(AWAIT(moved(k % 2)));
		fabric_unplug(k % 2, false);
	}
	judge_rounds(100);
	close_job();
}

/* It has been announced, and works no more when the link is opened. */
static void a_device_is_lost_at_the_beginning(void)
{
	for (int device = 0; device < 2; device++) {
		fabric_devices(2);
		for (int i = 0; i < SIDES; i++)
			open_side(&side[i], settings);
		fabric_unplug(device, true);
		open_links();
		judge_rounds(1);
		fabric_unplug(device, false);
		close_job();
	}
}

/* The last one: the link ends after COLL_UNREACHABLE_MS, and says which. */
static void both_devices_are_lost(void)
{
	uint64_t since;

	unreachable = "500";
	open_job(2);
	CHECK(round_of_frames(1) == WINDOWS);
	fabric_unplug(0, true);
	fabric_unplug(1, true);
	since = coll_clock_ns();
	post_all(2);
	judge_end(-1, "fabric", since);
	close_job();
	fabric_unplug(0, false);
	fabric_unplug(1, false);
	unreachable = "";
}

/* Both away for longer than a connection lasts, but not for longer than a host may be. */
static void all_devices_are_away_for_a_moment(void)
{
	uint64_t until;

	open_job(2);
	CHECK(round_of_frames(1) == WINDOWS);
	fabric_unplug(0, true);
	fabric_unplug(1, true);
	post_all(2);
	for (until = coll_clock_ns() + 2100000000; coll_clock_ns() < until;)
		CHECK(!AWAIT_MS(both_down(), 50));
	fabric_unplug(0, false);
	fabric_unplug(1, false);
	view_all(2);
	judge_rounds(3);
	close_job();
}

static bool heard;

static uint64_t heard_ns(void *ctx, const struct coll_process_id *peer)
{
	return heard ? coll_clock_ns() : 0;
}

/* Longer than a host may be, while the control plane hears it. Then for good: the link ends all the same. */
static void all_devices_are_away_while_the_host_is_heard(void)
{
	uint64_t since;

	unreachable = "1500";
	open_job(2);
	for (int i = 0; i < SIDES; i++)
		side[i].in->env.heard_ns = heard_ns;
	heard = true;
	CHECK(round_of_frames(1) == WINDOWS);
	since = coll_clock_ns();
	for (int i = 0; i < 2; i++)
		fabric_unplug(i, true);
	post_all(2);
	while (coll_clock_ns() < since + 2100 * COLL_NS_PER_MS)
		AWAIT_MS(both_down(), 50);
	if (coll_clock_ns() < since + 2600 * COLL_NS_PER_MS)
		CHECK(side[0].downs == 0 && side[1].downs == 0, "%s", side[0].cause);
	else
		printf("     not judged: other programs kept this one from ending the outage\n");
	for (int i = 0; i < 2; i++)
		fabric_unplug(i, false);
	if (side[0].downs == 0 && side[1].downs == 0) {
		view_all(2);
		for (int i = 0; i < 2; i++)
			fabric_unplug(i, true);
		CHECK(AWAIT(both_down()), "it waits without end");
	}
	heard = false;
	unreachable = "";
	close_job();
	for (int i = 0; i < 2; i++)
		fabric_unplug(i, false);
}

/* Memory of the user is sent from and received into: its keys are those of the other device then. */
static void memory_by_reference_goes_over_another_device(void)
{
	struct coll_memory mem[SIDES];
	struct coll_completion sent[WINDOWS] = {{0}}, got[WINDOWS] = {{0}};
	const struct coll_frame frame = {.sequence = 7, .len_bytes = FRAME};

	open_job(2);
	for (int i = 0; i < SIDES; i++)
		CHECK(t->mem_alloc(side[i].in, WINDOWS * FRAME, &mem[i]) == COLL_OK);
	CHECK(round_of_frames(1) == WINDOWS);
	for (int w = 0; w < WINDOWS; w++) {
		memset((char *)mem[0].base + w * FRAME, 'a' + w, FRAME);
		CHECK(t->recv_into(rx[w], (char *)mem[1].base + w * FRAME, NULL, &frame, &got[w]) == COLL_OK);
	}
	CHECK(progress_both());
	fabric_unplug(1, true);
	for (int w = 0; w < WINDOWS; w++)
		CHECK(t->post_ref(tx[w], (char *)mem[0].base + w * FRAME, NULL, &frame, &sent[w]) == COLL_OK);
	for (int w = 0; w < WINDOWS; w++) {
		CHECK(AWAIT(progress_both() && !got[w].pending && !sent[w].pending), "window %d", w);
		CHECK(got[w].status == COLL_OK && sent[w].status == COLL_OK);
		CHECK(((char *)mem[1].base)[w * FRAME] == 'a' + w &&
		      ((char *)mem[1].base)[w * FRAME + FRAME - 1] == 'a' + w);
	}
	judge_rounds(8);
	for (int i = 0; i < SIDES; i++)
		t->mem_free(side[i].in, &mem[i]);
	fabric_unplug(1, false);
	close_job();
}

/* Its connections are made again, and nothing is lost. */
static void a_device_is_away_for_a_moment(void)
{
	uint64_t until;

	open_job(2);
	CHECK(round_of_frames(1) == WINDOWS);
	fabric_unplug(1, true);
	post_all(2);
	for (until = coll_clock_ns() + 100000000; coll_clock_ns() < until;)
		both_down();
	fabric_unplug(1, false);
	view_all(2);
	CHECK(round_of_frames(3) == WINDOWS);
	CHECK(!both_down() && side[0].downs == 0 && side[1].downs == 0);
	close_job();
}

/* One end breaks, and its device still works: the other learns it over the rails that are left. */
static void one_end_loses_a_rail(void)
{
	for (int k = 0; k < 2; k++) {
		struct rdma_link *l, *r;

		open_job(2);
		l = side[0].link;
		r = (struct rdma_link *)l->base.rail[k];
		pthread_mutex_lock(&r->base.lock);
		coll_rdma_link_fail(r, COLL_ERR_PEER_DEAD, "rdma fabric%d: planted", k);
		pthread_mutex_unlock(&r->base.lock);
		judge_end(k, k ? "fabric1" : "fabric0", coll_clock_ns());
		CHECK(strstr(side[0].cause, "planted"), "%s", side[0].cause);
		CHECK(strstr(side[1].cause, "the peer has lost it"), "%s", side[1].cause);
		close_job();
	}
}

/* What goes over the rails that are left still comes. */
static void the_other_rails_go_on_until_the_end(void)
{
	struct rdma_link *l, *r;
	int came;

	open_job(2);
	l = side[0].link;
	r = (struct rdma_link *)l->base.rail[1];
	pthread_mutex_lock(&r->base.lock);
	coll_rdma_link_fail(r, COLL_ERR_PEER_DEAD, "rdma fabric1: planted");
	pthread_mutex_unlock(&r->base.lock);
	CHECK(AWAIT(both_down()));
	came = round_of_frames(1);
	CHECK(came == WINDOWS / 2, "%d", came);
	close_job();
}

/* A peer that closes in order ends each rail, and none of them is a death. */
static void a_goodbye_is_no_death(void)
{
	open_job(2);
	for (int w = 0; w < WINDOWS; w++)
		t->channel_close(rx[w]);
	close_link(&side[1]);
	CHECK(AWAIT(t->link_status(side[0].link) == COLL_ERR_PEER_DEAD));
	for (int n = 0; n < 200; n++)
		both_down();
	CHECK(side[0].downs == 0 && side[1].downs == 0, "%s", side[0].cause);
	for (int w = 0; w < WINDOWS; w++)
		t->channel_close(tx[w]);
	close_link(&side[0]);
	for (int i = 0; i < SIDES; i++)
		close_side(&side[i]);
	CHECK(fabric_objects() == 0, "%d objects are left", fabric_objects());
}

int main(void)
{
	PLAIN_RUN(each_device_carries_its_channels);
	PLAIN_RUN(the_path_has_the_rates_of_all_ports);
	PLAIN_RUN(a_device_is_lost_under_traffic);
	PLAIN_RUN(a_device_is_lost_between_frames);
	PLAIN_RUN(a_device_says_nothing_any_more);
	PLAIN_RUN(one_device_then_the_other);
	PLAIN_RUN(a_device_is_lost_at_the_beginning);
	PLAIN_RUN(both_devices_are_lost);
	PLAIN_RUN(all_devices_are_away_for_a_moment);
	PLAIN_RUN(all_devices_are_away_while_the_host_is_heard);
	PLAIN_RUN(memory_by_reference_goes_over_another_device);
	PLAIN_RUN(a_device_is_away_for_a_moment);
	PLAIN_RUN(one_end_loses_a_rail);
	PLAIN_RUN(the_other_rails_go_on_until_the_end);
	PLAIN_RUN(a_goodbye_is_no_death);
	return plain_summary();
}
