/*
 * See stage_chain.h.
 *
 * In the stream, for the tiles of a staged call in the order of their numbers, with S slots:
 *
 *	gather 0 .. S-1             in -> slot, then ready = number + 1
 *	for each tile j:  wait      until its taken word is number + 1
 *	                  scatter   slot -> out, unless the guard is set; after the last tile done = number + 1
 *	                  gather    tile j + S
 *
 * So slot j % S is filled again only when tile j has left it in both directions. What is enqueued for direct calls:
 * devcall/mapped_call.c.
 *
 * In blocking calls the caller's thread waits for the words instead, and enqueues what comes behind: a stream that
 * waits would keep its hardware queue from other ranks of this process.
 */
#include "devcall/stage_chain.h"

#include "devcall/mapped_call.h"
#include "devcall/stage_ring.h"
#include "inflight/lock.h"
#include "inflight/thread.h"

enum { SLOTS = COLL_STAGE_SLOTS };

/* ---- Tiles ---- */

static coll_status put_gather(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const int n = coll_stage_pieces_in(s, r, t, 0);

	return s->device->table->gather(s->device, r->device->stream, s->pieces, n,
	                                coll_stage_address(s, &s->words->ready),
	                                coll_stage_number(&r->device->stage[0], t) + 1);
}

/* The word that says that half `half` of tile t has been taken, or NULL: the half has no such tile. */
static _Atomic uint32_t *word_of(const struct coll_request *r, int half, size_t t)
{
	if (t >= coll_stage_half_tiles(r, half))
		return NULL;
	return &r->device->stage[half].taken[coll_stage_number(&r->device->stage[0], t) % SLOTS];
}

static coll_status put_wait(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	coll_status st = COLL_OK;

	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		const _Atomic uint32_t *word = word_of(r, half, t);

		if (word)
			st = s->device->table->wait(s->device, r->device->stream, coll_stage_address(s, word),
			                            coll_stage_number(&r->device->stage[0], t) + 1);
	}
	return st;
}

/* What put_wait() waits for, asked by this thread. Acquire: the scatter that follows reads the slot. */
static bool is_taken(const struct coll_request *r, size_t t)
{
	for (int half = 0; half < 2 && t < r->device->tiles; half++) {
		const _Atomic uint32_t *word = word_of(r, half, t);

		if (word && (int32_t)(atomic_load_explicit(word, memory_order_acquire) -
		                      coll_stage_number(&r->device->stage[0], t)) <= 0)
			return false;
	}
	return true;
}

static bool are_taken(const struct coll_request *r, size_t t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!is_taken(r, t + i))
			return false;
	return true;
}

static coll_status put_scatter(struct coll_stage *s, const struct coll_request *r, size_t t)
{
	const bool last = t + 1 == r->device->tiles;
	const uint64_t done = last ? coll_stage_address(s, &s->words->done) : 0;
	const int n = coll_stage_pieces_out(s, r, t, 0);

	if (n == 0 && !last)
		return COLL_OK;
	return s->device->table->scatter(s->device, r->device->stream, s->pieces, n,
	                                 coll_stage_address(s, &s->words->guard), done, r->device->last);
}

/* The same for n tiles of a long call: less operations. */
static coll_status put_gathers(struct coll_stage *s, const struct coll_request *r, size_t t, size_t n)
{
	const uint64_t ready = coll_stage_address(s, &s->words->ready);
	const uint32_t number = coll_stage_number(&r->device->stage[0], t + n - 1) + 1;
	const struct coll_device_table *table = s->device->table;
	int pieces = 0;
	coll_status st;

	for (size_t i = 0; i < n; i++)
		pieces = coll_stage_pieces_in(s, r, t + i, pieces);
	if (pieces <= 2)
		return table->gather(s->device, r->device->stream, s->pieces, pieces, ready, number);
	st = table->move(s->device, r->device->stream, s->pieces, pieces, (struct coll_device_guard){0});
	return st == COLL_OK ? table->gather(s->device, r->device->stream, NULL, 0, ready, number) : st;
}

static coll_status put_waits(struct coll_stage *s, const struct coll_request *r, size_t t, size_t n)
{
	struct coll_device_word waits[COLL_DEVICE_PIECES_MAX];
	int count = 0;

	for (size_t i = 0; i < n; i++)
		for (int half = 0; half < 2; half++) {
			const _Atomic uint32_t *word = word_of(r, half, t + i);

			if (word)
				waits[count++] =
				        (struct coll_device_word){coll_stage_address(s, word),
				                                  coll_stage_number(&r->device->stage[0], t + i) + 1};
		}
	return s->device->table->exchange(s->device, r->device->stream, NULL, 0, waits, count);
}

