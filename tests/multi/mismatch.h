/*
 * What the parts of the mismatch test share: calls as data, the cases made of them, and
 * the ways to issue them.
 */
#ifndef COLL_TESTS_MISMATCH_H
#define COLL_TESTS_MISMATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"

enum { RANKS_MAX = 5, CALLS_MAX = 5 };

/* What is no coll_collective. */
enum { SEND = 100, RECV, SPLIT, DUPLICATE };

/* Lengths of blocks in v-calls: those that rank `from` sends to rank `to`. Everybody has
 * usual, but that the odd rank has odd for what it sends to (or expects from) one other. */
struct blocks {
	bool by_pairs; /* else lengths known to all: the odd rank has others throughout */
	bool expects;  /* what the odd rank expects, not what it sends */
	size_t usual, odd;
};

struct call {
	int kind; /* coll_collective, or one of the above */
	size_t count;
	coll_dtype type;
	coll_op op;
	int root; /* send, recv: the peer; NEXT, BEFORE: relative to this rank */
	struct blocks blocks;
	bool ragged;
	bool refused; /* an argument error, and no more than that */
	bool own_op;  /* op is one made by coll_op_create */
};

enum { NEXT = -2, BEFORE = -3, ODD = -4, USUAL = -5 /* a rank that is not odd */ };

/* One rank, the odd one, makes other calls than the others. */
struct kase {
	const char *name;
	struct call most[CALLS_MAX], odd[CALLS_MAX]; /* nmost, nodd of them */
	int nmost, nodd;
	const char *most_says, *odd_says;
	bool pair;     /* only ranks 0 and 1 make calls: 1 is the odd one */
	bool stray;    /* seen by whom the frame reaches that nobody waits for: one call later */
	bool turned;   /* the odd rank makes the others' calls in the opposite order */
	bool repeat;   /* the odd rank repeats its call until it is told */
	bool anybody;  /* all differ from somebody */
	bool blocking; /* known when all block: see docs/design/mismatch.md */
	bool behind;   /* the odd rank's call has been made, but is behind another on a stream */
};

extern const struct kase mismatch_cases[];
extern const int mismatch_ncases;

/* How calls are issued. */
enum mode {
	BLOCKING,
	STREAM,       /* on one stream, waited for at the end */
	TWO_STREAMS,  /* in turn on two */
	EVENT,        /* on a stream, an event is waited for */
	GROUP,        /* blocking calls in a group */
	STREAM_GROUP, /* calls on a stream in a group */
	PERSISTENT,   /* each prepared, started and waited for; those that cannot be are blocking */
	STARTED,      /* all prepared, all started, all waited for */
	ODD_BLOCKS,   /* the odd rank blocks, others use a stream */
	ODD_STREAMS,  /* the other way round */
	PENDING,      /* blocking, while a receive is pending on a stream */
	MODES
};
extern const char *const mode_names[MODES];

struct caller {
	coll_comm *comm;
	int rank, size, odd;
	coll_op own_op;
};

/* Issue n calls and wait for them: the first error. turned: those of the others in the
 * opposite order. */
coll_status mismatch_issue(const struct caller *c, enum mode mode, const struct call *calls, int n, bool turned);

#endif
