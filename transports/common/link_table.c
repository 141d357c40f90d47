/*
 * The table of links, and the life of a link as outsiders see it. Invariant: status goes
 * from FREE to AGAIN to OK to an error, or leaves some of these out, and back to FREE
 * only when no handle is out; link_down is called once for a link that broke while a
 * handle was out, with no lock held.
 *
 * What a link is made of, and when it is over, are the transport's business.
 */
#include "transports/common/link_table.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/fork.h"
#include "base/log.h"
#include "transports/common/pending.h"

void coll_link_table_init(struct coll_link_table *t, size_t link_bytes,
                          bool (*begin)(void *inst, struct coll_peer_link *l), void *inst)
{
	*t = (struct coll_link_table){.link_bytes = link_bytes, .begin = begin, .inst = inst};
	pthread_mutex_init(&t->lock, NULL);
}

void coll_link_table_fini(struct coll_link_table *t)
{
	for (uint32_t i = 0; i < t->count; i++) {
		pthread_mutex_destroy(&t->at[i]->lock);
		free(t->at[i]);
	}
	free(t->at);
	pthread_mutex_destroy(&t->lock);
}

/* ---- finding ---------------------------------------------------------------------- */

struct coll_peer_link *coll_link_table_at(struct coll_link_table *t, uint32_t i)
{
	struct coll_peer_link *l;

	/* The count never falls; the array itself may move. */
	if (i >= atomic_load_explicit(&t->count, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&t->lock);
	l = t->at[i];
	pthread_mutex_unlock(&t->lock);
	return l;
}

struct coll_peer_link *coll_link_table_find(struct coll_link_table *t, const struct coll_process_id *peer,
                                            uint32_t part)
{
	for (uint32_t i = 0; i < t->count; i++) {
		struct coll_peer_link *l = t->at[i];
		bool usable;

		if (l->part != part || !coll_same_process(&l->peer, peer))
			continue;
		pthread_mutex_lock(&l->lock);
		usable = coll_peer_link_works(l) && !l->lingering;
		pthread_mutex_unlock(&l->lock);
		if (usable)
			return l;
	}
	return NULL;
}

/* ---- making ------------------------------------------------------------------------ */

static bool grow(struct coll_link_table *t)
{
	const uint32_t cap = t->cap ? 2 * t->cap : 16;
	struct coll_peer_link **at = realloc(t->at, cap * sizeof(struct coll_peer_link *));

	if (!at)
		return false;
	t->at = at;
	t->cap = cap;
	return true;
}

static struct coll_peer_link *add_place(struct coll_link_table *t)
{
	struct coll_peer_link *l;

	if (t->count == t->cap && !grow(t))
		return NULL;
	l = calloc(1, t->link_bytes);
	if (!l)
		return NULL;
	l->slot = t->count;
	atomic_store(&l->status, COLL_LINK_FREE);
	pthread_mutex_init(&l->lock, NULL);
	t->at[l->slot] = l;
	atomic_fetch_add_explicit(&t->count, 1, memory_order_release);
	return l;
}

/* Only who holds the table's lock makes a free place one in use. */
static struct coll_peer_link *free_place(struct coll_link_table *t)
{
	for (uint32_t i = 0; i < t->count; i++)
		if (atomic_load_explicit(&t->at[i]->status, memory_order_acquire) == COLL_LINK_FREE)
			return t->at[i];
	return add_place(t);
}

struct coll_peer_link *coll_link_table_new(struct coll_link_table *t, const struct coll_process_id *peer, uint32_t part)
{
	struct coll_peer_link *l = free_place(t);
	bool begun;

	if (!l)
		return NULL;
	pthread_mutex_lock(&l->lock);
	begun = t->begin(t->inst, l);
	if (begun) {
		l->peer = *peer;
		l->part = part;
		atomic_store_explicit(&l->status, COLL_AGAIN, memory_order_release);
	}
	pthread_mutex_unlock(&l->lock);
	return begun ? l : NULL;
}

struct coll_peer_link *coll_link_table_open(struct coll_link_table *t, const struct coll_process_id *peer)
{
	struct coll_peer_link *l;

