/*
 * shm: opening and closing channels.
 *
 * The receiver cuts a ring from its own segments and grants it over the socket; the
 * sender attaches when the grant and its own open have both happened, in either
 * order. Neither end waits. A ring is given up in two steps, the receiver's close
 * and the sender's SHM_CLOSE, and its space is used again after both.
 */
#include "transports/shm/channel.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "transports/shm/completion.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/shm/wire.h"

/* ---- Pairings ------------------------------------------------------------------- */

static struct shm_pairing *pairing_get(struct shm_link *l, const struct coll_channel_key *key)
{
	struct shm_pairing *p = l->pairings;

	while (p && !coll_same_key(&p->key, key))
		p = p->next;
	if (!p) {
		p = aligned_alloc(SHM_LINE, (sizeof(*p) + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1));
		if (!p)
			return NULL;
		memset(p, 0, sizeof(*p));
		p->key = *key;
		p->next = l->pairings;
		l->pairings = p;
	}
	p->refs++;
	return p;
}

static void pairing_put(struct shm_link *l, struct shm_pairing *p)
{
	struct shm_pairing **at = &l->pairings;

	if (!p || --p->refs)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

/* ---- Grants ---------------------------------------------------------------------- */

static coll_status send_grant(struct shm_channel *c, struct shm_ring *r)
{
	struct shm_message m = coll_shm_message(SHM_GRANT);
	struct shm_segment *s = r->segment;
	const int fd = s->fd;
	coll_status status;

	m.grant = (struct shm_grant){.key = c->key,
	                             .ring = r->name,
	                             .offset = (uint64_t)((char *)r->front - s->base),
	                             .slot_bytes = c->slot_bytes,
	                             .segment_len = fd >= 0 ? s->len : 0,
	                             .segment = s->id,
	                             .slots = c->slots};
	status = coll_shm_enqueue(c->link, &m, fd, true);
	if (status == COLL_OK)
		s->fd = -1; /* the queue closes it once it is on its way */
	return status;
}

/* Point the channel at a ring; the release of ring publishes the rest. */
static void attach(struct shm_channel *c, struct shm_front *front)
{
	c->stride = coll_shm_stride(c->slot_bytes);
	c->heads = (struct shm_head *)(void *)(front + 1);
	c->invitations = (struct shm_invitation *)(void *)(c->heads + c->slots);
	c->payload = (char *)front + coll_shm_control_bytes(c->slots);
	atomic_store(&c->ring, front);
}

/* Everything a peer sends is checked before it is used as an address. */
static struct shm_front *locate(struct shm_link *l, const struct shm_grant *g)
{
	struct shm_segment *s = coll_shm_segment_find(l->theirs, g->segment);

	if (!s || g->slots < 2 || g->slots > 1u << 20 || g->slot_bytes > SHM_SLOT_MAX || g->offset % SHM_LINE ||
	    g->offset > s->len || coll_shm_ring_bytes(g->slot_bytes, g->slots) > s->len - g->offset)
		return NULL;
	return (struct shm_front *)(void *)(s->base + g->offset);
}

static void accept_grant(struct shm_channel *c, const struct shm_grant *g)
{
	c->ring_name = g->ring;
	if (g->slots == c->slots && g->slot_bytes == c->slot_bytes) {
		attach(c, locate(c->link, g));
		return;
	}
	c->link->inst->env.log(c->link->inst->env.ctx, 0,
	                       "[COLL-6204] shm: ends of a channel disagree: %u slots of %zu, %u of %zu", c->slots,
	                       c->slot_bytes, g->slots, (size_t)g->slot_bytes);
	atomic_store(&c->mismatched, true);
}

static coll_status new_segment(struct shm_link *l, const struct shm_grant *g, int fd)
{
	struct shm_segment *s;

	if (!g->segment_len)
		return COLL_OK;
	if (fd < 0 || coll_shm_segment_find(l->theirs, g->segment))
		return COLL_ERR_CORRUPT;
	s = calloc(1, sizeof(*s));
	if (!s)
		return COLL_ERR_MEMORY;
	s->fd = -1;
	s->id = g->segment;
	s->len = g->segment_len;
	s->base = coll_shm_map(fd, s->len, true);
	if (!s->base) {
		free(s);
		return coll_errno_status(COLL_ERR_CORRUPT);
	}
	s->next = l->theirs;
	l->theirs = s;
	return COLL_OK;
}

coll_status coll_shm_on_grant(struct shm_link *l, const struct shm_grant *g, int fd)
{
	coll_status status = new_segment(l, g, fd);
	struct shm_pending_grant *later;

	if (status != COLL_OK)
		return status;
	if (!locate(l, g))
		return COLL_ERR_CORRUPT;
	for (struct shm_channel *c = l->inst->channels; c; c = c->next) {
		if (c->link == l && c->dir == COLL_DIR_SEND && !c->ring_name && coll_same_key(&c->key, &g->key)) {
			accept_grant(c, g);
			l->inst->changed = true;
			return COLL_OK;
		}
	}
	later = calloc(1, sizeof(*later));
	if (!later)
		return COLL_ERR_MEMORY;
	later->grant = *g;
	later->next = l->grants;
	l->grants = later;
	return COLL_OK;
}

static void take_early_grant(struct shm_channel *c)
{
	for (struct shm_pending_grant **at = &c->link->grants; *at; at = &(*at)->next) {
		struct shm_pending_grant *g = *at;

		if (coll_same_key(&g->grant.key, &c->key)) {
			*at = g->next;
			accept_grant(c, &g->grant);
			free(g);
			return;
		}
	}
}

void coll_shm_on_close(struct shm_link *l, uint64_t ring)
{
	for (struct shm_ring *r = l->rings; r; r = r->next) {
		if (r->name == ring) {
			r->theirs = false;
			coll_shm_ring_put(l, r);
			return;
		}
	}
}

/* Our sending end has left the ring, or leaves it if it ever comes: nobody writes to it
 * any more. */
static void say_close(struct shm_link *l, uint64_t ring)
{
	struct shm_message m = coll_shm_message(SHM_CLOSE);

	m.ring = ring;
	if (coll_shm_link_state(l) <= COLL_AGAIN)
		coll_shm_enqueue(l, &m, -1, false);
}

/* The receiver left before we came: nobody would say close otherwise. */
void coll_shm_on_withdraw(struct shm_link *l, uint64_t ring)
{
	for (struct shm_pending_grant **at = &l->grants; *at; at = &(*at)->next) {
		struct shm_pending_grant *g = *at;

		if (g->grant.ring == ring) {
			*at = g->next;
			free(g);
			say_close(l, ring);
			return;
		}
	}
}

/* ---- Open and close ----------------------------------------------------------------- */

static void channel_free(struct shm_channel *c)
{
	coll_pending_channel_fini(&c->pending);
	free(c->completions);
	free(c->announces);
	free(c->invited);
	free(c);
}

static struct shm_channel *channel_new(struct shm_link *l, enum coll_direction dir, size_t slot_bytes, uint32_t slots)
{
	struct shm_channel *c = aligned_alloc(SHM_LINE, (sizeof(*c) + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1));

	if (!c)
		return NULL;
	memset(c, 0, sizeof(*c));
	c->link = l;
	c->inst = l->inst;
	c->dir = dir;
	c->slots = slots;
	c->slot_bytes = slot_bytes;
	coll_pending_channel_init(&c->pending);
	c->completions = calloc(slots, sizeof(*c->completions));
	c->announces = calloc(slots, sizeof(*c->announces));
	c->invited = dir == COLL_DIR_RECV ? calloc(slots, sizeof(*c->invited)) : NULL;
	if (c->completions && c->announces && (c->invited || dir == COLL_DIR_SEND))
		return c;
	channel_free(c);
	return NULL;
}

static coll_status grant_ring(struct shm_channel *c)
{
	coll_status status = coll_shm_ring_new(c->link, c->slot_bytes, c->slots, &c->owned);

	if (status != COLL_OK)
		return status;
	attach(c, c->owned->front);
	status = send_grant(c, c->owned);
	if (status != COLL_OK) {
		c->owned->ours = c->owned->theirs = false;
		coll_shm_ring_put(c->link, c->owned);
	}
	return status;
}

static coll_status enlist(struct shm_channel *c)
{
	coll_status status = COLL_OK;

	c->pair = pairing_get(c->link, &c->key);
	if (!c->pair)
		return COLL_ERR_MEMORY;
	if (c->dir == COLL_DIR_RECV)
		status = grant_ring(c);
	else
		take_early_grant(c);
	if (status != COLL_OK) {
		pairing_put(c->link, c->pair);
		return status;
	}
	c->link->channels++;
	c->next = c->inst->channels;
	c->inst->channels = c;
	return COLL_OK;
}

coll_status coll_shm_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                  size_t slot_bytes, uint32_t slots, void **channel)
{
	struct shm_link *l = link;
	struct shm_channel *c;
	coll_status status;

	assert(slots >= 2);
	if (slot_bytes > SHM_SLOT_MAX)
		return COLL_ERR_ARGUMENT;
	if (atomic_load(&l->inst->closed))
		return COLL_ERR_ABORTED;
	c = channel_new(l, dir, slot_bytes, slots);
	if (!c)
		return COLL_ERR_MEMORY;
	c->key = *key;
	pthread_mutex_lock(&l->inst->lock);
	status = enlist(c);
	pthread_mutex_unlock(&l->inst->lock);
	if (status != COLL_OK) {
		channel_free(c);
		return status;
	}
	*channel = c;
	return COLL_OK;
}

static void leave_ring(struct shm_channel *c)
{
	struct shm_message m = coll_shm_message(SHM_WITHDRAW);

	if (!c->owned) {
		if (c->ring_name)
			say_close(c->link, c->ring_name);
		return;
	}
	m.ring = c->owned->name;
	if (c->owned->theirs && coll_shm_link_state(c->link) <= COLL_AGAIN)
		coll_shm_enqueue(c->link, &m, -1, false);
	c->owned->ours = false;
	coll_shm_ring_put(c->link, c->owned);
}

void coll_shm_channel_close(void *channel)
{
	struct shm_channel *c = channel;
	struct shm_inst *in = c->inst;
	struct shm_channel **at = &in->channels;

	coll_shm_quiesce(c);
	pthread_mutex_lock(&in->lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	leave_ring(c);
	pairing_put(c->link, c->pair);
	c->link->channels--;
	pthread_mutex_unlock(&in->lock);
	channel_free(c);
}
