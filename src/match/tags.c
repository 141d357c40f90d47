/*
 * Tagged messages: life, channels, incoming frames. See tags.h.
 *
 * Why no rank waits for ever for channel credit: whoever polls takes in every frame that has come, without needing
 * anything from the peer. A message goes to its receive or into the pool, which has room for it because its sender had
 * the cells. An answer moves an operation from one list to another. What has to be sent in turn waits in lists that
 * need no memory: receives that answer are their own list, and cells that are owed are a number.
 */
#include "match/tags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/hash.h"
#include "base/limits.h"
#include "base/planted.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/fabric.h"
#include "match/bulk.h"
#include "match/dead.h"
#include "match/receive.h"
#include "match/send.h"
#include "match/state.h"

enum { FRAMES_AT_A_TIME = 64, SLOTS = 8 };

/* ---- Life ---- */

/* A few cells less where there are many ranks, but never less than two of the longest messages. All ranks find the
 * same number. */
static uint32_t share_of(const struct coll_comm *comm, size_t eager_max)
{
	const size_t sources = comm->size > 1 ? (size_t)comm->size - 1 : 1;
	const size_t each = comm->ctx->settings.memory_budget / 8 / sources;
	const uint32_t least = 2 * coll_matcher_cells(eager_max) + 2;
	const uint32_t cells =
	        (uint32_t)((each < COLL_TAG_POOL_BYTES ? each : COLL_TAG_POOL_BYTES) / COLL_MATCH_CELL_BYTES);

	return cells > least ? cells : least;
}

static void init_peer(struct coll_tag_peer *p, int rank, uint32_t share)
{
	p->rank = rank;
	p->credit = share;
	coll_list_init(&p->queue);
	coll_list_init(&p->offered);
	coll_list_init(&p->answers);
	coll_list_init(&p->bulk[0]);
	coll_list_init(&p->bulk[1]);
}

static size_t eager_limit(const struct coll_comm *comm)
{
	const size_t most = comm->facts.caps.slot_bytes_max;

	return most && most < COLL_TAG_EAGER_MAX + sizeof(struct coll_envelope) ? most - sizeof(struct coll_envelope)
	                                                                        : COLL_TAG_EAGER_MAX;
}

static void destroy(struct coll_tags *t, int size)
{
	for (int r = 0; t->peers && r < size; r++)
		for (int half = 0; half < 2; half++) {
			coll_run_destroy(&t->peers[r].run[half]);
			coll_plan_cache_release(t->plans, t->peers[r].plan[half]);
		}
	coll_plan_cache_destroy(&t->plans);
	coll_matcher_fini(&t->matcher);
	free(t->peers);
	free(t->opened);
	free(t);
}

static coll_status create(struct coll_comm *comm, struct coll_tags **out)
{
	struct coll_tags *t = calloc(1, sizeof(*t));
	coll_status st;

	if (!t)
		return COLL_ERR_MEMORY;
	t->eager_max = eager_limit(comm);
	t->signature = (uint32_t)coll_hash_combine(comm->id, COLL_LANES_TAGS);
	coll_list_init(&t->done);
	coll_list_init(&t->probes);
	t->peers = calloc((size_t)comm->size, sizeof(*t->peers));
	t->opened = calloc((size_t)comm->size, sizeof(*t->opened));
	st = t->peers && t->opened ? coll_matcher_init(&t->matcher, comm->size, share_of(comm, t->eager_max))
	                           : COLL_ERR_MEMORY;
	if (st == COLL_OK)
		st = coll_plan_cache_create(comm->ctx->settings.memory_budget / 4, &t->plans);
	if (st != COLL_OK) {
		destroy(t, comm->size);
		return st;
	}
	for (int r = 0; r < comm->size; r++)
		init_peer(&t->peers[r], r, t->matcher.share);
	*out = t;
	return COLL_OK;
}

static coll_status make_fabric(struct coll_comm *comm, struct coll_tag_fabric **out)
{
	struct coll_tag_fabric *own = calloc(1, sizeof(*own));

	if (!own)
		return COLL_ERR_MEMORY;
	if (coll_comm_fabric_init(comm, &own->fabric, COLL_LANES_TAGS) != COLL_OK) {
		free(own);
		return COLL_ERR_MEMORY;
	}
	own->fabric.box = &own->box;
	coll_error_clear(&own->box);
	own->fabric.special.lane = COLL_TAG_LANE_ENVELOPES;
	own->fabric.special.count = SLOTS;
	own->fabric.special.slot_bytes = eager_limit(comm) + sizeof(struct coll_envelope);
	*out = own;
	return COLL_OK;
}

