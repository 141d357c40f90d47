/*
 * loop: the data path. A pipe is a ring of cells; frame number i lives in cell
 * i % slots.
 *
 * Ordering. The sender fills the cell and stores turn = i + 1; the receiver loads
 * turn and reads the cell only if it is head + 1. The receiver stores freed = i + 1
 * when it has read frame i; the sender reuses a cell only after loading a freed
 * that covers it. Each word has one writer. Both stores are sequentially
 * consistent because they are also one half of the agreement with a sleeper: "store
 * turn (or freed), then load armed" here, "store armed, then load turn (or freed)"
 * in arm(). In the single total order one of the two loads sees the other's store,
 * so a sleeper either gets AGAIN or is woken. The argument uses C11 only and
 * so holds on Arm as well.
 */
#include "transports/loop/pipe.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "net/net.h"
#include "transports/loop/group.h"
#include "transports/loop/loop.h"

static struct loop_cell *cell_of(const struct loop_pipe *p, uint64_t frame)
{
	return &p->cells[frame % p->slots];
}

static bool frame_at(const struct loop_pipe *p, uint64_t number)
{
	return atomic_load(&p->granted) && atomic_load(&cell_of(p, number)->turn) == number + 1;
}

static uint64_t count_of(const struct loop_channel *c)
{
	return atomic_load_explicit(&c->count, memory_order_relaxed);
}

static uint64_t reaped_of(const struct loop_channel *c)
{
	return atomic_load_explicit(&c->reaped, memory_order_relaxed);
}

static uint32_t loaned_of(const struct loop_channel *c)
{
	return atomic_load_explicit(&c->loaned, memory_order_relaxed);
}

static void want(struct loop_channel *c, unsigned what)
{
	atomic_store_explicit(&c->want, atomic_load_explicit(&c->want, memory_order_relaxed) | what,
	                      memory_order_relaxed);
}

static void unwant(struct loop_channel *c, unsigned what)
{
	atomic_store_explicit(&c->want, atomic_load_explicit(&c->want, memory_order_relaxed) & ~what,
	                      memory_order_relaxed);
}

static bool peer_gone(const struct loop_channel *c)
{
	return atomic_load(&c->pipe->pair->closed[!c->side]);
}

/* The frames in this pipe will never be returned. */
static bool receiver_gone(const struct loop_channel *c)
{
	return atomic_load(&c->pipe->closed[COLL_DIR_RECV]) || peer_gone(c);
}

static void ring_peer(const struct loop_channel *c)
{
	struct loop_bell *bell = atomic_load_explicit(&c->pipe->pair->ring[!c->side], memory_order_acquire);

	if (bell && atomic_load(&bell->armed))
		coll_loop_ring(bell);
}

/* ---- Completion words: any thread settles them, under the channel's lock ---------------- */

static int settle_at(struct loop_channel *c, uint64_t number, coll_status status)
{
	struct coll_completion **completion = &c->completions[number % c->pipe->slots];
	struct coll_completion *const it = *completion;

	if (!it)
		return 0;
	*completion = NULL;
	atomic_store_explicit(&c->loaned, loaned_of(c) - 1, memory_order_relaxed);
	coll_completion_settle(it, status);
	return 1;
}

/* Settle the completion words of frames the receiver gave back. */
static int reap(struct loop_channel *c)
{
	const uint64_t sent = count_of(c);
	const uint64_t freed = atomic_load(&c->pipe->freed);
	uint64_t at = reaped_of(c);
	int settled = 0;

	for (; at < freed; at++)
		settled += settle_at(c, at, COLL_OK);
	if (loaned_of(c) && receiver_gone(c)) {
		const coll_status lost = peer_gone(c) ? COLL_ERR_PEER_DEAD : COLL_ERR_ABORTED;

		for (at = freed; at < sent; at++)
			if (atomic_load(&cell_of(c->pipe, at)->loan) != LOOP_READ)
				settled += settle_at(c, at, lost);
		at = freed;
	}
	atomic_store_explicit(&c->reaped, at, memory_order_relaxed);
	return settled;
}

/* After an announcement that did not fit the rest cannot fit either. */
static int refuse_announced(struct loop_channel *c, coll_status status)
{
	int settled = 0;

	unwant(c, LOOP_WANT_FRAME);
	for (; c->answered < c->announced; settled++)
		coll_completion_settle(c->announces[c->answered++ % c->pipe->slots].completion, status);
	return settled;
}

/* Copy arrived frames to the destinations announced for them. A completion word is settled last:
 * from then on the channel is its own thread's, but for the announcements. */
