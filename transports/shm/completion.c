/*
 * shm: completion words, and what follows from them: announced destinations, progress, what a
 * sleeper looks at, and the end of a channel.
 *
 * Invariant: completion words, announcements, and the receiver's place in the ring while any is
 * announced, are touched under the channel's pending.lock only, by whatever thread. A
 * completion word is settled last: from then on the channel's own thread uses it without the lock.
 */
#include "transports/shm/completion.h"

#include "transports/shm/push.h"
#include "transports/shm/ring.h"
#include "transports/shm/service.h"

/* ---- Completion words: settled by any thread, pending.lock held ---- */

static int settle_range(struct shm_channel *c, uint64_t from, uint64_t to, coll_status status)
{
	int settled = 0;

	for (uint64_t i = from; i < to && loaned_of(c); i++) {
		struct coll_completion **place = &c->completions[i % c->slots], *const completion = *place;

		if (completion) {
			*place = NULL;
			atomic_store_explicit(&c->loaned, loaned_of(c) - 1, memory_order_relaxed);
			coll_completion_settle(completion, status);
			settled++;
		}
	}
	return settled;
}

/* Why loaned memory will never be given back, or OK. */
static coll_status lost(const struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	return front && atomic_load_explicit(&front->closed, memory_order_acquire) ? COLL_ERR_ABORTED : COLL_OK;
}

/* Frames given back, as the ring says it: never less than what the channel knows, which
 * comes from there or from frames that were sent after it. */
static uint64_t given_back(const struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);
	const uint64_t freed = atomic_load_explicit(&front->freed, memory_order_acquire);

	return freed > freed_of(c) && freed <= count_of(c) ? freed : freed_of(c);
}

/* Before completion words of frames that are not given back are settled: their readers, who may
 * live though the link is broken, shall not take what they see from now on for the data. */
static void revoke_from(struct shm_channel *c, uint64_t from)
{
	for (uint64_t i = from; i < count_of(c) && loaned_of(c); i++) {
		unsigned loaned = SHM_LOANED;

		if (c->completions[i % c->slots])
			atomic_compare_exchange_strong(&c->heads[i % c->slots].record.loan, &loaned, SHM_REVOKED);
	}
}

static int reap(struct shm_channel *c)
{
	const uint64_t back = given_back(c);
	int settled = settle_range(c, reaped_of(c), back, COLL_OK);
	coll_status why;

	atomic_store_explicit(&c->reaped, back, memory_order_relaxed);
	why = loaned_of(c) ? lost(c) : COLL_OK;
	if (why != COLL_OK) {
		revoke_from(c, back);
		settled += settle_range(c, back, count_of(c), why);
	}
	return settled;
}

void coll_shm_loaned(struct shm_channel *c, struct coll_completion *completion)
{
	const uint64_t number = count_of(c);

	completion->status = COLL_OK;
	completion->pending = 1;
	pthread_mutex_lock(&c->pending.lock);
	if (loaned_of(c)) /* the completion word that was in this place: there is a credit, so it was given back */
		reap(c);
	else /* frames before this one have no completion word, whether seen given back or not */
		atomic_store_explicit(&c->reaped, number, memory_order_relaxed);
	c->completions[number % c->slots] = completion;
	atomic_store_explicit(&c->loaned, loaned_of(c) + 1, memory_order_relaxed);
	coll_pending_join(&c->inst->pending, &c->pending);
	pthread_mutex_unlock(&c->pending.lock);
}

/* ---- Announced destinations ------------------------------------------------------------------- */

static int refuse_announced(struct shm_channel *c, coll_status status)
{
	int settled = 0;

	unwant(c, SHM_WANT_FRAME);
	for (; c->answered < c->announced; settled++)
		coll_completion_settle(c->announces[c->answered++ % c->slots].completion, status);
	return settled;
}

static int answer(struct shm_channel *c)
{
	int settled = 0;

	while (c->answered < c->announced) {
		const struct shm_announce a = c->announces[c->answered % c->slots];
		const coll_status status = coll_shm_deliver(c, &a);

		if (status == COLL_AGAIN)
			return settled;
		if (status != COLL_OK) /* What was announced behind it cannot fit either. */
			return settled + refuse_announced(c, status);
		c->answered++;
		coll_completion_settle(a.completion, COLL_OK);
		settled++;
	}
	return settled;
}

/* The next frames have a destination: tell the sender, a hint, and who makes progress. */
static void expect(struct shm_channel *c)
{
	struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	atomic_store_explicit(&front->announced, count_of(c) + (c->announced - c->answered), memory_order_relaxed);
	coll_pending_join(&c->inst->pending, &c->pending);
}

