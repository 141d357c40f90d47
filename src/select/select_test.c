/*
 * Choice: a row for every call there is, never one that cannot serve it, few
 * rounds and few bytes where bytes count, and COLL_ALGO obeyed or refused.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "select/cost.h"
#include "select/frame.h"
#include "select/select.h"

struct net {
	const char *name;
	struct coll_select_facts facts;
};

#define FACTS(lat, over, rate, across, busy)                                                                   \
	{                                                                                                      \
		.size = 2,                                                                                     \
		.caps = {.latency_ns = lat, .overhead_ns = over, .bytes_per_ns = rate, .cross_host = across},  \
		.reduce_bytes_per_ns = 8, .copy_bytes_per_ns = 8, .oversubscribed = busy, .slot_bytes = 65536, \
		.windows_max = 4, .scratch_bytes_max = 128 << 20, .forced = "",                                \
	}

/* Shared memory, the same with more ranks than cores, TCP on one host, 10 Gb/s
 * Ethernet, a fast fabric. */
static const struct net nets[] = {
        {"memory", FACTS(150, 40, 10, false, false)},
        {"crowded", FACTS(150, 40, 10, false, true)},
        {"loopback", FACTS(4000, 1500, 2, true, false)},
        {"ethernet", FACTS(20000, 3000, 1.2, true, false)},
        {"fabric", FACTS(1500, 200, 12, true, false)},
        /* What a communicator over transports/tcp has. */
        {"tcp",
         {.size = 2,
          .caps = {.latency_ns = 8000, .overhead_ns = 1500, .bytes_per_ns = 6, .cross_host = true, .streamed = true},
          .reduce_bytes_per_ns = 20,
          .slot_bytes = 1 << 20,
          .windows_max = 4,
          .scratch_bytes_max = 128 << 20,
          .forced = ""}},
};
enum { NETS = sizeof(nets) / sizeof(nets[0]) };

static const size_t sizes[] = {
        0, 1, 8, 64, 512, 4096, 32768, 1 << 16, 1 << 18, 1 << 20, (1 << 20) + 1, 1 << 24, (size_t)1 << 30};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static bool usable(const struct coll_algo *a, const struct coll_select_facts *f, const struct coll_select_call *c)
{
	unsigned need = 0;

	if (c->ordered && coll_plan_kind_reduces(c->kind))
		need |= COLL_ALGO_ORDERED;
	if (c->ragged)
		need |= COLL_ALGO_RAGGED;
	if (c->pairwise)
		need |= COLL_ALGO_PAIRWISE;
	return a->kind == c->kind && (a->flags & need) == need && (a->max_size == 0 || f->size <= a->max_size);
}

static void check_row_exists(const struct coll_select_facts *f, const struct coll_select_call *c)
{
	struct coll_select_choice choice, again;
	coll_status status = coll_select_plan(f, c, false, &choice);

	cr_assert_eq(status, COLL_OK, "%s n=%d count=%zu", coll_plan_kind_name(c->kind), f->size, c->count);
	cr_assert(usable(choice.algo, f, c), "%s n=%d: %s", coll_plan_kind_name(c->kind), f->size, choice.algo->name);
	cr_assert_geq(choice.windows, 1);
	cr_assert_leq(choice.windows, f->windows_max);
	cr_assert(choice.cost_ns >= 0);
	cr_assert_eq(coll_select_plan(f, c, true, &again), COLL_OK);
	cr_assert_eq(again.algo, choice.algo);
	cr_assert_eq(again.windows, choice.windows);
	cr_assert_neq(again.why[0], '\0');
	cr_assert_eq(choice.cost_ns, coll_select_cost(f, c, choice.algo));
}

Test(tune, every_call_gets_a_row_that_serves_it)
{
	for (int net = 0; net < NETS; net++)
		for (int n = 1; n <= 300; n += n < 70 ? 1 : 23)
			for (int kind = 0; kind < COLL_KIND_SEND_RECV; kind++)
				for (int size = 0; size < SIZES; size++) {
					struct coll_select_facts f = nets[net].facts;
					struct coll_select_call c = {
					        (enum coll_kind)kind, sizes[size], 1, false, false, false};
					bool blocks = coll_plan_kind_is_block(c.kind);

					f.size = n;
					check_row_exists(&f, &c);
					c.ordered = true;
					check_row_exists(&f, &c);
					c.ragged = kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_REDUCE_SCATTER;
					c.pairwise = blocks && !c.ragged;
					check_row_exists(&f, &c);
				}
}