static int answer(struct loop_channel *c)
{
	int settled = 0;

	while (c->answered < c->announced) {
		const struct loop_announce a = c->announces[c->answered % c->pipe->slots];
		struct coll_frame frame;
		const void *p;
		coll_status status = coll_loop_view(c, &p, &frame);

		if (status == COLL_AGAIN)
			return settled;
		if (status == COLL_OK && !coll_same_frame(&frame, &a.expect))
			status = COLL_ERR_MISMATCH;
		if (status != COLL_OK)
			return settled + refuse_announced(c, status);
		if (frame.len_bytes)
			memcpy(a.ptr, p, frame.len_bytes);
		status = coll_loop_done(c);
		c->answered++;
		coll_completion_settle(a.completion, status);
		settled++;
	}
	return settled;
}

static bool advance(struct coll_pending_channel *pending, int *settled)
{
	struct loop_channel *c =
	        (struct loop_channel *)(void *)((char *)pending - offsetof(struct loop_channel, pending));

	*settled += c->dir == COLL_DIR_SEND ? reap(c) : answer(c);
	return loaned_of(c) || c->answered < c->announced;
}

int coll_loop_progress(void *inst)
{
	struct loop_inst *in = inst;
	int settled = coll_pending_any(&in->pending) ? coll_pending_walk(&in->pending, advance) : 0;

	/* What was settled may be what another thread sleeps for. */
	if (settled && atomic_load(&in->bell->armed))
		coll_loop_ring(in->bell);
	return settled;
}

/* ---- Sender ------------------------------------------------------------- */

static coll_status credit(struct loop_channel *c)
{
	struct loop_pipe *p = c->pipe;

	if (atomic_load_explicit(&c->inst->closed, memory_order_relaxed))
		return COLL_ERR_ABORTED;
	if (atomic_load(&p->granted)) {
		if (count_of(c) - c->freed_seen >= p->slots)
			c->freed_seen = atomic_load(&p->freed);
		if (count_of(c) - c->freed_seen < p->slots) {
			unwant(c, LOOP_WANT_CREDIT);
			return COLL_OK;
		}
	}
	if (peer_gone(c))
		return COLL_ERR_PEER_DEAD;
	want(c, LOOP_WANT_CREDIT);
	return COLL_AGAIN;
}

static char *slot_memory(const struct loop_pipe *p, uint64_t number)
{
	return p->slot_memory + number % p->slots * ((p->slot_bytes + 63) & ~(size_t)63);
}

coll_status coll_loop_slot(void *channel, size_t len_bytes, void **p)
{
	struct loop_channel *c = channel;
	coll_status status = credit(c);

	assert(len_bytes <= c->pipe->slot_bytes);
	if (status != COLL_OK)
		return status;
	*p = slot_memory(c->pipe, count_of(c));
	return COLL_OK;
}

static void publish(struct loop_channel *c, const struct coll_frame *frame, const void *data, enum loop_loan loan)
{
	const uint64_t number = count_of(c);
	struct loop_cell *cell = cell_of(c->pipe, number);

	cell->frame = *frame;
	cell->data = data;
	atomic_store_explicit(&cell->loan, loan, memory_order_relaxed);
	atomic_store_explicit(&c->count, number + 1, memory_order_relaxed);
	atomic_store(&cell->turn, number + 1);
	ring_peer(c);
}

coll_status coll_loop_post(void *channel, const struct coll_frame *frame)
{
	struct loop_channel *c = channel;

	assert(frame->len_bytes <= c->pipe->slot_bytes);
	publish(c, frame, slot_memory(c->pipe, count_of(c)), LOOP_BY_VALUE);
	return COLL_OK;
}

coll_status coll_loop_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *frame, struct coll_completion *completion)
{
	struct loop_channel *c = channel;
	coll_status status = credit(c);

	assert(frame->len_bytes <= c->pipe->slot_bytes);
	if (status != COLL_OK)
		return status;
	completion->status = COLL_OK;
	completion->pending = 1;
	pthread_mutex_lock(&c->pending.lock);
	reap(c); /* the completion word that was in this place */
	c->completions[count_of(c) % c->pipe->slots] = completion;
	atomic_store_explicit(&c->loaned, loaned_of(c) + 1, memory_order_relaxed);
	publish(c, frame, ptr, LOOP_LOANED);
	coll_pending_join(&c->inst->pending, &c->pending);
	pthread_mutex_unlock(&c->pending.lock);
	return COLL_OK;
}

/* ---- Receiver ----------------------------------------------------------- */

static coll_status take(struct loop_channel *c, struct loop_cell *cell)
{
	int expected = LOOP_LOANED;

	if (c->held || atomic_load_explicit(&cell->loan, memory_order_relaxed) == LOOP_BY_VALUE)
		return COLL_OK;
	cell->reader = pthread_self();
	return atomic_compare_exchange_strong(&cell->loan, &expected, LOOP_READ) ? COLL_OK : COLL_ERR_ABORTED;
}

