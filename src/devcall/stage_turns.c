/*
 * See stage_turns.h. A rotation is one block of memory. It stays until the device has ended it, and then until the next
 * one is made: the requests that point to it ask it nothing behind their last turn.
 */
#include "devcall/stage_turns.h"

#include <stdlib.h>

#include "devcall/device_call.h"
#include "devcall/stage_ring.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SLOT_BYTES = COLL_STAGE_SLOT_BYTES };

/* ---- Memory ---- */

static void *take(char **at, size_t n, size_t bytes)
{
	void *p = *at;

	*at += (n * bytes + 15) / 16 * 16;
	return p;
}

static struct coll_stage_rotation *make(int nwindows, int nparts)
{
	const size_t w = (size_t)nwindows, parts = (size_t)nparts;
	const size_t bytes = sizeof(struct coll_stage_rotation) +
	                     w * (sizeof(struct coll_stage_window) + 2 * sizeof(void *) + sizeof(uint32_t)) +
	                     parts * sizeof(struct coll_stage_part) +
	                     (size_t)COLL_STAGE_TURNS * sizeof(struct coll_stage_place);
	char *at = calloc(1, bytes + 8 * 16);
	struct coll_stage_rotation *c = (void *)at;
	struct coll_stage_place *places;

	if (!c)
		return NULL;
	take(&at, 1, sizeof(*c));
	c->nwindows = nwindows;
	c->nparts = nparts;
	c->windows = take(&at, w, sizeof(*c->windows));
	c->firsts = take(&at, w, sizeof(*c->firsts));
	c->lasts = take(&at, w, sizeof(*c->lasts));
	c->tiles = take(&at, w, sizeof(*c->tiles));
	c->parts = take(&at, parts, sizeof(*c->parts));
	places = take(&at, COLL_STAGE_TURNS, sizeof(*places));
	for (int i = 0; i < nwindows; i++)
		c->windows[i].places = places;
	return c;
}