/* What users see first: bytes and rounds near the optimum for long vectors. */
static void check_near_optimal(const struct coll_select_facts *f, const char *net, size_t len_bytes)
{
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, len_bytes / 4, 4, false, false, false};
	struct coll_select_choice choice;
	struct coll_algo_cost cost;
	int log2 = 0, n = f->size;

	while (1 << log2 < n)
		log2++;
	cr_assert_eq(coll_select_plan(f, &c, true, &choice), COLL_OK);
	choice.algo->cost(n, &cost);
	cr_assert_leq(cost.rounds, 2 * log2, "%s n=%d bytes=%zu: %s", net, n, len_bytes, choice.why);
	cr_assert_leq(cost.sent, 2.0 * (n - 1) / n + 1e-9, "%s n=%d bytes=%zu: %s", net, n, len_bytes, choice.why);
}

Test(tune, medium_and_long_all_reduce_is_near_optimal_for_every_n)
{
	for (int net = 0; net < NETS; net++)
		for (int n = 2; n <= 64; n++)
			for (size_t len = 64 << 10; len <= (size_t)1 << 32; len *= 2) {
				struct coll_select_facts f = nets[net].facts;

				f.size = n;
				check_near_optimal(&f, nets[net].name, len);
			}
}

static const char *chosen(struct coll_select_facts f, int n, enum coll_kind kind, size_t len_bytes)
{
	struct coll_select_call c = {kind, len_bytes, 1, false, false, false};
	struct coll_select_choice choice;

	f.size = n;
	cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_OK);
	return choice.algo->name;
}

Test(tune, tiny_all_reduce_takes_few_rounds)
{
	for (int net = 0; net < NETS; net++)
		for (int n = 2; n <= 64; n++) {
			const char *name = chosen(nets[net].facts, n, COLL_KIND_ALL_REDUCE, 8);
			struct coll_algo_cost cost;

			coll_algo_find(COLL_KIND_ALL_REDUCE, name)->cost(n, &cost);
			cr_assert_leq(cost.rounds, ceil(log2(n)) + 1, "%s n=%d: %s", nets[net].name, n, name);
		}
	cr_assert_str_eq(chosen(nets[0].facts, 2, COLL_KIND_ALL_REDUCE, 8), "rdbl");
}

Test(tune, other_collectives_change_with_size_as_they_should)
{
	struct coll_select_facts f = nets[2].facts;

	cr_expect_str_eq(chosen(f, 64, COLL_KIND_BROADCAST, 8), "binomial");
	cr_expect_str_eq(chosen(f, 16, COLL_KIND_BROADCAST, 1 << 24), "blocks32");
	f.one_host = true;
	cr_expect_str_eq(chosen(f, 16, COLL_KIND_BROADCAST, 1 << 24), "circulant");
	cr_expect_str_eq(chosen(f, 16, COLL_KIND_ALL_TO_ALL, 8), "bruck");
	cr_expect_str_neq(chosen(f, 16, COLL_KIND_ALL_TO_ALL, 1 << 20), "bruck");
	cr_expect_str_eq(chosen(f, 16, COLL_KIND_SCAN, 8), "rdbl");
	cr_expect_str_eq(chosen(f, 16, COLL_KIND_SCAN, 1 << 24), "linear");
	cr_expect_str_neq(chosen(f, 16, COLL_KIND_ALL_GATHER, 8), "ring");
}

/* Measured on two cores: see SHARED_FRAME_NS. On one host no link is the limit: fewer frames in all, and
 * no byte more in all. */
