/*
 * The device kernels of buffers in place, compiled for the host: look, fetch, signal, and reductions of what look has
 * found. Random cases against a plain model: records of this call and of others, any region and offset, needed ranks,
 * the whole call or a tile, the guard, pieces of any length and alignment. Bytes beside a result stay as they were.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/kernels_host_test.h"
#include "device/kernels_values.h"

enum { RANKS = COLL_KERNEL_RANKS_MAX, REGIONS = COLL_KERNEL_REGIONS, OFFSET_BITS = COLL_KERNEL_OFFSET_BITS };

#define OFFSET_MAX (((uint64_t)1 << OFFSET_BITS) - 1)
#define UNTOUCHED  0x5a5a5a5a5a5a5a5aull

static uint64_t address(const void *p)
{
	return (uintptr_t)p;
}

/* ---- look ---- */

static _Alignas(16) struct coll_kernel_record records[RANKS];
static uint64_t bases[RANKS][REGIONS];
static struct coll_kernel_found found;

/* What a record may say. */
enum saying { NAMED, NAMED_BY_THE_NEXT, NAMED_BY_THE_LAST, NO_REGION, NOT_MAPPED, SAYINGS };

/* A record for the call of this number; what look has to find. */
static uint64_t say(uint32_t rank, uint32_t number, enum saying saying, bool kept)
{
	const uint64_t region = draw() % 4 ? 1 + draw() % REGIONS : REGIONS;
	const uint64_t offset = draw() % 4 ? draw() % (1 << 30) : OFFSET_MAX;
	const bool named = saying != NO_REGION;
	struct coll_kernel_record *r = &records[rank];

	r->number = saying == NAMED_BY_THE_NEXT ? number + 1 : saying == NAMED_BY_THE_LAST ? number - 1 : number;
	r->unused = (uint32_t)draw();
	r->in = (kept ? COLL_KERNEL_KEPT : 0) | (named ? region << OFFSET_BITS : 0) |
	        (saying == NOT_MAPPED ? 0 : offset);
	for (int i = 0; i < REGIONS; i++)
		bases[rank][i] = (uint64_t)(rank + 1) << 44 | (uint64_t)(i + 1) << 36;
	if (saying == NOT_MAPPED)
		bases[rank][region - 1] = 0;
	return saying == NAMED ? bases[rank][region - 1] + offset : 0;
}

static void look(uint32_t nranks, uint32_t nthreads, bool all_named)
{
	/* The numbers of calls wrap around. */
	const uint32_t number = draw() % 4 ? (uint32_t)draw() : (uint32_t) - (draw() % 2);
	const uint32_t few = (uint32_t)draw() & 0xff;
	const uint32_t needed = few & (uint32_t)draw(), may_whole = draw() % 4 != 0, kept = draw() % 2;
	struct coll_kernel_look_args args = {.found = address(&found),
	                                     .bases = address(bases),
	                                     .number = number,
	                                     .nranks = nranks,
	                                     .needed = needed,
	                                     .may_whole = may_whole,
	                                     .kept = kept};
	uint64_t want[RANKS];
	bool whole = may_whole;
	struct coll_kernel_launch l;

	memset(&found, 0x5a, sizeof(found));
	for (uint32_t r = 0; r < RANKS; r++) {
		const bool keeps = draw() % 8 != 0;

		want[r] = say(r, number, all_named || draw() % 2 ? NAMED : (enum saying)(draw() % SAYINGS), keeps);
		args.record[r] = address(&records[r]);
		if (r < nranks && needed >> r & 1)
			whole &= want[r] != 0 && (keeps || !kept);
	}
	coll_kernels_look(&l, &args);
	CHECK(l.blocks == 1);
	run(&l, 1, nthreads);
	for (uint32_t r = 0; r < RANKS; r++)
		REQUIRE(found.in[r] == (r < nranks ? want[r] : UNTOUCHED), "rank %u of %u: %#llx, not %#llx", r, nranks,
		        (unsigned long long)found.in[r], (unsigned long long)want[r]);
	REQUIRE((found.whole != 0) == whole && found.whole != UNTOUCHED, "%u ranks, needed %#x, may %u: whole %#llx",
	        nranks, needed, may_whole, (unsigned long long)found.whole);
	CHECK(found.nowhere == 0);
}

