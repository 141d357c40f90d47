/*
 * The price of an algorithm: a closed form over agreed facts, in double
 * arithmetic of a fixed order, so that all ranks get the same number. It uses
 * no plan and measures nothing.
 *
 * One tile of T bytes takes its rounds one after the other, each a latency and
 * the CPU time of both sides, plus the frames a rank handles beyond one each way
 * per round, plus its bytes over the link and through the core:
 *
 *     t1 = rounds (latency + 2 overhead) + extra frames overhead
 *          + max(sent, received) T / bandwidth + reduced T / reduce rate + copied T / copy rate
 *
 * Tiles follow each other as fast as the busiest rank and W tiles in flight let
 * them:
 *
 *     t = t1 + (tiles - 1) max(busy, t1 / W)
 *
 * where busy is a tile's time on the core or on the link, whichever is longer;
 * both together when the link is the core's own work (one host).
 *
 * All-reduce of long vectors: a row is called lean if it sends the fewest bytes,
 * 2(n-1)/n of the vector, and needs no more than 2 ceil(log2 n) rounds. Only lean
 * rows compete. Others are sometimes cheaper by a few percent. That is less than the
 * effect of late ranks and shared links, which the model leaves out and which make every
 * round and every byte more expensive.
 *
 * With a layout the ranks of a host share its links, and the hosts of a site its uplink. A row that reads the layout
 * says what it does inside a host and between hosts, each at the price of its own paths, and what the busiest host and
 * site send. Of other rows the worst is assumed, that everything each rank of a host (site) sends leaves it; only rows
 * that read the layout are lean, and of those up to COLL_LEADERS_MAX the ones for short vectors, unless the rate of the
 * links is known and the vector takes longer over a link than a round does besides: then the price decides. An uplink
 * counts only if its rate is told: a tile crosses the links of a host and the uplink one after the other, but tiles
 * overlap. Then short vectors may take any row that reads the layout, since rows for them send more over the uplink. A
 * short reduce may take a row that does not read the layout, if it is cheaper: where few ranks share cores, frames
 * straight to the root cost less than a hand-off at a leader.
 *
 * A chain of hosts of one rank: calls that follow each other overlap, so that each takes the time of its bytes over one
 * link. From COLL_CHAIN_HOSTS on the time until the last host has its first tile is priced as well.
 *
 * Ranks of one host that share its cores, over sockets, wait only for cores. An all-reduce
 * takes the time of the frames of all ranks together. A row is then lean if it sends at
 * most 2(n-1) vectors in all, as every row with the fewest bytes does. A broadcast uses
 * the tree, whose inner ranks share the work: n-1 vectors in n-1 frames.
 *
 * Short calls of many ranks that share cores: a row is lean if it does not link every two ranks.
 * n ranks open n(n-1)/2 links, each of which costs its two ends about 0.3 ms, and they share the
 * cores for that; the first call of 200 ranks took 3 s. Nor are such rows faster afterwards: all
 * frames of all ranks go through the same cores. From 64 KiB in all on they are, since they move
 * the fewest bytes. An all_to_all links all pairs in any case.
 */
#include "select/cost.h"

#include "base/limits.h"
#include "select/price.h"

/* A hand-off to a rank that is not on a core: a switch of the scheduler. */
#define SWITCH_NS 5000.0

/* The kernel's work for a frame, for which ranks that share cores wait for each other. Where the
 * kernel carries the frames it wakes their receivers too, so that a round is no dearer. 64 KiB
 * over tcp on two cores, 2026-11-22, circulant and two-shot: 3 ranks 111 and 98 us, 4 ranks 112
 * and 140, 5 ranks 238 and 239 to 294, 6 ranks 246 and 289, 7 ranks 328 and 440, 8 ranks 360 and 477. */
#define CROWDED_FRAME_NS 3000.0

