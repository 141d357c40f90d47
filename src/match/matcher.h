/*
 * The matcher: which receive takes which message.
 *
 * Two kinds of things wait here: receives that were posted before a message for them arrived, and messages that
 * arrived before a receive for them was posted. Never both of a pair. Pure: no channel, no lock, no clock.
 *
 * Rules. A message has a source and a tag; a receive names both, or takes any. A message goes to the receive that was
 * posted first among those that take it; a receive gets the message that arrived first among those that it takes.
 * Messages of one source arrive in the order in which they were sent, so of two that fit the same receive the first
 * sent is received first.
 *
 * Messages that wait lie in the pool of their source, which has a fixed number of cells. Its memory is allocated with
 * the first message that waits. A source that sends only as much as its pool has room for never finds it full: the
 * cells of each message are counted on both sides (credits, see exchange.h).
 */
#ifndef COLL_MATCH_MATCHER_H
#define COLL_MATCH_MATCHER_H

#include "core/inflight_state.h"

enum { COLL_MATCH_ANY = -1 };
enum { COLL_MATCH_CELL_BYTES = 256 };

/* A posted receive, in memory of whoever posts it. */
struct coll_posted {
	struct coll_link link; /* in a list while it waits, else alone */
	uint64_t order;        /* of posting */
	int source, tag;       /* COLL_MATCH_ANY: any */
};

/* What is said of a message. */
struct coll_message_head {
	int source, tag;
	uint8_t type;
	bool here;          /* the payload is here; else it is at the sender */
	uint32_t len_bytes; /* of the payload here */
	uint64_t count;     /* elements */
	uint64_t id;        /* of the payload at the sender */
	void *sender;       /* of a message of this process: who sends it, else NULL */
};

/* A message that waits, in the first of its cells. */
struct coll_arrival {
	struct coll_link by_source, by_time;
	struct coll_message_head head;
	struct coll_match_cell *rest; /* the other cells, in order */
	uint32_t cells;
};

struct coll_match_cell {
	struct coll_match_cell *next;
	char bytes[COLL_MATCH_CELL_BYTES - sizeof(void *)];
};

/* Of one source. */
struct coll_match_source {
	struct coll_link posted;   /* receives that name it */
	struct coll_link arrivals; /* its messages */
	struct coll_match_cell *memory, *spare;
	uint32_t used; /* cells */
};

struct coll_matcher {
	int sources;
	uint32_t share; /* cells of each source */
	struct coll_match_source *source;
	struct coll_link posted_any; /* receives from any source */
	struct coll_link arrivals;   /* of all sources */
	uint64_t order;              /* given last */
};

/* share: cells per source, enough for the longest message. COLL_ERR_MEMORY: nothing was made. */
coll_status coll_matcher_init(struct coll_matcher *m, int sources, uint32_t share);
/* Receives that are still posted are forgotten. A matcher of zeros is accepted. */
void coll_matcher_fini(struct coll_matcher *m);

/* The cells of a message whose payload of len_bytes waits here. */
uint32_t coll_matcher_cells(size_t len_bytes);

/* Post a receive. It gets a message that waits: returned and taken from the lists, its cells still in use. NULL: the
 * receive waits from now on. */
struct coll_arrival *coll_matcher_post(struct coll_matcher *m, struct coll_posted *p);
/* The message that a receive would get. */
const struct coll_arrival *coll_matcher_peek(const struct coll_matcher *m, int source, int tag);
/* Take back a posted receive. False: it waits no more. */
bool coll_matcher_cancel(struct coll_matcher *m, struct coll_posted *p);

/* A message has arrived: the receive that gets it, taken from its list. NULL: none waits for it. */
struct coll_posted *coll_matcher_arrive(struct coll_matcher *m, int source, int tag);
/* Keep a message that no receive waits for. COLL_ERR_CORRUPT: its source has used up its share. COLL_ERR_MEMORY. */
coll_status coll_matcher_keep(struct coll_matcher *m, const struct coll_message_head *head, const void *payload);
/* A message of this process that nobody has received, by its sender: taken from the lists, its cells still in use.
 * NULL: it does not wait here. */
struct coll_arrival *coll_matcher_withdraw(struct coll_matcher *m, int source, const void *sender);
/* Messages of a source whose payload is at the sender are gone. */
void coll_matcher_drop_offers(struct coll_matcher *m, int source);
/* Copy the payload of a message that was taken. */
void coll_matcher_read(const struct coll_arrival *a, void *to);
/* Give its cells back. Returns their number. */
uint32_t coll_matcher_release(struct coll_matcher *m, struct coll_arrival *a);

#endif
