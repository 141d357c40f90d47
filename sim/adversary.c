/*
 * See adversary.h: loop, with pipes (pipe.h) between what it does and what the ends see.
 */
#include "sim/pipe.h"
#include "transports/loop/group.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const struct coll_transport *const loop = &coll_transport_loop;

coll_status sim_adversary_init(struct sim_adversary *a, struct coll_rng *rng)
{
	*a = (struct sim_adversary){.rng = rng};
	return coll_loop_group_create(&a->loop);
}

void sim_adversary_fini(struct sim_adversary *a)
{
	while (a->pipes) {
		struct sim_pipe *p = a->pipes;

		a->pipes = p->next;
		free(p);
	}
	free(a->ready);
	coll_loop_group_destroy(&a->loop);
}

static bool dies(struct sim_inst *in);

/* ---- Objects ---------------------------------------------------------- */

static coll_status sim_open(const struct coll_transport_env *env, void **out)
{
	struct sim_inst *in = calloc(1, sizeof(*in));
	struct coll_transport_env inner = *env;
	coll_status status;

	if (!in)
		return COLL_ERR_MEMORY;
	in->adversary = env->group;
	in->self = env->self;
	inner.group = in->adversary->loop;
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

static coll_status sim_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                    size_t slot_bytes, uint32_t slots, void **out)
{
	struct link *l = link;
	struct sim_adversary *a = l->inst->adversary;
	const bool sends = dir == COLL_DIR_SEND;
	struct channel *c;
	coll_status status;

	assert(slots <= SIM_SLOTS_MAX);
	if (dies(l->inst))
		return COLL_ERR_ABORTED;
	if (sim_pipe_reserve(a) != COLL_OK)
		return COLL_ERR_MEMORY;
	c = calloc(1, sizeof(*c));
	if (!c)
		return COLL_ERR_MEMORY;
	c->inst = l->inst;
	c->dir = dir;
	c->pipe = sim_pipe_get(a, sends ? &l->inst->self : &l->peer, sends ? &l->peer : &l->inst->self, key, slots);
	status = c->pipe ? loop->channel_open(l->inner, key, dir, slot_bytes, slots, &c->inner) : COLL_ERR_MEMORY;
	if (status != COLL_OK) {
		free(c);
		return status;
	}
	*(sends ? &c->pipe->tx : &c->pipe->rx) = c;
	*(sends ? &c->pipe->sender : &c->pipe->receiver) = OPEN;
	sim_pipe_mark_dead(c->pipe);
	sim_pipe_refresh(c->pipe);
	*out = c;
	return COLL_OK;
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
		sim_pipe_revoke(p, *end == OPEN ? COLL_ERR_ABORTED : COLL_ERR_PEER_DEAD);
	else if (p->adversary->mutant != SIM_MUTANT_STILL_ARMED)
		sim_pipe_give_up(p, COLL_ERR_ABORTED);
	if (*end == OPEN)
		*end = GONE;
	*(sends ? &p->tx : &p->rx) = NULL;
	sim_pipe_refresh(p);
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

void sim_adversary_bury(struct sim_adversary *a, int rank)
{
	a->graves |= (uint64_t)1 << rank;
	for (struct sim_pipe *p = a->pipes; p; p = p->next) {
		sim_pipe_mark_dead(p);
		sim_pipe_refresh(p);
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
	sim_pipe_refresh(c->pipe);
	return loop->post(c->inner, frame);
}

static coll_status sim_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *frame, struct coll_completion *completion)
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
	loan->user = completion;
	p->posted++;
	sim_pipe_refresh(p);
	return COLL_OK;
}

/* A frame that is loaned has been looked at: the rest of the world goes on before its
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
	const struct loan *loan = sim_pipe_loan(p, p->done);
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
	const struct loan *loan = sim_pipe_loan(p, p->done);
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
	sim_pipe_refresh(p);
	return status;
}

static coll_status sim_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                 const struct coll_frame *expect, struct coll_completion *completion)
{
	struct channel *c = channel;
	struct sim_pipe *p = c->pipe;

	if (dies(c->inst))
		return COLL_ERR_ABORTED;
	if (p->into || coll_rng_below(p->adversary->rng, 100) < p->adversary->refuse_into)
		return COLL_ERR_UNSUPPORTED;
	p->into = completion;
	p->into_ptr = ptr;
	p->into_taker = NULL;
	p->into_frame = *expect;
	sim_pipe_refresh(p);
	return COLL_OK;
}

static coll_status sim_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                    struct coll_completion *completion)
{
	struct sim_pipe *p = ((struct channel *)channel)->pipe;
	coll_status status = sim_recv_into(channel, NULL, NULL, expect, completion);

	if (status == COLL_OK) {
		p->into_taker = taker;
		p->into_at = coll_rng_below(p->adversary->rng, 4) ? taker->at : NULL;
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
