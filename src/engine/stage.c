/*
 * Turns: see stage.h. One thread at a time: whoever drives the runs of the communicator.
 */
#include "engine/stage.h"

void coll_stage_part_copy(const struct coll_stage_part *p, uint32_t tile, size_t slot_bytes,
                          struct coll_stage_turn *copy)
{
	const struct coll_stage_window *w = p->window;
	const uint64_t slot = w->address + (p->before + tile) % w->slots * slot_bytes;
	const size_t at = tile * p->tile_bytes, left = p->len_bytes - at;

	*copy = (struct coll_stage_turn){.dst = w->out ? p->user + at : slot,
	                                 .src = w->out ? slot : p->user + at,
	                                 .len_bytes = left < p->tile_bytes ? left : p->tile_bytes};
	if (!p->user)
		copy->len_bytes = 0;
}

bool coll_stage_part_is_ready(const struct coll_run_stage *s, size_t tile)
{
	const struct coll_stage_window *w = s->part->window;
	const uint32_t n = coll_stage_number(s, tile);
	const struct coll_stage_place *place = &w->places[n % w->slots];

	return place->tile == n && (int32_t)(atomic_load_explicit(s->ready, memory_order_acquire) - place->number) > 0;
}

void coll_stage_part_give(const struct coll_run_stage *s, size_t tile)
{
	const struct coll_stage_part *p = s->part, *q = p;
	struct coll_stage_window *w = p->window;
	struct coll_stage_turns *t = w->turns;
	const uint32_t number = t->next++, n = coll_stage_number(s, tile), follows = n + w->slots;
	struct coll_stage_turn *entry = &t->list[number % COLL_STAGE_TURNS];

	*entry = (struct coll_stage_turn){0};
	if (w->out)
		coll_stage_part_copy(p, (uint32_t)tile, s->slot_bytes, entry);
	while (q && follows - q->before >= q->tiles)
		q = q->next;
	if (q && !w->out)
		coll_stage_part_copy(q, follows - q->before, s->slot_bytes, entry);
	w->places[n % w->slots] = (struct coll_stage_place){.tile = follows, .number = number};
	/* After all that the run read from the slot and wrote to it, and after the entry. */
	atomic_store_explicit(t->given, number + 1, memory_order_release);
}
