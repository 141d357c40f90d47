/*
 * hook: the wrapping table. Every handle of the inner transport is boxed: an
 * instance carries the rules and numbers the frames, a link can be marked broken, a
 * channel remembers the slot it was given and the number of the frame in it.
 *
 * A delayed frame is held back before its slot is handed out: slot() says AGAIN until
 * it is time. So no queue is needed, order is kept, and only the channel's own
 * thread is involved; while a delay runs, arm() returns AGAIN.
 */
#include "transports/hook/hook.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "transports/common/dummy.h"
#include "transports/hook/rules.h"

struct hook_state {
	struct coll_transport inner;
	struct coll_transport_shared shared;
	struct hook_rules rules;
};

struct hook_inst {
	struct hook_state *state;
	const struct coll_transport *t;
	void *inner;
	struct coll_transport_env env;
	_Atomic uint64_t frames;
	atomic_uint held; /* channels told to wait by a delay, not by the inner transport */
};

struct hook_link {
	struct hook_inst *inst;
	void *inner;
	struct coll_process_id peer;
	atomic_bool broken;
};

struct hook_channel {
	struct hook_inst *inst;
	struct hook_link *link;
	void *inner;
	bool numbered; /* the frame being prepared has a number */
	uint64_t number;
	uint64_t due_ns; /* it may go from then on */
	bool held;
	char *slot;
};

/* ---- Instances ---------------------------------------------------------------- */

static coll_status hook_open(const struct coll_transport_env *env, void **inst)
{
	struct hook_state *state = env->hook;
	struct hook_inst *in = calloc(1, sizeof(*in));
	coll_status status;

	if (!in)
		return COLL_ERR_MEMORY;
	in->state = state;
	in->t = &state->inner;
	in->env = *env;
	status = in->t->open(env, &in->inner);
	if (status != COLL_OK) {
		free(in);
		return status;
	}
	*inst = in;
	return COLL_OK;
}

/* Functions of an instance that the inner transport's serve as they are; give: return, or nothing. */
#define PASS(result, give, name, parameters, ...)  \
	static result hook_##name parameters       \
	{                                          \
		const struct hook_inst *in = inst; \
                                                   \
		give in->t->name(__VA_ARGS__);     \
	}
PASS(void, , close, (void *inst), in->inner)
PASS(void, , caps, (void *inst, struct coll_transport_caps *caps), in->inner, caps)
PASS(coll_status, return, address, (void *inst, void *buf, size_t cap, size_t *len_bytes), in->inner, buf, cap,
     len_bytes)
PASS(bool, return, reachable, (void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes),
     in->inner, address, len_bytes, why, why_bytes)
PASS(void, , path,
     (void *inst, const void *a, size_t a_bytes, const void *b, size_t b_bytes, struct coll_transport_path *path),
     in->inner, a, a_bytes, b, b_bytes, path)
PASS(int, return, progress, (void *inst), in->inner)
PASS(void, , disarm, (void *inst), in->inner)
PASS(int, return, poll_fd, (void *inst), in->inner)
PASS(int, return, service_fd, (void *inst), in->inner)
PASS(void, , service, (void *inst), in->inner)
PASS(void, , confine, (void *inst), in->inner)
PASS(coll_status, return, mem_alloc, (void *inst, size_t len_bytes, struct coll_memory *mem), in->inner, len_bytes, mem)
PASS(void, , mem_free, (void *inst, struct coll_memory *mem), in->inner, mem)
PASS(coll_status, return, mem_reg, (void *inst, struct coll_memory *mem), in->inner, mem)
PASS(void, , mem_dereg, (void *inst, struct coll_memory *mem), in->inner, mem)

static void hook_fini(void *inst)
{
	struct hook_inst *in = inst;

	if (!in)
		return;
	in->t->fini(in->inner);
	free(in);
}

/* ---- Links ------------------------------------------------------------------------ */

static coll_status hook_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                  void **link)
{
	struct hook_inst *in = inst;
	struct hook_link *l = calloc(1, sizeof(*l));
	coll_status status;

	if (!l)
		return COLL_ERR_MEMORY;
	l->inst = in;
	l->peer = *peer;
	status = in->t->link_open(in->inner, peer, address, len_bytes, &l->inner);
	if (status != COLL_OK) {
		free(l);
		return status;
	}
	*link = l;
	return COLL_OK;
}

static void hook_link_close(void *link)
{
	struct hook_link *l = link;

	l->inst->t->link_close(l->inner);
	free(l);
}

static bool hook_link_counts(void *link, struct coll_link_counts *counts)
{
	const struct hook_link *l = link;

	return l->inst->t->link_counts(l->inner, counts);
}

static coll_status hook_link_status(void *link)
{
	struct hook_link *l = link;

	return atomic_load(&l->broken) ? COLL_ERR_PEER_DEAD : l->inst->t->link_status(l->inner);
}