/* Such a frame, sent and received, and its bytes; fitted to any_n on two cores, 2026-11-22 (16 KiB to
 * 64 MiB; recursive doubling, circulant, double tree; 3 to 8 ranks). 64 KiB, us, of 3 to 8 ranks:
 * circulant 120 124 259 257 351 350, double tree 70 100 144 166 211 267; 4 MiB, ms: circulant 3.5
 * 5.2 7.3 8.4 12.8 14.8, double tree 3.1 3.8 5.7 6.2 8.6 9.1;
 * 64 MiB: 63 87 155 152 247 233 and 46 64 85 120 146 196. Short vectors take recursive doubling
 * by the other formula, and should: 32 KiB 48 67 106 138 213 225 us, double tree 60 92 133 164 190 236.
 * Cores are not counted: all rows are divided by the same number. */
#define SHARED_FRAME_NS     12000.0
#define SHARED_BYTES_PER_NS 4.0
#define SHARED_CORES        2.0

/* Two ranks of one host that have a core each, over sockets: short enough vectors whole, in one round. The bytes
 * are those of two rounds of halves; what is reduced besides is less than what a round takes besides its
 * bytes, since both cores first send, then receive. Ours / a bare exchange, out of place and in place, one-shot and
 * circulant, 2026-11-22: 256 KiB 1.13 and 1.22, 1.15 to 1.25 and 1.23; 512 KiB 1.17 and 1.13, 1.17 to 1.26 and 1.10; 1
 * MiB 1.40 and 1.28, 1.38 to 1.62 and 1.30. */
static bool is_pair(const struct coll_select_facts *f)
{
	return f->size == 2 && f->one_host && !f->oversubscribed && f->caps.streamed;
}

/* Between hosts, over sockets, the time of a link that several streams have at once: see link_use(). */
#define SHARED_LINK         1.1
#define SHARED_LINK_UNKNOWN 1.2