static coll_status make(struct coll_comm *comm)
{
	struct coll_tagged *g = &comm->tagged;
	coll_status st;

	if (g->tags || g->closed)
		return COLL_OK;
	if (!g->own) {
		st = make_fabric(comm, &g->own);
		if (st != COLL_OK)
			return st;
	}
	return create(comm, &g->tags);
}

coll_status coll_tags_make(struct coll_comm *comm)
{
	coll_status st;

	pthread_mutex_lock(&comm->tagged.lock);
	st = comm->tagged.closed && !comm->tagged.tags ? COLL_ERR_ABORTED : make(comm);
	pthread_mutex_unlock(&comm->tagged.lock);
	return st;
}

void coll_tags_free(struct coll_comm *comm)
{
	struct coll_tagged *g = &comm->tagged;

	if (g->own)
		coll_comm_fabric_close(&g->own->fabric);
	free(g->own);
	g->own = NULL;
	if (g->tags)
		destroy(g->tags, comm->size);
	g->tags = NULL;
	free((void *)g->wakes);
	g->wakes = NULL;
	if (g->made)
		pthread_mutex_destroy(&g->lock);
	g->made = false;
}

/* ---- Faults ---- */

void coll_tag_fail(struct coll_tags *t, coll_status status, int peer, const char *text)
{
	if (t->fault.status != COLL_OK)
		return;
	t->fault = (struct coll_tags_fault){.status = status, .peer = peer};
	snprintf(t->fault.text, sizeof(t->fault.text), "%s", text);
}

void coll_tag_lost(struct coll_tags *t, struct coll_tag_peer *p, coll_status st)
{
	if (st != COLL_ERR_PEER_DEAD && st != COLL_ERR_PEER_SILENT && st != COLL_ERR_ABORTED) {
		coll_tag_fail(t, st, p->rank, "");
		return;
	}
	t->ends += p->end == COLL_OK;
	p->end = st;
}

/* Receives from any source do not depend on one link: the control plane says who has died. */
static bool depends_on_end(const struct coll_tags *t, const struct coll_tag_op *op)
{
	return op->state != COLL_TAG_DONE && op->state != COLL_TAG_IDLE && op->peer != COLL_MATCH_ANY &&
	       t->peers[op->peer].end != COLL_OK;
}

bool coll_tags_fault(struct coll_comm *comm, const struct coll_tag_op *op, struct coll_tags_fault *fault)
{
	struct coll_tags *t;

	fault->status = COLL_OK;
	pthread_mutex_lock(&comm->tagged.lock);
	t = comm->tagged.tags;
	if (t && !comm->tagged.closed && t->fault.status != COLL_OK && (!t->fault.op || t->fault.op == op))
		*fault = t->fault;
	else if (t && !comm->tagged.closed && t->ends > 0 && depends_on_end(t, op))
		*fault = (struct coll_tags_fault){.status = t->peers[op->peer].end, .peer = op->peer};
	pthread_mutex_unlock(&comm->tagged.lock);
	return fault->status != COLL_OK;
}

/* ---- Channels ---- */

static void wake(struct coll_comm *comm, struct coll_tag_peer *p, uint64_t now)
{
	const struct coll_mismatch_msg q = {
	        .record = {.comm = comm->id, .waits_for = -1}, .third = -1, .about = COLL_ABOUT_TAGS};

	p->woke_ns = now;
	if (!comm->ctx->control)
		return;
	coll_control_ask(comm->ctx->control, coll_comm_process(comm, p->rank), &q);
	coll_service_kick(comm->ctx);
}

void coll_tag_open(struct coll_comm *comm, struct coll_tag_peer *p, bool wakes)
{
	struct coll_tagged *g = &comm->tagged;
	struct coll_tags *t = g->tags;
	const struct coll_fabric *f = &g->own->fabric.fabric;
	coll_status st;

	if (!p->open && p->end == COLL_OK && t->fault.status == COLL_OK) {
		st = f->channel(f->arg, p->rank, COLL_TAG_LANE_ENVELOPES, 0, COLL_DIR_RECV, &p->in);
		if (st == COLL_OK)
			st = f->channel(f->arg, p->rank, COLL_TAG_LANE_ENVELOPES, 0, COLL_DIR_SEND, &p->out);
		if (st != COLL_OK) {
			coll_tag_lost(t, p, st);
			if (t->fault.status != COLL_OK && g->own->box.status != COLL_OK)
				snprintf(t->fault.text, sizeof(t->fault.text), "%.150s", g->own->box.message);
			return;
		}
		p->open = true;
		t->opened[t->nopened++] = p->rank;
	}
	if (wakes && p->open && !p->granted && !p->woke_ns)
		wake(comm, p, coll_clock_ns());
}

