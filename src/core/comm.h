/*
 * The communicator: an ordered stream of collectives among ranks.
 *
 * It owns its channels, plan cache, call memo, scratch memory, user operations and error state. One
 * thread at a time uses it. Exceptions are abort, and the record, which the service thread reads.
 */
#ifndef COLL_CORE_COMM_H
#define COLL_CORE_COMM_H

#include <assert.h>

#include "context/context.h"
#include "core/blocked_state.h"
#include "core/call.h"
#include "core/device_facts.h"
#include "core/inflight_state.h"
#include "core/pair_counts_state.h"
#include "core/rank_map.h"
#include "core/select_facts.h"
#include "core/waits.h"
#include "engine/engine.h"
#include "intra/intra.h"
#include "plan/cache.h"
#include "record/recorder.h"

/* Bits of comm->attention: reasons why a call cannot take the fast path, all in one load. PENDING:
 * there are asynchronous operations, which other threads may be driving. The communicator's thread
 * sets it, and the driver that completes the last operation clears it. ALARM: a gossip note has
 * arrived that this communicator has not read yet. MEMORY: this rank has a device, so each buffer is identified
 * first; set at creation and never cleared. */
enum { COLL_ATTENTION_PENDING = 1, COLL_ATTENTION_ALARM = 2, COLL_ATTENTION_MEMORY = 4 };

enum {
	COLL_OPS_MAX = 64,
	COLL_OP_FIRST = 64,
	COLL_MEMO_SLOTS = 64,
	COLL_WINDOWS_MAX = 8,
	COLL_LANES_P2P = 64,
	COLL_LANES_TAGS = 128,
	COLL_LANES_GRAPHS = 192, /* collectives of graphs, then their pairs */
	COLL_LANES_GRAPHS_P2P = 208,
	COLL_LANES_GROUP = 240
};
enum { COLL_CALL_RUNS = 32, COLL_SEEN = 2 };

/* A user operation or a premultiplied sum. */
struct coll_op_entry {
	bool used;
	bool commutative;
	coll_op code; /* COLL_OP_USER or COLL_OP_PREMUL_SUM */
	coll_user_fn fn;
	void *arg;
	double scale;
	coll_dtype type; /* of a premultiplied sum */
};

/* How calls of one shape run: computed once, then looked up. */
struct coll_memo {
	bool valid;
	uint8_t kind, record_kind, type, ordered, ragged, pairwise;
	coll_op op;
	uint32_t signature; /* not for ragged calls: theirs depends on the counts */
	int root;
	size_t count;
	size_t elem_bytes;
	const struct coll_plan *plan; /* pinned in the cache */
	size_t tile;
	uint32_t windows;
	size_t scratch_bytes;
	struct coll_reduction reduction;   /* of kinds that reduce; bound again for user operations */
	const struct coll_intra_op *intra; /* runs the call intranode; NULL: the plan runs it */
	uint8_t way;                       /* the way of the plan: record/way.h */
	bool fastpath;                     /* may have a fast path: see fastpath.c */
	/* The key of its entry in comm->fastpath[], NULL: none. Reuse of this memo for another call
	 * sets the key to 0. */
	uint64_t *fastpath_key;
};

/* A call that may take the fast path when it repeats: see fastpath.c. */
struct coll_fastpath;
typedef coll_status coll_fastpath_fn(struct coll_comm *comm, struct coll_fastpath *q, const void *in, void *out);
struct coll_fastpath {
	uint64_t key; /* kind, type and operation as passed; 0: no call */
	size_t count;
	int root;
	/* Accepted values of out - in, modulo the address space: alias, or gap .. gap + room. */
	uintptr_t alias, gap, room;
	coll_fastpath_fn *run;
	/* The value of comm->prepared_for while the published record describes this call and the
	 * signature has its salt. */
	const void *prepared_as;
	uint32_t signature; /* of its words */
	uint32_t bytes;     /* payload of a line */
	int simple;         /* inline reduction: see fastpath.c */
	uint64_t what;      /* `what` of its recorder entry */
	struct coll_memo *memo;
	struct coll_record record; /* without the sequence number */
	struct coll_job job;       /* without buffers and sequence number */
};
struct coll_group_barrier;
struct coll_direct;
enum { COLL_FASTPATH_ROOTS = 16, COLL_FASTPATH_PLACES = 24 };

/* Channels to one rank: [direction][lane][window], opened on first use. */
struct coll_channels {
	struct coll_endpoint *at[2][COLL_LANES_MAX][COLL_WINDOWS_MAX];
	struct coll_slot_policy slot_policy; /* of all send channels */
};

/* Memory from coll_mem_alloc(), or announced by coll_mem_register(). At most one transport has
 * allocated it. All others register it, each with a handle of its own. */