Test(tune, ranks_that_share_cores_send_few_frames_over_tcp)
{
	struct coll_select_facts f = nets[NETS - 1].facts;

	f.oversubscribed = true;
	f.one_host = true;
	cr_expect_str_eq(chosen(f, 2, COLL_KIND_ALL_REDUCE, 64 << 10), "rdbl");
	for (int n = 3; n <= 64; n++)
		for (size_t len = 64 << 10; len <= (size_t)1 << 30; len *= 4)
			cr_expect_str_eq(chosen(f, n, COLL_KIND_ALL_REDUCE, len), "dbtree", "n=%d len=%zu", n, len);
	for (int n = 3; n <= 8; n++)
		cr_expect_str_eq(chosen(f, n, COLL_KIND_BROADCAST, 1 << 20), "tree", "n=%d", n);
}

/* Measured over shaped links: see link_use(). */
Test(tune, hosts_send_long_vectors_one_stream_at_a_time)
{
	static const size_t lens[] = {1 << 20, 4 << 20, 16 << 20, 64 << 20};
	struct coll_select_facts f = nets[NETS - 1].facts;

	for (int crowded = 0; crowded < 2; crowded++) {
		f.oversubscribed = crowded;
		for (int n = 3; n <= 32; n++)
			for (int i = 0; i < 4; i++)
				cr_expect_str_eq(chosen(f, n, COLL_KIND_ALL_REDUCE, lens[i]), "circulant",
				                 "n=%d len=%zu", n, lens[i]);
		cr_expect_str_eq(chosen(f, 4, COLL_KIND_ALL_REDUCE, 64 << 10), "twoshot");
	}
}

/* Measured: see EXCHANGE_BYTES. */
Test(tune, two_ranks_over_tcp_exchange_whole_vectors_up_to_a_quarter_of_a_frame)
{
	struct coll_select_facts f = nets[NETS - 1].facts;

	f.one_host = true;
	for (size_t len = 8; len < 64 << 10; len *= 2)
		cr_expect_str_eq(chosen(f, 2, COLL_KIND_ALL_REDUCE, len), "rdbl", "%zu bytes", len);
	for (size_t len = 64 << 10; len <= 256 << 10; len *= 2)
		cr_expect_str_eq(chosen(f, 2, COLL_KIND_ALL_REDUCE, len), "oneshot", "%zu bytes", len);
	cr_expect_str_eq(chosen(f, 2, COLL_KIND_ALL_REDUCE, (256 << 10) + 64), "circulant");
}

Test(tune, a_crowded_host_never_gets_more_rounds)
{
	for (int n = 2; n <= COLL_PRICE_MESH_RANKS; n++)
		for (int size = 0; size < SIZES; size++) {
			struct coll_algo_cost alone, crowded;

			coll_algo_find(COLL_KIND_ALL_REDUCE,
			               chosen(nets[0].facts, n, COLL_KIND_ALL_REDUCE, sizes[size]))
			        ->cost(n, &alone);
			coll_algo_find(COLL_KIND_ALL_REDUCE,
			               chosen(nets[1].facts, n, COLL_KIND_ALL_REDUCE, sizes[size]))
			        ->cost(n, &crowded);
			cr_assert_leq(crowded.rounds, alone.rounds, "n=%d bytes=%zu", n, sizes[size]);
		}
}

/* How many short calls of n ranks that share cores take a row that links every two ranks. */
static int linked_by_all(const struct net *net, int n, enum coll_kind kind, size_t below)
{
	struct coll_select_facts f = net->facts;
	int linked = 0;

	f.oversubscribed = true;
	for (size_t len = 1; len < below; len *= 2)
		for (int one_host = 0; one_host < 2; one_host++) {
			f.one_host = one_host;
			linked += coll_algo_find(kind, chosen(f, n, kind, len))->flags & COLL_ALGO_MESH ? 1 : 0;
		}
	return linked;
}

