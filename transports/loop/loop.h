/*
 * loop, inside: the objects shared by the files of this transport.
 *
 *   group    one per process: lists the instances and the pairs
 *   pair     two processes that opened a link to each other (or one, so far)
 *   pipe     one channel: a ring of cells in heap memory, and the end of each side
 *   bell     wakes an instance, and outlives it
 *
 * The group's lock guards lists and reference counts; the data path takes no lock.
 */
#ifndef COLL_TRANSPORTS_LOOP_LOOP_H
#define COLL_TRANSPORTS_LOOP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/transport.h"
#include "transports/common/pending.h"

extern const struct coll_transport coll_transport_loop;

enum { LOOP_BUCKETS = 256 };

struct loop_bell {
	int refs; /* group lock */
	atomic_uint armed;
	pthread_mutex_t lock;
	bool dead; /* lock: wake_fd is no longer ours to write */
	int wake_fd;
};

/* Who may touch memory that was loaned by reference. The receiver moves LOANED to
 * READ when it first looks and READ to BACK when it is done; the sender moves
 * LOANED to REVOKED when it closes early, and READ too if the reader takes too long. */
enum loop_loan { LOOP_BY_VALUE, LOOP_LOANED, LOOP_READ, LOOP_BACK, LOOP_REVOKED };

struct loop_cell {
	_Atomic uint64_t turn; /* frame number + 1 once the frame is there */
	struct coll_frame frame;
	const void *data;
	atomic_int loan;
	pthread_t reader; /* valid while loan is LOOP_READ */
};

struct loop_pipe {
	struct loop_pipe *next; /* of the pair */
	struct loop_pair *pair;
	int sender; /* side of the pair that sends */
	struct coll_channel_key key;
	bool opened[2]; /* by direction, group lock */
	atomic_bool closed[2];
	size_t slot_bytes;
	uint32_t slots;
	struct loop_cell *cells;
	char *slot_memory;
	atomic_bool granted;    /* the receiver has opened */
	_Atomic uint64_t freed; /* frames given back, written by the receiver only */
};

struct loop_pair {
	struct loop_pair *next; /* of the bucket */
	struct coll_process_id id[2];
	bool opened[2];                      /* group lock */
	atomic_bool closed[2];               /* written under the group lock */
	struct loop_bell *bell[2];           /* NULL until that side exists, group lock ... */
	_Atomic(struct loop_bell *) ring[2]; /* ... and the same for the data path */
	struct loop_pipe *pipes;
};

struct loop_inst;

struct loop_grave {
	struct loop_grave *next;
	struct coll_process_id id;
};

struct coll_loop_group {
	pthread_mutex_t lock;
	struct loop_inst *insts;
	struct loop_grave *graves; /* instances that are gone */
	struct loop_pair *pairs[LOOP_BUCKETS];
};

struct loop_link {
	struct loop_link *next;
	struct loop_inst *inst;
	struct loop_pair *pair;
	int side; /* ours */
};

/* What a channel's owner was last refused: arm() checks that. */
enum loop_want { LOOP_WANT_FRAME = 1, LOOP_WANT_CREDIT = 2 };

struct loop_announce {
	void *ptr;
	struct coll_frame expect;
	struct coll_completion *completion;
};

struct loop_channel {
	struct loop_channel *next; /* of the instance, its lock */
	struct loop_inst *inst;
	struct loop_pipe *pipe;
	int side;
	enum coll_direction dir;
	_Atomic uint64_t count;  /* frames posted, or frames done; one writer: the owner */
	_Atomic uint64_t reaped; /* sender: frames whose completion word is settled */
	uint64_t freed_seen;
	atomic_uint want;
	bool held; /* receiver: a view is out */
	/* pending.lock: completion words and announcements. loaned and reaped are also looked at without. */
	struct coll_pending_channel pending;
	_Atomic uint32_t loaned;              /* sender: completion words pending */
	struct coll_completion **completions; /* sender: by frame number % slots */
	struct loop_announce *announces;      /* receiver: ring of slots entries */
	uint64_t announced, answered;
};

struct loop_inst {
	struct loop_inst *next; /* of the group */
	struct coll_transport_env env;
	struct coll_loop_group *group;
	struct loop_bell *bell;
	atomic_bool closed;
	pthread_mutex_t lock; /* guards channels */
	struct loop_channel *channels;
	struct loop_link *links;     /* lock */
	struct coll_pending pending; /* channels with completion words out */
};

#endif