static void break_link(struct hook_link *l)
{
	const uint64_t one = 1;

	if (atomic_exchange(&l->broken, true))
		return;
	l->inst->env.link_down(l->inst->env.ctx, &l->peer, COLL_ERR_PEER_DEAD, "the link was closed by COLL_HOOK");
	if (l->inst->env.wake_fd >= 0 && write(l->inst->env.wake_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the sleeper is awake already. */
	}
}

/* ---- Channels ------------------------------------------------------------------------ */

static coll_status hook_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                     size_t slot_bytes, uint32_t slots, void **channel)
{
	struct hook_link *l = link;
	struct hook_channel *c = calloc(1, sizeof(*c));
	coll_status status;

	if (!c)
		return COLL_ERR_MEMORY;
	c->inst = l->inst;
	c->link = l;
	status = l->inst->t->channel_open(l->inner, key, dir, slot_bytes, slots, &c->inner);
	if (status != COLL_OK) {
		free(c);
		return status;
	}
	*channel = c;
	return COLL_OK;
}

static void hook_channel_close(void *channel)
{
	struct hook_channel *c = channel;

	c->inst->t->channel_close(c->inner);
	if (c->held)
		atomic_fetch_sub(&c->inst->held, 1);
	free(c);
}

/* ---- Sending ------------------------------------------------------------------------- */

/* A sleeper is not woken when a delay ends, so arm() refuses while any frame is held. */
static void hold(struct hook_channel *c, bool held)
{
	if (held != c->held)
		atomic_fetch_add(&c->inst->held, held ? 1u : -1u);
	c->held = held;
}

/* The frame being prepared gets its number, and its delay. */
static coll_status begin(struct hook_channel *c)
{
	struct hook_rules *rules = &c->inst->state->rules;

	if (atomic_load_explicit(&c->link->broken, memory_order_relaxed))
		return COLL_ERR_PEER_DEAD;
	if (!c->numbered) {
		c->number = atomic_fetch_add(&c->inst->frames, 1);
		c->numbered = true;
		c->due_ns = 0;
		for (int i = 0; i < rules->count; i++) {
			struct hook_rule *r = &rules->rule[i];

			if (r->kind == HOOK_DELAY && coll_hook_strikes(r, c->number))
				c->due_ns = coll_clock_ns() + r->us * 1000;
		}
	}
	hold(c, c->due_ns && coll_clock_ns() < c->due_ns);
	return c->held ? COLL_AGAIN : COLL_OK;
}

static coll_status hook_slot(void *channel, size_t len_bytes, void **p)
{
	struct hook_channel *c = channel;
	coll_status status = begin(c);
	void *slot;

	if (status != COLL_OK)
		return status;
	status = c->inst->t->slot(c->inner, len_bytes, &slot);
	if (status == COLL_OK)
		*p = c->slot = slot;
	return status;
}

static void flip(const struct hook_channel *c, const struct hook_rule *r, const struct coll_frame *frame)
{
	const uint64_t byte = r->has_byte ? r->byte : coll_mix64(r->seed ^ coll_mix64(c->number));

	c->slot[byte % frame->len_bytes] ^= (char)r->mask;
	c->inst->env.log(c->inst->env.ctx, 1, "[COLL-6401] COLL_HOOK: flipped a byte of frame %llu, %u bytes",
	                 (unsigned long long)c->number, frame->len_bytes);
}

/* What is to happen to the frame that is about to go. True: it is lost. */
static bool strike(struct hook_channel *c, struct coll_frame *frame, bool by_value)
{
	struct hook_rules *rules = &c->inst->state->rules;
	bool lost = false;

	for (int i = 0; i < rules->count; i++) {
		struct hook_rule *r = &rules->rule[i];

		if (r->kind == HOOK_DELAY || (r->kind == HOOK_FLIP && (!by_value || !frame->len_bytes)) ||
		    !coll_hook_strikes(r, c->number))
			continue;
		switch (r->kind) {
		case HOOK_FLIP: flip(c, r, frame); break;
		case HOOK_HEAD: frame->signature ^= 1; break;
		case HOOK_CLOSE:
			break_link(c->link);
			lost = true;
			break;
		case HOOK_DROP: lost = true; break;
		case HOOK_KILL: kill(getpid(), SIGKILL); break;
		default: break;
		}
	}
	return lost;
}

static coll_status hook_post(void *channel, const struct coll_frame *frame)
{
	struct hook_channel *c = channel;
	struct coll_frame sent = *frame;
	const bool lost = strike(c, &sent, true);

	c->numbered = false;
	if (atomic_load_explicit(&c->link->broken, memory_order_relaxed))
		return COLL_ERR_PEER_DEAD;
	return lost ? COLL_OK : c->inst->t->post(c->inner, &sent);
}

/* A rule that changes bytes needs them in a slot of ours. */
static bool change_due(const struct hook_channel *c)
{
	const struct hook_rules *rules = &c->inst->state->rules;

	for (int i = 0; i < rules->count; i++) {
		const enum hook_kind kind = rules->rule[i].kind;

		if ((kind == HOOK_FLIP || kind == HOOK_HEAD) && coll_hook_due(&rules->rule[i], c->number))
			return true;
	}
	return false;
}