TEST(found, look_takes_the_records_of_its_call)
{
	for (int i = 0; i < 20000; i++)
		look(1 + i % RANKS, 1, i % 3 == 0);
	/* Fewer threads than ranks, and more. */
	for (int i = 0; i < 300; i++)
		look(1 + i % RANKS, i % 2 ? 3 : 8, i % 3 == 0);
}

/* Each rank in turn is the one whose input is not found. */
TEST(found, look_needs_the_ranks_it_is_told)
{
	for (uint32_t missing = 0; missing < RANKS; missing++)
		for (uint32_t needed = 0; needed < 1u << RANKS; needed++) {
			struct coll_kernel_look_args args = {.found = address(&found),
			                                     .bases = address(bases),
			                                     .number = 7,
			                                     .nranks = RANKS,
			                                     .needed = needed,
			                                     .may_whole = 1};
			struct coll_kernel_launch l;

			for (uint32_t r = 0; r < RANKS; r++) {
				say(r, 7, r == missing ? NO_REGION : NAMED, false);
				args.record[r] = address(&records[r]);
			}
			coll_kernels_look(&l, &args);
			run(&l, 1, 1);
			REQUIRE((found.whole != 0) == !(needed >> missing & 1), "rank %u, needed %#x", missing, needed);
		}
}

/* ---- fetch ---- */

enum { LEN_MAX = 600, ROOM = LEN_MAX + 64 };

static _Alignas(16) char slot[RANKS][ROOM], out[RANKS][ROOM], want_out[RANKS][ROOM];
static char (*user)[ROOM]; /* far from the rest: all bits of an address count */

static void put_bytes(char *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (char)draw();
}

