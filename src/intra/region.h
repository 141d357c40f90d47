/*
 * The regions of a communicator, and what a rank knows of the others' epochs; private to
 * src/intra.
 *
 * intranode operations are numbered on their communicator, alike on all ranks: an
 * operation's number is its *epoch* (modulo 2^32). A rank's region holds
 *
 *   entries   COLL_DEPTH of them, used in turn: a few lines of payload, each with a word
 *             epoch << 32 | signature of its own, so that it is whole when the word is there
 *   place     written by either of two ranks in turn: pair_swap.c
 *   cells     two of them: payload for longer messages, and words that say how far it is
 *             written
 *   tiles     of more than two ranks: cico.c; of two, slots: pair_stream.c, pair_bcast.c
 *   wide      COLL_DEPTH places of broadcasts: eager_bcast.c
 *   ahead     slots that a rank fills while its peer does not run: ahead.h
 *
 * The first line of the entry of epoch t is written in every operation, with payload or
 * without: "I have entered epoch t". A rank has read all it will of epoch t - 1, of anybody's
 * memory, when it enters epoch t.
 *
 * Ordering. Each word of an entry or cell has one writer; of what two ranks write in turn the files
 * say that use it. The writer stores the bytes, then the word with release; a
 * reader loads the word with acquire and looks at nothing before it is the one it waits for.
 * Before memory that held epoch t is written again, its owner has seen (acquire) a word of a
 * epoch after t of every other rank: their reads of epoch t came before that (release). So no
 * reader sees bytes of a later epoch under an earlier word, and none is overtaken. That holds
 * whoever needs whom in an operation: where all read all, the evidence comes with the data of
 * the next epoch; a root that only sends looks for it.
 *
 * Sleepers: after each store of a word that somebody may sleep for, the peers' sleeping words
 * are looked at; the transport says how (struct coll_offer).
 */
#ifndef COLL_INTRA_REGION_H
#define COLL_INTRA_REGION_H

#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "intra/autotune.h"
#include "intra/intra.h"
#include "record/way.h"
#include "transport/transport_shared.h"

enum {
	COLL_LINE_BYTES = 64,
	COLL_LINES = 12,         /* of an entry */
	COLL_FIRST_PAYLOAD = 48, /* of the first line */
	COLL_MORE_PAYLOAD = 56,  /* of the others */
	COLL_ENTRY_PAYLOAD = COLL_FIRST_PAYLOAD + (COLL_LINES - 1) * COLL_MORE_PAYLOAD,
	COLL_DEPTH = 8, /* entries: a power of two */
	COLL_WIDE_PIECES = 8,
	COLL_CELLS = 2,
	COLL_PIECES_MAX = 32,     /* of the payload of a cell */
	COLL_EDGE_MAX = 64 << 10, /* the largest page there is */
	COLL_STEP_BITS = 20,
	COLL_AHEAD_TABLE_BYTES = 4096,
	COLL_TILE_AREAS = 4, /* two for inputs, two for results */
	/* Behind each area: equal places of different ranks and areas do not fall on one another in a cache. */
	COLL_AREA_GAP = 4096 + 256,
};

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

struct intra_line {
	_Alignas(COLL_LINE_BYTES) _Atomic uint64_t word;
	uint64_t sequence; /* the call's number; in the lines behind the first the payload begins here */
	char payload[COLL_FIRST_PAYLOAD];
};

struct intra_entry {
	struct intra_line lines[COLL_LINES];
	char gap[256]; /* lines a core may fetch ahead */
};

/* eager_bcast.c: payload of a broadcast; piece p of it is there, when the word of pieces[p] is. */
struct intra_wide {
	struct intra_line pieces[COLL_WIDE_PIECES];
	char payload[COLL_WIDE_BYTES];
	char gap[256];
};

/* How far a cell is written: piece p is, when words[p] is there. */
struct intra_flags {
	struct intra_line pieces[COLL_PIECES_MAX];
};

enum intra_verdict { INTRA_UNDECIDED = 0, INTRA_GOOD = 1, INTRA_BAD = 2 };

struct intra_region {
	_Alignas(COLL_LINE_BYTES) _Atomic uint32_t verdict; /* whether its owner has mapped all others */
	uint32_t size;
	uint64_t payload_bytes;
	/* zero_copy.c: its owner takes its buffers back; its owner reads or writes others' at this moment */
	_Alignas(COLL_LINE_BYTES) atomic_uint revoked;
	_Alignas(COLL_LINE_BYTES) atomic_uint busy;
	/* pair_stream.c: epoch << COLL_STEP_BITS | how many chunks of it its owner has sent, and of the other's joined.
	 * cico.c: tiles in all operations so far that its owner has staged, reduced and gathered. */
	_Alignas(COLL_LINE_BYTES) _Atomic uint64_t steps;
	_Atomic uint64_t joined;
	_Atomic uint64_t gathered;
	/* pair_bcast.c: chunks in all operations so far, when its owner filled one last, and when it emptied one */
	_Alignas(COLL_LINE_BYTES) _Atomic uint64_t poured;
	_Alignas(COLL_LINE_BYTES) _Atomic uint64_t drained;
	_Alignas(COLL_LINE_BYTES) char gap[4096 - 6 * COLL_LINE_BYTES];
	struct intra_entry entries[COLL_DEPTH];
	struct intra_flags flags[COLL_CELLS];
	struct intra_flags exchange; /* pair_swap.c: of the place behind the cells */
	char edge[2][COLL_EDGE_MAX]; /* zero_copy.c */
	char payload[]; /* COLL_CELLS times payload_bytes, and once more for pair_swap.c; a gap behind each */
};

