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

enum event { GRANT, DELIVER, CREDIT, COMPLETE, FILL, LOSE, SENDER_DOWN, RECEIVER_DOWN, EVENTS };
enum { NOT_READY = UINT32_MAX, SLOTS_MAX = 4 };

struct sim_inst {
	void *inner;
	struct sim_adversary *adversary;
	struct coll_process_id self;
	struct sim_inst *next;
	uint64_t fuse; /* calls until it dies, 0: lives on */
	bool dead;
	struct channel *kept; /* closed, but not really: a planted defect */
};

struct link {
	void *inner;
	struct sim_inst *inst;
	struct coll_process_id peer;
};

struct channel {
	void *inner;
	struct sim_inst *inst;
	struct sim_pipe *pipe;
	enum coll_direction dir;
	struct channel *next; /* kept */
};

struct loan {
	struct coll_cookie *user; /* NULL: settled */
	struct coll_cookie inner;
	uint64_t frame;
	coll_status revoked; /* OK: not */
};

/* How an end of a pipe is. GONE: closed in good order; DEAD: its rank died; DOWN: and the
 * other end knows. */
enum end { ABSENT, OPEN, GONE, DEAD, DOWN };

struct sim_pipe {
	struct sim_pipe *next;
	struct sim_adversary *adversary;
	struct coll_process_id from, to;
	struct coll_channel_key key;
	struct channel *tx, *rx;
	enum end sender, receiver;
	uint32_t slots;
	bool slow;
	bool granted; /* and the sender knows */
	uint64_t posted, visible, done, credited;
	struct loan loans[SLOTS_MAX];
	struct coll_cookie *into; /* announced destination, NULL: none */
	void *into_ptr;
	const struct coll_taker *into_taker; /* in its place */
	uint32_t into_taken;
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

static void settle(struct sim_pipe *p, struct coll_cookie *cookie, coll_status status)
{
	if (!cookie->pending)
		p->adversary->broken = "a cookie is settled twice";
	cookie->status = status;
	cookie->pending = 0;
}

static struct loan *loan_to_complete(struct sim_pipe *p)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].user && p->loans[i].frame < p->done)
			return &p->loans[i];
	return NULL;
}

/* Lent to a reader that will never give it back. */
static struct loan *loan_to_lose(struct sim_pipe *p)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].user && p->loans[i].frame >= p->done)
			return &p->loans[i];
	return NULL;
}

static bool possible(struct sim_pipe *p, enum event e)
{
	const bool quiet_links = p->adversary->mutant == SIM_MUTANT_NO_LINK_DOWN;

	switch (e) {
	case GRANT: return p->rx && p->tx && !p->granted;
	case DELIVER: return p->rx && p->posted > p->visible;
	case CREDIT: return p->tx && p->done > p->credited;
	case COMPLETE: return p->tx && loan_to_complete(p);
	case FILL: return p->into && (p->done < p->visible || (p->sender == DOWN && p->visible == p->posted) || !p->rx);
	case LOSE:
		return p->tx && (p->receiver == GONE || p->receiver == DOWN) && loan_to_lose(p) &&
		       p->adversary->mutant != SIM_MUTANT_LOAN_FORGOTTEN;
	case SENDER_DOWN: return p->rx && p->sender == DEAD && !quiet_links;
	case RECEIVER_DOWN: return p->tx && p->receiver == DEAD && !quiet_links;
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

static struct loan *loan_of(struct sim_pipe *p, uint64_t frame)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].frame == frame && (p->loans[i].user || p->loans[i].revoked))
			return &p->loans[i];
	return NULL;
}

/* Nothing more comes: what is announced is given up. */
static void give_up(struct sim_pipe *p, coll_status status)
{
	if (p->into)
		settle(p, p->into, status);
	p->into = NULL;
}

/* One more piece of the announced frame for its taker; the frame stays in its slot until all is taken. */
static coll_status hand_on(struct sim_pipe *p)
{
	struct coll_frame frame;
	const void *bytes;
	coll_status status = loop->view(p->rx->inner, &bytes, &frame);
	uint32_t len;

	if (status != COLL_OK)
		return status;
	if (frame.sequence != p->into_frame.sequence || frame.signature != p->into_frame.signature ||
	    frame.len_bytes != p->into_frame.len_bytes)
		return COLL_ERR_MISMATCH;
	len = frame.len_bytes - p->into_taken;
	if (len > 64)
		len = coll_rng_below(p->adversary->rng, 2) ? 64 : len / 64 * 64;
	if (len > 0)
		p->into_taker->take(p->into_taker->arg, (const char *)bytes + p->into_taken, p->into_taken, len);
	p->into_taken += len;
	if (p->into_taken < frame.len_bytes)
		return COLL_AGAIN;
	return loop->done(p->rx->inner);
}