static void fill(void)
{
	if (!user)
		user = mmap(NULL, sizeof(*user) * RANKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE((void *)user != MAP_FAILED);
	put_bytes(user[0], sizeof(*user) * RANKS);
	put_bytes(slot[0], sizeof(slot));
	memset(out, 0x5a, sizeof(out));
	memset(want_out, 0x5a, sizeof(want_out));
	memset(&found, 0, sizeof(found));
}

static uint64_t any_length(void)
{
	static const uint64_t lens[] = {0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 255, 256, LEN_MAX};

	return draw() % 2 ? lens[draw() % (sizeof(lens) / sizeof(lens[0]))] : draw() % (LEN_MAX + 1);
}

/* Piece i, of some rank; what it has to bring is written to want_out[i]. */
static struct coll_kernel_fetch piece(uint32_t i, uint32_t rank, bool in_place)
{
	const uint64_t to = draw() % 32, shift = draw() % 16, from = draw() % 16;
	struct coll_kernel_fetch p = {.dst = address(out[i]) + to,
	                              .src = address(slot[rank]) + from,
	                              .len_bytes = any_length(),
	                              .whole_bytes = any_length(),
	                              .shift = shift,
	                              .rank = rank};
	const uint64_t len = found.whole ? p.whole_bytes : p.len_bytes;

	if (in_place && found.in[rank]) {
		found.in[rank] = p.dst - shift;
		return p;
	}
	if (in_place)
		p.src = p.dst;
	else
		memcpy(want_out[i] + to,
		       found.in[rank] ? (char *)(uintptr_t)(found.in[rank] + shift) : slot[rank] + from, len);
	return p;
}

struct trial {
	uint32_t npieces, nblocks, nthreads;
	bool guarded, forbidden, in_place, gated;
};

static uint32_t gate;

static void fetch(const struct trial *t)
{
	const uint32_t first = (uint32_t)draw() % RANKS;
	struct coll_kernel_fetch pieces[RANKS];
	struct coll_kernel_launch l;
	uint32_t state = t->forbidden ? 1u << 31 : 0;

	fill();
	found.whole = draw() % 2 ? 1ull << draw() % 64 : 0;
	for (uint32_t r = 0; r < RANKS; r++)
		found.in[r] = draw() % 2 ? address(user[r]) + draw() % 16 : 0;
	for (uint32_t i = 0; i < t->npieces; i++)
		pieces[i] = piece(i, (first + i) % RANKS, t->in_place);
	if (t->npieces > 1) { /* what is in its slot in any case */
		pieces[0].rank = t->in_place ? pieces[0].rank : COLL_KERNEL_NOWHERE;
		if (!t->in_place)
			memcpy(want_out[0] + (pieces[0].dst - address(out[0])), (char *)(uintptr_t)pieces[0].src,
			       found.whole ? pieces[0].whole_bytes : pieces[0].len_bytes);
	}
	if (t->guarded && t->forbidden)
		memset(want_out, 0x5a, sizeof(want_out));
	coll_kernels_fetch(&l, pieces, (int)t->npieces, address(&found), t->guarded ? address(&state) : 0, 8);
	coll_kernels_gate(&l, t->gated ? address(&gate) : 0);
	crooked = narrow = wide = 0;
	run(&l, t->nblocks, t->nthreads);
	CHECK(crooked == 0, "%u accesses are not aligned", crooked);
	CHECK(gate == 0, "the gate is %#x", gate);
	/* What is read then is the table. */
	if (t->in_place)
		CHECK(wide == 0 && narrow <= (t->npieces + 1) * t->nblocks * t->nthreads, "%u short accesses", narrow);
	for (uint32_t i = 0; i < RANKS; i++)
		REQUIRE(memcmp(out[i], want_out[i], ROOM) == 0, "piece %u of %u, whole %d, found %d, guard %d", i,
		        t->npieces, found.whole != 0, found.in[(first + i) % RANKS] != 0, t->guarded);
}

TEST(found, fetch_from_buffers_and_slots)
{
	for (uint32_t i = 0; i < 4000; i++)
		fetch(&(struct trial){.npieces = 1 + i % RANKS,
		                      .nblocks = 1 + i % 3,
		                      .nthreads = 1,
		                      .guarded = i / 8 % 2,
		                      .gated = i / 16 % 2,
		                      .in_place = i % 5 == 0});
	for (uint32_t i = 0; i < 200; i++)
		fetch(&(struct trial){
		        .npieces = 1 + i % RANKS, .nblocks = 2, .nthreads = 4, .guarded = i % 2, .gated = i % 3 == 0});
}

TEST(found, fetch_nothing_if_told)
{
	for (uint32_t i = 0; i < 300; i++)
		fetch(&(struct trial){.npieces = 1 + i % RANKS,
		                      .nblocks = 2,
		                      .nthreads = i % 8 ? 1 : 4,
		                      .guarded = true,
		                      .gated = i % 2,
		                      .forbidden = true});
}

/* The grid is that of the longest piece, of a tile or of the whole call. */
TEST(found, fetch_grid)
{
	struct coll_kernel_fetch pieces[2] = {{.len_bytes = 100, .whole_bytes = 32}, {.len_bytes = 16}};
	struct coll_kernel_launch l;

	coll_kernels_fetch(&l, pieces, 2, 0, 0, 8);
	CHECK(l.blocks == 1 && l.threads == 32);
	pieces[1].whole_bytes = 16 * 256 * 5;
	coll_kernels_fetch(&l, pieces, 2, 0, 0, 8);
	CHECK(l.blocks == 5 && l.threads == 256, "%u blocks of %u", l.blocks, l.threads);
	pieces[0].len_bytes = 16 * 256 * 6;
	coll_kernels_fetch(&l, pieces, 2, 0, 0, 8);
	CHECK(l.blocks == 6, "%u blocks", l.blocks);
}

/* ---- signal ---- */

enum { WORDS = RANKS + 1 };

static void tell(uint32_t nwords, bool whole, bool guarded, uint32_t state)
{
	struct coll_kernel_signal_args args = {.state = guarded ? address(&state) : 0,
	                                       .found = address(&found),
	                                       .value = (uint32_t)draw(),
	                                       .jump = (uint32_t)draw(),
	                                       .nwords = nwords};
	const bool tells = !guarded || state == 0;
	struct coll_kernel_launch l;
	uint32_t word[WORDS];

	memset(&found, 0, sizeof(found));
	found.whole = whole ? 1ull << draw() % 64 : 0;
	for (uint32_t w = 0; w < WORDS; w++) {
		word[w] = 0x5a5a5a5a;
		args.word[w] = address(&word[w]);
	}
	coll_kernels_signal(&l, &args);
	CHECK(l.blocks == 1 && l.threads >= nwords);
	run(&l, 1, WORDS);
	for (uint32_t w = 0; w < WORDS; w++) {
		const uint32_t want = tells && w < nwords ? (whole ? args.jump : args.value) : 0x5a5a5a5a;

		REQUIRE(word[w] == want, "word %u of %u: %#x, not %#x; whole %d, guard %d, state %#x", w, nwords,
		        word[w], want, whole, guarded, state);
	}
}

TEST(found, signal_a_value_or_the_last_number)
{
	for (uint32_t nwords = 0; nwords <= WORDS; nwords++)
		for (int whole = 0; whole < 2; whole++) {
			tell(nwords, whole, false, 0);
			tell(nwords, whole, true, 0);
			tell(nwords, whole, true, 1);
			tell(nwords, whole, true, 1u << 31);
		}
}

/* ---- Reductions of what is found ---- */

enum { ELEMENTS = 80 };

/* By rank: in the user's buffer or in the slot, from the shift of a tile or of the whole call. */
static void reduce(uint32_t nranks, uint32_t nthreads)
{
	const uint64_t in[RANKS] = {address(slot[0]), address(slot[1]), address(slot[2]), address(slot[3]),
	                            address(slot[4]), address(slot[5]), address(slot[6]), address(slot[7])};
	const uint64_t to = address(out[0]) + 4 * (draw() % 4), count = draw() % ELEMENTS;
	const struct coll_device_places where = {.found = address(&found),
	                                         .shift = 4 * (draw() % 8),
	                                         .whole_shift = 4 * (draw() % 8),
	                                         .whole_count = draw() % ELEMENTS,
	                                         .whole_out = draw() % 2 ? address(out[1]) + 4 * (draw() % 4) : 0};
	struct coll_kernel_launch l;
	struct coll_reduction r;
	const void *src[RANKS];
	char *want;

	REQUIRE(coll_reduce_bind(&r, COLL_I32, COLL_SUM, (int)nranks, COLL_ISA_SCALAR) == COLL_OK);
	fill();
	found.whole = draw() % 2;
	for (uint32_t i = 0; i < nranks; i++) {
		found.in[i] = draw() % 2 ? address(user[i]) + 4 * (draw() % 4) : 0;
		src[i] = found.in[i] ? (char *)(uintptr_t)found.in[i] + (found.whole ? where.whole_shift : where.shift)
		                     : slot[i];
	}
	want = want_out[0] + ((found.whole && where.whole_out ? where.whole_out : to) - address(out[0]));
	coll_reduce_run(&r, want, src, (int)nranks, -1, true, found.whole ? where.whole_count : count);
	coll_kernels_reduce(&l, &r, &to, 1, in, (int)nranks, -1, true, count, 0, 8);
	coll_kernels_reduce_found(&l, &where, r.elem_bytes, 8);
	run(&l, 1 + (uint32_t)draw() % 2, nthreads);
	REQUIRE(memcmp(out, want_out, sizeof(out)) == 0, "%u ranks, whole %d", nranks, found.whole != 0);
}

TEST(found, reduce_buffers_and_slots)
{
	for (uint32_t i = 0; i < 2000; i++)
		reduce(1 + i % RANKS, 1);
	for (uint32_t i = 0; i < 100; i++)
		reduce(1 + i % RANKS, 4);
}

/* ---- Gates ---- */

/* How often a grid of these kernels loads the word that forbids it to write. */
static unsigned questions(int which, uint32_t nblocks, uint32_t nthreads, bool gated, bool forbidden)
{
	const uint64_t to = address(out[0]), from[2] = {address(slot[0]), address(slot[1])};
	const struct coll_kernel_piece copied = {to, from[0], 256};
	const struct coll_kernel_fetch fetched = {
	        .dst = to, .src = from[0], .len_bytes = 256, .rank = COLL_KERNEL_NOWHERE};
	uint32_t state = forbidden;
	struct coll_kernel_launch l;
	struct coll_reduction r;

	CHECK(coll_reduce_bind(&r, COLL_I32, COLL_SUM, 2, COLL_ISA_SCALAR) == COLL_OK);
	fill();
	if (which == 0)
		coll_kernels_pieces(&l, &copied, 1, address(&state), 8);
	else if (which == 1)
		coll_kernels_fetch(&l, &fetched, 1, address(&found), address(&state), 8);
	else
		coll_kernels_reduce(&l, &r, &to, 1, from, 2, -1, true, 64, address(&state), 8);
	coll_kernels_gate(&l, gated ? address(&gate) : 0);
	watched = address(&state);
	asked = 0;
	run(&l, nblocks, nthreads);
	watched = 0;
	CHECK(gate == 0, "kernel %d, %u blocks: the gate is %#x", which, nblocks, gate);
	CHECK((memcmp(out[0], want_out[0], 256) == 0) == forbidden, "kernel %d, forbidden %d", which, forbidden);
	return asked;
}

TEST(found, one_block_asks_for_all)
{
	for (int which = 0; which < 3; which++)
		for (uint32_t nblocks = 1; nblocks < 12; nblocks++)
			for (int forbidden = 0; forbidden < 2; forbidden++) {
				const uint32_t nthreads = nblocks % 4 ? 1 : 4;

				CHECK(questions(which, nblocks, nthreads, true, forbidden) == 1, "kernel %d, %u blocks",
				      which, nblocks);
				CHECK(questions(which, nblocks, nthreads, false, forbidden) == nblocks);
			}
}

enum { CROWD = 6, ROUNDS = 300 };
static uint32_t crowd_state;
static _Atomic unsigned refused[ROUNDS];
static pthread_barrier_t begin, end;

static void *crowd_main(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&begin);
		if (kernel_ask_once(address(&crowd_state), address(&gate)))
			atomic_fetch_add(&refused[i], 1);
		if (pthread_barrier_wait(&end) != 0) { /* one of them */
			CHECK(gate == 0, "round %d: the gate is %#x", i, gate);
			crowd_state = (uint32_t)(i % 3 == 0);
		}
	}
	return arg;
}

