/*
 * See adversary.h. A pipe is one channel with both ends: it counts what loop has
 * done and what of it the ends have been shown. Invariant:
 *
 *     credited <= done <= visible <= posted,    posted - credited <= slots
 *
 * so loop underneath always has a slot when the adversary grants one.
 */
#include "sim/adversary.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum event { GRANT, DELIVER, CREDIT, COMPLETE, FILL, EVENTS };
enum { NOT_READY = UINT32_MAX, SLOTS_MAX = 4 };

struct inst {
	void *inner;
	struct sim_adversary *adversary;
	struct coll_process_id self;
};

struct link {
	void *inner;
	struct inst *inst;
	struct coll_process_id peer;
};

struct channel {
	void *inner;
	struct inst *inst;
	struct sim_pipe *pipe;
	enum coll_direction dir;
};

struct loan {
	struct coll_cookie *user; /* NULL: free */
	struct coll_cookie inner;
	uint64_t frame;
};

struct sim_pipe {
	struct sim_pipe *next;
	struct sim_adversary *adversary;
	struct coll_process_id from, to;
	struct coll_channel_key key;
	struct channel *tx, *rx;
	uint32_t slots;
	bool slow;
	bool granted; /* and the sender knows */
	uint64_t posted, visible, done, credited;
	struct loan loans[SLOTS_MAX];
	struct coll_cookie *into; /* announced destination, NULL: none */
	void *into_ptr;
	struct coll_frame into_frame;
	/* The frame that was viewed: scribbled over when it is given back by value. */
	char *viewed;
	uint32_t viewed_bytes;
	uint32_t at; /* in the adversary's list, or NOT_READY */
};

static const struct coll_transport *const loop = &coll_transport_loop;

coll_status sim_adversary_init(struct sim_adversary *a, struct coll_rng *rng)
{
	*a = (struct sim_adversary){.rng = rng};
	return coll_loop_hub_create(&a->loop);
}

void sim_adversary_fini(struct sim_adversary *a)
{
	while (a->pipes) {
		struct sim_pipe *p = a->pipes;

		a->pipes = p->next;
		free(p);
	}
	free(a->ready);
	coll_loop_hub_destroy(&a->loop);
}

/* ---- Events ----------------------------------------------------------- */

static struct loan *loan_to_complete(struct sim_pipe *p)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].user && p->loans[i].frame < p->done)
			return &p->loans[i];
	return NULL;
}

static bool possible(struct sim_pipe *p, enum event e)
{
	switch (e) {
	case GRANT: return p->rx && p->tx && !p->granted;
	case DELIVER: return p->rx && p->posted > p->visible;
	case CREDIT: return p->tx && p->done > p->credited;
	case COMPLETE: return p->tx && loan_to_complete(p);
	case FILL: return p->into && p->done < p->visible;
	default: return false;
	}
}

static void set_ready(struct sim_pipe *p, bool ready)
{
	struct sim_adversary *a = p->adversary;

	if (ready && p->at == NOT_READY) {
		p->at = a->nready;
		a->ready[a->nready++] = p;
	} else if (!ready && p->at != NOT_READY) {
		struct sim_pipe *last = a->ready[--a->nready];

		a->ready[p->at] = last;
		last->at = p->at;
		p->at = NOT_READY;
	}
}

static void refresh(struct sim_pipe *p)
{
	bool any = false;

	for (int e = 0; e < EVENTS && !any; e++)
		any = possible(p, e);
	set_ready(p, any);
}

static void fill(struct sim_pipe *p)
{
	struct coll_cookie inner = {1, COLL_OK};
	coll_status status = loop->recv_into(p->rx->inner, p->into_ptr, NULL, &p->into_frame, &inner);

	assert(status != COLL_OK || !inner.pending);
	p->into->status = status == COLL_OK ? inner.status : status;
	p->into->pending = 0;
	p->into = NULL;
	if (status == COLL_OK && inner.status == COLL_OK)
		p->done++;
}

static void complete(struct sim_pipe *p)
{
	struct loan *loan = loan_to_complete(p);

	loop->progress(p->tx->inst->inner);
	assert(!loan->inner.pending);
	loan->user->status = loan->inner.status;
	loan->user->pending = 0;
	loan->user = NULL;
}

static void fire(struct sim_pipe *p, enum event e)
{
	switch (e) {
	case GRANT: p->granted = true; break;
	case DELIVER: p->visible++; break;
	case CREDIT: p->credited++; break;
	case COMPLETE: complete(p); break;
	default: fill(p); break;
	}
	refresh(p);
}

