/*
 * What a communicator has for captured calls: capture_ring.c makes it, capture.c puts calls into graphs,
 * capture_launch.c runs them.
 */
#ifndef COLL_DEVCALL_CAPTURE_STATE_H
#define COLL_DEVCALL_CAPTURE_STATE_H

#include <assert.h>
#include <stdatomic.h>

#include "devcall/mapped_graphs.h"
#include "devcall/stage_ring.h"
#include "device/device.h"

enum { CAPTURE_SLOTS = COLL_STAGE_SLOTS };
enum { CAPTURE_TAKEN = 1, CAPTURE_CLEAR = 2, CAPTURE_RELEASED = CAPTURE_TAKEN | CAPTURE_CLEAR }; /* of `go` */

/* Behind the words of the ring. `direct` is of calls that go direct. */
struct capture_words {
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t full[CAPTURE_SLOTS]; /* device */
	_Alignas(COLL_STAGE_LINE) _Atomic uint32_t go[CAPTURE_SLOTS];   /* host */
	struct coll_mapped_words direct;
};
static_assert(sizeof(struct capture_words) <= COLL_STAGE_PAGE / 2, "the words fit in the other half of the page");

/* One graph, for one communicator: all that it has captured in one capture. */
struct capture_graph {
	struct capture_graph *next;
	struct coll_captured *calls;
	uint64_t capture; /* its id */
	coll_device_stream last;
	bool begun;       /* something is in it */
	uint32_t places;  /* collectives so far */
	uint32_t syncs;   /* of those that go direct */
	atomic_bool gone; /* by the driver, in any thread; release */
};

/*
 * A call that goes direct, or the other calls of a group. Their tiles are in rows and columns: those of a call in one
 * column, a row each. Calls that share a channel, which are the collectives, and messages of one direction with one
 * rank, have rows behind one another. The columns take turns, row by row.
 */
struct coll_captured {
	struct coll_captured *next; /* of the graph */
	struct capture_graph *graph;
	uint32_t id;   /* of comm->capture->ids */
	uint32_t slot; /* of the first tile */
	bool direct;
	bool complete; /* all of it is in the graph */
	size_t tiles;  /* in turn, those that do not exist too */
	int n, columns;
	struct capture_call {
		struct coll_request *r;
		bool own;         /* r was made for the graph */
		uint32_t place;   /* of collectives: how many of the graph are in front of it */
		size_t tiles[2];  /* by half */
		int column, next; /* next: in the column, -1: none */
		size_t row;       /* of its first tile, in the column */
		int first;        /* of the column that has the number of this call, in the order of calls */
	} calls[];
};

/* Run and scratch of a collective, by its number in the group. */
struct capture_place {
	struct coll_run *run;
	char *scratch;
	size_t scratch_bytes;
};

struct coll_capture {
	struct coll_stage *ring;
	struct capture_words *words;
	coll_device_fence fence;
	uint32_t next_slot;

	/* Lock. */
	struct capture_graph *graphs;
	struct coll_captured **ids; /* by id - 1; NULL: free */
	size_t nids;
	struct capture_place places[CAPTURE_SLOTS];
	struct coll_run *direct_run;
	uint64_t sequence, directs; /* of staged collectives, and of those that go direct */
	uint64_t *numbers[2];       /* of messages, by half and rank */
	unsigned polls;
	bool closing, ended;
	uint64_t leave_until_ns; /* ended */

	/* Lock: what the device is in, and how many of its tiles have been seen, given and left. */
	struct coll_captured *active;
	size_t seen, given, left;
	/* And the direct call that it is in: the other calls of its group may be under way. */
	struct coll_captured *direct;
	/* Of the communicator, when that has ended: what launches may touch. */
	struct coll_device_region region;
};

static inline uint32_t capture_slot(const struct coll_captured *x, size_t j)
{
	return (uint32_t)((x->slot + j) % CAPTURE_SLOTS);
}

/* The row behind its last tile. */
static inline size_t capture_end(const struct capture_call *call)
{
	return call->row + call->r->device->tiles;
}

/* The call whose tile *t has place j; NULL: there is none. */
static inline const struct capture_call *capture_at(const struct coll_captured *x, size_t j, size_t *t)
{
	const size_t row = j / (size_t)x->columns;
	int i = x->calls[j % (size_t)x->columns].first;

	while (i >= 0 && row >= capture_end(&x->calls[i]))
		i = x->calls[i].next;
	if (i < 0 || row < x->calls[i].row)
		return NULL;
	*t = row - x->calls[i].row;
	return &x->calls[i];
}

#endif
