/*
 * shm: cookies, and what follows from them: announced destinations, progress, what a
 * sleeper looks at, and the end of a channel.
 *
 * Invariant: a cookie is settled only by the thread that uses its channel: within a call
 * on that channel, or in that thread's progress(). pending_lock guards only the list.
 */
#include "transports/shm/shm_ring.h"

static void settle(struct coll_cookie *cookie, coll_status status)
{
	cookie->status = status;
	cookie->pending = 0;
}

/* ---- Cookies: only the channel's own thread settles them --------------------------------- */

void coll_shm_list_pending(struct shm_channel *c)
{
	struct shm_inst *in = c->inst;

	pthread_mutex_lock(&in->pending_lock);
	c->owner = pthread_self();
	if (!c->pending) {
		c->pending = true;
		c->pending_next = in->pending;
		in->pending = c;
		atomic_fetch_add(&in->pending_count, 1);
	}
	pthread_mutex_unlock(&in->pending_lock);
}

static int settle_range(struct shm_channel *c, uint64_t from, uint64_t to, coll_status status)
{
	int settled = 0;

	for (uint64_t i = from; i < to && c->lent; i++) {
		struct coll_cookie **cookie = &c->cookies[i % c->slots];

		if (*cookie) {
			settle(*cookie, status);
			*cookie = NULL;
			c->lent--;
			settled++;
		}
	}
	return settled;
}

/* Why lent memory will never be given back, or OK. */
static coll_status lost(const struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	return front && atomic_load_explicit(&front->closed, memory_order_acquire) ? COLL_ERR_ABORTED : COLL_OK;
}

/* Whoever waits for a cookie must not miss a given back that only the ring tells. */
static void refresh_fully(struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);
	const uint64_t freed = atomic_load_explicit(&front->freed, memory_order_acquire);

	if (freed > freed_of(c) && freed <= count_of(c))
		atomic_store_explicit(&c->freed, freed, memory_order_relaxed);
}

int coll_shm_reap(struct shm_channel *c)
{
	int settled;
	coll_status why;

	refresh_fully(c);
	settled = settle_range(c, reaped_of(c), freed_of(c), COLL_OK);
	atomic_store_explicit(&c->reaped, freed_of(c), memory_order_relaxed);
	why = c->lent ? lost(c) : COLL_OK;
	if (why != COLL_OK)
		settled += settle_range(c, reaped_of(c), count_of(c), why);
	if (!c->lent)
		unwant(c, SHM_WANT_COOKIE);
	return settled;
}

/* ---- Announced destinations ------------------------------------------------------------------- */

static void refuse_announced(struct shm_channel *c, coll_status status)
{
	for (; c->answered < c->announced; c->answered++)
		settle(c->announces[c->answered % c->slots].cookie, status);
	unwant(c, SHM_WANT_FRAME);
}

static int answer(struct shm_channel *c)
{
	int settled = 0;

	while (c->answered < c->announced) {
		const struct shm_announce *a = &c->announces[c->answered % c->slots];
		const coll_status status = coll_shm_deliver(c, a);

		if (status == COLL_AGAIN)
			return settled;
		if (status != COLL_OK) {
			/* What was announced behind it cannot fit either. */
			settled += (int)(c->announced - c->answered);
			refuse_announced(c, status);
			return settled;
		}
		settle(a->cookie, COLL_OK);
		c->answered++;
		settled++;
	}
	return settled;
}

coll_status coll_shm_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *expect,
                               struct coll_cookie *cookie)
{
	struct shm_channel *c = channel;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	if (c->announced - c->answered == c->slots)
		answer(c);
	if (c->announced - c->answered == c->slots)
		return COLL_AGAIN;
	cookie->status = COLL_OK;
	cookie->pending = 1;
	c->announces[c->announced++ % c->slots] = (struct shm_announce){ptr, *expect, cookie};
	answer(c);
	if (c->answered < c->announced) {
		struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

		atomic_store_explicit(&front->announced, count_of(c) + (c->announced - c->answered),
		                      memory_order_relaxed);
		coll_shm_list_pending(c);
	}
	return COLL_OK;
}

/* ---- Progress, sleeping, closing ------------------------------------------------------------------ */

static int settle_pending(struct shm_inst *in)
{
	struct shm_channel **at = &in->pending;
	int moved = 0;

	if (pthread_mutex_trylock(&in->pending_lock) != 0)
		return 0;
	while (*at) {
		struct shm_channel *c = *at;

		if (!pthread_equal(c->owner, pthread_self())) {
			at = &c->pending_next;
			continue;
		}
		moved += c->dir == COLL_DIR_SEND ? coll_shm_reap(c) : answer(c);
		if (c->lent || c->answered < c->announced) {
			at = &c->pending_next;
			continue;
		}
		*at = c->pending_next;
		c->pending = false;
		atomic_fetch_sub(&in->pending_count, 1);
	}
	pthread_mutex_unlock(&in->pending_lock);
	return moved;
}

/* Where nobody runs a service thread, its work is done here, seldom. */
int coll_shm_progress(void *inst)
{
	struct shm_inst *in = inst;
	int moved = 0;

	if (unlikely(atomic_load_explicit(&in->pending_count, memory_order_relaxed)))
		moved = settle_pending(in);
	if (unlikely(!atomic_load_explicit(&in->serviced, memory_order_relaxed)) &&
	    (atomic_fetch_add_explicit(&in->spins, 1, memory_order_relaxed) & 255) == 255)
		coll_shm_service_step(in, false);
	return moved;
}

bool coll_shm_noteworthy(const struct shm_channel *c)
{
	const unsigned wanted = atomic_load_explicit(&c->want, memory_order_relaxed);
	const struct shm_front *front = atomic_load(&c->ring);
	uint64_t word, freed;

	if (!wanted)
		return false;
	if (link_status(c) > COLL_AGAIN || atomic_load(&c->mismatched))
		return true;
	if (wanted & SHM_WANT_FRAME)
		return arrived(&c->heads[count_of(c) % c->slots], count_of(c), &word);
	if (!front)
		return false;
	freed = atomic_load_explicit(&front->freed, memory_order_acquire);
	if ((wanted & SHM_WANT_COOKIE) && (freed > reaped_of(c) || atomic_load(&front->closed)))
		return true;
	return (wanted & SHM_WANT_CREDIT) && count_of(c) - freed < c->slots;
}

static void take_back(struct shm_channel *c)
{
	const struct shm_front *front = atomic_load(&c->ring);

	if (front && c->lent)
		coll_shm_reap(c);
	for (uint64_t i = reaped_of(c); i < count_of(c) && c->lent; i++) {
		unsigned lent = SHM_LENT;

		if (c->cookies[i % c->slots])
			atomic_compare_exchange_strong(&c->heads[i % c->slots].record.loan, &lent, SHM_REVOKED);
	}
	settle_range(c, reaped_of(c), count_of(c), COLL_ERR_ABORTED);
}

void coll_shm_quiesce(struct shm_channel *c)
{
	struct shm_front *front = atomic_load(&c->ring);

	if (c->dir == COLL_DIR_SEND) {
		take_back(c);
		return;
	}
	refuse_announced(c, COLL_ERR_ABORTED);
	if (c->using)
		coll_shm_end_borrowing(c);
	atomic_store(&front->closed, 1);
	if (atomic_load(&c->link->peer_page))
		wake_peer(c->link);
}