static void sweep(struct coll_stage *s)
{
	for (struct coll_stage_rotation **at = &s->rotations, *c; (c = *at);) {
		if (atomic_load_explicit(&s->broken, memory_order_relaxed) || !coll_stage_has_done(s, c->end)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		free(c);
	}
}

void coll_stage_turns_close(struct coll_stage *s)
{
	for (struct coll_stage_rotation *c = s->rotations, *next; c; c = next) {
		next = c->next;
		free(c);
	}
	s->rotations = NULL;
}

/* ---- Windows ---- */

/* The number of each peer and direction among the windows: sends first. Their number in n. */
static int *find_windows(const struct coll_request *first, int n[2], int *nparts)
{
	const int size = first->comm->size;
	int *window = calloc(2 * (size_t)size, sizeof(*window));

	n[0] = n[1] = *nparts = 0;
	if (!window)
		return NULL;
	for (const struct coll_request *r = first; r; r = r->device->next)
		for (int half = 0; half < 2 && coll_device_is_message(r); half++)
			if (coll_pair_of(r)->plan[half]) {
				window[half * size + coll_pair_peer(&coll_pair_of(r)->pair, half)] = 1;
				++*nparts;
			}
	for (int i = 0; i < 2 * size; i++)
		window[i] = window[i] ? n[i >= size]++ : -1;
	for (int i = size; i < 2 * size; i++)
		window[i] += n[0];
	return window;
}

/* The slots are divided equally, those for input among sends and those for output among receives. */
static void open_windows(struct coll_stage *s, struct coll_stage_rotation *c, const int n[2])
{
	for (int i = 0; i < c->nwindows; i++) {
		struct coll_stage_window *w = &c->windows[i];
		const bool out = i >= n[0];
		const uint32_t slots = SLOTS / (uint32_t)n[out], at = slots * (uint32_t)(out ? i - n[0] : i);

		w->turns = &c->turns;
		w->out = out;
		w->slots = slots;
		w->address = coll_stage_address(s, (out ? s->out : s->in) + (size_t)at * SLOT_BYTES);
		w->places += at + (out ? SLOTS : 0);
	}
}

static void open_part(struct coll_stage *s, struct coll_stage_rotation *c, int window, struct coll_stage_part *p,
                      struct coll_request *r, int half)
{
	struct coll_stage_window *w = &c->windows[window];
	struct coll_run_stage *stage = &r->device->stage[half];
	const size_t at = (size_t)(w->places - c->windows[0].places) % SLOTS * SLOT_BYTES;
	const void *user = half        ? (stage->out ? coll_pair_of(r)->pair.recv : NULL)
	                   : stage->in ? coll_pair_of(r)->pair.send
	                               : NULL;
	struct coll_job job;

	coll_pair_job(r->comm, &coll_pair_of(r)->pair, half, coll_pair_of(r)->plan[half], &job);
	*p = (struct coll_stage_part){
	        .window = w,
	        .user = (uint64_t)(uintptr_t)user,
	        .len_bytes = (half ? coll_pair_of(r)->pair.recv_count : coll_pair_of(r)->pair.send_count) *
	                     coll_dtype_size(coll_pair_of(r)->pair.type),
	        .tile_bytes = job.tile * job.elem_bytes,
	        .before = c->tiles[window],
	        .tiles = (uint32_t)coll_stage_job_tiles(&job)};
	if (c->lasts[window])
		c->lasts[window]->next = p;
	else
		c->firsts[window] = p;
	c->lasts[window] = p;
	c->tiles[window] += p->tiles;
	stage->part = p;
	stage->number = p->before;
	stage->apart = 1;
	stage->slots = w->slots;
	stage->in = stage->in ? s->in + at : NULL;
	stage->out = stage->out ? s->out + at : NULL;
}

/* Numbers for what is gathered before any turn, and then for the turns. */
static void count(struct coll_stage *s, struct coll_stage_rotation *c, uint32_t number)
{
	uint32_t all = 0;

	c->first = number;
	for (int i = 0; i < c->nwindows; i++) {
		struct coll_stage_window *w = &c->windows[i];

		for (uint32_t n = 0; n < w->slots && n < c->tiles[i]; n++)
			w->places[n] = (struct coll_stage_place){.tile = n, .number = number++};
		all += c->tiles[i];
	}
	c->begin = number;
	c->end = number + all;
	c->turns = (struct coll_stage_turns){.list = s->turns, .given = &s->words->given, .next = number};
}

struct coll_stage_rotation *coll_stage_turns_assign(struct coll_stage *s, struct coll_request *first, uint32_t number)
{
	struct coll_stage_rotation *c = NULL;
	int n[2], nparts, done = 0;
	int *window = find_windows(first, n, &nparts);

	sweep(s);
	if (window && n[0] + n[1] >= 2 && n[0] <= SLOTS && n[1] <= SLOTS)
		c = make(n[0] + n[1], nparts);
	if (c)
		open_windows(s, c, n);
	for (struct coll_request *r = first; c && r; r = r->device->next)
		for (int half = 0; half < 2 && coll_device_is_message(r); half++)
			if (coll_pair_of(r)->plan[half])
				open_part(s, c,
				          window[half * r->comm->size + coll_pair_peer(&coll_pair_of(r)->pair, half)],
				          &c->parts[done++], r, half);
	free(window);
	if (!c)
		return NULL;
	count(s, c, number);
	for (struct coll_request *r = first; r; r = r->device->next)
		if (coll_device_is_message(r))
			r->device->last = c->end;
	c->next = s->rotations;
	s->rotations = c;
	return c;
}

/* ---- Enqueueing ---- */

coll_status coll_stage_turns_begin(struct coll_stage *s, const struct coll_stage_rotation *c, void *stream)
{
	coll_status st = COLL_OK;
	uint32_t number = c->first;

	for (int i = 0; i < c->nwindows; i++) {
		const struct coll_stage_window *w = &c->windows[i];
		const struct coll_stage_part *p = c->firsts[i];

		for (uint32_t n = 0; n < w->slots && n < c->tiles[i] && st == COLL_OK; n++) {
			struct coll_stage_turn copy = {0};
			struct coll_device_piece piece;

			while (n - p->before >= p->tiles)
				p = p->next;
			if (!w->out)
				coll_stage_part_copy(p, n - p->before, SLOT_BYTES, &copy);
			piece = (struct coll_device_piece){copy.dst, copy.src, copy.len_bytes};
			st = s->device->table->gather(s->device, stream, &piece, copy.len_bytes > 0,
			                              coll_stage_address(s, &s->words->ready), ++number);
		}
	}
	return st;
}

bool coll_stage_turn_is_given(const struct coll_stage *s, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(&s->words->given, memory_order_acquire) - number) > 0;
}

coll_status coll_stage_turn_wait(struct coll_stage *s, uint32_t number, void *stream)
{
	return s->device->table->wait(s->device, stream, coll_stage_address(s, &s->words->given), number + 1);
}

coll_status coll_stage_turn_put(struct coll_stage *s, const struct coll_stage_rotation *c, uint32_t number,
                                void *stream)
{
	const bool last = number + 1 == c->end;

	return s->device->table->listed(s->device, stream, coll_stage_address(s, &s->turns[number % COLL_STAGE_TURNS]),
	                                SLOT_BYTES, coll_stage_address(s, &s->words->guard),
	                                coll_stage_address(s, last ? &s->words->done : &s->words->ready), number + 1);
}