coll_status coll_loop_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct loop_channel *c = channel;
	const uint64_t number = count_of(c);
	struct loop_cell *cell = cell_of(c->pipe, number);
	coll_status status;

	if (!frame_at(c->pipe, number)) {
		bool gone = peer_gone(c);

		/* What the peer posted before it closed is still delivered. */
		if (gone && !frame_at(c->pipe, number))
			return COLL_ERR_PEER_DEAD;
		if (!gone) {
			want(c, LOOP_WANT_FRAME);
			return atomic_load(&c->inst->closed) ? COLL_ERR_ABORTED : COLL_AGAIN;
		}
	}
	status = take(c, cell);
	unwant(c, LOOP_WANT_FRAME);
	if (status != COLL_OK)
		return status;
	c->held = true;
	*p = cell->data;
	*frame = cell->frame;
	return COLL_OK;
}

coll_status coll_loop_done(void *channel)
{
	struct loop_channel *c = channel;
	const uint64_t number = count_of(c);
	struct loop_cell *cell = cell_of(c->pipe, number);
	int expected = LOOP_READ;
	coll_status status = COLL_OK;

	assert(c->held);
	if (atomic_load_explicit(&cell->loan, memory_order_relaxed) != LOOP_BY_VALUE &&
	    !atomic_compare_exchange_strong(&cell->loan, &expected, LOOP_BACK))
		status = COLL_ERR_ABORTED;
	c->held = false;
	atomic_store_explicit(&c->count, number + 1, memory_order_relaxed);
	atomic_store(&c->pipe->freed, number + 1);
	ring_peer(c);
	return status;
}

coll_status coll_loop_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_completion *completion)
{
	struct loop_channel *c = channel;
	coll_status status = COLL_AGAIN;

	pthread_mutex_lock(&c->pending.lock);
	if (c->announced - c->answered == c->pipe->slots)
		answer(c);
	if (c->announced - c->answered < c->pipe->slots) {
		status = COLL_OK;
		completion->status = COLL_OK;
		completion->pending = 1;
		c->announces[c->announced++ % c->pipe->slots] = (struct loop_announce){ptr, *expect, completion};
		answer(c);
		if (c->answered < c->announced)
			coll_pending_join(&c->inst->pending, &c->pending);
	}
	pthread_mutex_unlock(&c->pending.lock);
	return status;
}

/* ---- Sleeping and closing ------------------------------------------------ */

bool coll_loop_noteworthy(const struct loop_channel *c)
{
	const unsigned wanted = atomic_load_explicit(&c->want, memory_order_relaxed);
	const struct loop_pipe *p = c->pipe;
	const bool loaned = loaned_of(c);

	if (!wanted && !loaned)
		return false;
	if (peer_gone(c))
		return true;
	if (wanted & LOOP_WANT_FRAME)
		return frame_at(p, count_of(c));
	if (!atomic_load(&p->granted))
		return false;
	if (loaned && (atomic_load(&p->freed) > reaped_of(c) || receiver_gone(c)))
		return true;
	return (wanted & LOOP_WANT_CREDIT) && count_of(c) - atomic_load(&p->freed) < p->slots;
}

/* The reader is another thread that reads our memory: it finishes soon, or
 * closes its own end. The wait is bounded, because a view may be held for as long as a third
 * process is slow; a reader in this very thread is not waited for. For a view that is still
 * held then, done() reports that the data read is invalid. */
static void await_reader(struct loop_channel *c, struct loop_cell *cell)
{
	const uint64_t until = coll_clock_ns() + COLL_DELAY_NS(LOOP_READER);
	int reading = LOOP_READ;

	while (atomic_load(&cell->loan) == LOOP_READ && !pthread_equal(cell->reader, pthread_self())) {
		if (coll_clock_ns() > until) {
			c->inst->env.log(c->inst->env.ctx, 1,
			                 "[COLL-6301] loop: memory loaned to a peer is still being read");
			break;
		}
		coll_net->yield();
	}
	atomic_compare_exchange_strong(&cell->loan, &reading, LOOP_REVOKED);
}

static void revoke(struct loop_channel *c)
{
	reap(c);
	for (uint64_t at = reaped_of(c); at < count_of(c); at++) {
		struct loop_cell *cell = cell_of(c->pipe, at);
		int expected = LOOP_LOANED;

		if (!c->completions[at % c->pipe->slots])
			continue;
		if (!atomic_compare_exchange_strong(&cell->loan, &expected, LOOP_REVOKED))
			await_reader(c, cell);
		settle_at(c, at, COLL_ERR_ABORTED);
	}
}

void coll_loop_quiesce(struct loop_channel *c)
{
	pthread_mutex_lock(&c->pending.lock);
	coll_pending_leave(&c->inst->pending, &c->pending);
	if (c->dir == COLL_DIR_SEND) {
		revoke(c);
	} else {
		refuse_announced(c, COLL_ERR_ABORTED);
		if (c->held)
			coll_loop_done(c);
	}
	pthread_mutex_unlock(&c->pending.lock);
}
