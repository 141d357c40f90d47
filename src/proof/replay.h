/*
 * Replay: runs the plans of all ranks together as the engine would, counting
 * frames and slots but moving no bytes.
 *
 * The model is the worst case of the rules that plan.h states: a SEND retires
 * only when its frame is consumed (by reference; by value is earlier, and earlier
 * never hurts), a fused step keeps the slot of its incoming frame while it needs
 * one for the outgoing frame, W tile instances run at a time, and each lane of each
 * window enters the next operation as soon as it has left the one before, whatever
 * the other lanes do. Such a system is monotonic: if one run ends, every run ends, so
 * one run is a proof. That channels carry the operations in order is checked as it
 * runs.
 */
#ifndef COLL_PROOF_REPLAY_H
#define COLL_PROOF_REPLAY_H

#include "plan/plan.h"

/* The rules of the engine as they are modelled. All zero is the truth; tests
 * break one at a time and see the verifier notice. */
struct coll_model {
	bool blocking_send;  /* a lane stops at a SEND until it retires */
	bool shared_scratch; /* windows share a slice of scratch */
	bool early_reuse;    /* an instance ends before its SENDs have retired */
	bool wait_for_start; /* a wait counts started steps, not retired ones */
	bool ignore_waits;   /* a wait is always satisfied */
	bool arm_all;        /* every RECV is armed from the start */
	bool early_leave;    /* the next operation begins whatever the one before does */
};

#define COLL_NO_FRAME UINT32_MAX

/* Called for each step of the first operation's first tile when it completes (a
 * SEND: when it starts), in an order that agrees with lanes, waits and frames.
 * Frames are numbered below coll_replay_frames(). false ends the replay. */
typedef bool (*coll_replay_fn)(void *arg, int rank, uint32_t step, uint32_t frame_in, uint32_t frame_out);

struct coll_replay;

/* COLL_ERR_INTERNAL and why: some channel's sends and receives differ in number.
 * then may be NULL. The plans have passed coll_race_check(). */
coll_status coll_replay_create(struct coll_replay **replay, const struct coll_plan *const *plans,
                               const struct coll_plan *const *then, int size, const struct coll_model *model, char *why,
                               size_t why_bytes);
uint32_t coll_replay_frames(const struct coll_replay *replay);
/* From here on operations do not overlap: the next one begins when the rank has retired
 * the one before. Some callers want it so. */
void coll_replay_keep_apart(struct coll_replay *replay);
void coll_replay_destroy(struct coll_replay **replay);

/* depth 0: rendezvous, a frame needs no slot (fused steps are refused). Returns
 * COLL_ERR_INTERNAL and why when the ranks block each other, COLL_ERR_ABORTED when
 * fn said false. */
coll_status coll_replay_run(struct coll_replay *replay, uint32_t depth, uint32_t windows, uint32_t tiles,
                            coll_replay_fn fn, void *arg, char *why, size_t why_bytes);

#endif