bool sim_adversary_idle(const struct sim_adversary *a)
{
	for (const struct sim_pipe *p = a->pipes; p; p = p->next)
		if (p->posted != p->done || p->into)
			return false;
	return true;
}

int sim_adversary_fire(struct sim_adversary *a, bool lazy)
{
	struct sim_pipe *p;
	uint32_t e;

	if (a->nready == 0)
		return -1;
	p = a->ready[coll_rng_below(a->rng, a->nready)];
	for (int tries = 0; lazy && p->slow && tries < 8; tries++)
		p = a->ready[coll_rng_below(a->rng, a->nready)];
	for (e = coll_rng_below(a->rng, EVENTS); !possible(p, e); e = (e + 1) % EVENTS) {
	}
	fire(p, e);
	a->fired++;
	return (int)(e == DELIVER || e == FILL ? p->to.word[0] : p->from.word[0]) - 1;
}

/* ---- Objects ---------------------------------------------------------- */

static coll_status sim_open(const struct coll_transport_env *env, void **out)
{
	struct inst *in = calloc(1, sizeof(*in));
	struct coll_transport_env inner = *env;
	coll_status status;

	if (!in)
		return COLL_ERR_MEMORY;
	in->adversary = env->hub;
	in->self = env->self;
	inner.hub = in->adversary->loop;
	status = loop->open(&inner, &in->inner);
	if (status != COLL_OK) {
		free(in);
		return status;
	}
	*out = in;
	return COLL_OK;
}

static void sim_fini(void *inst)
{
	struct inst *in = inst;

	if (!in)
		return;
	loop->fini(in->inner);
	free(in);
}

static coll_status sim_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	return loop->address(((struct inst *)inst)->inner, buf, cap, len_bytes);
}

static coll_status sim_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                 void **out)
{
	struct inst *in = inst;
	struct link *l = calloc(1, sizeof(*l));
	coll_status status;

	if (!l)
		return COLL_ERR_MEMORY;
	l->inst = in;
	l->peer = *peer;
	status = loop->link_open(in->inner, peer, address, len_bytes, &l->inner);
	if (status != COLL_OK) {
		free(l);
		return status;
	}
	*out = l;
	return COLL_OK;
}

static void sim_link_close(void *link)
{
	loop->link_close(((struct link *)link)->inner);
	free(link);
}

static struct sim_pipe *find_pipe(struct sim_adversary *a, const struct coll_process_id *from,
                                  const struct coll_process_id *to, const struct coll_channel_key *key)
{
	for (struct sim_pipe *p = a->pipes; p; p = p->next)
		if (memcmp(&p->from, from, sizeof(*from)) == 0 && memcmp(&p->to, to, sizeof(*to)) == 0 &&
		    p->key.lane == key->lane && p->key.window == key->window)
			return p;
	return NULL;
}

static struct sim_pipe *get_pipe(struct sim_adversary *a, const struct coll_process_id *from,
                                 const struct coll_process_id *to, const struct coll_channel_key *key, uint32_t slots)
{
	struct sim_pipe *p = find_pipe(a, from, to, key);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->next = a->pipes;
	p->adversary = a;
	p->from = *from;
	p->to = *to;
	p->key = *key;
	p->slots = slots;
	p->slow = coll_rng_below(a->rng, 4) == 0;
	p->at = NOT_READY;
	a->pipes = p;
	return p;
}

/* Room in the ready list for one more pipe. */
static coll_status reserve(struct sim_adversary *a)
{
	uint32_t n = 1;
	struct sim_pipe **list;

	for (const struct sim_pipe *p = a->pipes; p; p = p->next)
		n++;
	if (n <= a->ready_cap)
		return COLL_OK;
	list = realloc(a->ready, (size_t)2 * n * sizeof(*list));
	if (!list)
		return COLL_ERR_MEMORY;
	a->ready = list;
	a->ready_cap = 2 * n;
	return COLL_OK;
}

static coll_status sim_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                    size_t slot_bytes, uint32_t slots, void **out)
{
	struct link *l = link;
	struct sim_adversary *a = l->inst->adversary;
	const bool sends = dir == COLL_DIR_SEND;
	struct channel *c;
	coll_status status;

	assert(slots <= SLOTS_MAX);
	if (reserve(a) != COLL_OK)
		return COLL_ERR_MEMORY;
	c = calloc(1, sizeof(*c));
	if (!c)
		return COLL_ERR_MEMORY;
	c->inst = l->inst;
	c->dir = dir;
	c->pipe = get_pipe(a, sends ? &l->inst->self : &l->peer, sends ? &l->peer : &l->inst->self, key, slots);
	status = c->pipe ? loop->channel_open(l->inner, key, dir, slot_bytes, slots, &c->inner) : COLL_ERR_MEMORY;
	if (status != COLL_OK) {
		free(c);
		return status;
	}
	*(sends ? &c->pipe->tx : &c->pipe->rx) = c;
	refresh(c->pipe);
	*out = c;
	return COLL_OK;
}

