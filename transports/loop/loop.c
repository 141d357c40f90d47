/*
 * loop: ranks of one process, as threads or all driven by one thread. This file
 * owns instances, links and the opening and closing of channels; group.c has what
 * instances share, pipe.c moves the frames.
 *
 * Invariant: whatever both sides may touch (pair, pipe, bell) lives until both
 * sides have let go of it, or until the group goes; nothing is found through a
 * process-wide variable. A closed pair or pipe is never matched again: opening once
 * more makes a new one. The peer's end of a closed link drains what was posted and
 * then reports COLL_ERR_PEER_DEAD; an orderly close is no link_down.
 */
#include "transports/loop/loop.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "transports/loop/group.h"
#include "transports/loop/pipe.h"

/* ---- Instances ---------------------------------------------------------------- */

static coll_status loop_open(const struct coll_transport_env *env, void **inst)
{
	struct loop_inst *in;

	if (!env->group)
		return COLL_ERR_UNSUPPORTED;
	in = calloc(1, sizeof(*in));
	if (!in)
		return COLL_ERR_MEMORY;
	in->bell = coll_loop_bell_new(env->wake_fd);
	if (!in->bell) {
		free(in);
		return COLL_ERR_MEMORY;
	}
	in->env = *env;
	in->group = env->group;
	pthread_mutex_init(&in->lock, NULL);
	coll_pending_init(&in->pending);
	pthread_mutex_lock(&in->group->lock);
	assert(!coll_loop_alive(in->group, &env->self));
	in->next = in->group->insts;
	in->group->insts = in;
	pthread_mutex_unlock(&in->group->lock);
	*inst = in;
	return COLL_OK;
}

static void loop_close(void *inst)
{
	struct loop_inst *in = inst;

	if (!atomic_exchange(&in->closed, true))
		coll_loop_ring(in->bell);
}

static void bury(struct loop_inst *in)
{
	struct loop_grave *g = calloc(1, sizeof(*g));
	struct loop_inst **at = &in->group->insts;

	while (*at != in)
		at = &(*at)->next;
	*at = in->next;
	if (!g) /* A later link_open to it connects for ever: out of memory is the cause anyway. */
		return;
	g->id = in->env.self;
	g->next = in->group->graves;
	in->group->graves = g;
}

static void loop_fini(void *inst)
{
	struct loop_inst *in = inst;

	if (!in)
		return;
	assert(!in->channels);
	assert(!in->links);
	pthread_mutex_lock(&in->bell->lock);
	in->bell->dead = true;
	pthread_mutex_unlock(&in->bell->lock);
	pthread_mutex_lock(&in->group->lock);
	bury(in);
	coll_loop_bell_put(in->bell);
	pthread_mutex_unlock(&in->group->lock);
	pthread_mutex_destroy(&in->lock);
	coll_pending_fini(&in->pending);
	free(in);
}

static void loop_caps(void *inst, struct coll_transport_caps *caps)
{
	*caps = (struct coll_transport_caps){.latency_ns = 150,
	                                     .overhead_ns = 40,
	                                     .bytes_per_ns = 10,
	                                     .depth = 2,
	                                     .slot_bytes_max = (size_t)4 << 20,
	                                     .post_ref = true,
	                                     .recv_into = true};
}

/* The group's address tells whether both live in one process; the process id guards
 * against equal addresses in two processes. */
struct loop_address {
	uint64_t group;
	uint64_t pid;
};

static coll_status loop_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	struct loop_inst *in = inst;
	const struct loop_address a = {(uint64_t)(uintptr_t)in->group, (uint64_t)getpid()};

	if (cap < sizeof(a))
		return COLL_ERR_ARGUMENT;
	memcpy(buf, &a, sizeof(a));
	*len_bytes = sizeof(a);
	return COLL_OK;
}

static bool loop_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	struct loop_inst *in = inst;
	struct loop_address a;

	if (len_bytes == sizeof(a)) {
		memcpy(&a, address, sizeof(a));
		if (a.group == (uint64_t)(uintptr_t)in->group && a.pid == (uint64_t)getpid())
			return true;
	}
	if (why && why_bytes)
		snprintf(why, why_bytes, "not a rank of this process");
	return false;
}

/* ---- Links ---------------------------------------------------------------- */

static unsigned bucket_of(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return (unsigned)((coll_mix64(a->word[0] ^ a->word[1]) + coll_mix64(b->word[0] ^ b->word[1])) % LOOP_BUCKETS);
}

/* The pair whose our side is free and whose other side has not gone; *side is ours. */
static struct loop_pair *pair_find(struct coll_loop_group *h, const struct coll_process_id *self,
                                   const struct coll_process_id *peer, int *side)
{
	for (struct loop_pair *p = h->pairs[bucket_of(self, peer)]; p; p = p->next) {
		for (int s = 0; s < 2; s++) {
			if (coll_same_process(&p->id[s], self) && coll_same_process(&p->id[!s], peer) &&
			    !p->opened[s] && !p->closed[!s]) {
				*side = s;
				return p;
			}
		}
	}
	return NULL;
}

