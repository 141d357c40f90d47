/*
 * The communicator: an ordered stream of collectives among ranks. Owns its
 * channels, plan cache, call memo, scratch memory, user operations and error
 * state. One thread at a time uses it, except for abort and for the record that
 * the service thread reads.
 */
#ifndef COLL_CORE_COMM_H
#define COLL_CORE_COMM_H

#include "context/context.h"
#include "core/rank_map.h"
#include "engine/engine.h"
#include "intra/intra.h"
#include "plan/cache.h"
#include "progress/inflight.h"
#include "record/recorder.h"
#include "select/select.h"
#include "watch/deadlock.h"
#include "watch/pair_counts.h"

/* Conditions that keep a call off the fast path: bits of comm->attention, which costs a call
 * one load. PENDING: asynchronous operations exist, and other threads may be driving them
 * (set by the communicator's thread, cleared by the thread that completes the last one).
 * ALARM: the control plane has a note that this communicator has not examined yet. */
enum { COLL_ATTENTION_PENDING = 1, COLL_ATTENTION_ALARM = 2 };

enum { COLL_OPS_MAX = 64, COLL_OP_FIRST = 64, COLL_MEMO_SLOTS = 64, COLL_WINDOWS_MAX = 8, COLL_LANES_P2P = 64 };
enum { COLL_CALL_RUNS = 32 };

/* A user operation or premultiplied sum. */
struct coll_op_entry {
	bool used;
	bool commutative;
	coll_op code; /* COLL_OP_USER or COLL_OP_PREMUL_SUM */
	coll_user_fn fn;
	void *arg;
	double scale;
	coll_dtype type; /* premultiplied sums */
};

/* How one shape of call is run: found once, then looked up. */
struct coll_memo {
	bool valid;
	uint8_t kind, record_kind, type, ordered, ragged, pairwise;
	coll_op op;
	uint32_t signature; /* not of ragged calls: theirs depends on the counts */
	int root;
	size_t count;
	size_t elem_bytes;
	const struct coll_plan *plan; /* pinned in the cache */
	size_t tile;
	uint32_t windows;
	size_t scratch_bytes;
	struct coll_reduction reduction;   /* kinds that reduce; bound anew for user operations */
	const struct coll_intra_op *intra; /* it is run intranode; NULL: by the plan */
	uint8_t way;                       /* of the plan: record/way.h */
	bool fastpath;                     /* the shortest way may be open to it: see fastpath.c */
};

/* A call that may take the shortest way when it is made again: fastpath.c. */
struct coll_fastpath;
typedef coll_status coll_fastpath_fn(struct coll_comm *comm, struct coll_fastpath *q, const void *in, void *out);
struct coll_fastpath {
	uint64_t key; /* kind, type and operation, as they were passed; 0: no call */
	size_t count;
	int root;
	/* out - in of two buffers that may be passed: alias, or gap .. gap + room, modulo the
	 * size of memory. */
	uintptr_t alias, gap, room;
	coll_fastpath_fn *run;
	/* What comm->prepared is while the record that others see is one of this call, and the
	 * signature has its salt. */
	const struct coll_memo *as;
	uint32_t signature; /* of its words */
	uint32_t bytes;     /* of a line */
	int simple;         /* how it is reduced: fastpath.c */
	uint64_t what;      /* for the recorder */
	struct coll_memo *memo;
	struct coll_record record; /* but for its number */
	struct coll_job job;       /* but for buffers and number */
	struct coll_memo mark;     /* of this address: see as */
};
enum { COLL_FASTPATH_ROOTS = 16, COLL_FASTPATH_PLACES = 24 };

/* Channels to one rank: [direction][lane][window], opened on first use. */
struct coll_channels {
	struct coll_endpoint *at[2][COLL_LANES_MAX][COLL_WINDOWS_MAX];
	struct coll_slot_policy slot_policy; /* of all that are sent on */
};

/* Memory handed out by coll_mem_alloc or announced by coll_mem_register. One transport may
 * have made it; all others know of it, each by a handle of its own. */