static coll_status hook_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                                 const struct coll_frame *frame, struct coll_completion *completion)
{
	struct hook_channel *c = channel;
	coll_status status = begin(c);
	struct coll_frame sent = *frame;
	void *slot;

	if (status != COLL_OK)
		return status;
	if (change_due(c))
		return COLL_ERR_UNSUPPORTED;
	/* A credit first: a fault strikes a frame that would have gone. */
	status = c->inst->t->slot(c->inner, frame->len_bytes, &slot);
	if (status != COLL_OK)
		return status;
	if (strike(c, &sent, false)) {
		c->numbered = false;
		completion->status = COLL_OK;
		completion->pending = 0;
		return atomic_load(&c->link->broken) ? COLL_ERR_PEER_DEAD : COLL_OK;
	}
	status = c->inst->t->post_ref(c->inner, ptr, mem, &sent, completion);
	if (status == COLL_OK)
		c->numbered = false;
	return status;
}

/* ---- Receiving ---------------------------------------------------------------------------- */

static coll_status hook_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct hook_channel *c = channel;

	if (atomic_load_explicit(&c->link->broken, memory_order_relaxed))
		return COLL_ERR_PEER_DEAD;
	return c->inst->t->view(c->inner, p, frame);
}

static coll_status hook_done(void *channel)
{
	struct hook_channel *c = channel;

	return c->inst->t->done(c->inner);
}

static coll_status hook_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                  const struct coll_frame *expect, struct coll_completion *completion)
{
	struct hook_channel *c = channel;

	if (atomic_load_explicit(&c->link->broken, memory_order_relaxed))
		return COLL_ERR_PEER_DEAD;
	return c->inst->t->recv_into(c->inner, ptr, mem, expect, completion);
}

static coll_status hook_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                     struct coll_completion *completion)
{
	struct hook_channel *c = channel;

	if (atomic_load_explicit(&c->link->broken, memory_order_relaxed))
		return COLL_ERR_PEER_DEAD;
	return c->inst->t->recv_through(c->inner, taker, expect, completion);
}

/* ---- Sleeping ---- */

static coll_status hook_arm(void *inst)
{
	struct hook_inst *in = inst;

	if (atomic_load(&in->held))
		return COLL_AGAIN;
	return in->t->arm(in->inner);
}

/* ---- Shared memory ----
 * Nothing can be done to what peers read and write by themselves, so a wrapped transport
 * refuses all of it, and tells the peer so, which waits for an offer. */

static coll_status hook_offer(void *link, const struct coll_channel_key *key, const struct coll_memory *mem)
{
	struct hook_link *l = link;

	return l->inst->t->shared->offer(l->inner, key, NULL);
}

static void hook_settle(void *inst, const struct coll_memory *mem)
{
	struct hook_inst *in = inst;

	in->t->shared->settle(in->inner, mem);
}

static void hook_withdraw(void *link, const struct coll_channel_key *key)
{
	struct hook_link *l = link;

	l->inst->t->shared->withdraw(l->inner, key);
}

coll_status coll_transport_hook_wrap(const struct coll_transport *inner, const char *spec, int rank,
                                     struct coll_transport *table, void **state, struct coll_error_box *err)
{
	struct hook_state *s = calloc(1, sizeof(*s));
	coll_status status = s ? coll_hook_parse(spec, rank, inner->name, &s->rules, err) : COLL_ERR_MEMORY;

	if (status != COLL_OK) {
		free(s);
		return status;
	}
	if (s->rules.count == 0) {
		free(s);
		coll_transport_complete(inner, table);
		*state = NULL;
		return COLL_OK;
	}
	coll_transport_complete(inner, &s->inner);
	s->shared = coll_transport_shared_none;
	s->shared.offer = hook_offer;
	s->shared.settle = hook_settle;
	s->shared.withdraw = hook_withdraw;
	/* By position, so that a member added to the table is a compiler warning here. */
	*table = (struct coll_transport){
	        sizeof(*table), inner->name,       &s->shared,       inner->ports,      hook_open,
	        hook_close,     hook_fini,         hook_caps,        hook_address,      hook_reachable,
	        hook_link_open, hook_link_close,   hook_link_status, hook_channel_open, hook_channel_close,
	        hook_slot,      hook_post,         hook_post_ref,    hook_view,         hook_done,
	        hook_recv_into, hook_recv_through, hook_progress,    hook_arm,          hook_disarm,
	        hook_poll_fd,   hook_service_fd,   hook_service,     hook_mem_alloc,    hook_mem_free,
	        hook_mem_reg,   hook_mem_dereg,    hook_path,        hook_confine,      hook_link_counts};
	*state = s;
	return COLL_OK;
}

void coll_transport_hook_unwrap(void *state)
{
	free(state);
}