/* A rank that wants to send, and finds no channel, sends wake requests until it has one: the first may have come before
 * the communicator was made here. */
static void wake_again(struct coll_comm *comm, struct coll_tag_peer *p)
{
	uint64_t now;

	if (p->granted || !p->woke_ns || p->end != COLL_OK)
		return;
	now = coll_clock_ns();
	if (now - p->woke_ns > COLL_DELAY_NS(TAG_WAKE))
		wake(comm, p, now);
}

static void answer_wakes(struct coll_comm *comm)
{
	struct coll_tagged *g = &comm->tagged;

	/* Acquire: the ranks were marked before. */
	if (!g->wakes || !atomic_exchange_explicit(&g->woken, false, memory_order_acquire))
		return;
	if (make(comm) != COLL_OK) {
		atomic_store_explicit(&g->woken, true, memory_order_relaxed); /* perhaps there is memory later */
		return;
	}
	for (int r = 0; r < comm->size; r++)
		if (r != comm->rank && atomic_exchange_explicit(&g->wakes[r], 0, memory_order_relaxed))
			coll_tag_open(comm, &g->tags->peers[r], false);
}

/* ---- Incoming frames ---- */

static void corrupt(struct coll_tags *t, struct coll_tag_peer *p, const char *why)
{
	coll_tag_fail(t, COLL_ERR_CORRUPT, p->rank, why);
}

static struct coll_tag_op *offer_of(const struct coll_tag_peer *p, uint64_t id)
{
	for (struct coll_link *l = p->offered.next; l != &p->offered; l = l->next)
		if (COLL_ENTRY(l, struct coll_tag_op, link)->id == id)
			return COLL_ENTRY(l, struct coll_tag_op, link);
	return NULL;
}

static void on_answer(struct coll_tags *t, struct coll_tag_peer *p, const struct coll_envelope *e)
{
	struct coll_tag_op *op = offer_of(p, e->id);

	p->moves[COLL_TAG_SEND]++;
	if (op && planted(MATCH_BULK))
		op = coll_tag_first(&p->offered);
	if (!op)
		corrupt(t, p, "it answers an offer that was not made");
	else if (e->kind == COLL_ENVELOPE_DROP)
		coll_tag_finish(t, op, COLL_OK);
	else
		coll_tag_move(op, COLL_TAG_BULK, &p->bulk[COLL_TAG_SEND]);
}

static void on_message(struct coll_comm *comm, struct coll_tag_peer *p, const struct coll_envelope *e,
                       const void *payload, size_t len_bytes)
{
	const bool here = e->kind == COLL_ENVELOPE_EAGER;
	const struct coll_message_head head = {.source = p->rank,
	                                       .tag = e->tag,
	                                       .type = e->type,
	                                       .here = here,
	                                       .len_bytes = here ? (uint32_t)len_bytes : 0,
	                                       .count = e->count,
	                                       .id = e->id};

	p->moves[COLL_TAG_RECEIVE]++;
	if (!here && e->id != ++p->got_last) {
		corrupt(comm->tagged.tags, p, "its offers are not numbered in order");
		return;
	}
	coll_tag_arrived(comm, p, &head, payload);
}

/* The frame may lie in memory that the peer can write: the envelope is read once. */
static void on_frame(struct coll_comm *comm, struct coll_tag_peer *p, const void *bytes, const struct coll_frame *frame)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_envelope e;
	const char *wrong;

	if (frame->sequence != p->taken + 1 || frame->signature != t->signature || frame->len_bytes < sizeof(e)) {
		corrupt(t, p, "its frame does not belong here");
		return;
	}
	memcpy(&e, bytes, sizeof(e));
	wrong = coll_envelope_wrong(&e, frame->len_bytes, t->eager_max);
	if (wrong || e.cells > t->matcher.share - p->credit) {
		corrupt(t, p, wrong ? wrong : "it gives back more of its pool than was used");
		return;
	}
	p->taken++;
	p->credit += e.cells;
	p->moves[COLL_TAG_SEND] += e.cells > 0;
	if (e.kind == COLL_ENVELOPE_PULL || e.kind == COLL_ENVELOPE_DROP)
		on_answer(t, p, &e);
	else if (e.kind != COLL_ENVELOPE_CREDIT)
		on_message(comm, p, &e, (const char *)bytes + sizeof(e), frame->len_bytes - sizeof(e));
}