/* Opening a link for every two of 200 ranks took seconds: docs/results/experiments/many-ranks.md. */
Test(tune, short_calls_of_many_ranks_that_share_cores_link_few_of_them)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_ALL_GATHER, COLL_KIND_REDUCE_SCATTER};
	int before = 0;

	for (int net = 0; net < NETS; net++)
		for (int k = 0; k < 3; k++) {
			for (int n = COLL_PRICE_MESH_RANKS + 1; n <= 600; n += 13)
				cr_expect_eq(
				        linked_by_all(&nets[net], n, kinds[k],
				                      kinds[k] == COLL_KIND_ALL_REDUCE ? 65536 : 65536 / (size_t)n),
				        0, "%s n=%d: %s", nets[net].name, n, coll_plan_kind_name(kinds[k]));
			before += linked_by_all(&nets[net], COLL_PRICE_MESH_RANKS, kinds[k], 65536);
		}
	cr_expect_gt(before, 0, "few ranks do");
}

/* Ring never; rhd for operations that do not commute, which circulant cannot serve. */
static void check_forced_only(struct coll_select_facts f, int n, size_t len_bytes)
{
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, len_bytes / 4, 4, false, false, false};
	struct coll_select_choice choice;

	f.size = n;
	cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_OK);
	cr_assert(strcmp(choice.algo->name, "ring") != 0 && strcmp(choice.algo->name, "rhd") != 0, "n=%d bytes=%zu: %s",
	          n, len_bytes, choice.why);
	c.ordered = true;
	cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_OK);
	cr_assert_str_neq(choice.algo->name, "ring");
}

Test(tune, ring_and_commutative_rhd_are_forced_only)
{
	for (int net = 0; net < NETS; net++)
		for (int rest = 0; rest < 8; rest++)
			for (int n = 2; n <= 300; n += n < 70 ? 1 : 23)
				for (size_t len = 4; len <= (size_t)1 << 32; len *= 4) {
					struct coll_select_facts f = nets[net].facts;

					f.oversubscribed = rest & 1;
					f.one_host = rest & 2;
					f.slot_bytes = rest & 4 ? 16 << 10 : 1 << 20;
					check_forced_only(f, n, len);
				}
}

static coll_status force(const char *forced, const struct coll_select_call *c, int n, struct coll_select_choice *choice)
{
	struct coll_select_facts f = nets[0].facts;

	f.size = n;
	f.forced = forced;
	return coll_select_plan(&f, c, true, choice);
}

Test(tune, a_bare_name_forces_every_collective_that_has_it)
{
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, 2, 4, false, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(force("ring", &c, 4, &choice), COLL_OK);
	cr_assert_str_eq(choice.algo->name, "ring");
	cr_assert(strstr(choice.why, "COLL_ALGO"));
	c.kind = COLL_KIND_ALL_GATHER;
	cr_assert_eq(force("ring", &c, 4, &choice), COLL_OK);
	cr_assert_str_eq(choice.algo->name, "ring");
	c.kind = COLL_KIND_BROADCAST;
	cr_assert_eq(force("ring", &c, 4, &choice), COLL_OK);
	cr_assert_null(strstr(choice.why, "COLL_ALGO"));
}

Test(tune, a_list_forces_the_named_collectives_only)
{
	const char *text = "all_reduce:tree,broadcast:circulant";
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, 1000000, 4, false, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(force(text, &c, 5, &choice), COLL_OK);
	cr_assert_str_eq(choice.algo->name, "tree");
	c.kind = COLL_KIND_BROADCAST;
	c.count = 1;
	cr_assert_eq(force(text, &c, 5, &choice), COLL_OK);
	cr_assert_str_eq(choice.algo->name, "circulant");
	c.kind = COLL_KIND_REDUCE;
	cr_assert_eq(force(text, &c, 5, &choice), COLL_OK);
	cr_assert_null(strstr(choice.why, "COLL_ALGO"));
	c.kind = COLL_KIND_ALL_REDUCE;
	cr_assert_eq(force("ring,all_reduce:rhd", &c, 5, &choice), COLL_OK);
	cr_assert_str_eq(choice.algo->name, "rhd", "a named collective beats a bare name");
}