static coll_status put_scatters(struct coll_stage *s, const struct coll_request *r, size_t t, size_t n)
{
	const uint64_t guard = coll_stage_address(s, &s->words->guard);
	const uint64_t done = t + n == r->device->tiles ? coll_stage_address(s, &s->words->done) : 0;
	const struct coll_device_table *table = s->device->table;
	coll_status st = COLL_OK;
	int pieces = 0;

	for (size_t i = 0; i < n; i++)
		pieces = coll_stage_pieces_out(s, r, t + i, pieces);
	if (pieces > 2) {
		st = table->move(s->device, r->device->stream, s->pieces, pieces,
		                 (struct coll_device_guard){.word = guard});
		pieces = 0;
	}
	if (st != COLL_OK || (pieces == 0 && !done))
		return st;
	return table->scatter(s->device, r->device->stream, s->pieces, pieces, guard, done, r->device->last);
}

/* What is done for the tile at a place, if there is one. */
static coll_status put(struct coll_stage *s, size_t place, enum coll_stage_cursor cursor, coll_stage_put_fn *work)
{
	struct coll_request *r;
	size_t t;

	return coll_stage_order_find(&s->chain.order, place, cursor, &r, &t) ? work(s, r, t) : COLL_OK;
}

/* Behind the call before, by the word which that one stores at its end: its stream may be gone by now, or be
 * captured. */
static coll_status follow(struct coll_stage *s, coll_device_stream stream, uint32_t before)
{
	if (coll_stage_has_done(s, before))
		return COLL_OK;
	return s->device->table->wait(s->device, stream, coll_stage_address(s, &s->words->done), before);
}

/* All work of these requests goes into the stream of the first, in front of and behind what the others' streams hold.
 */
static coll_status join_streams(struct coll_stage *s, const struct coll_request *first, bool before)
{
	coll_device_stream main = first->device->stream;
	coll_status st = COLL_OK;

	for (const struct coll_request *r = first->device->next; r && st == COLL_OK; r = r->device->next)
		if (r->device->user_stream != main)
			st = before ? s->device->table->order(s->device, r->device->user_stream, main)
			            : s->device->table->order(s->device, main, r->device->user_stream);
	return st;
}

/* ---- Pieces ---- */

static void begin_direct(struct coll_stage_chain *c, struct coll_request *r)
{
	while (r && !r->device->direct)
		r = r->device->next;
	c->direct = r;
	c->segment = 0;
}

/* How many of the places from this one on are joined, of a call that is alone. */
static size_t joined_at(const struct coll_stage_chain *c, size_t place)
{
	return c->order.total - place < c->join ? c->order.total - place : c->join;
}

static bool has_more(const struct coll_stage_chain *c)
{
	return c->direct || c->next < c->order.total || (c->rotation && c->turn != c->rotation->end);
}

/* What the next piece waits for, asked by this thread. */
static bool may_go_on(struct coll_stage *s)
{
	struct coll_stage_chain *c = &s->chain;
	struct coll_request *r;
	size_t t;

	if (c->direct)
		return coll_mapped_has_come(c->direct->comm, &c->direct->device->direct_call, c->segment);
	if (c->next == c->order.total)
		return coll_stage_turn_is_given(s, c->turn);
	if (c->join > 1)
		return are_taken(c->first, c->next, joined_at(c, c->next));
	return !coll_stage_order_find(&c->order, c->next, COLL_STAGE_WAITS, &r, &t) || is_taken(r, t);
}

/* And by the stream. */
static coll_status put_next_wait(struct coll_stage *s, const struct coll_stage_chain *c)
{
	if (c->direct)
		return coll_mapped_put_wait(c->direct->comm, &c->direct->device->direct_call, c->segment,
		                            c->direct->device->stream);
	if (c->next == c->order.total)
		return coll_stage_turn_wait(s, c->turn, c->first->device->stream);
	if (c->join > 1)
		return put_waits(s, c->first, c->next, joined_at(c, c->next));
	return put(s, c->next, COLL_STAGE_WAITS, put_wait);
}

/* The next piece of direct calls, as far as the next wait for others. */
static coll_status put_direct(struct coll_stage *s, struct coll_stage_chain *c)
{
	coll_status st = COLL_OK;

	while (c->direct && st == COLL_OK) {
		struct coll_request *r = c->direct;
		const bool last = c->segment + 1 == coll_mapped_segments(&r->device->direct_call);
		const struct coll_device_word ended = {coll_stage_address(s, &s->words->done), r->device->last};

		st = coll_mapped_put(r->comm, &coll_collective_of(r)->job, &r->device->direct_call, c->segment++,
		                     c->joined, ended, r->device->stream);
		if (!last)
			break;
		begin_direct(c, r->device->next);
	}
	return st;
}

