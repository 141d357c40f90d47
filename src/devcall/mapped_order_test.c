/*
 * The order in which a rank reads the slots of the others: copies along the ring, reductions in rank order. Over a
 * table of a device that only notes what is enqueued.
 */
#include <stdlib.h>
#include <string.h>

#include "devcall/mapped_call.h"
#include "devcall/mapped_state.h"
#include "tests/plain.h"

enum { RANKS = 4, ME = 1 };

static int seen[RANKS], nseen;
static coll_op op = COLL_SUM, enqueued; /* of the calls; of the last kernel */
static struct coll_mapped mapped;

/* Whose slot an address lies in. */
static int owner(uint64_t at)
{
	return (int)(at >> 32) - 1;
}

static coll_status move(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                        int npieces, struct coll_device_guard guard)
{
	for (int i = 0; i < npieces && owner(pieces[i].src) >= 0 && nseen < RANKS; i++)
		seen[nseen++] = owner(pieces[i].src);
	return COLL_OK;
}

static coll_status reduce(struct coll_device *d, coll_device_stream s, const struct coll_reduction *r, uint64_t out,
                          const uint64_t *in, int nin, size_t count, const struct coll_device_places *where,
                          struct coll_device_guard guard)
{
	enqueued = r->op;
	for (int i = 0; i < nin && nseen < RANKS; i++)
		seen[nseen++] = owner(in[i]);
	return COLL_OK;
}

static coll_status exchange(struct coll_device *d, coll_device_stream s, const struct coll_device_word *writes,
                            int nwrites, const struct coll_device_word *waits, int nwaits)
{
	return COLL_OK;
}

/* The ranks that the last segment of a call reads, as "1203". */
static const char *read_by(enum coll_kind kind, size_t count, size_t segment)
{
	static const struct coll_device_table table = {.move = move, .reduce = reduce, .exchange = exchange};
	static struct coll_device device = {.table = &table};
	static struct mapped_page pages[RANKS];
	static const int ring[RANKS] = {1, 2, 0, 3};
	static char text[RANKS + 1];
	const struct coll_reduction reduction = {.type = COLL_F32, .op = op, .elem_bytes = 4};
	struct coll_job job = {.kind = (uint8_t)kind,
	                       .in = {.base = (char *)8, .count = count},
	                       .out = {.base = (char *)16, .count = count},
	                       .reduction = &reduction,
	                       .elem_bytes = 4};
	struct coll_comm *comm = calloc(1, sizeof(*comm));
	struct coll_mapped_call call;

	mapped = (struct coll_mapped){
	        .device = &device, .rank = ME, .size = RANKS, .page = &pages[ME], .slot_bytes = 4 << 20};
	memcpy(mapped.peer, ring, sizeof(ring));
	for (int r = 0; r < RANKS; r++)
		mapped.peers[r] = (struct mapped_peer){.page = &pages[r], .slots = (uint64_t)(r + 1) << 32};
	comm->direct = &mapped.facts;
	comm->size = RANKS;
	comm->rank = ME;
	CHECK(coll_mapped_prepare(comm, &job, false, false, false, &call));
	CHECK(call.tiles == 1 && coll_mapped_segments(&call) == segment + 1);
	nseen = 0;
	CHECK(coll_mapped_put(comm, &job, &call, segment, false, (struct coll_device_word){0, 0}, NULL) == COLL_OK);
	free(comm);
	memset(text, 0, sizeof(text));
	for (int i = 0; i < nseen; i++)
		text[i] = (char)('0' + seen[i]);
	return text;
}

TEST(mapped_order, copies_follow_the_ring)
{
	CHECK(strcmp(read_by(COLL_KIND_ALL_GATHER, 100, 1), "1203") == 0);
	CHECK(strcmp(read_by(COLL_KIND_ALL_TO_ALL, 100, 1), "1203") == 0);
}

TEST(mapped_order, reductions_are_in_rank_order)
{
	CHECK(strcmp(read_by(COLL_KIND_ALL_REDUCE, 100, 1), "0123") == 0);
	CHECK(strcmp(read_by(COLL_KIND_REDUCE_SCATTER, 100, 1), "0123") == 0);
}

TEST(mapped_order, slots_of_a_premultiplied_sum_are_added)
{
	op = COLL_OP_PREMUL_SUM;
	CHECK(strcmp(read_by(COLL_KIND_ALL_REDUCE, 100, 1), "0123") == 0);
	CHECK(enqueued == COLL_SUM);
	op = COLL_SUM;
}