static struct loop_pair *pair_new(struct coll_loop_group *h, const struct coll_process_id *self,
                                  const struct coll_process_id *peer)
{
	const unsigned b = bucket_of(self, peer);
	struct loop_pair *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->id[0] = *self;
	p->id[1] = *peer;
	p->next = h->pairs[b];
	h->pairs[b] = p;
	if (coll_loop_buried(h, peer))
		atomic_store(&p->closed[1], true);
	return p;
}

static void pair_release(struct coll_loop_group *h, struct loop_pair *pair)
{
	struct loop_pair **at = &h->pairs[bucket_of(&pair->id[0], &pair->id[1])];

	for (int s = 0; s < 2; s++) {
		if (pair->opened[s] && !pair->closed[s])
			return;
	}
	while (*at != pair)
		at = &(*at)->next;
	*at = pair->next;
	coll_loop_pair_free(pair);
}

static coll_status loop_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                  void **link)
{
	struct loop_inst *in = inst;
	struct loop_link *l = calloc(1, sizeof(*l));
	struct loop_bell *other;

	if (!l)
		return COLL_ERR_MEMORY;
	if (atomic_load(&in->closed)) {
		free(l);
		return COLL_ERR_ABORTED;
	}
	l->inst = in;
	pthread_mutex_lock(&in->group->lock);
	l->pair = pair_find(in->group, &in->env.self, peer, &l->side);
	if (!l->pair)
		l->pair = pair_new(in->group, &in->env.self, peer);
	if (!l->pair) {
		pthread_mutex_unlock(&in->group->lock);
		free(l);
		return COLL_ERR_MEMORY;
	}
	l->pair->opened[l->side] = true;
	l->pair->bell[l->side] = in->bell;
	in->bell->refs++;
	atomic_store(&l->pair->ring[l->side], in->bell);
	other = l->pair->bell[!l->side];
	if (other)
		coll_loop_ring(other);
	pthread_mutex_unlock(&in->group->lock);
	pthread_mutex_lock(&in->lock);
	l->next = in->links;
	in->links = l;
	pthread_mutex_unlock(&in->lock);
	*link = l;
	return COLL_OK;
}

static void loop_link_close(void *link)
{
	struct loop_link *l = link;
	struct loop_inst *in = l->inst;
	struct loop_link **at = &in->links;
	struct loop_bell *other;

	pthread_mutex_lock(&in->lock);
	while (*at != l)
		at = &(*at)->next;
	*at = l->next;
	pthread_mutex_unlock(&in->lock);
	pthread_mutex_lock(&in->group->lock);
	atomic_store(&l->pair->closed[l->side], true);
	other = l->pair->bell[!l->side];
	if (other)
		coll_loop_ring(other);
	pair_release(in->group, l->pair);
	pthread_mutex_unlock(&in->group->lock);
	free(l);
}

/* Frames to a peer that has not opened its end yet wait for its grants, not for the
 * link: a link is usable once made. */
static coll_status loop_link_status(void *link)
{
	struct loop_link *l = link;

	return atomic_load(&l->pair->closed[!l->side]) ? COLL_ERR_PEER_DEAD : COLL_OK;
}

/* ---- Channels ---------------------------------------------------------------- */

static struct loop_pipe *pipe_find(struct loop_pair *pair, int sender, const struct coll_channel_key *key,
                                   enum coll_direction dir)
{
	for (struct loop_pipe *p = pair->pipes; p; p = p->next) {
		if (p->sender == sender && coll_same_key(&p->key, key) && !p->opened[dir] &&
		    !atomic_load(&p->closed[!dir]))
			return p;
	}
	return NULL;
}

static struct loop_pipe *pipe_new(struct loop_pair *pair, int sender, const struct coll_channel_key *key,
                                  size_t slot_bytes, uint32_t slots)
{
	struct loop_pipe *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->pair = pair;
	p->sender = sender;
	p->key = *key;
	p->slot_bytes = slot_bytes;
	p->slots = slots;
	p->cells = calloc(slots, sizeof(*p->cells));
	p->slot_memory = aligned_alloc(64, ((slot_bytes + 63) & ~(size_t)63) * slots);
	if (!p->cells || !p->slot_memory) {
		coll_loop_pipe_free(p);
		return NULL;
	}
	p->next = pair->pipes;
	pair->pipes = p;
	return p;
}

static void pipe_release(struct loop_pipe *p)
{
	struct loop_pipe **at = &p->pair->pipes;

	for (int d = 0; d < 2; d++) {
		if (p->opened[d] && !atomic_load(&p->closed[d]))
			return;
	}
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	coll_loop_pipe_free(p);
}

static void channel_free(struct loop_channel *c)
{
	coll_pending_channel_fini(&c->pending);
	free(c->completions);
	free(c->announces);
	free(c);
}

static struct loop_channel *channel_new(struct loop_link *l, enum coll_direction dir, uint32_t slots)
{
	struct loop_channel *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->inst = l->inst;
	c->side = l->side;
	c->dir = dir;
	coll_pending_channel_init(&c->pending);
	c->completions = calloc(slots, sizeof(*c->completions));
	c->announces = calloc(slots, sizeof(*c->announces));
	if (c->completions && c->announces)
		return c;
	channel_free(c);
	return NULL;
}