/* What messages have in front of their turns comes when nothing else is in front of it. */
static coll_status begin_turns(struct coll_stage *s, struct coll_stage_chain *c)
{
	if (!c->rotation || c->rotation_begun || c->direct || c->next < c->order.total)
		return COLL_OK;
	c->rotation_begun = true;
	return coll_stage_turns_begin(s, c->rotation, c->first->device->stream);
}

static coll_status put_joined(struct coll_stage *s, struct coll_stage_chain *c)
{
	const size_t place = c->next, n = joined_at(c, place);
	coll_status st = put_scatters(s, c->first, place, n);

	c->next += n;
	if (st == COLL_OK && place + SLOTS < c->order.total)
		st = put_gathers(s, c->first, place + SLOTS, joined_at(c, place + SLOTS));
	return st;
}

static coll_status put_place(struct coll_stage *s, struct coll_stage_chain *c)
{
	const size_t place = c->next++;
	coll_status st;

	st = put(s, place, COLL_STAGE_WAITS, put_scatter);
	if (st == COLL_OK && place + SLOTS < c->order.total)
		st = put(s, place + SLOTS, COLL_STAGE_GATHERS, put_gather);
	return st;
}

static coll_status put_next(struct coll_stage *s, struct coll_stage_chain *c)
{
	coll_status st;

	if (!c->direct && c->next == c->order.total)
		return coll_stage_turn_put(s, c->rotation, c->turn++, c->first->device->stream);
	st = c->direct ? put_direct(s, c) : c->join > 1 ? put_joined(s, c) : put_place(s, c);
	return st == COLL_OK ? begin_turns(s, c) : st;
}

/* In front of all waits. */
static coll_status begin_chain(struct coll_stage *s, struct coll_stage_chain *c, struct coll_request *first)
{
	coll_status st = COLL_OK;

	c->next = 0;
	c->rotation_begun = false;
	/* Other communicators would take turns with single tiles. */
	c->join = c->entered && !first->device->next && !first->device->direct && !c->rotation ? coll_stage_join(first)
	                                                                                       : 1;
	c->turn = c->rotation ? c->rotation->begin : 0;
	for (size_t j = 0; j < c->order.total && j < SLOTS && st == COLL_OK; j += c->join)
		st = c->join > 1 ? put_gathers(s, first, j, joined_at(c, j))
		                 : put(s, j, COLL_STAGE_GATHERS, put_gather);
	begin_direct(c, first);
	if (st == COLL_OK && c->direct)
		st = put_direct(s, c);
	return st == COLL_OK ? begin_turns(s, c) : st;
}

/* Blocking calls. A persistent operation may be started now and waited for later, and nobody need wait for a call in a
 * stream of the host. Before claim(). */
static bool is_blocking(const struct coll_request *first)
{
	for (const struct coll_request *r = first; r; r = r->device->next)
		if (r->device->stream != r->comm->stage->own || r->device->host->later || r->stream)
			return false;
	return true;
}

/* All chains of a batch, or none: what a paced chain enqueues later may share a hardware queue with the waits of
 * another, and a rank whose blocking calls are others would wait for it, and this one for that rank. */
static bool is_paced(const struct coll_batch *b)
{
	for (const struct coll_request *r = b->chains; r; r = r->device->next_chain)
		if (!is_blocking(r))
			return false;
	return true;
}

/* ---- Chains ---- */

/* If the communicator has failed by now, its requests are complete, and nothing needs the device. AGAIN: a rank has
 * left, so it is going to fail. */
static coll_status claim(struct coll_request *first)
{
	struct coll_comm *comm = first->comm;
	struct coll_stage *s = comm->stage;
	const struct coll_request *last = NULL;
	coll_status st;

	for (const struct coll_request *r = first; r; r = r->device->next)
		last = r->device->direct ? r : last;
	coll_async_lock(comm->ctx);
	st = comm->failed;
	if (st == COLL_OK && last && !coll_mapped_claim(comm, &last->device->direct_call))
		st = COLL_AGAIN;
	for (struct coll_request *r = first; r && st == COLL_OK; r = r->device->next) {
		r->device->enqueued = true;
		r->device->user_stream = r->device->stream;
		r->device->stream = first->device->stream;
		if (!s->used || (int32_t)(r->device->last - s->last_done) > 0)
			s->last_done = r->device->last;
		s->used = true;
	}
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return st;
}

static void end_chain(struct coll_stage *s)
{
	struct coll_stage_chain *c = &s->chain;

	c->first = NULL;
	if (c->entered)
		s->device->table->leave(s->device);
	c->entered = false;
}