static bool take_in(struct coll_comm *comm, struct coll_tag_peer *p)
{
	struct coll_tags *t = comm->tagged.tags;
	const uint64_t before = p->taken;

	for (int i = 0; i < FRAMES_AT_A_TIME && p->end == COLL_OK && t->fault.status == COLL_OK; i++) {
		struct coll_frame frame;
		const void *bytes;
		coll_status st = p->in->transport->view(p->in->channel, &bytes, &frame);

		if (st == COLL_AGAIN)
			break;
		if (st == COLL_OK) {
			on_frame(comm, p, bytes, &frame);
			st = p->in->transport->done(p->in->channel);
		}
		if (st != COLL_OK)
			coll_tag_lost(t, p, st);
	}
	return p->taken != before;
}

/* ---- Poll ---- */

bool coll_tags_poll(struct coll_comm *comm, bool *faulty)
{
	struct coll_tagged *g = &comm->tagged;
	bool moved = false;

	pthread_mutex_lock(&g->lock);
	if (!g->closed)
		answer_wakes(comm);
	for (int i = 0; !g->closed && g->tags && i < g->tags->nopened && g->tags->fault.status == COLL_OK; i++) {
		struct coll_tag_peer *p = &g->tags->peers[g->tags->opened[i]];

		moved |= take_in(comm, p);
		moved |= coll_tag_flush(comm, p);
		moved |= coll_tag_bulk(comm, p);
		wake_again(comm, p);
	}
	/* Behind what the dead have sent. */
	if (!g->closed)
		coll_tag_lose_dead(comm);
	*faulty = !g->closed && g->tags && (g->tags->fault.status != COLL_OK || g->tags->ends > 0);
	pthread_mutex_unlock(&g->lock);
	return moved;
}

struct coll_tag_op *coll_tags_next_done(struct coll_comm *comm)
{
	struct coll_tag_op *op = NULL;

	pthread_mutex_lock(&comm->tagged.lock);
	if (comm->tagged.tags && !comm->tagged.closed)
		op = coll_tag_first(&comm->tagged.tags->done);
	if (op)
		coll_list_remove(&op->link);
	pthread_mutex_unlock(&comm->tagged.lock);
	return op;
}

bool coll_tags_waits_for(struct coll_comm *comm, const struct coll_tag_op *op, struct coll_wait *wait, uint32_t *moves)
{
	const int half = op->receives ? COLL_TAG_RECEIVE : COLL_TAG_SEND;
	struct coll_tag_peer *p;
	bool named = false;

	*moves = 0;
	wait->nruns = 0;
	wait->of_rank = false;
	pthread_mutex_lock(&comm->tagged.lock);
	if (comm->tagged.tags && !comm->tagged.closed && op->state != COLL_TAG_DONE && op->peer != COLL_MATCH_ANY &&
	    op->peer != comm->rank) {
		named = true;
		p = &comm->tagged.tags->peers[op->peer];
		*moves = op->events + p->moves[half];
		if (p->running[half] && p->moving[half] == op) {
			wait->runs[0] = p->run[half];
			wait->nruns = 1;
		} else {
			wait->of_rank = true;
			wait->sends = !op->receives;
			wait->peer = op->peer;
		}
	}
	pthread_mutex_unlock(&comm->tagged.lock);
	return named;
}

/* ---- For tests and inspection ---- */

size_t coll_tags_pool_bytes(struct coll_comm *comm)
{
	size_t cells = 0;

	pthread_mutex_lock(&comm->tagged.lock);
	for (int r = 0; comm->tagged.tags && r < comm->size; r++)
		cells += comm->tagged.tags->matcher.source[r].used;
	pthread_mutex_unlock(&comm->tagged.lock);
	return cells * COLL_MATCH_CELL_BYTES;
}

size_t coll_tags_eager_bytes(struct coll_comm *comm)
{
	return eager_limit(comm);
}