Test(tune, nonsense_in_coll_algo_is_refused_whatever_is_called)
{
	static const char *const bad[] = {
	        "rong", "all_reduce:binomial", "al_reduce:ring", ":ring", "all_reduce:", "ring,", ",ring", "ring ",
	        ",",    "broadcast:tree;ring"};
	struct coll_select_call c = {COLL_KIND_BARRIER, 1, 1, false, false, false};
	struct coll_select_choice choice;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(force(bad[i], &c, 4, &choice), COLL_ERR_CONFIG, "%s", bad[i]);
		cr_assert(strstr(choice.why, "COLL_ALGO"), "%s", bad[i]);
	}
}

Test(tune, a_forced_row_that_cannot_serve_is_refused_with_the_reason)
{
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, 1, 4, true, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(force("ring", &c, 4, &choice), COLL_ERR_CONFIG);
	cr_assert(strstr(choice.why, "order"), "%s", choice.why);
	c.ordered = false;
	cr_assert_eq(force("oneshot", &c, 33, &choice), COLL_ERR_CONFIG);
	cr_assert(strstr(choice.why, "many"), "%s", choice.why);
	c.kind = COLL_KIND_ALL_TO_ALL;
	c.pairwise = true;
	cr_assert_eq(force("bruck", &c, 4, &choice), COLL_ERR_CONFIG);
	cr_assert(strstr(choice.why, "length"), "%s", choice.why);
}

Test(tune, scratch_limits_the_windows_and_then_the_rows)
{
	struct coll_select_call c = {COLL_KIND_REDUCE_SCATTER, 1 << 20, 4, false, false, false};
	struct coll_select_facts f = nets[0].facts;
	struct coll_algo_cost cost;

	f.size = 64;
	for (f.scratch_bytes_max = 1; f.scratch_bytes_max < (size_t)1 << 30; f.scratch_bytes_max *= 2) {
		struct coll_select_choice choice;
		double scratch;

		cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_OK);
		choice.algo->cost(f.size, &cost);
		scratch = cost.scratch * (double)f.slot_bytes / cost.frame * choice.windows;
		cr_assert(scratch <= (double)f.scratch_bytes_max || choice.windows == 1, "%zu: %s", f.scratch_bytes_max,
		          choice.why);
	}
}

Test(tune, frames_are_short_where_they_wait_for_a_link)
{
	struct coll_select_facts f = {.caps = {.slot_bytes_best = 1 << 20, .cross_host = true, .streamed = true}};

	cr_assert_eq(coll_select_frame_bytes(&f), 512 << 10);
	f.oversubscribed = true;
	cr_assert_eq(coll_select_frame_bytes(&f), 128 << 10, "and for each other's cores");
	f.one_host = true;
	cr_assert_eq(coll_select_frame_bytes(&f), 1 << 20, "there is no link");
	f.one_host = false;
	f.caps.slot_bytes_best = 4096;
	cr_assert_eq(coll_select_frame_bytes(&f), 4096, "a transport that likes shorter ones gets them");
	f.caps.slot_bytes_best = 0;
	cr_assert_eq(coll_select_frame_bytes(&f), 0, "no opinion");
	f.caps = (struct coll_transport_caps){.slot_bytes_best = 1 << 20, .cross_host = true};
	cr_assert_eq(coll_select_frame_bytes(&f), 1 << 20, "a device moves the bytes");
}

Test(tune, shorter_frames_on_a_link_leave_as_many_bytes_under_way)
{
	struct coll_select_call c = {COLL_KIND_ALL_REDUCE, 16 << 20, 4, false, false, false};
	struct coll_select_facts f = nets[NETS - 1].facts;
	struct coll_select_choice whole, shorter;

	f.caps.slot_bytes_best = f.slot_bytes;
	f.windows_max = 64;
	cr_assert_eq(coll_select_plan(&f, &c, false, &whole), COLL_OK);
	f.slot_bytes /= 4;
	cr_assert_eq(coll_select_plan(&f, &c, false, &shorter), COLL_OK);
	cr_assert(shorter.windows >= 4 * whole.windows, "%u, %u", whole.windows, shorter.windows);
	f.oversubscribed = true;
	cr_assert_eq(coll_select_plan(&f, &c, false, &shorter), COLL_OK);
	cr_assert(shorter.windows < 4 * whole.windows, "whoever gets a core makes the others wait");
	f.oversubscribed = false;
	f.windows_max = 4;
	cr_assert_eq(coll_select_plan(&f, &c, false, &shorter), COLL_OK);
	cr_assert_eq(shorter.windows, 4);
}

