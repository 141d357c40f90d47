/*
 * A ring of slots in pinned memory, its words, and what is copied between it and the user's buffers. stage.c owns it;
 * calls that are captured into graphs have a ring of their own (capture_ring.c).
 */
#ifndef COLL_DEVCALL_STAGE_RING_H
#define COLL_DEVCALL_STAGE_RING_H

#include "devcall/device_call.h"
#include "devcall/stage_order.h"
#include "devcall/stage_turns.h"
#include "device/device.h"
#include "engine/stage.h"

enum { COLL_STAGE_LINE = 64, COLL_STAGE_PAGE = 4096, COLL_STAGE_PIECES = 512 };

/* Each written by one side only, on lines of their own, at the start of the memory. */
struct coll_stage_words {
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t guard; /* host: not 0, kernels leave the user's memory alone */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t ready; /* device: see engine/stage.h */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t done;  /* device: number + 1 of the last tile of the last call that
	                                                   * has ended */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t given; /* host: number + 1 of the last turn (engine/stage.h) */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t trial; /* device: 0, at creation */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t taken[2][COLL_STAGE_SLOTS]; /* host: by half of a pair; collectives
	                                                                        * use the first */
};
static_assert(sizeof(struct coll_stage_words) <= COLL_STAGE_PAGE / 2, "the words fit in half a page");

struct coll_stage {
	struct coll_device *device;
	void *memory;     /* a page of words, the slots for input and those for output, the list of turns */
	uint64_t address; /* of memory, as kernels see it */
	struct coll_stage_words *words;
	char *in, *out;
	struct coll_stage_turn *turns;
	struct coll_stage_rotation *rotations; /* that the device may be in */
	struct coll_device_piece *pieces;      /* one for each rank, and COLL_STAGE_PIECES */
	coll_device_stream own;                /* of blocking calls */
	bool used;                             /* something was enqueued */
	uint32_t next;                         /* number of the next tile */
	uint32_t last_done;                    /* `done` when all that was enqueued has ended */
	/* When the words were brought forward last: see coll_stage_assign(). And if the stream is to do so with
	 * `ready`, in front of what it gets next: its value. */
	uint32_t forward_at, forward_ready;
	bool forward;
	/* The device has failed: what it has not ended it never will. */
	atomic_bool broken;
	/* What is being enqueued, see stage_chain.h. */
	struct coll_stage_chain {
		struct coll_request *first; /* NULL: nothing */
		bool paced;                 /* the thread waits for words itself: a blocking call */
		bool joined;                /* a direct call's wait is enqueued with the piece before it */
		/* The thread has the context bound meanwhile, which spares a question for each piece. */
		bool entered;
		/* The direct call that it has come to, and the next segment; NULL: those are over. */
		struct coll_request *direct;
		size_t segment;
		/* The others, and the place of the next tile. */
		struct coll_stage_order order;
		size_t next;
		size_t join; /* places that are taken together: 1, but for a long call that is alone */
		/* The messages that take turns behind these, NULL: none; and the number of the next turn. */
		struct coll_stage_rotation *rotation;
		bool rotation_begun;
		uint32_t turn;
	} chain;
};

#define COLL_STAGE_SLOTS_BYTES ((size_t)2 * COLL_STAGE_SLOTS * COLL_STAGE_SLOT_BYTES)
#define COLL_STAGE_MEMORY_BYTES \
	(COLL_STAGE_PAGE + COLL_STAGE_SLOTS_BYTES + COLL_STAGE_TURNS * sizeof(struct coll_stage_turn))
static_assert(COLL_STAGE_MEMORY_BYTES % COLL_STAGE_PAGE == 0, "whole pages");

/* A ring without a stream. */
coll_status coll_stage_ring_open(struct coll_comm *comm, struct coll_stage **ring, struct coll_error_box *err);
/* Works on half-built rings. The device has left the memory. */
void coll_stage_ring_close(struct coll_stage **ring);

static inline uint64_t coll_stage_address(const struct coll_stage *s, const volatile void *p)
{
	return s->address + (uint64_t)((const volatile char *)p - (const char *)s->memory);
}

/* Whether the device has ended a call. Acquire: it has written all of the user's memory before. */
static inline bool coll_stage_has_done(const struct coll_stage *s, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(&s->words->done, memory_order_acquire) - number) >= 0 ||
	       atomic_load_explicit(&s->broken, memory_order_relaxed);
}

size_t coll_stage_job_tiles(const struct coll_job *job);
/* The tiles of half `half` of a request: 0 where there is none. */
size_t coll_stage_half_tiles(const struct coll_request *r, int half);

/* Fill s->pieces with what is copied to the slot of tile t, and from it, behind n pieces that are there. Their number.
 */
int coll_stage_pieces_in(struct coll_stage *s, const struct coll_request *r, size_t t, int n);
int coll_stage_pieces_out(struct coll_stage *s, const struct coll_request *r, size_t t, int n);
/* How many tiles of a call that is alone in its chain are gathered, waited for and scattered together. A local choice:
 * the queue of a stream holds about 1024 operations, and a launch behind them waits. */
size_t coll_stage_join(const struct coll_request *r);

/* What is enqueued for a tile of a request. */
typedef coll_status coll_stage_put_fn(struct coll_stage *s, const struct coll_request *r, size_t t);

#endif
