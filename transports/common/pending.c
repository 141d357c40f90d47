/*
 * The list of channels with completion words out. A walker takes the first channel out of the
 * list, examines it with the list unlocked, and puts it back at the end if completion words are
 * still out. So several threads can walk at once, each with another channel, and a copy of
 * a channel's frame delays only that channel.
 *
 * Invariant: a channel that is counted is in the list, or a walker holds its lock.
 * So a thread that holds its lock can remove it for good.
 */
#include "transports/common/pending.h"

#include <assert.h>

void coll_pending_init(struct coll_pending *list)
{
	pthread_mutex_init(&list->lock, NULL);
	list->first = NULL;
	list->tail = &list->first;
	atomic_store(&list->count, 0);
}

void coll_pending_fini(struct coll_pending *list)
{
	assert(!list->first);
	pthread_mutex_destroy(&list->lock);
}

void coll_pending_channel_init(struct coll_pending_channel *ch)
{
	pthread_mutex_init(&ch->lock, NULL);
	ch->next = NULL;
	ch->counted = false;
}

void coll_pending_channel_fini(struct coll_pending_channel *ch)
{
	assert(!ch->counted);
	pthread_mutex_destroy(&ch->lock);
}

static void append(struct coll_pending *list, struct coll_pending_channel *ch)
{
	ch->next = NULL;
	*list->tail = ch;
	list->tail = &ch->next;
}

void coll_pending_join(struct coll_pending *list, struct coll_pending_channel *ch)
{
	if (ch->counted)
		return;
	ch->counted = true;
	pthread_mutex_lock(&list->lock);
	append(list, ch);
	pthread_mutex_unlock(&list->lock);
	atomic_fetch_add(&list->count, 1);
}

void coll_pending_leave(struct coll_pending *list, struct coll_pending_channel *ch)
{
	struct coll_pending_channel **at = &list->first;

	if (!ch->counted)
		return;
	ch->counted = false;
	pthread_mutex_lock(&list->lock);
	while (*at != ch)
		at = &(*at)->next;
	*at = ch->next;
	if (list->tail == &ch->next)
		list->tail = at;
	pthread_mutex_unlock(&list->lock);
	atomic_fetch_sub(&list->count, 1);
}

/* The first channel whose lock is free, removed from the list and locked. Channels that are locked go to
 * the end; *tries bounds the search. */
static struct coll_pending_channel *take(struct coll_pending *list, unsigned *tries)
{
	struct coll_pending_channel *ch = NULL;

	pthread_mutex_lock(&list->lock);
	while (*tries && list->first) {
		ch = list->first;
		list->first = ch->next;
		if (!list->first)
			list->tail = &list->first;
		--*tries;
		if (pthread_mutex_trylock(&ch->lock) == 0)
			break;
		append(list, ch);
		ch = NULL;
	}
	pthread_mutex_unlock(&list->lock);
	return ch;
}

static void put_back(struct coll_pending *list, struct coll_pending_channel *ch, bool more)
{
	if (more) {
		pthread_mutex_lock(&list->lock);
		append(list, ch);
		pthread_mutex_unlock(&list->lock);
	} else {
		ch->counted = false;
		atomic_fetch_sub(&list->count, 1);
	}
	/* Its owner may close and free it from here on. */
	pthread_mutex_unlock(&ch->lock);
}

int coll_pending_walk(struct coll_pending *list, coll_pending_fn advance)
{
	unsigned tries = atomic_load_explicit(&list->count, memory_order_relaxed);
	struct coll_pending_channel *ch;
	int settled = 0;

	while (tries && (ch = take(list, &tries)))
		put_back(list, ch, advance(ch, &settled));
	return settled;
}