struct coll_allocation {
	struct coll_allocation *next;
	struct coll_memory mem;
	struct coll_opened_transport *opened; /* made it; NULL: plain memory */
	bool registered;                      /* else allocated */
	struct coll_memory known[COLL_TRANSPORTS_MAX];
	bool knows[COLL_TRANSPORTS_MAX];
};

/* A fabric: the communicator seen from the engine. */
struct coll_comm_fabric {
	struct coll_comm *comm;
	uint16_t lane_base;           /* 0 collectives, COLL_LANES_P2P pairs */
	struct coll_channels **peers; /* by rank */
	struct coll_fabric fabric;
	struct coll_slot_policy_rule slot_policy;
	struct coll_nt nt;
};

struct coll_comm {
	struct coll_context *ctx;
	uint64_t id;
	uint32_t epoch;
	int rank, size;
	struct coll_rank_map rank_map;
	/* Wait limit with peers: the settings', but while closing. */
	int timeout_ms, arrival_timeout_ms;

	/* Agreed facts. */
	size_t slot_bytes;
	uint32_t slots;
	struct coll_select_facts facts;
	size_t intra_bytes; /* the longest message run intranode; 0: none is */

	struct coll_comm_fabric collective;
	struct coll_comm_fabric pairs;
	struct coll_run *run;
	struct coll_run *pair_run[2]; /* send, receive */
	uint64_t sequence;
	/* Of the calls so far that say nothing about themselves to everyone: see loose() in
	 * blocking.c. Salts of the signatures now and from the next different call on, and the
	 * last call's signature. */
	struct coll_salt {
		uint32_t now, next, last;
		bool by_plan; /* see coll_call_by_plan() */
	} salt;
	_Atomic uint64_t *pair_sequence[2]; /* by rank: sends, receives begun; see coll_pair_number() */
	struct coll_plan_cache *plans;
	const struct coll_opened_transport *intra_transport;
	struct coll_intra *intra; /* NULL: nothing is run intranode */
	struct coll_memo memo[COLL_MEMO_SLOTS];
	uint8_t memo_newer[COLL_MEMO_SLOTS / 2]; /* of two places, which was asked for last */
	/* What run and the record were last started for, to start it again; NULL when any
	 * of it has changed since. */
	struct coll_memo *prepared;
	struct coll_fastpath fastpath[COLL_FASTPATH_PLACES];
	struct coll_record call; /* the collective call that runs or ran last */
	struct coll_op_entry ops[COLL_OPS_MAX];
	struct coll_allocation *allocations;
	char *scratch;
	size_t scratch_bytes;
	enum coll_isa isa;

	atomic_uint attention;         /* COLL_ATTENTION_* */
	struct coll_inflight inflight; /* see async.h */
	bool closing; /* in the barrier of destroy: the ranks that fail first report the failure to the others */
	bool told;    /* its failure came in a note: a death, or the failure of another rank */
	/* Abort by this rank, from any thread: the first claims, writes the text,
	 * then sets aborted (release); readers acquire it before the text. */
	atomic_bool abort_claimed;
	atomic_bool aborted;
	char abort_text[256];
	unsigned alarm_seen; /* last alarm value looked into */
	uint64_t death_ns;   /* when a member's death was first seen, 0: none */
	struct coll_lived death_age;
	bool caught_up;     /* and what the control links had brought by then was read */
	coll_status failed; /* sticky */
	struct coll_error_box box;
	/* What coll_last_error() returns: of the communicator's failure, written once, before
	 * `failed` is seen by its thread; else of the last refused call. */
	struct coll_told {
		coll_error error;
		char message[1024];
	} lost, refused;
	struct coll_error_box refusal;
	struct coll_record_box record;
	/* Collective calls in a row that are the same, the first of each: for a rank that asks
	 * what this one called when it is calls ahead. Written when a different call begins. */
	struct coll_record_box call_run[COLL_CALL_RUNS];
	atomic_uint call_runs; /* begun so far */
	/* Number of a collective that has begun, of the last one handed in at least: the record may
	 * show an older one. Release, after its call run. */
	_Atomic uint64_t handed_in;
	struct coll_pair_counts pair_counts;
	struct coll_blocked_box blocked;
	struct coll_recorder recorder;
	struct coll_closing *end; /* what destroy needs, so that an end asks for no memory; see closing.c */

