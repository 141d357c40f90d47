/*
 * See rails.h.
 */
#include "transports/common/rails.h"

#include <string.h>

void coll_link_rails_notice(struct coll_link_table *t)
{
	atomic_store(&t->torn, true);
	atomic_fetch_add(&t->notices, 1);
}

/* One that the peer has made already, or a new one, locked. What the peer has closed meanwhile is none: its goodbye is
 * read first. The first may be in use here already. */
static struct coll_peer_link *take_rail(struct coll_link_table *t, const struct coll_link_rails_table *table,
                                        const struct coll_process_id *peer, unsigned number)
{
	struct coll_peer_link *r = coll_link_table_find(t, peer, number);

	if (r) {
		pthread_mutex_lock(&r->lock);
		table->drain(r);
		table->leave(r);
		if ((r->opens == 0 || number == 0) && coll_peer_link_works(r))
			return r;
		pthread_mutex_unlock(&r->lock);
	}
	r = coll_link_table_new(t, peer, number);
	if (r)
		pthread_mutex_lock(&r->lock);
	return r;
}

/* The rails of l but the first, taken from now on; how many there are then, itself counted. l stays though its own
 * lock is not held. */
static unsigned take_rails(struct coll_link_table *t, const struct coll_link_rails_table *table,
                           struct coll_peer_link *l, unsigned rails, const void *ways, struct coll_peer_link **rail)
{
	unsigned n = 1;

	while (n < rails) {
		struct coll_peer_link *r = take_rail(t, table, &l->peer, n);

		if (!r)
			break;
		r->opens = 1;
		table->aim(r, ways, n);
		table->leave(r);
		rail[n++] = r;
		pthread_mutex_unlock(&r->lock);
	}
	return n;
}

/* Count one handle more; l has its rails from the first on. False: some cannot be had. */
static bool hold(struct coll_link_table *t, const struct coll_link_rails_table *table, struct coll_peer_link *l,
                 unsigned rails, const void *ways)
{
	struct coll_peer_link *rail[COLL_RAILS_MAX] = {l};
	const bool first = l->rails == 0; /* written under the table's lock */
	const unsigned count = first ? take_rails(t, table, l, rails, ways, rail) : l->rails;

	pthread_mutex_lock(&l->lock);
	l->opens++;
	if (first) {
		table->aim(l, ways, 0);
		memcpy(l->rail, rail, sizeof(rail));
		l->rails = count;
	}
	table->leave(l);
	pthread_mutex_unlock(&l->lock);
	/* One that the peer made may have ended since it was taken. */
	if (first && count > 1)
		coll_link_rails_notice(t);
	return !first || count == rails;
}

coll_status coll_link_rails_open(struct coll_link_table *t, const struct coll_link_rails_table *table,
                                 const struct coll_process_id *peer, unsigned rails, const void *ways,
                                 struct coll_peer_link **link)
{
	struct coll_peer_link *l;
	bool held;

	pthread_mutex_lock(&t->lock);
	l = take_rail(t, table, peer, 0);
	if (l)
		pthread_mutex_unlock(&l->lock);
	held = l && hold(t, table, l, rails, ways);
	pthread_mutex_unlock(&t->lock);
	if (l && !held)
		coll_link_rails_close(t, table, l);
	*link = l;
	return held ? COLL_OK : COLL_ERR_MEMORY;
}

/* One handle less; true: it was the last. */
static bool release(struct coll_link_table *t, const struct coll_link_rails_table *table, struct coll_peer_link *r)
{
	const bool last = coll_peer_link_release(t, r);

	if (last)
		table->bye(r);
	table->leave(r);
	return last;
}

void coll_link_rails_close(struct coll_link_table *t, const struct coll_link_rails_table *table,
                           struct coll_peer_link *l)
{
	struct coll_peer_link *rail[COLL_RAILS_MAX];
	unsigned count = 1;

	/* All under the table's lock: who opens the link again meanwhile would find rails that are still held, and take
	 * others that the peer does not know. */
	pthread_mutex_lock(&t->lock);
	pthread_mutex_lock(&l->lock);
	if (release(t, table, l)) {
		count = l->rails;
		memcpy(rail, l->rail, sizeof(rail));
		l->rails = 0;
	}
	pthread_mutex_unlock(&l->lock);
	for (unsigned i = 1; i < count; i++) {
		pthread_mutex_lock(&rail[i]->lock);
		release(t, table, rail[i]);
		pthread_mutex_unlock(&rail[i]->lock);
	}
	pthread_mutex_unlock(&t->lock);
}

struct coll_peer_link *coll_link_rails_of(struct coll_peer_link *l, const struct coll_channel_key *key)
{
	return l->rails > 1 ? l->rail[key->rail % l->rails] : l;
}

coll_status coll_link_rails_status(void *link)
{
	const struct coll_peer_link *l = link;
	coll_status status = coll_peer_link_status(link);

	for (unsigned i = 1; i < l->rails && (status == COLL_OK || status == COLL_AGAIN); i++) {
		const coll_status s = coll_peer_link_status(l->rail[i]);

		if (s != COLL_OK && s != COLL_AGAIN)
			status = s;
	}
	return status;
}

void coll_link_rails_look(struct coll_link_table *t, void (*judge)(struct coll_peer_link *const *rail, unsigned count))
{
	if (!atomic_load_explicit(&t->torn, memory_order_relaxed) || !atomic_exchange(&t->torn, false))
		return;
	pthread_mutex_lock(&t->lock);
	for (uint32_t i = 0; i < t->count; i++) {
		struct coll_peer_link *l = t->at[i], *rail[COLL_RAILS_MAX];
		unsigned count;

		pthread_mutex_lock(&l->lock);
		count = l->rails;
		memcpy(rail, l->rail, sizeof(rail));
		pthread_mutex_unlock(&l->lock);
		if (count > 1)
			judge(rail, count);
	}
	pthread_mutex_unlock(&t->lock);
}