/* ---- Layouts ---- */

/* Two hosts of four ranks over tcp, shared memory within. */
static struct coll_layout *two_hosts(struct coll_select_facts *f)
{
	static const uint32_t host_of[] = {0, 1, 0, 1, 0, 1, 0, 1};
	const struct coll_layout_split hosts = {"host", true, false, host_of};
	struct coll_layout *l = NULL;

	cr_assert_eq(coll_layout_create(8, &hosts, 1, &l), COLL_OK);
	*f = nets[NETS - 1].facts;
	f->size = 8;
	f->layout = l;
	f->local_max = 4;
	f->inside = nets[0].facts.caps;
	return l;
}

static const char *selected(const struct coll_select_facts *f, enum coll_kind kind, size_t bytes, bool ordered)
{
	const struct coll_select_call c = {kind, bytes / 4, 4, ordered, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(coll_select_plan(f, &c, false, &choice), COLL_OK);
	return choice.algo->name;
}

Test(tune, long_calls_between_hosts_take_rows_that_read_the_layout)
{
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);

	for (size_t bytes = 256 << 10; bytes <= (size_t)64 << 20; bytes *= 4) {
		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_REDUCE, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_GATHER, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE_SCATTER, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_BROADCAST, bytes, false), "lanes");
		cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, bytes, false), "lanes");
		cr_assert_neq(
		        coll_algo_find(COLL_KIND_ALL_REDUCE, selected(&f, COLL_KIND_ALL_REDUCE, bytes, true))->flags &
		                COLL_ALGO_ORDERED,
		        0, "an operation that does not commute keeps its order");
	}
	coll_layout_destroy(&l);
}

Test(tune, short_calls_between_hosts_go_through_one_rank_of_each)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_BROADCAST, COLL_KIND_REDUCE,
	                                       COLL_KIND_BARRIER};
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		cr_assert_str_eq(selected(&f, kinds[i], 8, false), "leaders");
		cr_assert_str_eq(selected(&f, kinds[i], COLL_LEADERS_MAX, false), "leaders");
		if (kinds[i] != COLL_KIND_BARRIER)
			cr_assert_str_neq(selected(&f, kinds[i], COLL_LEADERS_MAX + 4, false), "leaders");
	}
	coll_layout_destroy(&l);
}

/* 2 x 2 ranks, tcp between two hosts that share cores: leaders 13 us, direct 11 (2026-11-23). */
Test(tune, a_short_reduce_of_few_ranks_that_share_cores_goes_straight_to_the_root)
{
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);
	static const uint32_t host_of[] = {0, 0, 1, 1};
	const struct coll_layout_split hosts = {"host", true, false, host_of};

	f.oversubscribed = true;
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 8, false), "leaders", "four ranks on each host");
	coll_layout_destroy(&l);
	cr_assert_eq(coll_layout_create(4, &hosts, 1, &l), COLL_OK);
	f.size = 4;
	f.layout = l;
	f.local_max = 2;
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 8, false), "direct");
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 4096, false), "direct");
	cr_assert_str_eq(selected(&f, COLL_KIND_BROADCAST, 8, false), "leaders");
	coll_layout_destroy(&l);
}

/* Two sites of two hosts, `local` ranks on each, whose uplinks have that rate in Mb/s. */
static struct coll_layout *two_sites(struct coll_select_facts *f, int local, uint32_t mbps)
{
	uint32_t site_of[16], host_of[16], rate_of[16];
	struct coll_layout_split splits[] = {{"site", true, true, site_of}, {"host", true, true, host_of}};
	struct coll_layout *l = NULL;

