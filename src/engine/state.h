/*
 * What a run remembers between polls; private to src/engine.
 *
 * A run holds W instances; instance t mod W runs tile t. An instance has its own
 * lane positions, its own slice of the scratch memory and its own channels
 * (ports). Invariants:
 *
 *  - A lane's steps before `head` have started, those from `head` on have not;
 *    of the started ones exactly those in the lane's list of flights have not
 *    retired. So the retired prefix is the step of the oldest flight, or head.
 *  - port->parked counts the flights of this channel that have no slot yet; as
 *    long as it is not 0, nothing else is sent on the channel.
 *  - Everything is sized in coll_run_start(); nothing here grows in a poll.
 */
#ifndef COLL_ENGINE_STATE_H
#define COLL_ENGINE_STATE_H

#include "engine/engine.h"
#include "engine/run.h"

/*
 * Planted defects. A test compiles this directory once more with
 * COLL_ENGINE_MUTANT defined as a variable and shows that the seeded scheduler
 * finds every one of them; in the library the condition is the constant false.
 */
enum coll_engine_mutant {
	MUTANT_NONE,
	MUTANT_IGNORE_WAITS,
	MUTANT_RETIRE_REF_EARLY,    /* a SEND by reference retires when it is posted */
	MUTANT_SHARE_SCRATCH,       /* all windows use one slice */
	MUTANT_NEXT_TILE_EARLY,     /* tile t+W starts while SENDs of tile t are under way */
	MUTANT_OVERTAKE_PARKED,     /* a later SEND may pass one that waits for a slot */
	MUTANT_FUSED_OVERTAKES,     /* a fused step may pass a parked SEND */
	MUTANT_DONE_BEFORE_REDUCE,  /* the slot goes back before it was read */
	MUTANT_DONE_BEFORE_SLOT,    /* a fused step gives its view back, then waits for a slot */
	MUTANT_SKIP_SIGNATURE,      /* frames are not compared with the call */
	MUTANT_CUT_DROPS_REMAINDER, /* count % chunks elements are forgotten */
	MUTANT_COUNT_STARTED,       /* WAIT counts started steps, not the retired prefix */
	MUTANT_ONE_CHANNEL,         /* all windows use the channels of window 0 */
	MUTANT_DROP_PARKED,         /* a SEND that finds no slot counts as sent */
	MUTANT_SWAP_OPERANDS,       /* the incoming operand is always the right one */
	MUTANT_RECV_INTO_EARLY,     /* a RECV retires when its destination is announced */
	MUTANT_EMPTY_FRAMES,        /* a step of no bytes sends a frame */
	MUTANT_FORWARD_UNREDUCED,   /* a fused step forwards what came in */
	MUTANT_IGNORE_AFTER,        /* an operation begins whatever the one before does */
	MUTANT_LEAVE_PARKED,        /* a lane is left while SENDs of it have no slot */
	MUTANT_LEAVE_FIRST_TILE,    /* a lane is left although further tiles of its window come */
	MUTANT_LEAVE_UNCHAINED,     /* only the operation right before is looked at */
	MUTANT_LEAVE_LAST_STEP,     /* a lane is left when its last step is tried, not when it has started */
	MUTANT_RETIRE_UNORDERED,    /* an operation retires before the one it follows */
	MUTANT_LAND_IN_PLACE,       /* what is received comes where the result will be, on the input */
	MUTANT_LAND_ON_OPERAND,     /* what is taken comes where the other operand lies */
	MUTANT_FAILURES,            /* from here on: what only failures show */
	MUTANT_POST_BEFORE_DONE = MUTANT_FAILURES, /* what was derived from a view is sent before done() */
	MUTANT_DONE_UNCHECKED,      /* done() may report that the view was revoked; the result is ignored */
	MUTANT_LOST_IS_RECEIVED,    /* an announced destination that was given up counts as filled */
	MUTANT_DEAD_IS_DONE,        /* a step that finds its peer dead counts as retired */
	MUTANT_FORGET_FAILED_AFTER, /* the failure of the operation before is not passed on */
	MUTANT_CANCEL_KEEPS,        /* a cancelled run keeps its channels */
	MUTANT_COUNT
};
#ifdef COLL_ENGINE_MUTANT
extern int COLL_ENGINE_MUTANT;
#define mutant(which)   (COLL_ENGINE_MUTANT == (which))
#define MUTANTS_PLANTED true
#else
#define mutant(which)   false
#define MUTANTS_PLANTED false
#endif

/* One direction of one channel, as the steps of one lane and window use it. */
struct port {
	const struct coll_transport *transport;
	void *channel;                        /* NULL: not asked for yet */
	struct coll_slot_policy *slot_policy; /* or NULL */
	uint32_t parked;
	uint32_t stuck; /* the scan in which this channel had no slot */
};

/* A SEND that has started and not retired. */
struct flight {
	struct flight *next;
	const struct coll_step *step;
	struct port *port;
	bool parked;                       /* has no slot yet */
	bool loaned;                       /* by reference */
	struct coll_completion completion; /* otherwise: loaned by reference until not pending */
};