static void fill(struct sim_pipe *p)
{
	struct coll_cookie inner = {1, COLL_OK};
	const struct loan *loan = loan_of(p, p->done);
	coll_status status = loan ? loan->revoked : COLL_OK;

	if (!p->rx) { /* only a planted defect gets here */
		if (p->into_ptr)
			memset(p->into_ptr, 0x77, p->into_frame.len_bytes);
		p->into = NULL;
		return;
	}
	if (p->done == p->visible)
		status = COLL_ERR_PEER_DEAD;
	if (status == COLL_OK && p->into_taker) {
		inner.status = COLL_OK;
		status = hand_on(p);
		if (status == COLL_AGAIN)
			return;
	} else if (status == COLL_OK) {
		status = loop->recv_into(p->rx->inner, p->into_ptr, NULL, &p->into_frame, &inner);
		assert(status != COLL_OK || !inner.pending);
	}
	if (status == COLL_OK)
		status = inner.status;
	if (status == COLL_OK)
		p->done++;
	give_up(p, status);
}

static void complete(struct sim_pipe *p)
{
	struct loan *loan = loan_to_complete(p);

	loop->progress(p->tx->inst->inner);
	assert(!loan->inner.pending);
	settle(p, loan->user, loan->inner.status);
	if (p->adversary->mutant != SIM_MUTANT_SETTLE_TWICE)
		loan->user = NULL;
}

static void lose(struct sim_pipe *p)
{
	struct loan *loan = loan_to_lose(p);

	settle(p, loan->user, p->receiver == DOWN ? COLL_ERR_PEER_DEAD : COLL_ERR_ABORTED);
	loan->user = NULL;
}

static void fire(struct sim_pipe *p, enum event e)
{
	switch (e) {
	case GRANT: p->granted = true; break;
	case DELIVER: p->visible++; break;
	case CREDIT: p->credited++; break;
	case COMPLETE: complete(p); break;
	case LOSE: lose(p); break;
	case SENDER_DOWN: p->sender = DOWN; break;
	case RECEIVER_DOWN: p->receiver = DOWN; break;
	default: fill(p); break;
	}
	refresh(p);
}

static bool is_for_receiver(enum event e)
{
	return e == DELIVER || e == FILL || e == SENDER_DOWN;
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
	return (int)(is_for_receiver(e) ? p->to.word[0] : p->from.word[0]) - 1;
}

static void mark_dead(struct sim_pipe *p);
static bool dies(struct sim_inst *in);

/* ---- Objects ---------------------------------------------------------- */

static coll_status sim_open(const struct coll_transport_env *env, void **out)
{
	struct sim_inst *in = calloc(1, sizeof(*in));
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
	in->next = in->adversary->insts;
	in->adversary->insts = in;
	*out = in;
	return COLL_OK;
}

static void sim_fini(void *inst)
{
	struct sim_inst *in = inst;

	struct sim_inst **at;

	if (!in)
		return;
	for (at = &in->adversary->insts; *at != in; at = &(*at)->next) {
	}
	*at = in->next;
	loop->fini(in->inner);
	free(in);
}

static coll_status sim_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	return loop->address(((struct sim_inst *)inst)->inner, buf, cap, len_bytes);
}

static coll_status sim_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                 void **out)
{
	struct sim_inst *in = inst;
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

static void discard(struct channel *c);

static void sim_link_close(void *link)
{
	struct link *l = link;

	while (l->inst->kept) {
		struct channel *c = l->inst->kept;

		l->inst->kept = c->next;
		discard(c);
	}
	loop->link_close(l->inner);
	free(l);
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
	if (dies(l->inst))
		return COLL_ERR_ABORTED;
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
	*(sends ? &c->pipe->sender : &c->pipe->receiver) = OPEN;
	mark_dead(c->pipe);
	refresh(c->pipe);
	*out = c;
	return COLL_OK;
}

/* Take back what is lent: who has not looked yet will not be shown it, who looks will be
 * told when it is done. */
static void revoke(struct sim_pipe *p, coll_status why)
{
	for (uint32_t i = 0; i < p->slots; i++) {
		struct loan *loan = &p->loans[i];

		if (!loan->user)
			continue;
		if (loan->frame >= p->done && p->adversary->mutant != SIM_MUTANT_NO_REVOCATION)
			loan->revoked = why;
		settle(p, loan->user, why);
		loan->user = NULL;
	}
}

static void discard(struct channel *c)
{
	loop->channel_close(c->inner);
	free(c);
}

static void sim_channel_close(void *channel)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;
	const bool sends = c->dir == COLL_DIR_SEND;
	enum end *end = sends ? &p->sender : &p->receiver;

	if (sends)
		revoke(p, *end == OPEN ? COLL_ERR_ABORTED : COLL_ERR_PEER_DEAD);
	else if (p->adversary->mutant != SIM_MUTANT_STILL_ARMED)
		give_up(p, COLL_ERR_ABORTED);
	if (*end == OPEN)
		*end = GONE;
	*(sends ? &p->tx : &p->rx) = NULL;
	refresh(p);
	if (p->adversary->mutant == SIM_MUTANT_NO_REVOCATION) {
		c->next = c->inst->kept;
		c->inst->kept = c;
	} else {
		discard(c);
	}
}

/* ---- Deaths ----------------------------------------------------------- */