struct intra_peer {
	const struct intra_region *region; /* NULL: not mapped, or this rank itself */
	const unsigned *asleep;
	bool fenced;
	bool offered;  /* our region, to it */
	bool joined;   /* central.c: its link is there */
	uint32_t seen; /* it has entered this epoch at least */
	const struct coll_transport *transport;
	void *link;
	struct coll_offer offer;
};

/* Memory of a rank that this one uses in place. */
struct intra_reach {
	struct coll_piece piece; /* as its owner calls it; region 0: it is of no use to others */
	char *at;
	void *hold; /* NULL: ours, or not reached */
};

/* A shape of call for which something was tried in vain: how many more of them pass, and how many did the last time;
 * equal on all ranks. */
struct intra_backoff {
	uint16_t left, pause;
};

enum { COLL_REACH_IN, COLL_REACH_OUT, COLL_REACHES };
enum { COLL_AGREED = 16, COLL_SIZES = 48, COLL_INTRA_OPS_MAX = 32 };

/* Operations on buffers that all ranks map: zero_copy.c. */
struct intra_zero_copy {
	bool loaned;   /* peers may read or write buffers of this call */
	char *written; /* what they may write, NULL: nothing */
	size_t written_bytes;
	struct intra_reach reach[COLL_INTRA_SIZE_MAX][COLL_REACHES];
	bool edges;         /* of this call: some result does not fill its first and last page */
	bool root_in_place; /* of this call, a broadcast: its root's result is its input */
	/* Sets of regions that all ranks have mapped; equal on all of them. */
	uint32_t agreed[COLL_AGREED][COLL_INTRA_SIZE_MAX][COLL_REACHES];
	unsigned nagreed;
	struct intra_backoff backoff[COLL_KIND_COUNT][COLL_SIZES];
	struct coll_intra_stats stats;
};

/* Blocks in plain memory: cma.c. */
struct intra_cma {
	bool never; /* one rank cannot read another's memory, whatever it is: agreed */
	/* Of this call. */
	enum intra_copy way;
	bool may; /* agreed, like way */
	bool settles;
	bool apart;           /* nobody's results come where its input lies */
	bool failed;          /* something could not be read */
	uint32_t heard, read; /* ranks, by bits: whose line has come, whose block has been read */
	uint64_t address[COLL_INTRA_SIZE_MAX];
	uint32_t ns[COLL_TRIED_WAYS]; /* the least of the ranks heard */
	uint64_t since_ns;
	/* all_gather, all_to_all */
	struct intra_autotune trials[2][COLL_SIZES];
	struct intra_backoff backoff[2][COLL_SIZES];
};

/* More ranks than COLL_INTRA_SIZE_MAX: central.h. */
struct intra_central {
	struct central_area *area; /* NULL: not mapped */
	size_t cell_bytes;
	int opened, offered, heard; /* while it is formed: ranks, from the first on */
	int linked;                 /* the same, of a root */
};

/* How results of the call under way are stored. Of calls run intranode there is one at a time. */
struct intra_nt {
	enum coll_nt_pass pass;
	size_t bytes;
	struct coll_nt_choice choice;
	uint64_t spent_ns; /* by passes so far, if they are timed */
};

/* Slots of this rank: ahead.h. */
struct intra_ahead {
	uint64_t used[(COLL_AHEAD_SLOTS + 63) / 64]; /* a bit for each */
	uint32_t touched;                            /* so many were used since they were given back */
	size_t kept_bytes;                           /* counted as such of this process */
};

struct coll_intra {
	int rank, size;
	bool alone;     /* every rank has a core */
	int looks;      /* at a line that is not there yet, before others get a turn */
	uint64_t epoch; /* begun last; words have its low half */
	uint32_t all;   /* every peer has entered this epoch at least */
	enum intra_verdict verdict;
	struct intra_region *mine;
	/* Of two ranks whose posts need no fence: see fastpath.h. */
	struct intra_entry *quick_mine;
	const struct intra_entry *quick_theirs;
	const unsigned *quick_asleep;
	struct intra_peer *peers; /* by rank */
	uint64_t exchanges;       /* operations of pair_swap.c so far */
	uint32_t wide;            /* of two ranks: the place of eager_bcast.c in use */
	int wide_root;            /* and who has written to it last */
	struct intra_ahead ahead;
	uint64_t streamed_in;           /* chunks of pair_stream.c in all operations so far */
	uint64_t chuted;                /* chunks of pair_bcast.c in all operations so far */
	uint64_t chute_run;             /* of those, before the operations since this rank was not the root */
	uint64_t tiles;                 /* of cico.c in all operations so far */
	uint64_t tiles_free;            /* of those: the slots of so many were given back */
	uint64_t cells;                 /* operations that used cells so far */
	uint64_t cell_turn[COLL_CELLS]; /* the last of each */
	size_t payload_bytes;
	size_t page_bytes; /* of this system: alike on all ranks of a host */
	struct coll_intra_fabric fabric;
	struct coll_channel_key key;
	struct coll_memory memory;
	bool made;      /* memory was asked for */
	char *unpacked; /* COLL_ENTRY_PAYLOAD for each rank */
	struct intra_zero_copy direct;
	struct intra_nt nt;
	struct intra_cma pull;
	struct intra_central central;
	struct coll_intra_op ops[COLL_INTRA_OPS_MAX]; /* of the rows of the table of ways: select/ways.c */
};