	pthread_mutex_lock(&t->lock);
	l = coll_link_table_find(t, peer, 0);
	if (!l)
		l = coll_link_table_new(t, peer, 0);
	if (l) {
		pthread_mutex_lock(&l->lock);
		l->opens++;
	}
	pthread_mutex_unlock(&t->lock);
	return l;
}

coll_status coll_peer_link_status(void *link)
{
	const struct coll_peer_link *l = link;

	return (coll_status)atomic_load_explicit(&l->status, memory_order_acquire);
}

/* ---- the end ----------------------------------------------------------------------- */

bool coll_peer_link_release(struct coll_link_table *t, struct coll_peer_link *l)
{
	assert(l->opens > 0);
	if (--l->opens > 0)
		return false;
	l->lingering = true;
	atomic_fetch_add(&t->stale, 1);
	return true;
}

static void end(struct coll_link_table *t, struct coll_peer_link *l, coll_status status)
{
	atomic_store_explicit(&l->status, (int)status, memory_order_release);
	atomic_fetch_add(&t->notices, 1);
	atomic_fetch_add(&t->stale, 1);
}

bool coll_peer_link_fail(struct coll_link_table *t, struct coll_peer_link *l, coll_status why, const char *format,
                         va_list ap)
{
	if (!coll_peer_link_works(l))
		return false;
	vsnprintf(l->cause, sizeof(l->cause), format, ap);
	l->why = why;
	l->notice = !l->lingering && l->part == 0;
	/* Silence, too, is the end: link_down says more of it. */
	end(t, l, why == COLL_ERR_PEER_SILENT ? COLL_ERR_PEER_DEAD : why);
	return true;
}

bool coll_peer_link_tells_first(const struct coll_peer_link *l)
{
	return l->notice && l->why != COLL_ERR_PEER_DEAD && l->why != COLL_ERR_PEER_SILENT;
}

void coll_peer_link_ended(struct coll_link_table *t, struct coll_peer_link *l)
{
	snprintf(l->cause, sizeof(l->cause), "the peer has closed the link");
	end(t, l, COLL_ERR_PEER_DEAD);
}

void coll_peer_link_forget(struct coll_peer_link *l)
{
	if (l->closes)
		coll_fd_close(l->closes - 1);
	l->closes = 0;
	l->peer = (struct coll_process_id){0};
	l->part = 0;
	l->opens = 0;
	l->lingering = l->notice = false;
	l->why = COLL_OK;
	l->cause[0] = '\0';
	l->rails = 0;
	atomic_store_explicit(&l->status, COLL_LINK_FREE, memory_order_release);
}

struct notice {
	struct coll_process_id peer;
	coll_status why;
	int closes;
	char cause[sizeof(((struct coll_peer_link *)NULL)->cause)];
};

/* One link that owes a link_down; false if none. */
static bool next_notice(struct coll_link_table *t, struct notice *n)
{
	bool found = false;

	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->count && !found; i++) {
		struct coll_peer_link *l = t->at[i];

		pthread_mutex_lock(&l->lock);
		if (l->notice) {
			n->peer = l->peer;
			n->why = l->why;
			memcpy(n->cause, l->cause, sizeof(n->cause));
			/* Also one that the peer alone has open, if the reason is here. */
			found = l->opens > 0 || coll_peer_link_tells_first(l);
			n->closes = l->closes;
			l->closes = 0;
			l->notice = false;
			atomic_fetch_add(&t->stale, 1);
		}
		pthread_mutex_unlock(&l->lock);
	}
	pthread_mutex_unlock(&t->lock);
	return found;
}

void coll_link_table_notify(struct coll_link_table *t, const struct coll_transport_env *env, const char *name)
{
	struct notice n;

	if (atomic_load_explicit(&t->notices, memory_order_relaxed) == 0)
		return;
	atomic_store(&t->notices, 0);
	while (next_notice(t, &n)) {
		env->log(env->ctx, COLL_LOG_INFO, "%s: link down: %s", name, n.cause);
		env->link_down(env->ctx, &n.peer, n.why, n.cause);
		if (n.closes)
			coll_fd_close(n.closes - 1);
	}
}

void coll_link_table_flush(struct coll_link_table *t, void (*pass)(void *inst), bool (*owes)(struct coll_peer_link *l),
                           uint32_t ms)
{
	const uint64_t until = coll_clock_ns() + ms * COLL_NS_PER_MS;
	bool more = t->count > 0;

	while (more && coll_clock_ns() < until) {
		more = false;
		if (pass)
			pass(t->inst);
		for (uint32_t i = 0; i < t->count; i++)
			more |= owes(t->at[i]);
		if (more)
			poll(NULL, 0, COLL_DELAY_LINK_FLUSH_LOOK_MS);
	}
}
