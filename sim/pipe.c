/*
 * See pipe.h: pipes, and what may happen to them next.
 */
#include "sim/pipe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum event { GRANT, DELIVER, CREDIT, COMPLETE, FILL, LOSE, SENDER_DOWN, RECEIVER_DOWN, EVENTS };
enum { NOT_READY = UINT32_MAX };

static const struct coll_transport *const loop = &coll_transport_loop;

/* ---- Events ----------------------------------------------------------- */

static void settle(struct sim_pipe *p, struct coll_completion *completion, coll_status status)
{
	if (!completion->pending)
		p->adversary->broken = "a completion word is settled twice";
	completion->status = status;
	completion->pending = 0;
}

static struct loan *loan_to_complete(struct sim_pipe *p)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].user && p->loans[i].frame < p->done)
			return &p->loans[i];
	return NULL;
}

/* Loaned to a reader that will never give it back. */
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

void sim_pipe_refresh(struct sim_pipe *p)
{
	bool any = false;

	for (int e = 0; e < EVENTS && !any; e++)
		any = possible(p, e);
	set_ready(p, any);
}

struct loan *sim_pipe_loan(struct sim_pipe *p, uint64_t frame)
{
	for (uint32_t i = 0; i < p->slots; i++)
		if (p->loans[i].frame == frame && (p->loans[i].user || p->loans[i].revoked))
			return &p->loans[i];
	return NULL;
}

void sim_pipe_give_up(struct sim_pipe *p, coll_status status)
{
	if (p->into)
		settle(p, p->into, status);
	p->into = NULL;
}

/* One more piece of the announced frame for its taker, all that is left having come; the frame stays in its slot
 * until all is taken. */
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
	if (p->into_at)
		memcpy(p->into_at + p->into_taken, (const char *)bytes + p->into_taken, len);
	if (len > 64)
		len = coll_rng_below(p->adversary->rng, 2) ? 64 : len / 64 * 64;
	if (len > 0)
		p->into_taker->take(p->into_taker->arg, (p->into_at ? p->into_at : (const char *)bytes) + p->into_taken,
		                    p->into_taken, len);
	p->into_taken += len;
	if (p->into_taken < frame.len_bytes)
		return COLL_AGAIN;
	return loop->done(p->rx->inner);
}

static void fill(struct sim_pipe *p)
{
	struct coll_completion inner = {1, COLL_OK};
	const struct loan *loan = sim_pipe_loan(p, p->done);
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
	sim_pipe_give_up(p, status);
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
	sim_pipe_refresh(p);
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

/* ---- Pipes ------------------------------------------------------------ */

static struct sim_pipe *find_pipe(struct sim_adversary *a, const struct coll_process_id *from,
                                  const struct coll_process_id *to, const struct coll_channel_key *key)
{
	for (struct sim_pipe *p = a->pipes; p; p = p->next)
		if (memcmp(&p->from, from, sizeof(*from)) == 0 && memcmp(&p->to, to, sizeof(*to)) == 0 &&
		    p->key.lane == key->lane && p->key.window == key->window)
			return p;
	return NULL;
}

struct sim_pipe *sim_pipe_get(struct sim_adversary *a, const struct coll_process_id *from,
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

coll_status sim_pipe_reserve(struct sim_adversary *a)
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

void sim_pipe_revoke(struct sim_pipe *p, coll_status why)
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

static bool buried(const struct sim_adversary *a, const struct coll_process_id *id)
{
	return a->graves >> (id->word[0] - 1) & 1;
}

void sim_pipe_mark_dead(struct sim_pipe *p)
{
	if (p->sender <= OPEN && buried(p->adversary, &p->from))
		p->sender = DEAD;
	if (p->receiver <= OPEN && buried(p->adversary, &p->to)) {
		p->receiver = DEAD;
		p->into = NULL;
	}
}
