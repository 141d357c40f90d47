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

/* A link to every rank takes descriptors and memory of the root. */
Test(tune, a_root_of_many_ranks_of_a_host_has_few_links)
{
	struct coll_select_facts f = nets[0].facts;

	f.one_host = true;
	cr_expect_str_eq(chosen(f, COLL_PRICE_ROOT_RANKS, COLL_KIND_GATHER, 1 << 16), "direct");
	cr_expect_str_eq(chosen(f, COLL_PRICE_ROOT_RANKS + 1, COLL_KIND_GATHER, 1 << 16), "binomial");
	cr_expect_str_eq(chosen(f, COLL_PRICE_ROOT_RANKS + 1, COLL_KIND_SCATTER, 1 << 16), "binomial");
	f.one_host = false;
	cr_expect_str_eq(chosen(f, COLL_PRICE_ROOT_RANKS + 1, COLL_KIND_GATHER, 1 << 16), "direct");
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

/* Hosts of one rank, us, the row that took longest and the fastest one (2026-11-26): 4 x 1 Gb/s broadcast 64 KiB
 * binomial 1090, blocks8 735; 1 MiB circulant 13270, blocks32 8839; all_reduce 16 KiB rdbl 273, circulant 211; 8 x 200
 * Mb/s broadcast 256 KiB tree 25954, blocks32 11777. */
Test(tune, the_rate_of_the_links_decides_between_hosts_of_one_rank)
{
	static const struct {
		enum coll_kind kind;
		int size;
		uint32_t mbps;
		size_t bytes;
		const char *unknown, *known;
	} cases[] = {
	        {COLL_KIND_BROADCAST, 4, 1000, 64 << 10, "binomial", "blocks8"},
	        {COLL_KIND_BROADCAST, 4, 1000, 1 << 20, "circulant", "blocks32"},
	        {COLL_KIND_BROADCAST, 8, 200, 256 << 10, "tree", "blocks32"},
	        {COLL_KIND_ALL_REDUCE, 4, 1000, 16 << 10, "rdbl", "circulant"},
	        {COLL_KIND_ALL_REDUCE, 4, 1000, 1 << 20, "circulant", "circulant"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coll_select_facts f = nets[NETS - 1].facts;
		const struct coll_select_call c = {cases[i].kind, cases[i].bytes / 4, 4, false, false, false};
		struct coll_select_choice choice;

		f.size = cases[i].size;
		f.slot_bytes = 512 << 10;
		cr_assert_eq(coll_select_plan(&f, &c, false, &choice), COLL_OK);
		cr_assert_str_eq(choice.algo->name, cases[i].unknown, "case %zu: %s", i, choice.algo->name);
		f.link_mbps = cases[i].mbps;
		f.caps.bytes_per_ns = cases[i].mbps / 8e3;
		cr_assert_eq(coll_select_plan(&f, &c, false, &choice), COLL_OK);
		cr_assert_str_eq(choice.algo->name, cases[i].known, "case %zu: %s", i, choice.algo->name);
	}
}