/* A part of the chain is in its stream. What it waits for is over, since the communicator has failed, but the end of
 * the chain is missing, and with it the word by which others see that the device has left the memory. So a stream of
 * our own stores it behind that part. */
static void give_up(struct coll_comm *comm, coll_device_stream main, coll_status st)
{
	struct coll_stage *s = comm->stage;
	const struct coll_device_table *table = s->device->table;
	struct coll_device_word words[2] = {{coll_stage_address(s, &s->words->done), s->last_done}};
	const int n = 1 + coll_mapped_left_word(comm, &words[1]);

	end_chain(s);
	coll_stage_give_up(comm, st);
	if (main != s->own)
		st = table->order(s->device, main, s->own);
	for (int i = n - 1; i >= 0 && (main == s->own || st == COLL_OK); i--)
		table->gather(s->device, s->own, NULL, 0, words[i].at, words[i].value);
}

static coll_status put_begin(struct coll_stage *s, struct coll_request *first, bool follows, uint32_t before)
{
	struct coll_stage_chain *c = &s->chain;
	coll_status st = follows ? follow(s, first->device->stream, before) : COLL_OK;

	/* No tile before has this number, and all are over. */
	if (st == COLL_OK && s->forward)
		st = s->device->table->gather(s->device, first->device->stream, NULL, 0,
		                              coll_stage_address(s, &s->words->ready), s->forward_ready);
	s->forward = false;
	if (st == COLL_OK)
		st = join_streams(s, first, true);
	c->joined = c->entered && !c->paced;
	return st == COLL_OK ? begin_chain(s, c, first) : st;
}

/* alone: there is no other communicator, which would take turns, and whose device would be bound above this one. */
static void begin(struct coll_request *first, bool alone, bool paced)
{
	struct coll_comm *comm = first->comm;
	struct coll_stage *s = comm->stage;
	const uint32_t before = s->last_done;
	const bool follows = s->used;
	coll_status st;

	if (claim(first) != COLL_OK)
		return;
	s->chain.first = first;
	s->chain.paced = paced;
	st = alone ? s->device->table->enter(s->device) : COLL_OK;
	s->chain.entered = alone && st == COLL_OK;
	if (st == COLL_OK)
		st = put_begin(s, first, follows, before);
	if (st != COLL_OK)
		give_up(comm, first->device->stream, st);
}

/* Enqueue the next piece. True: there is another one. */
static bool advance(struct coll_comm *comm)
{
	struct coll_stage *s = comm->stage;
	struct coll_stage_chain *c = &s->chain;
	coll_status st = COLL_OK;

	if (!c->first)
		return false;
	if (has_more(c)) {
		if (!c->paced && !(c->direct && c->joined))
			st = put_next_wait(s, c);
		if (st == COLL_OK)
			st = put_next(s, c);
	}
	if (st == COLL_OK && has_more(c))
		return true;
	if (st == COLL_OK)
		st = join_streams(s, c->first, false);
	if (st == COLL_OK)
		end_chain(s);
	else
		give_up(comm, c->first->device->stream, st);
	return false;
}

/* Communicators take turns, a piece each: so a thread that drives several of them has enqueued what one waits for
 * before it enqueues what is behind that wait. */
void coll_stage_enqueue(const struct coll_batch *b)
{
	const bool paced = is_paced(b);
	bool more = true;

	for (struct coll_request *r = b->chains; r; r = r->device->next_chain)
		begin(r, r == b->chains && !r->device->next_chain, paced);
	while (more) {
		more = false;
		for (struct coll_request *r = b->chains; r; r = r->device->next_chain)
			more |= !r->comm->stage->chain.paced && advance(r->comm);
	}
}

/* A launch that blocks may wait until the host has copied a tile of this call: then another thread must do so. */
static void advance_away(struct coll_comm *comm)
{
	struct coll_async *a = comm->ctx->async;

	atomic_fetch_add(&a->away, 1);
	coll_async_lock(comm->ctx);
	coll_async_call(comm->ctx);
	pthread_mutex_unlock(&a->lock);
	advance(comm);
	atomic_fetch_sub(&a->away, 1);
}

void coll_stage_pace(struct coll_comm *comm)
{
	struct coll_stage_chain *c = comm->stage ? &comm->stage->chain : NULL;

	while (c && c->first && c->paced && may_go_on(comm->stage))
		if (c->direct && coll_mapped_copies(&c->direct->device->direct_call))
			advance_away(comm);
		else
			advance(comm);
}

void coll_stage_end_pace(struct coll_comm *comm)
{
	if (!comm->stage)
		return;
	/* What was taken last: the next call waits for the end of this one. */
	coll_stage_pace(comm);
	if (comm->stage->chain.first)
		end_chain(comm->stage);
}