	struct coll_comm *next; /* in ctx->comms */
};

/* The process a rank is; the rank a process is, -1 for no member. */
static inline int coll_comm_process(const struct coll_comm *comm, int rank)
{
	return coll_rank_map_process(&comm->rank_map, rank);
}
static inline int coll_comm_rank_of(const struct coll_comm *comm, int process)
{
	return coll_rank_map_rank(&comm->rank_map, process);
}
static inline const struct coll_peer_info *coll_comm_peer_info(const struct coll_comm *comm, int rank)
{
	return &comm->ctx->peer_infos[coll_comm_process(comm, rank)];
}

/* ---- wait.c ---- */

struct coll_wait; /* watchdog.h */

/* ---- error.c ---- */

/* How messages call a rank: "rank 2", or "rank 2 (rank 5 of the job)". */
struct coll_rank_name {
	char text[48];
};

/* ---- blocking.c ---- */

/* One collective call after the argument checks of api/. */
struct coll_call {
	enum coll_kind kind;
	uint8_t record_kind; /* enum coll_record_kind: what the call is to the user; 0: kind says it */
	const void *in;
	void *out;
	size_t count; /* vector length, or block length of uniform block kinds */
	coll_dtype type;
	coll_op op; /* reducing kinds */
	int root;
	const size_t *in_counts, *in_offsets; /* v-variants, NULL: uniform */
	const size_t *out_counts, *out_offsets;
	bool ragged;                /* lengths known to all ranks */
	bool pairwise;              /* lengths known to the two ends only */
	struct coll_stream *stream; /* NULL: blocking */
};

/* ---- fastpath.c ---- */

static inline uint64_t coll_fastpath_key(enum coll_kind kind, coll_dtype type, coll_op op)
{
	return (uint64_t)(kind + 1) << 56 ^ (uint64_t)(uint32_t)type << 32 ^ (uint32_t)op;
}
/* The place of the last call of a kind, or with a root. */
static inline int coll_fastpath_place(enum coll_kind kind, int root)
{
	switch (kind) {
	case COLL_KIND_ALL_REDUCE: return 0;
	case COLL_KIND_BARRIER: return 1;
	case COLL_KIND_ALL_GATHER: return 2;
	case COLL_KIND_REDUCE_SCATTER: return 3;
	case COLL_KIND_ALL_TO_ALL: return 4;
	case COLL_KIND_BROADCAST:
		return COLL_FASTPATH_PLACES - COLL_FASTPATH_ROOTS + (root & (COLL_FASTPATH_ROOTS - 1));
	default: return 5;
	}
}

/* ---- pair.c ---- */

/* A message to dest and one from source; -1: that half is left out. */
struct coll_pair {
	const void *send;
	size_t send_count;
	int dest;
	void *recv;
	size_t recv_count;
	int source;
	coll_dtype type;
	struct coll_stream *stream; /* NULL: blocking */
};

/* The number of the next message to or from peer. Written by the thread that makes the calls of the
 * communicator, read by any thread. */
static inline uint64_t coll_pair_number(struct coll_comm *comm, int half, int peer)
{
	_Atomic uint64_t *at = &comm->pair_sequence[half][peer];
	const uint64_t number = atomic_load_explicit(at, memory_order_relaxed) + 1;

	atomic_store_explicit(at, number, memory_order_relaxed);
	return number;
}
static inline int coll_pair_peer(const struct coll_pair *pair, int half)
{
	return half ? pair->source : pair->dest;
}
static inline bool coll_pair_self(const struct coll_comm *comm, const struct coll_pair *pair)
{
	return pair->dest == comm->rank && pair->source == comm->rank;
}

#endif
