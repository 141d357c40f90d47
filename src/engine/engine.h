/*
 * The engine: runs any plan over any mix of transports.
 *
 * An operation (coll_run) is a resumable state machine: start binds it, poll
 * advances it as far as it can go without waiting. It is independent of communicators:
 * channels come from a fabric (a table of one function), so that the library, the
 * tests and the seeded scheduler drive the same code. poll never allocates, locks
 * or makes a system call of its own.
 */
#ifndef COLL_ENGINE_ENGINE_H
#define COLL_ENGINE_ENGINE_H

#include "engine/nt_policy.h"
#include "engine/slot_policy.h"
#include "engine/stage.h"
#include "plan/plan.h"
#include "reduce/reduce.h"
#include "transport/transport.h"

/* One channel as the engine uses it. */
struct coll_endpoint {
	const struct coll_transport *transport; /* complete: no NULL member */
	void *channel;
	/* How slots to this peer are filled; NULL: through the caches. */
	struct coll_slot_policy *slot_policy;
};

/* Where channels come from. */
struct coll_fabric {
	void *arg;
	/* The channel to or from a rank, opened on first use. AGAIN: the link is still
	 * connecting (the run stays where it is). The result stays valid for the life
	 * of the fabric. May allocate on first use only. */
	coll_status (*channel)(void *arg, int peer, uint32_t lane, uint32_t window, enum coll_direction dir,
	                       struct coll_endpoint **endpoint);
	size_t slot_bytes; /* of every channel: agreed */
	/* Frames at least this long are offered to the transport by reference (it may
	 * refuse); 0: the engine's choice. Local: the wire does not depend on it. */
	size_t ref_bytes;
	/* Frames move in progress() only: coll_run_awaits_progress() is always true. */
	bool streamed;
	/* Frames that are reduced are taken as they come in, where the transport can: recv_through. */
	bool through;
	/* Whether results are stored past the caches; NULL: they never are. Local. */
	struct coll_nt *nt;
};

/* Where the chunks of a buffer are. Vector kinds: length elements in all. Block
 * kinds: block b has counts[b] elements at offsets[b] (uniform: count each,
 * packed). base is the address of block 0 of a whole buffer; for buffers that
 * hold one block only (all_gather's in ...), single is true and base is the
 * address of that block whichever id it is asked by. */
struct coll_extent {
	char *base;
	bool single;
	size_t stride;         /* not 0: block b lies b * stride elements behind base, whatever the two below say */
	size_t count;          /* vector length, or uniform block length */
	const size_t *counts;  /* NULL: uniform */
	const size_t *offsets; /* NULL: packed */
	/* The memory base lies in: its kind, and what its transport knows of it. Equal for all calls for which one
	 * run is started again. NULL: host, nothing is known (tests). */
	const struct coll_memory *mem;
};

/* What a run keeps for an intranode operation; all zero at its start. */
struct coll_intra_state {
	uint32_t phase;
	uint32_t epoch;
	uint32_t done, next; /* pieces of work: done, begun */
	uint32_t taken;      /* of those: what has come back */
	uint32_t pending;    /* ranks without a sign of arrival, or the one waited for */
	uint32_t events;     /* steps made: who waits sees whether anything has moved */
	uint32_t idle;       /* polls that found nothing, since the last movement */
	uint32_t cell;
	uint32_t pieces; /* how it is cut */
	size_t piece;
	uint8_t way; /* what does the work (record/way.h): set by whatever does it, when it is known */
	bool asked;  /* coll_intra_op.passes */
	/* Handed on from an operation to what is tried instead of it. */
	bool committed; /* the plan will not be run in its place */
	bool entered;   /* all ranks enter epoch `epoch`, and the call is written there */
	bool trial;     /* the call is timed, or goes the way that was found quickest: cma.c */
	struct coll_frame bad_frame;
};

struct coll_job;
struct coll_run_where;

/*
 * An intranode operation, in place of the plan: over memory of its own, not over the
 * fabric's channels. intranode operations come one behind another: each begins when the
 * one before it, whatever that is, has retired on this rank.
 */