/*
 * Announcing costs a lock and a walk per poll, and is of use only if the sender lends
 * because of it. So a sender that sends by value is believed to go on with it, until it
 * says that it would have loaned (SHM_WISH). by_value is set when the last announcement is
 * answered and cleared when one is made: while it is set none is out, so that the
 * caller may view().
 */
coll_status coll_shm_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *frame,
                               struct coll_completion *completion)
{
	struct shm_channel *c = channel;
	coll_status status = COLL_AGAIN;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	if (atomic_load_explicit(&c->by_value, memory_order_relaxed)) {
		atomic_store_explicit(&c->declined, count_of(c), memory_order_relaxed);
		return COLL_ERR_UNSUPPORTED;
	}
	pthread_mutex_lock(&c->pending.lock);
	if (c->announced - c->answered == c->slots)
		answer(c);
	if (c->announced - c->answered < c->slots) {
		status = COLL_OK;
		completion->status = COLL_OK;
		completion->pending = 1;
		c->announces[c->announced++ % c->slots] = (struct shm_announce){ptr, *frame, completion};
		atomic_store_explicit(&c->by_value, false, memory_order_relaxed);
		answer(c);
		if (c->answered < c->announced)
			expect(c);
	}
	pthread_mutex_unlock(&c->pending.lock);
	return status;
}

/* ---- Progress, sleeping, closing ------------------------------------------------------------------ */

static bool advance(struct coll_pending_channel *pending, int *settled)
{
	struct shm_channel *c = (struct shm_channel *)(void *)((char *)pending - offsetof(struct shm_channel, pending));

	*settled += c->dir == COLL_DIR_SEND ? reap(c) : answer(c);
	return loaned_of(c) || c->answered < c->announced;
}

/* Where nobody runs a service thread, its work is done here, seldom. */
int coll_shm_progress(void *inst)
{
	struct shm_inst *in = inst;
	int settled = 0;

	if (unlikely(coll_pending_any(&in->pending)))
		settled = coll_pending_walk(&in->pending, advance);
	/* What was settled may be what another thread sleeps for. */
	if (settled)
		coll_shm_wake_self(in);
	if (unlikely(!atomic_load_explicit(&in->serviced, memory_order_relaxed)) &&
	    (atomic_fetch_add_explicit(&in->spins, 1, memory_order_relaxed) & 255) == 255)
		coll_shm_service_step(in, false);
	return settled;
}

bool coll_shm_noteworthy(const struct shm_channel *c)
{
	const unsigned wanted = atomic_load_explicit(&c->want, memory_order_relaxed);
	const struct shm_front *front = atomic_load(&c->ring);
	const bool loaned = loaned_of(c);
	uint64_t word, freed;

	if (!wanted && !loaned)
		return false;
	if (link_status(c) > COLL_AGAIN || atomic_load(&c->mismatched))
		return true;
	if (wanted & SHM_WANT_FRAME)
		return arrived(&c->heads[count_of(c) % c->slots], count_of(c), &word);
	if (!front)
		return false;
	freed = atomic_load_explicit(&front->freed, memory_order_acquire);
	if (loaned && (freed > reaped_of(c) || atomic_load(&front->closed)))
		return true;
	return (wanted & SHM_WANT_CREDIT) && count_of(c) - freed < c->slots;
}

static void take_back(struct shm_channel *c)
{
	if (c->kind == SHM_PUSHED)
		coll_shm_end_pushing(c);
	c->kind = SHM_VALUE;
	if (loaned_of(c))
		reap(c);
	revoke_from(c, reaped_of(c));
	settle_range(c, reaped_of(c), count_of(c), COLL_ERR_ABORTED);
}

static void leave(struct shm_channel *c)
{
	struct shm_front *front = atomic_load(&c->ring);

	refuse_announced(c, COLL_ERR_ABORTED);
	if (c->using)
		coll_shm_end_borrowing(c);
	coll_shm_uninvite(c);
	atomic_store(&front->closed, 1);
	if (atomic_load(&c->link->peer_page))
		wake_peer(c->link);
}

void coll_shm_quiesce(struct shm_channel *c)
{
	pthread_mutex_lock(&c->pending.lock);
	coll_pending_leave(&c->inst->pending, &c->pending);
	if (c->dir == COLL_DIR_SEND)
		take_back(c);
	else
		leave(c);
	pthread_mutex_unlock(&c->pending.lock);
}