/* A RECV_REDUCE whose frame is taken piece by piece, perhaps by another thread: all that it reads. */
struct taking {
	const struct coll_run *run;
	const struct coll_step *step;
	const struct coll_plan_weight *weight;
	char *dst;
	const char *src;
	struct coll_taker taker;
};

struct lane {
	const struct coll_step *head;
	const struct coll_step *end;
	const struct coll_step *first;
	struct port *ports;     /* of this window: [peer index * 2 + direction] */
	struct flight *flights; /* oldest first */
	struct flight **tail;
	bool armed;      /* the head's destination is announced: see completion word */
	bool lacks_slot; /* the head has its frame and waits for a slot */
	bool inviting;   /* its first steps are ahead: destinations may be offered */
	struct coll_completion completion;
	struct taking taking; /* while armed */
};

struct instance {
	size_t tile;
	size_t first; /* vector kinds: the tile's first element; block kinds: the strip's, in each block */
	size_t len;   /* vector kinds: elements of the tile; block kinds: longest strip */
	size_t q, r;  /* vector kinds: the cut of len, see coll_cut() */
	char *at[2];  /* in, out: their base, moved by `first` elements */
	char *scratch;
	uint32_t window;
	uint32_t nflights;
	bool active;
	struct lane lanes[COLL_LANES_MAX];
};

struct coll_run {
	coll_status status; /* AGAIN while it runs */
	struct coll_job job;
	const struct coll_fabric *fabric;
	size_t slot_bytes;
	size_t ref_bytes; /* frames at least this long are offered by reference */
	bool stream;      /* the result goes past the caches */
	bool through;     /* frames to reduce are taken as they come in */
	bool mirrors;     /* scratch holds nothing but copies of `in`, to be sent */
	bool aside;       /* and this call needs none: what is sent lies in `in` */
	bool lands;       /* scratch holds nothing but the one operand that is received */
	bool landing;     /* and this call needs none: it comes where the result will be */
	bool block;       /* block kind */
	bool couple;      /* an all_reduce of two ranks */
	bool whole;       /* vector kind of one chunk: every run is the whole tile */
	bool prescale;    /* PRE means work: the operation scales its inputs */
	bool mean;        /* the operation weighs its operands: see coll_plan_weight */
	bool in_place;
	bool held;       /* poll looks at the two below first */
	bool invites;    /* some destinations may be written by peers: then held, too */
	bool opening;    /* some channels to receive on are not open yet */
	bool intranode;  /* at_work is, not the plan */
	size_t elements; /* that the tiles cover: of the vector, or of the longest block */
	size_t tiles;
	size_t left;          /* tiles not retired */
	uint32_t windows;     /* instances in use */
	uint64_t events;      /* steps started and retired */
	uint32_t completions; /* out: flights by reference, announced destinations */
	uint32_t scan;        /* number of the current scan for parked SENDs */

	/* The operation before, as long as it is not known to have retired. Its run may have
	 * been started again since: then the sequence number is another. */
	const struct coll_run *after;
	uint64_t after_sequence;

	/* Block kinds: what scratch holds, and offsets computed from counts. */
	const size_t *layout_counts;
	size_t layout_count;
	size_t *in_offsets, *out_offsets;
	size_t in_offsets_cap, out_offsets_cap;

	/* The cut of the tile length seen last. */
	size_t cut_len, cut_q, cut_r;
	uint32_t cut_chunks;

	/* What the ports are for; valid while bound_fabric is not NULL. */
	const struct coll_fabric *bound_fabric;
	uint32_t bound_peers;
	uint32_t bound_lanes;
	uint32_t bound_windows;
	size_t unopened; /* ports to receive on that were never opened */
	int *peers;
	size_t peers_cap;
	struct port *ports;
	size_t ports_cap;

	struct instance *instances;
	size_t instances_cap;
	struct flight *flights;
	size_t flights_cap;
	struct flight *free_flights;
	size_t *scratch_at; /* offset of scratch buffer k in a slice */
	size_t scratch_at_cap;

	const struct coll_intra_op *at_work; /* job.intra, or what is tried instead of it */
	struct coll_intra_state intra;

	struct coll_frame bad_frame;
	struct instance *bad_instance;
	struct lane *bad_lane;
	struct coll_run_stats stats;
};

/* Start the head step of a lane: OK when it has retired or (SEND) started. By the
 * step's op; plans hold no others (the verifier and the parser see to that). */
typedef coll_status coll_step_fn(struct coll_run *run, struct instance *inst, struct lane *lane,
                                 const struct coll_step *s);
extern coll_step_fn *const coll_run_steps[COLL_STEP_OP_COUNT];
coll_step_fn coll_run_send, coll_run_recv, coll_run_recv_reduce, coll_run_recv_copy_send, coll_run_recv_reduce_send,
        coll_run_recv_reduce_copy_send;

#endif
