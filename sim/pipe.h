/*
 * A pipe is one channel with both ends: it counts what loop has done and what of it the ends
 * have been shown. Invariant:
 *
 *     credited <= done <= visible <= posted,    posted - credited <= slots
 *
 * so loop underneath always has a slot when the adversary grants one. What an end is
 * shown next is an event. A pipe with a possible event is in the adversary's list of
 * ready pipes; code that changes a pipe updates that list.
 */
#ifndef SIM_PIPE_H
#define SIM_PIPE_H

#include "sim/adversary.h"

enum { SIM_SLOTS_MAX = 4 };

struct sim_inst {
	void *inner;
	struct sim_adversary *adversary;
	struct coll_process_id self;
	struct sim_inst *next;
	uint64_t fuse; /* calls until it dies, 0: lives on */
	bool dead;
	struct channel *kept; /* closed, but not really: a planted defect */
};

struct link {
	void *inner;
	struct sim_inst *inst;
	struct coll_process_id peer;
};

struct channel {
	void *inner;
	struct sim_inst *inst;
	struct sim_pipe *pipe;
	enum coll_direction dir;
	struct channel *next; /* kept */
};

struct loan {
	struct coll_completion *user; /* NULL: settled */
	struct coll_completion inner;
	uint64_t frame;
	coll_status revoked; /* OK: not */
};

/* State of an end of a pipe. GONE: closed in order; DEAD: its rank died; DOWN: and the
 * other end has been notified. */
enum end { ABSENT, OPEN, GONE, DEAD, DOWN };

struct sim_pipe {
	struct sim_pipe *next;
	struct sim_adversary *adversary;
	struct coll_process_id from, to;
	struct coll_channel_key key;
	struct channel *tx, *rx;
	enum end sender, receiver;
	uint32_t slots;
	bool slow;
	bool granted; /* and the sender was notified */
	uint64_t posted, visible, done, credited;
	struct loan loans[SIM_SLOTS_MAX];
	struct coll_completion *into; /* announced destination, NULL: none */
	void *into_ptr;
	const struct coll_taker *into_taker; /* in its place */
	char *into_at;                       /* where its bytes are put first; NULL: they stay in the slot */
	uint32_t into_taken;
	struct coll_frame into_frame;
	/* The frame that was viewed: scribbled over when it is given back by value. */
	char *viewed;
	uint32_t viewed_bytes;
	uint32_t at; /* in the adversary's list, or NOT_READY */
};

/* Found by its ends and key, or made; NULL: no memory. */
struct sim_pipe *sim_pipe_get(struct sim_adversary *a, const struct coll_process_id *from,
                              const struct coll_process_id *to, const struct coll_channel_key *key, uint32_t slots);

/* Room in the ready list for one more pipe. */
coll_status sim_pipe_reserve(struct sim_adversary *a);

/* Whether an event is possible may have changed. */
void sim_pipe_refresh(struct sim_pipe *p);

/* The frame that is loaned, or was and has been revoked since; NULL: it goes by value. */
struct loan *sim_pipe_loan(struct sim_pipe *p, uint64_t frame);

/* Nothing more comes: what is announced is given up. */
void sim_pipe_give_up(struct sim_pipe *p, coll_status status);

/* Revoke what is loaned: an end that has no view yet will not get one; an end with a view
 * gets the error from done(). */
void sim_pipe_revoke(struct sim_pipe *p, coll_status why);

/* Its ends, as far as their processes have been buried. */
void sim_pipe_mark_dead(struct sim_pipe *p);

#endif