struct coll_intra_op {
	/* As coll_run_poll(). UNSUPPORTED: all ranks of the call say so, and what is `instead` is run; the plan, if
	 * it is not committed. */
	coll_status (*poll)(void *arg, const struct coll_job *job, struct coll_intra_state *state);
	void (*where)(void *arg, const struct coll_job *job, const struct coll_intra_state *state,
	              struct coll_run_where *where);
	void *arg;
	/* NULL, or: whether the plan is to be run at once, without waiting for what comes before. Asked
	 * once, in the order of calls, when all run intranode before it are known to be made so, or
	 * by their plans. */
	bool (*passes)(void *arg, const struct coll_job *job);
	/* What is tried where this is not to be: NULL, or it says NULL: the plan. Agreed: of the job's kind and bytes.
	 */
	const struct coll_intra_op *(*instead)(const struct coll_intra_op *op, const struct coll_job *job);
	uint8_t way; /* its name, in records: record/way.h */
	/* Not while a frame that nobody expects may be on the channels of the plan, which would find it: then the plan
	 * is run. */
	bool matched;
};

/* One collective call, bound to a plan. */
struct coll_job {
	/* NULL: `intra` alone can make the call; without that, too, it moves nothing. */
	const struct coll_plan *plan;
	const struct coll_intra_op *intra; /* NULL: the plan is run */
	struct coll_extent in;
	struct coll_extent out;
	size_t elem_bytes;
	const struct coll_reduction *reduction; /* NULL for kinds that do not reduce */
	size_t tile;      /* elements per tile (vector) or per strip of a block: agreed, see coll_run_tile() */
	uint32_t windows; /* W: tiles in flight, agreed */
	int root;
	char *scratch; /* coll_run_scratch_bytes() bytes, 64-byte aligned */
	uint64_t sequence;
	uint32_t signature;
	uint8_t way;  /* what the plan is called: record/way.h */
	uint8_t kind; /* enum coll_kind */
	bool signal;  /* barrier: in[0] is the same byte on all ranks, and received frames must hold it */
	/* Block lengths are known to the two ends of a frame only: its signature covers the
	 * length of its block as its sender and its receiver know it. */
	bool pairwise;
	/* Some buffers are device memory: see stage.h. NULL: none. It lives as long as the run uses it. */
	const struct coll_run_stage *stage;
	/* The operation before this one on the same fabric, or NULL when it has retired: see
	 * coll_run_follow(). */
	const struct coll_run *after;
};

struct coll_run; /* opaque; reusable */

/* The rank and step that the run waits for, for diagnosis: the first unfinished step of
 * the first unfinished lane. peer -1 when it waits for no rank. */
struct coll_run_where {
	int peer;
	bool sends;    /* it waits for the peer to take something */
	uint32_t step; /* index into plan->steps */
	uint32_t lane;
	size_t tile;
	size_t tiles;
	/* It waits for the operation before it to leave a lane; all the rest is about that one. */
	bool behind;
	/* With COLL_ERR_MISMATCH or COLL_ERR_CORRUPT: the frame, or what stands for one, that did not fit. */
	struct coll_frame frame;
};

/* Counters since creation, for tests and reports. */
struct coll_run_stats {
	uint64_t steps;
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t bytes_sent;
	uint64_t bytes_copied; /* into slots, out of views, between buffers */
	uint64_t bytes_reduced;
	uint64_t pushed;         /* frames filled where their receiver wanted them */
	uint64_t by_reference;   /* frames sent by post_ref or received by recv_into or recv_through */
	uint64_t bytes_streamed; /* of those sent: stored past the caches */
};

/* The ragged division, defined only here: chunk c of n over count elements.
 * The first count % n chunks are one element longer. */
static inline void coll_cut(size_t count, uint32_t n, uint32_t c, size_t *first, size_t *len)
{
	size_t q = count / n, r = count % n;

	*first = c * q + (c < r ? c : r);
	*len = q + (c < r);
}

#endif