	for (int r = 0; r < 4 * local; r++) {
		site_of[r] = (uint32_t)(r / local / 2);
		host_of[r] = (uint32_t)(r / local);
		rate_of[r] = site_of[r] ? 0 : mbps; /* the other site's is not told */
	}
	cr_assert_eq(coll_layout_create(4 * local, splits, 2, &l), COLL_OK);
	coll_layout_tell_uplinks(l, rate_of);
	cr_assert_eq(l->level[0].mbps, mbps);
	*f = nets[NETS - 1].facts;
	f->size = 4 * local;
	f->layout = l;
	f->local_max = local;
	f->inside = nets[0].facts.caps;
	return l;
}

static double price_of(const struct coll_select_facts *f, enum coll_kind kind, size_t bytes)
{
	const struct coll_select_call c = {kind, bytes / 4, 4, false, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(coll_select_plan(f, &c, false, &choice), COLL_OK);
	return choice.cost_ns;
}

/* A site of two sends and receives S (2 (G - 1) / G of it for an all-reduce, the vector once for a broadcast): that
 * over the rate is the least time there is. */
Test(tune, the_uplink_of_a_site_bounds_the_price)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_BROADCAST, COLL_KIND_REDUCE};
	static const uint32_t rates[] = {500, 100};
	const size_t bytes = 64 << 20;
	struct coll_select_facts f;

	for (int local = 1; local <= 4; local += 3)
		for (int i = 0; i < 2; i++)
			for (int k = 0; k < 3; k++) {
				struct coll_layout *l = two_sites(&f, local, rates[i]);
				const double least_ns = (double)bytes / (rates[i] / 8e3);
				const double ns = price_of(&f, kinds[k], bytes);

				cr_assert_str_eq(selected(&f, kinds[k], bytes, false),
				                 kinds[k] == COLL_KIND_ALL_REDUCE ? "circulant" : "lanes");
				cr_assert(ns >= least_ns && ns < 1.03 * least_ns, "%s: %g ns, at least %g",
				          coll_plan_kind_name(kinds[k]), ns, least_ns);
				coll_layout_destroy(&l);
			}
}

Test(tune, an_unknown_uplink_is_not_slow)
{
	struct coll_select_facts unknown, fast;
	struct coll_layout *l = two_sites(&unknown, 2, 0), *m = two_sites(&fast, 2, 4000000);

	for (size_t bytes = 8; bytes <= (size_t)64 << 20; bytes *= 8) {
		const double ns = price_of(&unknown, COLL_KIND_ALL_REDUCE, bytes);

		cr_assert(ns <= price_of(&fast, COLL_KIND_ALL_REDUCE, bytes), "%zu bytes", bytes);
	}
	coll_layout_destroy(&l);
	coll_layout_destroy(&m);
}

/* Leaders send S for each host of a site, levels 2 (G - 1) / G S in more rounds: where bytes count more than rounds,
 * that is chosen for short vectors, too. */
Test(tune, over_a_slow_uplink_short_vectors_go_by_levels)
{
	static const struct {
		uint32_t mbps;
		size_t bytes;
		const char *name;
	} cases[] = {{0, 8, "leaders"},   {0, 4096, "leaders"},     {0, 16384, "leaders"},
	             {500, 8, "leaders"}, {500, 1024, "leaders"},   {500, 16384, "circulant"},
	             {100, 8, "leaders"}, {100, 4096, "circulant"}, {100, 16384, "circulant"}};
	struct coll_select_facts f;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coll_layout *l = two_sites(&f, 1, cases[i].mbps);

		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_REDUCE, cases[i].bytes, false), cases[i].name,
		                 "%u Mb/s, %zu bytes", cases[i].mbps, cases[i].bytes);
		coll_layout_destroy(&l);
	}
}

Test(tune, without_a_layout_rows_that_need_one_are_refused_by_reason)
{
	struct coll_select_facts f = nets[NETS - 1].facts;
	const struct coll_select_call c = {COLL_KIND_BROADCAST, 1 << 20, 4, false, false, false};
	struct coll_select_choice choice;

	f.size = 8;
	cr_assert_str_neq(selected(&f, COLL_KIND_BROADCAST, 1 << 20, false), "lanes");
	f.forced = "broadcast:lanes";
	cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_ERR_CONFIG);
	cr_assert(strstr(choice.why, "several hosts"), "%s", choice.why);
}
