/*
 * Pending completion words, for transports whose channels settle them by polling: a list
 * of the channels concerned, walked by the progress of any thread, and how a completion word ends.
 *
 * A channel's lock guards the state that completion words use. Its own thread holds it in the
 * by-reference verbs and in close; a walker of the list holds it while it examines that
 * channel. The list's lock guards the list alone. Order: channel, then list; the walker,
 * which finds the channel in the list, only tries its lock.
 *
 * Transports without completion words of this kind use the comparisons below.
 */
#ifndef COLL_TRANSPORTS_COMMON_PENDING_H
#define COLL_TRANSPORTS_COMMON_PENDING_H

#include <pthread.h>
#include <stdatomic.h>

#include "transport/transport.h"

struct coll_pending {
	pthread_mutex_t lock;
	struct coll_pending_channel *first, **tail;
	atomic_uint count; /* in the list or in a walker's hands */
};

/* One per channel; how the channel is found from it is the transport's business. */
struct coll_pending_channel {
	struct coll_pending_channel *next; /* list's lock */
	pthread_mutex_t lock;
	bool counted; /* lock */
};

void coll_pending_init(struct coll_pending *list);
void coll_pending_fini(struct coll_pending *list);
void coll_pending_channel_init(struct coll_pending_channel *ch);
void coll_pending_channel_fini(struct coll_pending_channel *ch);

/* Both with the channel's lock held. Joining twice is joining once. */
void coll_pending_join(struct coll_pending *list, struct coll_pending_channel *ch);
void coll_pending_leave(struct coll_pending *list, struct coll_pending_channel *ch);

static inline bool coll_pending_any(const struct coll_pending *list)
{
	return atomic_load_explicit(&list->count, memory_order_relaxed) != 0;
}

/* Let advance look at each channel once, its lock held; it adds to *settled and says
 * whether completion words are still out. Channels that another thread holds are left out. */
typedef bool (*coll_pending_fn)(struct coll_pending_channel *ch, int *settled);
int coll_pending_walk(struct coll_pending *list, coll_pending_fn advance);

/* The last access to a completion word, and to the memory it stands for. Sequentially consistent:
 * the thread that settles it may then check for a sleeper. */
static inline void coll_completion_settle(struct coll_completion *completion, coll_status status)
{
	completion->status = status;
	__atomic_store_n(&completion->pending, 0, __ATOMIC_SEQ_CST);
}

static inline bool coll_same_frame(const struct coll_frame *a, const struct coll_frame *b)
{
	return a->sequence == b->sequence && a->signature == b->signature && a->len_bytes == b->len_bytes;
}

static inline bool coll_same_key(const struct coll_channel_key *a, const struct coll_channel_key *b)
{
	return a->comm == b->comm && a->epoch == b->epoch && a->lane == b->lane && a->window == b->window;
}

static inline bool coll_same_process(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1];
}

static inline bool coll_process_lower(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] != b->word[0] ? a->word[0] < b->word[0] : a->word[1] < b->word[1];
}

#endif
