/*
 * What the two ends of a channel have in common: the ring of slots, opening and
 * closing. A receiving end owns a ring that the peer writes into; frame number i goes to
 * slot i modulo slots, at both ends. sender.c and receiver.c have the rest.
 */
#include "transports/rdma/channel.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/rails.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/tx.h"

coll_status coll_rdma_channel_nothing(const struct rdma_channel *ch)
{
	const int status = atomic_load_explicit(&ch->link->base.status, memory_order_relaxed);

	if (atomic_load_explicit(&ch->link->inst->closed, memory_order_relaxed))
		return COLL_ERR_ABORTED;
	return status == COLL_OK ? COLL_AGAIN : (coll_status)status;
}

void coll_rdma_channel_enter(struct rdma_channel *ch)
{
	pthread_mutex_lock(&ch->link->base.lock);
}

void coll_rdma_channel_leave(struct rdma_link *l)
{
	coll_rdma_link_leave(l);
	pthread_mutex_unlock(&l->base.lock);
}

/* ---- rings ------------------------------------------------------------------------ */

coll_status coll_rdma_channel_make_ring(struct rdma_channel *ch)
{
	struct rdma_ring *ring = &ch->ring;

	ring->room = rdma_pad(ch->slot_bytes);
	ring->stride = ring->room + RDMA_TAIL_BYTES;
	if (ch->slot_bytes > SIZE_MAX / 4 / ch->slots)
		return COLL_ERR_ARGUMENT;
	ring->len_bytes = (ring->stride * ch->slots + 4095) & ~(size_t)4095;
	ring->memory = aligned_alloc(4096, ring->len_bytes);
	if (!ring->memory)
		return COLL_ERR_MEMORY;
	for (uint32_t i = 0; i < ch->slots; i++) /* nothing that was there before looks like a frame */
		memset(rdma_head_at(ring, i), 0, sizeof(struct coll_rdma_head));
	return coll_rdma_channel_pin_ring(ch) ? COLL_OK : COLL_ERR_MEMORY;
}

/* Those of other ports stay: their queue pairs may wait for a port that is not active. */
bool coll_rdma_channel_pin_ring(struct rdma_channel *ch)
{
	struct ibv_mr **mr = &ch->ring.mr[ch->link->port->index];

	if (!*mr)
		*mr = coll_rdma_memory_pin(ch->link->port, ch->ring.memory, ch->ring.len_bytes,
		                           ch->dir == COLL_DIR_RECV);
	return *mr != NULL;
}

bool coll_rdma_channel_pin_all(struct rdma_link *l)
{
	bool pinned = true;

	for (struct rdma_sender *s = l->senders; s; s = s->next)
		pinned &= coll_rdma_channel_pin_ring(&s->base);
	for (struct rdma_sender *s = l->closing; s; s = s->next)
		pinned &= coll_rdma_channel_pin_ring(&s->base);
	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i])
			pinned &= coll_rdma_channel_pin_ring(&((struct rdma_receiver *)l->receivers.at[i])->base);
	return pinned;
}

void coll_rdma_channel_free_ring(struct rdma_channel *ch)
{
	for (unsigned i = 0; i < COLL_RDMA_PORTS; i++)
		if (ch->ring.mr[i])
			ch->link->inst->v.ibv_dereg_mr(ch->ring.mr[i]);
	free(ch->ring.memory);
}

/* ---- open, close --------------------------------------------------------------------- */

coll_status coll_rdma_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                   size_t slot_bytes, uint32_t slots, void **channel)
{
	struct rdma_link *l = (struct rdma_link *)coll_link_rails_of(link, key);
	const struct rdma_channel base = {.link = l, .dir = dir, .key = *key, .slot_bytes = slot_bytes, .slots = slots};
	coll_status status;

	if (slots < 2 || slots > UINT16_MAX || slot_bytes > UINT32_MAX)
		return COLL_ERR_ARGUMENT;
	pthread_mutex_lock(&l->base.lock);
	status = (coll_status)atomic_load(&l->base.status);
	if (slot_bytes > l->port->message_max * RDMA_PIECES)
		status = COLL_ERR_ARGUMENT;
	if (status == COLL_OK || status == COLL_AGAIN)
		status = dir == COLL_DIR_SEND ? coll_rdma_sender_open(&base, channel)
		                              : coll_rdma_receiver_open(&base, channel);
	coll_rdma_channel_leave(l);
	return status;
}

bool coll_rdma_channel_await(struct rdma_link *l, bool (*done)(struct rdma_link *l, const void *arg), const void *arg,
                             unsigned ms)
{
	const uint64_t until = coll_clock_ns() + ms * COLL_NS_PER_MS;

	while (l->state == LINK_UP && !done(l, arg)) {
		if (coll_clock_ns() > until)
			return false;
		coll_rdma_tx_push(l);
		if (coll_rdma_rx_poll(l) > 0)
			continue;
		coll_rdma_channel_leave(l);
		sched_yield();
		pthread_mutex_lock(&l->base.lock);
	}
	return true;
}

void coll_rdma_channel_bury(struct rdma_link *l)
{
	pthread_mutex_unlock(&l->base.lock);
	pthread_mutex_lock(&l->inst->service.lock);
	pthread_mutex_lock(&l->base.lock);
	if (l->state == LINK_DOWN || l->state == LINK_ENDED)
		coll_rdma_cm_bury(l);
	else if (l->state == LINK_TORN)
		coll_rdma_cm_tear(l);
	pthread_mutex_unlock(&l->inst->service.lock);
}

void coll_rdma_channel_close(void *channel)
{
	struct rdma_channel *ch = channel;
	struct rdma_link *l = ch->link;

	coll_rdma_channel_enter(ch);
	if (ch->dir == COLL_DIR_SEND)
		coll_rdma_sender_close((struct rdma_sender *)ch);
	else
		coll_rdma_receiver_close((struct rdma_receiver *)ch);
	coll_rdma_channel_leave(l);
}