/* The pipe of this key, made by the first end to open it; opening the receiving end is the grant. */
static coll_status attach(struct loop_channel *c, struct loop_pair *pair, const struct coll_channel_key *key,
                          size_t slot_bytes, uint32_t slots)
{
	const int sender = c->dir == COLL_DIR_SEND ? c->side : !c->side;
	struct loop_pipe *p = pipe_find(pair, sender, key, c->dir);
	struct loop_bell *other;

	if (!p)
		p = pipe_new(pair, sender, key, slot_bytes, slots);
	if (!p)
		return COLL_ERR_MEMORY;
	if (p->slot_bytes != slot_bytes || p->slots != slots)
		return COLL_ERR_MISMATCH;
	p->opened[c->dir] = true;
	c->pipe = p;
	if (c->dir == COLL_DIR_SEND)
		return COLL_OK;
	atomic_store(&p->granted, true);
	other = pair->bell[!c->side];
	if (other && atomic_load(&other->armed))
		coll_loop_ring(other);
	return COLL_OK;
}

static coll_status loop_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                     size_t slot_bytes, uint32_t slots, void **channel)
{
	struct loop_link *l = link;
	struct loop_inst *in = l->inst;
	struct loop_channel *c;
	coll_status status;

	assert(slots >= 2);
	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	c = channel_new(l, dir, slots);
	if (!c)
		return COLL_ERR_MEMORY;
	pthread_mutex_lock(&in->group->lock);
	status = attach(c, l->pair, key, slot_bytes, slots);
	pthread_mutex_unlock(&in->group->lock);
	if (status != COLL_OK) {
		channel_free(c);
		return status;
	}
	pthread_mutex_lock(&in->lock);
	c->next = in->channels;
	in->channels = c;
	pthread_mutex_unlock(&in->lock);
	*channel = c;
	return COLL_OK;
}

static void loop_channel_close(void *channel)
{
	struct loop_channel *c = channel;
	struct loop_inst *in = c->inst;
	struct loop_channel **at = &in->channels;
	struct loop_bell *other;

	coll_loop_quiesce(c);
	pthread_mutex_lock(&in->lock);
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	pthread_mutex_unlock(&in->lock);
	pthread_mutex_lock(&in->group->lock);
	atomic_store(&c->pipe->closed[c->dir], true);
	other = c->pipe->pair->bell[!c->side];
	if (other && atomic_load(&other->armed))
		coll_loop_ring(other);
	pipe_release(c->pipe);
	pthread_mutex_unlock(&in->group->lock);
	channel_free(c);
}

/* ---- Sleeping ---------------------------------------------------------------- */

static bool anything(struct loop_inst *in)
{
	bool found = atomic_load(&in->closed);

	pthread_mutex_lock(&in->lock);
	for (const struct loop_channel *c = in->channels; c && !found; c = c->next)
		found = coll_loop_noteworthy(c);
	pthread_mutex_unlock(&in->lock);
	return found;
}

static void loop_disarm(void *inst)
{
	atomic_fetch_sub(&((struct loop_inst *)inst)->bell->armed, 1);
}

static coll_status loop_arm(void *inst)
{
	struct loop_inst *in = inst;

	atomic_fetch_add(&in->bell->armed, 1);
	if (!anything(in))
		return COLL_OK;
	loop_disarm(in);
	return COLL_AGAIN;
}

/* ---- Memory ---------------------------------------------------------------- */

static coll_status loop_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem)
{
	const size_t len = (len_bytes + 63) & ~(size_t)63;
	char *p = aligned_alloc(64, len ? len : 64);

	if (!p)
		return COLL_ERR_MEMORY;
	memset(p, 0, len);
	*mem = (struct coll_memory){.size = sizeof(*mem), .base = p, .len_bytes = len_bytes};
	return COLL_OK;
}

static void loop_mem_free(void *inst, struct coll_memory *mem)
{
	free(mem->base);
	mem->base = NULL;
}

const struct coll_transport coll_transport_loop = {
        .size = sizeof(struct coll_transport),
        .name = "loop",
        .open = loop_open,
        .close = loop_close,
        .fini = loop_fini,
        .caps = loop_caps,
        .address = loop_address,
        .reachable = loop_reachable,
        .link_open = loop_link_open,
        .link_close = loop_link_close,
        .link_status = loop_link_status,
        .channel_open = loop_channel_open,
        .channel_close = loop_channel_close,
        .slot = coll_loop_slot,
        .post = coll_loop_post,
        .post_ref = coll_loop_post_ref,
        .view = coll_loop_view,
        .done = coll_loop_done,
        .recv_into = coll_loop_recv_into,
        .progress = coll_loop_progress,
        .arm = loop_arm,
        .disarm = loop_disarm,
        .mem_alloc = loop_mem_alloc,
        .mem_free = loop_mem_free,
};