struct coll_allocation {
	struct coll_allocation *next;
	struct coll_memory mem;
	struct coll_opened_transport *opened; /* allocated it; NULL: plain memory */
	bool registered;                      /* by the user; else allocated */
	bool device;                          /* allocated by the context's device, and known to no transport */
	struct coll_device_region region;     /* so that other processes can map it; len_bytes 0: plain device memory */
	struct coll_memory handle[COLL_TRANSPORTS];
	bool has_handle[COLL_TRANSPORTS];
};

/* A fabric: the engine's view of the communicator. */
struct coll_comm_fabric {
	struct coll_comm *comm;
	struct coll_error_box *box; /* why a channel cannot be opened */
	uint16_t lane_base;         /* 0: collectives, COLL_LANES_P2P: pairs, COLL_LANES_TAGS: tagged messages */
	/* Slots of one lane that is unlike the others; count 0: there is none. */
	struct {
		uint32_t lane, count;
		size_t slot_bytes;
	} special;
	struct coll_channels **peers; /* by rank */
	struct coll_fabric fabric;
	struct coll_slot_policy_rule slot_policy;
	struct coll_nt nt;
};

/*
 * What core keeps of tagged messages (src/match/). A driver may receive them while the communicator's thread is in a
 * call, so they have a lock of their own, which is taken after the async lock and before any other. It guards the
 * fabric and all of src/match/.
 */
struct coll_tags;
struct coll_tagged {
	pthread_mutex_t lock;
	bool made;   /* the lock exists */
	bool closed; /* lock: the communicator has failed; the channels are closed */
	/* async lock: the communicator is being destroyed: no receive is posted any more; nothing moves any more */
	bool leaving, ended;
	struct coll_tag_fabric {
		struct coll_comm_fabric fabric;
		struct coll_error_box box;
	} * own;                /* lock; NULL: nobody has used tags */
	struct coll_tags *tags; /* lock; NULL: nobody has used tags. It stays until the communicator is freed */
	atomic_bool listed;     /* drivers move it: written under the async lock */
	/* By rank, 1: it wants to send. Service thread, relaxed; then woken, with release. */
	_Atomic uint8_t *wakes;
	atomic_bool woken;
};

struct coll_comm {
	struct coll_context *ctx;
	uint64_t id;
	uint32_t epoch;
	int rank, size;
	uint32_t slots; /* agreed, as what is below */
	struct coll_rank_map rank_map;
	struct coll_layout *layout;         /* NULL: nothing tells the ranks apart, or COLL_LAYOUT=flat */
	struct coll_layout *chain;          /* of hosts of one rank: see facts.chain */
	struct coll_rails *rails;           /* NULL: one host, or no transport between hosts */
	struct coll_host_rates *host_rates; /* NULL: the same */
	/* Time limits for waits on peers: see coll_comm_set_timeout(). Others while closing. Guarded as
	 * the watchdog, which reads them. */
	int timeout_ms, arrival_timeout_ms;

	/* Agreed facts. */
	size_t slot_bytes;
	struct coll_select_facts facts;
	size_t intra_bytes; /* longest message that runs intranode; 0: none does */