static void sim_channel_close(void *channel)
{
	struct channel *c = channel;

	*(c->dir == COLL_DIR_SEND ? &c->pipe->tx : &c->pipe->rx) = NULL;
	if (c->dir == COLL_DIR_RECV)
		c->pipe->into = NULL;
	refresh(c->pipe);
	loop->channel_close(c->inner);
	free(c);
}

/* ---- Frames ----------------------------------------------------------- */

static bool has_credit(const struct sim_pipe *p)
{
	return p->granted && p->posted - p->credited < p->slots;
}

/* Whether to pretend that it has not come yet. */
static bool not_yet(struct sim_adversary *a)
{
	if (!a->fickle || coll_rng_below(a->rng, 100) >= a->fickle)
		return false;
	a->fooled = true;
	return true;
}

static coll_status sim_slot(void *channel, size_t len_bytes, void **p)
{
	struct channel *c = channel;

	if (!has_credit(c->pipe) || not_yet(c->pipe->adversary))
		return COLL_AGAIN;
	return loop->slot(c->inner, len_bytes, p);
}

static coll_status sim_post(void *channel, const struct coll_frame *frame)
{
	struct channel *c = channel;

	c->pipe->posted++;
	refresh(c->pipe);
	return loop->post(c->inner, frame);
}

static coll_status sim_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *frame, struct coll_cookie *cookie)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;
	struct loan *loan = p->loans;
	coll_status status;

	if (coll_rng_below(p->adversary->rng, 100) < p->adversary->refuse_ref)
		return COLL_ERR_UNSUPPORTED;
	/* A loan may outlive its credit: completions and credits travel apart. */
	while (loan < p->loans + p->slots && loan->user)
		loan++;
	if (!has_credit(p) || loan == p->loans + p->slots || not_yet(p->adversary))
		return COLL_AGAIN;
	loan->inner = (struct coll_cookie){1, COLL_OK};
	status = loop->post_ref(c->inner, ptr, mem, frame, &loan->inner);
	assert(status != COLL_AGAIN);
	if (status != COLL_OK)
		return status;
	loan->user = cookie;
	loan->frame = p->posted++;
	refresh(p);
	return COLL_OK;
}

static bool lent(const struct sim_pipe *p, uint64_t frame)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].user && p->loans[i].frame == frame)
			return true;
	return false;
}

static coll_status sim_view(void *channel, const void **ptr, struct coll_frame *frame)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;
	coll_status status;

	if (p->done >= p->visible || not_yet(p->adversary))
		return COLL_AGAIN;
	status = loop->view(c->inner, ptr, frame);
	if (status == COLL_OK) {
		p->viewed = lent(p, p->done) ? NULL : (char *)(uintptr_t)*ptr;
		p->viewed_bytes = frame->len_bytes;
	}
	return status;
}

static coll_status sim_done(void *channel)
{
	struct channel *c = channel;
	coll_status status;

	/* From here on the sender may write: do it at once, in its place. */
	if (c->pipe->viewed)
		memset(c->pipe->viewed, 0xee, c->pipe->viewed_bytes);
	c->pipe->viewed = NULL;
	status = loop->done(c->inner);
	c->pipe->done++;
	refresh(c->pipe);
	return status;
}

static coll_status sim_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                 const struct coll_frame *expect, struct coll_cookie *cookie)
{
	struct sim_pipe *p = ((struct channel *)channel)->pipe;

	if (p->into || coll_rng_below(p->adversary->rng, 100) < p->adversary->refuse_into)
		return COLL_ERR_UNSUPPORTED;
	p->into = cookie;
	p->into_ptr = ptr;
	p->into_frame = *expect;
	refresh(p);
	return COLL_OK;
}

const struct coll_transport sim_transport = {
        .size = sizeof(struct coll_transport),
        .name = "sim",
        .open = sim_open,
        .fini = sim_fini,
        .address = sim_address,
        .link_open = sim_link_open,
        .link_close = sim_link_close,
        .channel_open = sim_channel_open,
        .channel_close = sim_channel_close,
        .slot = sim_slot,
        .post = sim_post,
        .post_ref = sim_post_ref,
        .view = sim_view,
        .done = sim_done,
        .recv_into = sim_recv_into,
};