static double at_least_one(double x)
{
	return x > 1 ? x : 1;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Time of len bytes at a rate; an unknown rate costs nothing. */
static double transfer(double len_bytes, double bytes_per_ns)
{
	return bytes_per_ns > 0 ? len_bytes / bytes_per_ns : 0;
}

static double round_up(double x)
{
	double whole = (double)(uint64_t)x;

	return whole < x ? whole + 1 : whole;
}

/* The vector or block that is priced. Lengths that only the two ends know may
 * not enter the choice: then it is what fills a slot. */
static double call_bytes(const struct coll_select_facts *f, const struct coll_select_call *call)
{
	if (call->kind == COLL_KIND_BARRIER)
		return 1;
	if (call->pairwise)
		return (double)f->slot_bytes;
	return (double)call->count * (double)call->elem_bytes;
}

/* Streams that leave by one link at once do not end at once, and the next round waits for the last. Shaped links, of
 * what a bare stream carries, two-shot and circulant (2026-11-22): 1 Gb/s, 8 ranks 1 MiB 0.61 and 1.00, 4 MiB 0.95 and
 * 0.99; 2.5 Gb/s, 4 ranks 4 MiB 0.88 and 0.98, 5 ranks 1 MiB 0.87 and 0.97, 6 ranks 4 MiB 0.87 and 1.00; 3 ranks at 1
 * Gb/s 1.00 and 0.99 of 1 MiB: 1.1 times as long in the median. Where nobody says the rate, that of a fast link is
 * priced, where rounds weigh more: that figure is chosen so that 1 MiB goes to circulant even there. */
static double link_use(const struct coll_select_facts *f, const struct coll_select_call *call,
                       const struct coll_algo_cost *c, double total)
{
	const bool streams = f->caps.streamed && !f->one_host && c->frames > 2 * c->rounds;

	if (!streams || call->kind != COLL_KIND_ALL_REDUCE || total < COLL_PRICE_LONG_BYTES)
		return 1;
	return f->link_mbps ? SHARED_LINK : SHARED_LINK_UNKNOWN;
}

/* What a row does on the two kinds of paths; without a layout all is between. */
struct parts {
	struct coll_algo_cost inside, between, all;
	struct coll_algo_links links;
	double uplink_bytes_per_ns; /* 0: unknown, or there are no sites */
	bool chain;                 /* of hosts of one rank */
	double turns;               /* how many links a tile takes one after the other, as far as that is priced */
};

static double most_in_a_group(const struct coll_layout_level *level)
{
	uint32_t most = 0;

	for (uint32_t g = 0; g < level->groups; g++)
		if (level->first[g + 1] - level->first[g] > most)
			most = level->first[g + 1] - level->first[g];
	return most;
}

/* Of a site that was told; Mb/s are 125000 bytes a second. */
static double uplink_of(const struct coll_layout *l)
{
	return l ? l->level[0].mbps / 8e3 : 0;
}

static void find_parts(const struct coll_select_facts *f, const struct coll_algo *algo, struct parts *p)
{
	const struct coll_layout *l = coll_select_layout(f, algo);
	double sent;

	*p = (struct parts){.uplink_bytes_per_ns = uplink_of(f->layout), .turns = 1};
	if (l && algo->split) {
		algo->split(l, &p->inside, &p->between, &p->links);
		coll_algo_cost(algo, f->size, l, &p->all);
		p->chain = l == f->chain;
		if (p->chain && p->between.rounds >= COLL_CHAIN_HOSTS)
			p->turns = p->between.rounds;
		return;
	}
	algo->cost(f->size, &p->all);
	p->between = p->all;
	sent = larger(p->all.sent, p->all.received);
	p->links.host = sent * (f->layout ? f->local_max : 1);
	p->links.outermost = p->uplink_bytes_per_ns > 0 ? sent * most_in_a_group(&f->layout->level[0]) : 0;
}

static double passes_ns(const struct coll_select_facts *f, const struct parts *p, double tile)
{
	return transfer(p->all.reduced * tile, f->reduce_bytes_per_ns) +
	       transfer(p->all.copied * tile, f->copy_bytes_per_ns);
}

static double inside_ns(const struct coll_select_facts *f, const struct parts *p, double tile)
{
	return transfer(larger(p->inside.sent, p->inside.received) * tile, f->inside.bytes_per_ns);
}

static double first_tile_ns(const struct coll_select_facts *f, const struct parts *p, double tile)
{
	double overhead = f->caps.overhead_ns;
	double hop = f->caps.latency_ns + 2 * overhead + (f->oversubscribed && !f->caps.streamed ? SWITCH_NS : 0);
	double each = overhead + (f->oversubscribed && f->one_host && f->caps.streamed ? CROWDED_FRAME_NS : 0);
	double extra = larger(p->between.frames - 2 * p->between.rounds, 0);
	double near = f->inside.latency_ns + 2 * f->inside.overhead_ns + (f->oversubscribed ? SWITCH_NS : 0);

	return p->between.rounds * hop + p->inside.rounds * near + extra * each + inside_ns(f, p, tile) +
	       p->turns * transfer(p->links.host * tile, f->caps.bytes_per_ns) +
	       transfer(p->links.outermost * tile, p->uplink_bytes_per_ns) + passes_ns(f, p, tile);
}

static double busy_ns(const struct coll_select_facts *f, const struct parts *p, double tile)
{
	double core = p->between.frames * f->caps.overhead_ns + p->inside.frames * f->inside.overhead_ns +
	              inside_ns(f, p, tile) + passes_ns(f, p, tile);
	double link = larger(transfer(p->links.host * tile, f->caps.bytes_per_ns),
	                     transfer(p->links.outermost * tile, p->uplink_bytes_per_ns));

	return f->caps.cross_host ? larger(core, link) : core + link;
}

/* The most windows whose scratch fits the limit, one at least. */
static double windows_in_scratch(const struct coll_select_facts *f, double scratch_per_tile, double windows)
{
	double limit = (double)f->scratch_bytes_max;

	if (scratch_per_tile * windows > limit && scratch_per_tile > 0)
		windows = (double)(uint64_t)(limit / scratch_per_tile);
	return at_least_one(windows);
}

/* Between hosts frames are shorter than the longest (frame.c), and a path that is long as well as fast wants as many
 * bytes under way as those would be: so many times the tiles. Not where ranks share cores: there what a rank finds to
 * do when it gets one makes the others wait. Shaped links, 2026-11-22, all-reduce of 64 MiB: 2 ranks, 1 Gb/s and 5 ms
 * one way, frames of 1 MiB and 2 tiles 1.01 of a bare stream, 256 KiB and 2 tiles 0.77, 4 tiles 1.03; 3
 * ranks on two cores, 5 Gb/s, 128 KiB: 2 tiles 0.586 GB/s, 8 tiles 0.556. */
static double more_tiles(const struct coll_select_facts *f)
{
	const bool link = f->caps.streamed && !f->one_host && !f->oversubscribed && f->slot_bytes > 0;

	return link ? at_least_one((double)f->caps.slot_bytes_best / (double)f->slot_bytes) : 1;
}

/* A rank of a chain passes on what it has received whole: a call alone takes the links one after the other for its
 * first tile, and all at once for the others. So a tile is short beside the call, but for frames that cost more than
 * they carry. */
static double chain_tile(const struct parts *p, double total)
{
	return larger(total / (COLL_CHAIN_CUTS * p->between.rounds), COLL_CHAIN_TILE_MIN);
}

static bool shares_cores(const struct coll_select_facts *f, const struct coll_select_call *call, double total)
{
	return f->oversubscribed && f->one_host && f->caps.streamed && total >= COLL_PRICE_LONG_BYTES &&
	       (call->kind == COLL_KIND_ALL_REDUCE || call->kind == COLL_KIND_BROADCAST);
}

static double all_sent(const struct coll_algo_cost *c, int n)
{
	return c->all_sent > 0 ? c->all_sent : n * c->sent;
}

static double shared_ns(const struct coll_algo_cost *c, int n, double total)
{
	const double frames = (c->all_frames > 0 ? c->all_frames : n * c->frames) / 2;

	return (at_least_one(total / COLL_PRICE_PIECE_BYTES) * frames * SHARED_FRAME_NS +
	        all_sent(c, n) * total / SHARED_BYTES_PER_NS) /
	       SHARED_CORES;
}

static bool lean(const struct coll_select_facts *f, const struct coll_algo_cost *c, double total, bool shared)
{
	const int n = f->size;
	const double sent = shared ? all_sent(c, n) / n : c->sent;
	int log2 = 0;

	if (is_pair(f) && total <= COLL_PRICE_EXCHANGE_MAX)
		return c->rounds <= 1 && c->aside == 0;
	if (is_pair(f) && c->reduced > 0.5)
		return false;
	while (((int64_t)1 << log2) < n)
		log2++;
	return c->rounds <= 2.0 * log2 && sent <= 2.0 * (n - 1) / n * 1.000001;
}

/* Whether a call may have a link for every two ranks, if a row needs that. The one other reduce_scatter that keeps
 * the order takes n-1 rounds, which is worse. */
static bool may_link_all(const struct coll_select_facts *f, const struct coll_select_call *call, double total)
{
	const double of_all = coll_plan_kind_is_block(call->kind) ? total * f->size : total;

	return !f->oversubscribed || f->size <= COLL_PRICE_MESH_RANKS || of_all >= COLL_PRICE_LONG_BYTES ||
	       (call->ordered && call->kind == COLL_KIND_REDUCE_SCATTER);
}

/* Blocks that meet at a root, or leave it, in one round: it has a link to every rank, each with descriptors and memory.
 */
static bool may_link_root(const struct coll_select_facts *f, const struct coll_select_call *call,
                          const struct coll_algo_cost *c)
{
	return (call->kind != COLL_KIND_GATHER && call->kind != COLL_KIND_SCATTER) || !f->one_host ||
	       f->size <= COLL_PRICE_ROOT_RANKS || c->rounds > 1;
}

/* Kinds that have rows through leaders. */
static bool has_leaders(enum coll_kind kind)
{
	return !coll_plan_kind_is_block(kind) && kind != COLL_KIND_SCAN && kind != COLL_KIND_EXCLUSIVE_SCAN;
}

/* Whether a vector is short enough that rounds and hand-offs decide, which leaders spare, and not its bytes. */
static bool by_rounds(const struct coll_select_facts *f, double total)
{
	const double hop = f->caps.latency_ns + 2 * f->caps.overhead_ns;

	return total <= COLL_LEADERS_MAX && !(f->link_mbps && transfer(total, f->caps.bytes_per_ns) > hop);
}

/* Whether no row that is not may beat it, whatever its price. */
static bool preferred(const struct coll_select_facts *f, const struct coll_select_call *call,
                      const struct coll_algo *algo, const struct coll_algo_cost *c, double total, bool shared)
{
	if ((algo->flags & COLL_ALGO_MESH) && !may_link_all(f, call, total))
		return false;
	if (!may_link_root(f, call, c))
		return false;
	if (f->layout && by_rounds(f, total) && has_leaders(call->kind))
		return (algo->flags & COLL_ALGO_SHORT) ||
		       (algo->split ? uplink_of(f->layout) > 0 : call->kind == COLL_KIND_REDUCE);
	if (call->kind != COLL_KIND_ALL_REDUCE || total < COLL_PRICE_LONG_BYTES)
		return true;
	return f->layout ? algo->split != NULL : lean(f, c, total, shared);
}

void coll_select_price(const struct coll_select_facts *f, const struct coll_select_call *call,
                       const struct coll_algo *algo, struct coll_select_price *price)
{
	const double total = call_bytes(f, call);
	const bool shared = shares_cores(f, call, total);
	struct coll_select_facts used = *f; /* with the rate of the link as this row can use it */
	struct parts p;
	double tile, tiles, first, busy, windows;

	find_parts(f, algo, &p);

	const struct coll_algo_cost c = p.all;

	used.caps.bytes_per_ns /= link_use(f, call, &c, total);
	tile = total;
	if (f->slot_bytes > 0 && tile * c.frame > (double)f->slot_bytes)
		tile = (double)f->slot_bytes / c.frame;
	if (p.chain && tile > chain_tile(&p, total))
		tile = chain_tile(&p, total);
	tiles = tile > 0 ? round_up(total / tile) : 1;
	first = first_tile_ns(&used, &p, tile);
	busy = busy_ns(&used, &p, tile);
	windows = busy > 0 ? round_up(round_up(first / busy) * more_tiles(f)) : 1;
	if (p.chain && windows < COLL_CHAIN_TILES)
		windows = COLL_CHAIN_TILES;
	if (f->caps.streams > 1)
		windows *= f->caps.streams;
	if (windows > f->windows_max)
		windows = f->windows_max;
	if (windows > tiles && !call->pairwise)
		windows = tiles;
	windows = windows_in_scratch(f, c.scratch * tile, windows);
	*price = (struct coll_select_price){
	        .cost = c,
	        .ns = shared ? shared_ns(&c, f->size, total) : first + (tiles - 1) * larger(busy, first / windows),
	        .windows = (uint32_t)windows,
	        .tile_bytes = p.chain ? (size_t)tile : 0,
	        .fits = c.scratch * tile <= (double)f->scratch_bytes_max,
	        .lean = preferred(f, call, algo, &c, total, shared),
	};
}

double coll_select_cost(const struct coll_select_facts *facts, const struct coll_select_call *call,
                        const struct coll_algo *algo)
{
	struct coll_select_price price;

	coll_select_price(facts, call, algo, &price);
	return price.ns;
}