	struct coll_comm_fabric collective;
	struct coll_comm_fabric pairs;
	struct coll_tagged tagged;
	struct coll_run *run;
	struct coll_run *pair_run[2]; /* send, receive */
	uint64_t sequence;
	/* Salts of signatures. A call that a rank may end without data from all other ranks salts
	 * the signatures of later calls: see coll_begin_salt(). now: the current salt; next: the
	 * salt from the next different call on; last: signature of the last call. */
	struct coll_salt {
		uint32_t now, next, last;
		bool by_plan; /* see call/begin.c */
	} salt;
	_Atomic uint64_t *pair_sequence[2]; /* by rank: sends, receives begun; see coll_pair_number() */
	struct coll_plan_cache *plans;
	const struct coll_opened_transport *intra_transport;
	bool intra_forming;       /* its region counts: see select/intra.c */
	bool told_failure;        /* of its failure by another rank, which logs it at level error */
	uint8_t all_by;           /* where its calls are counted: see comm/stats.c */
	struct coll_intra *intra; /* NULL: nothing runs intranode */
	struct coll_memo memo[COLL_MEMO_SLOTS];
	uint8_t memo_newer[COLL_MEMO_SLOTS / 2]; /* the place of each pair that was used last */
	/* What run and record were last prepared for, so that it can start again: the address of a
	 * memo, a fast-path entry or a persistent operation. NULL: part of it has changed since.
	 * Only compared, never followed. */
	const void *prepared_for;
	struct coll_memo *prepared_memo; /* the last memo among them; valid while prepared_for is its address */
	struct coll_fastpath fastpath[COLL_FASTPATH_PLACES];
	struct coll_record call;   /* the current or last collective call */
	struct coll_op_entry *ops; /* COLL_OPS_MAX; NULL: none was created */
	struct coll_allocation *allocations;
	char *scratch;
	size_t scratch_bytes;
	uint32_t mark;                 /* of its process: see base/fork.h */
	atomic_uint attention;         /* COLL_ATTENTION_* */
	struct coll_inflight inflight; /* see async.h */
	bool closing;                  /* in the barrier of destroy: earlier ranks report failures to the others */
	bool from_gossip;              /* a gossip note reported its failure: a death, or an error of another rank */
	/* Abort by this rank, from any thread. The first thread claims it, writes the text, then
	 * sets aborted (release). Readers load aborted (acquire) before they read the text. */
	atomic_bool abort_claimed;
	atomic_bool aborted;
	atomic_int exit_status;             /* of an abort, here or elsewhere; 0: none */
	_Atomic(struct coll_label *) label; /* core/label.h; NULL: it was never given a name */
	char abort_text[256];
	enum coll_isa isa;
	unsigned alarm_seen; /* the last alarm value that was handled */
	/* The ranks that are late, by watch/late.c. ranks: memory for all, or NULL: then it is `one`. */
	struct coll_late {
		uint64_t wait_ns, begun_ns, turn_ns; /* since_ns of the wait; of the search; of its turn */
		int next, count, one;
		int *ranks;
	} late;
	uint64_t death_ns; /* time when a member's death was first seen that has not settled, 0: there is none */
	/* Sticky. failed: collectives have ended; ended: messages and groups have, too. Members die without ended. */
	coll_status failed, ended;
	_Atomic(struct coll_dead_members *) dead; /* core/dead.h; NULL: all live, or the first death has ended it */
	struct coll_error_box box;
	/* What coll_last_error() returns. lost: the failure of the communicator, written once,
	 * before its thread sees `failed`. refused: the last refused call. */
	struct coll_kept_error {
		coll_error error;
		char message[1024];
	} lost, refused;
	struct coll_error_box refusal;
	int *refused_late; /* the late ranks of `refused`, if it is of a group; NULL: never needed */
	struct coll_record_box record;
	/* For each run of equal collective calls, the record of the first. A rank that asks what
	 * this rank called, while this rank is calls ahead, gets its answer from here. Written when
	 * a different call begins. */
	struct coll_record_box call_run[COLL_CALL_RUNS];
	atomic_uint call_runs; /* runs begun so far */
	/* The number of a collective that has begun, at least that of the last one submitted. The
	 * record may show an older one. Release, after its call run. */
	_Atomic uint64_t handed_in;
	struct coll_pair_counts pair_counts;
	struct coll_blocked_box blocked;
	struct coll_recorder recorder;
	struct coll_waits *waits; /* core/waits.h; NULL: no memory */
	/* How often each set of members and tag was made a group of this communicator: see comm/group.c. */
	struct coll_group_counts {
		struct coll_group_count {
			uint64_t key; /* 0: free */
			uint64_t made;
		} * at;
		size_t room, used; /* room: a power of two */
	} groups;
	/* On a rank with a device: the buffers identified last, for the call that is being made. */
	struct coll_seen {
		const void *ptr;
		int kind;
		uintptr_t base; /* of the allocation, as the driver describes it */
		size_t len_bytes;
		uint64_t id;
	} seen[COLL_SEEN];
	struct coll_stage *stage; /* NULL: the context has no device; see devcall/stage.h */
	/* Calls that are captured into graphs, see devcall/capture.h. NULL: there was none. Their collectives and
	 * their pairs have channels and numbers of their own. */
	struct coll_capture *capture;
	struct coll_comm_fabric *captured; /* of collectives, of pairs; NULL: there was no capture */
	struct coll_device_facts *direct;  /* direct calls; NULL: nothing was tried; see devcall/mapped_region.h */
	/* Of a group of more than one rank: what runs its first call and its last, else NULL; see comm/group_barrier.c.
	 */
	struct coll_group_barrier *group_barrier;
	uint64_t parent; /* in the first call of a group: the id of its parent, whose failure ends the call; else 0 */
	const struct coll_intra_op *group_op;
	/* State for destroy, allocated at creation so that destroy needs no memory: see closing.c. */
	struct coll_closing *end;

	struct coll_comm *next; /* in ctx->comms */
};

/* What only captures, tags or operations of the user need is made at their first use. */
static_assert(sizeof(struct coll_comm) <= 32 * 1024, "a program may have thousands");

/* Maps a rank to its process, and a process to its rank (-1: not a member). */
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

/* The name of a rank in messages: "rank 2", or "rank 2 (rank 5 of the job)". */
struct coll_rank_name {
	char text[48];
};

/* ---- fastpath.c ---- */

static inline uint64_t coll_fastpath_key(enum coll_kind kind, coll_dtype type, coll_op op)
{
	return (uint64_t)(kind + 1) << 56 ^ (uint64_t)(uint32_t)type << 32 ^ (uint32_t)op;
}
/* The place of the last call of a kind. Broadcasts have one place per root. */
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

/* A message to dest and one from source; -1: there is no such half. */
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

/* Take the number of the next message of a half with peer. Only the thread that calls the
 * communicator writes it; any thread may read it. */
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