static struct sim_inst *inst_of(const struct sim_adversary *a, int rank)
{
	struct sim_inst *in = a->insts;

	while (in && in->self.word[0] != (uint64_t)rank + 1)
		in = in->next;
	return in;
}

void sim_adversary_doom(struct sim_adversary *a, int rank, uint64_t calls)
{
	inst_of(a, rank)->fuse = calls;
}

bool sim_adversary_dead(const struct sim_adversary *a, int rank)
{
	return inst_of(a, rank)->dead;
}

static bool buried(const struct sim_adversary *a, const struct coll_process_id *id)
{
	return a->graves >> (id->word[0] - 1) & 1;
}

static void mark_dead(struct sim_pipe *p)
{
	if (p->sender <= OPEN && buried(p->adversary, &p->from))
		p->sender = DEAD;
	if (p->receiver <= OPEN && buried(p->adversary, &p->to)) {
		p->receiver = DEAD;
		p->into = NULL;
	}
}

void sim_adversary_bury(struct sim_adversary *a, int rank)
{
	a->graves |= (uint64_t)1 << rank;
	for (struct sim_pipe *p = a->pipes; p; p = p->next) {
		mark_dead(p);
		refresh(p);
	}
}

/* At the beginning of every call of the data path: whether its process is dead, or dies
 * right now, and the call does nothing. */
static bool dies(struct sim_inst *in)
{
	if (in->fuse && --in->fuse == 0)
		in->dead = true;
	return in->dead;
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

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	if (c->pipe->receiver == DOWN)
		return COLL_ERR_PEER_DEAD;
	if (!has_credit(c->pipe) || not_yet(c->pipe->adversary))
		return COLL_AGAIN;
	return loop->slot(c->inner, len_bytes, p);
}

static coll_status sim_post(void *channel, const struct coll_frame *frame)
{
	struct channel *c = channel;

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
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

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	if (p->receiver == DOWN)
		return COLL_ERR_PEER_DEAD;
	if (coll_rng_below(p->adversary->rng, 100) < p->adversary->refuse_ref)
		return COLL_ERR_UNSUPPORTED;
	/* A loan may outlive its credit: completions and credits travel apart. */
	while (loan < p->loans + p->slots && loan->user)
		loan++;
	if (!has_credit(p) || loan == p->loans + p->slots || not_yet(p->adversary))
		return COLL_AGAIN;
	*loan = (struct loan){.inner = {1, COLL_OK}, .frame = p->posted};
	status = loop->post_ref(c->inner, ptr, mem, frame, &loan->inner);
	assert(status != COLL_AGAIN);
	if (status != COLL_OK)
		return status;
	loan->user = cookie;
	p->posted++;
	refresh(p);
	return COLL_OK;
}

/* A frame that is lent has been looked at: the rest of the world goes on before its
 * bytes are read. */
static void dawdle(struct channel *c)
{
	struct sim_adversary *a = c->pipe->adversary;

	if (a->meanwhile)
		a->meanwhile(a->meanwhile_arg, (int)c->pipe->from.word[0] - 1);
}

static coll_status sim_view(void *channel, const void **ptr, struct coll_frame *frame)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;
	const struct loan *loan = loan_of(p, p->done);
	coll_status status;

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	if (p->sender == DOWN && p->done == p->posted)
		return COLL_ERR_PEER_DEAD;
	if (p->done >= p->visible || not_yet(p->adversary))
		return COLL_AGAIN;
	if (loan && loan->revoked)
		return loan->revoked;
	status = loop->view(c->inner, ptr, frame);
	if (status != COLL_OK)
		return status;
	p->viewed = loan ? NULL : (char *)(uintptr_t)*ptr;
	p->viewed_bytes = frame->len_bytes;
	if (loan)
		dawdle(c);
	return COLL_OK;
}

static coll_status sim_done(void *channel)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;
	const struct loan *loan = loan_of(p, p->done);
	coll_status status;

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	/* From here on the sender may write: do it at once, in its place. */
	if (p->viewed)
		memset(p->viewed, 0xee, p->viewed_bytes);
	p->viewed = NULL;
	status = loop->done(c->inner);
	if (loan && loan->revoked)
		status = loan->revoked;
	p->done++;
	refresh(p);
	return status;
}

static coll_status sim_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                 const struct coll_frame *expect, struct coll_cookie *cookie)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	if (p->into || coll_rng_below(p->adversary->rng, 100) < p->adversary->refuse_into)
		return COLL_ERR_UNSUPPORTED;
	p->into = cookie;
	p->into_ptr = ptr;
	p->into_taker = NULL;
	p->into_frame = *expect;
	refresh(p);
	return COLL_OK;
}

static coll_status sim_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                    struct coll_cookie *cookie)
{
	struct sim_pipe *p = ((struct channel *)channel)->pipe;
	coll_status status = sim_recv_into(channel, NULL, NULL, expect, cookie);

	if (status == COLL_OK) {
		p->into_taker = taker;
		p->into_taken = 0;
	}
	return status;
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
        .recv_through = sim_recv_through,
};