/* Blocks that run at the same time, again and again by the same gate: all have one answer, and only the first asks. */
TEST(found, blocks_of_a_grid_have_one_answer)
{
	pthread_t thread[CROWD];

	blocks = CROWD;
	crowd_state = 1;
	watched = address(&crowd_state);
	asked = 0;
	pthread_barrier_init(&begin, NULL, CROWD);
	pthread_barrier_init(&end, NULL, CROWD);
	for (int i = 0; i < CROWD; i++)
		REQUIRE(pthread_create(&thread[i], NULL, crowd_main, NULL) == 0);
	for (int i = 0; i < CROWD; i++)
		pthread_join(thread[i], NULL);
	watched = 0;
	CHECK(asked == ROUNDS, "%u questions", asked);
	for (int i = 0; i < ROUNDS; i++)
		CHECK(refused[i] == (i == 0 || (i - 1) % 3 == 0 ? CROWD : 0), "round %d: %u of %d", i, refused[i],
		      CROWD);
}

/* Across PCIe a few blocks do, since each of them asks. */
TEST(found, few_blocks)
{
	struct coll_kernel_launch l;

	for (uint32_t n = 1; n < 40; n++) {
		coll_kernels_copy(&l, 4096, 1 << 20, n * 4096, 1, 32);
		coll_kernels_few_blocks(&l);
		CHECK(l.blocks <= 8 && (l.blocks == n || l.threads == 512), "%u: %u blocks of %u", n, l.blocks,
		      l.threads);
	}
}