/* region.c: exchange regions. OK: all of them are there; AGAIN: *waits_for is late; UNSUPPORTED:
 * they will never be used. */
coll_status coll_intra_form(struct coll_intra *n, uint32_t *waits_for);

/* Phases of struct coll_intra_state: these of all operations, and of each its own behind them. */
enum { INTRA_NEW = 0, INTRA_BEGUN, INTRA_OWN };

/* Nothing is shared yet. payload_bytes: COLL_INTRA_BYTES. alone: every rank has a core. fabric is
 * copied. */
coll_status coll_intra_create(struct coll_intra **intra, const struct coll_intra_fabric *fabric,
                              const struct coll_channel_key *key, int rank, int size, size_t payload_bytes, bool alone);

/* Before the links are closed. NULL inside accepted. */
void coll_intra_destroy(struct coll_intra **intra);

/* Of one rank, or of rank 0 where there are more ranks than can read each other: bytes of address space. */
size_t coll_intra_region_bytes(size_t payload_bytes);

/* Of a rank; not every part of it is a peer's to write. */
static inline struct intra_region *coll_intra_region(const struct coll_intra *n, int rank)
{
	return rank == n->rank ? n->mine : (struct intra_region *)(uintptr_t)n->peers[rank].region;
}

static inline size_t coll_intra_payload_stride(size_t payload_bytes)
{
	return payload_bytes + COLL_AREA_GAP;
}
static inline char *coll_intra_cell(const struct coll_intra *n, const struct intra_region *r, uint32_t cell)
{
	return (char *)(uintptr_t)r->payload + cell * coll_intra_payload_stride(n->payload_bytes);
}

static inline size_t coll_intra_cico_at(size_t payload_bytes)
{
	const size_t cells = sizeof(struct intra_region) + (COLL_CELLS + 1) * coll_intra_payload_stride(payload_bytes);

	return (cells + 4095) & ~(size_t)4095;
}
static inline char *coll_intra_cico_area(const struct coll_intra *n, const struct intra_region *r, uint32_t area)
{
	return (char *)(uintptr_t)r + coll_intra_cico_at(n->payload_bytes) + area * (COLL_TILE_BYTES + COLL_AREA_GAP);
}

/* Wide places, COLL_DEPTH of them, behind all else. */
static inline size_t coll_intra_wide_at(size_t payload_bytes)
{
	return coll_intra_cico_at(payload_bytes) + COLL_TILE_AREAS * (COLL_TILE_BYTES + COLL_AREA_GAP);
}
static inline struct intra_wide *coll_intra_wide(const struct coll_intra *n, const struct intra_region *r,
                                                 uint32_t place)
{
	char *at = (char *)(uintptr_t)r + coll_intra_wide_at(n->payload_bytes);

	return (struct intra_wide *)(void *)at + place % COLL_DEPTH;
}

static inline uint64_t coll_intra_word(uint32_t epoch, uint32_t signature)
{
	return (uint64_t)epoch << 32 | signature;
}
static inline bool coll_intra_reached(uint32_t epoch, uint32_t wanted)
{
	return (int32_t)(epoch - wanted) >= 0;
}

/* ahead.h: a table, and the slots behind the first few; the region's end. */
static inline size_t coll_intra_ahead_at(size_t payload_bytes)
{
	const size_t wide = coll_intra_wide_at(payload_bytes) + COLL_DEPTH * sizeof(struct intra_wide);

	return (wide + 4095) & ~(size_t)4095;
}

/* Whoever sleeps wakes up: after a release store. Only a compiler barrier: see struct coll_offer. */
static inline void coll_intra_nudge_one(const struct intra_peer *p)
{
	if (unlikely(p->fenced || __atomic_load_n(p->asleep, __ATOMIC_RELAXED)))
		p->transport->shared->nudge(p->link);
}
static inline void coll_intra_nudge(const struct coll_intra *n)
{
	atomic_signal_fence(memory_order_seq_cst);
	for (int r = 0; r < n->size; r++)
		if (r != n->rank)
			coll_intra_nudge_one(&n->peers[r]);
}

/* Every peer has entered epoch wanted; or AGAIN, and who has not. */
coll_status coll_intra_entered(struct coll_intra *n, uint32_t wanted, uint32_t *waits_for);

#endif
