/*
 * See records.h. Owns this rank's regions: allocations of the user that were announced to the peers, few at a time.
 *
 * A region is found by the number that the driver gives each allocation. One that was freed, or the one that was used
 * least recently, is retracted, and its place is free when all peers have answered that. Nothing here waits.
 */
#include "devcall/mapped_records.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/planted.h"
#include "devcall/mapped_call.h"

/* Whether the call whose last sync has this number has ended on all ranks, however long ago that was. */
static bool is_over(const struct coll_mapped *d, uint32_t last)
{
	const uint32_t finished = atomic_load_explicit(&d->page->finished, memory_order_acquire);
	const uint32_t assigned = atomic_load_explicit(&d->sync, memory_order_relaxed);

	return assigned - last >= assigned - finished;
}

static bool is_announced(const struct mapped_own *o)
{
	return o->generation % 2 == 1;
}

static int place_of(const struct coll_mapped *d, const struct mapped_own *o)
{
	return (int)(o - d->own);
}

/* What all peers have answered: OK; UNSUPPORTED: one of them cannot map it; AGAIN: not all have. */
static coll_status answer(const struct coll_mapped *d, const struct mapped_own *o)
{
	coll_status st = COLL_OK;

	for (int r = 0; r < d->size; r++) {
		const uint32_t seen =
		        r == d->rank ? o->generation
		                     : atomic_load_explicit(&d->peers[r].page->answered[d->rank][place_of(d, o)],
		                                            memory_order_acquire);

		if (seen == (o->generation | MAPPED_REFUSED))
			st = COLL_ERR_UNSUPPORTED;
		else if (seen != o->generation)
			return COLL_AGAIN;
	}
	return st;
}

/* ---- Announcements ---- */

static void tell(struct coll_mapped *d, struct mapped_own *o)
{
	o->generation++;
	atomic_store_explicit(&d->page->notes[place_of(d, o)].generation, o->generation, memory_order_release);
	atomic_fetch_add_explicit(&d->page->announced, 1, memory_order_release);
}

static void let_go(struct mapped_own *o)
{
	if (o->region.fd >= 0)
		coll_fd_close(o->region.fd);
	o->region.fd = -1;
}

static void retract(struct coll_mapped *d, struct mapped_own *o)
{
	tell(d, o);
	o->base = 0;
}

/* Peers of other processes get the descriptor first. */
static bool hand_over(const struct coll_mapped *d, const struct mapped_own *o)
{
	const struct coll_channel_key key = coll_mapped_region_key(d, place_of(d, o), o->generation + 1);
	coll_status st = COLL_OK;

	for (int r = 0; r < d->size && o->region.fd >= 0; r++)
		if (r != d->rank && !d->peers[r].here && st == COLL_OK)
			st = d->peers[r].transport->shared->hand(d->peers[r].link, &key, o->region.fd);
	return st == COLL_OK;
}

static void announce(struct coll_mapped *d, struct mapped_own *o, const struct coll_device_range *range)
{
	struct mapped_note *note = &d->page->notes[place_of(d, o)];

	if (d->device->table->region_export(d->device, range->base, range->len_bytes, &o->region) != COLL_OK)
		return;
	if (!hand_over(d, o)) {
		let_go(o); /* the link is broken, and the communicator is going to fail */
		return;
	}
	note->fd = o->region.fd;
	note->export = o->region.export;
	atomic_store_explicit(&d->page->bases[d->rank][place_of(d, o)], range->base, memory_order_release);
	o->base = range->base;
	o->len_bytes = range->len_bytes;
	o->id = range->id;
	tell(d, o);
}

/* Whether no call needs the region any more. */
static bool is_idle(const struct coll_mapped *d, const struct mapped_own *o)
{
	return is_over(d, o->last_sync);
}

/* Retract what is not there any more: it lies where the allocation lies now. False: calls in flight still need some of
 * it. Memory of a pool may be freed and given out again in a stream, behind such a call. */
static bool retract_freed(struct coll_mapped *d, const struct coll_device_range *range)
{
	bool all = true;

	for (int i = 0; i < MAPPED_REGIONS; i++) {
		struct mapped_own *o = &d->own[i];

		if (!is_announced(o) || o->base >= range->base + range->len_bytes ||
		    range->base >= o->base + o->len_bytes)
			continue;
		if (is_idle(d, o))
			retract(d, o);
		else
			all = false;
	}
	return all;
}

/* One region for each long call: whether it is still there. Memory that was freed stays on the device while peers have
 * it mapped. */
static void retract_one_if_freed(struct coll_mapped *d)
{
	struct coll_device_range range = {.id = 0};
	struct mapped_own *o;

	d->asked = (d->asked + 1) % MAPPED_REGIONS;
	o = &d->own[d->asked];
	if (is_announced(o) && is_idle(d, o) &&
	    d->device->table->identify(d->device, (const void *)o->base, 1, &range) &&
	    (range.kind == COLL_DEVICE_HOST || range.id != o->id))
		retract(d, o);
}

/* A place for a new region. NULL: not now. */
static struct mapped_own *free_place(struct coll_mapped *d)
{
	struct mapped_own *oldest = NULL;
	int retracted = 0;

	for (int i = 0; i < MAPPED_REGIONS; i++) {
		struct mapped_own *o = &d->own[i];
		const bool answered = answer(d, o) != COLL_AGAIN;

		if (answered)
			let_go(o);
		if (!is_announced(o) && answered)
			return o;
		retracted += !is_announced(o);
		if (is_announced(o) && answered && is_idle(d, o) && (!oldest || o->used < oldest->used))
			oldest = o;
	}
	if (oldest && retracted == 0)
		retract(d, oldest);
	return NULL;
}

static struct mapped_own *region_of(struct coll_mapped *d, uintptr_t base, uint64_t id)
{
	for (int i = 0; i < MAPPED_REGIONS; i++)
		if (is_announced(&d->own[i]) && d->own[i].base == base && (d->own[i].id == id || planted(STALE_REGION)))
			return &d->own[i];
	return NULL;
}

/* What the check of the arguments has found out, or a look of its own. */
static bool range_of(const struct coll_comm *comm, const void *ptr, struct coll_device_range *range)
{
	struct coll_device *device = coll_mapped_of(comm)->device;

	for (unsigned i = 0; i < COLL_SEEN; i++) {
		const struct coll_seen *s = &comm->seen[i];

		if (s->ptr != ptr)
			continue;
		*range = (struct coll_device_range){
		        .kind = s->kind, .base = s->base, .len_bytes = s->len_bytes, .id = s->id};
		return true;
	}
	return device->table->identify(device, ptr, 1, range);
}

void coll_records_find(struct coll_comm *comm, const void *ptr, size_t len_bytes, struct coll_mapped_buffer *buffer)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	struct coll_device_range range;
	struct mapped_own *o;

	*buffer = (struct coll_mapped_buffer){.len_bytes = len_bytes};
	if (len_bytes == 0)
		return;
	retract_one_if_freed(d);
	if (!range_of(comm, ptr, &range) || range.kind == COLL_DEVICE_HOST || range.base == 0 || range.id == 0 ||
	    (uintptr_t)ptr - range.base > range.len_bytes ||
	    len_bytes > range.len_bytes - ((uintptr_t)ptr - range.base))
		return;
	buffer->base = range.base;
	buffer->offset = (uintptr_t)ptr - range.base;
	buffer->id = range.id;
	o = region_of(d, range.base, range.id);
	if (!o && retract_freed(d, &range)) {
		o = free_place(d);
		if (o)
			announce(d, o, &range);
	}
	if (o)
		o->used = ++d->uses;
}

/* ---- Records ---- */

/* The word of a record; 0: the buffer goes through slots, *why says for what reason. */
static uint64_t word_of(struct coll_mapped *d, const struct coll_mapped_buffer *b, uint32_t last, const char **why)
{
	struct mapped_own *o = b->base ? region_of(d, b->base, b->id) : NULL;
	const coll_status st = !o ? COLL_AGAIN : planted(EARLY_RECORD) ? COLL_OK : answer(d, o);

	if (!b->base)
		*why = "memory that is not the device's, or of several allocations";
	else if (st == COLL_ERR_UNSUPPORTED)
		*why = o->region.export.share == COLL_DEVICE_SHARE_HANDLE ? "of cuMemAlloc(), in another process"
		                                                          : "memory that cannot be exported";
	else if (st != COLL_OK)
		*why = "not mapped by all ranks yet";
	if (st != COLL_OK)
		return 0;
	o->last_sync = last;
	return (uint64_t)(place_of(d, o) + 1) << COLL_KERNEL_OFFSET_BITS | (planted(WRONG_OFFSET) ? 0 : b->offset);
}

static void decide(struct coll_mapped *d, struct coll_mapped_buffer *b, bool room, uint32_t last)
{
	const char *why = "too many calls in flight";

	if (b->len_bytes == 0)
		return;
	b->word = room ? word_of(d, b, last, &why) : 0;
	d->in_place += b->word != 0;
	d->by_copy += b->word == 0;
	if (b->word == 0)
		d->copied_for = why;
}

void coll_records_assign(struct coll_mapped *d, struct coll_mapped_call *call, uint32_t last)
{
	uint32_t *before;
	bool room;

	call->number = ++d->record;
	before = &d->record_sync[call->number % MAPPED_RECORDS];
	/* The record of an earlier call, which peers may not have read yet. */
	room = is_over(d, *before);
	decide(d, &call->in, room, last);
	if (!call->in.word)
		return;
	*before = last;
	atomic_store(&d->lends, true);
}

void coll_records_publish(struct coll_mapped *d, const struct coll_mapped_call *call)
{
	struct mapped_record *r = &d->page->records[call->number % MAPPED_RECORDS];

	if (!call->in.word)
		return;
	atomic_store_explicit(&r->in, call->in.word | (call->kept ? COLL_KERNEL_KEPT : 0), memory_order_relaxed);
	atomic_store_explicit(&r->number, call->number, memory_order_release);
}

void coll_records_describe(const struct coll_device_facts *facts, char *buf, size_t len_bytes)
{
	const struct coll_mapped *d = (const struct coll_mapped *)(const void *)facts;
	const unsigned long long in_place = d->in_place, all = d->in_place + d->by_copy;

	buf[0] = 0;
	if (all > 0)
		snprintf(buf, len_bytes, "; buffers of long calls in place: %llu of %llu%s%s", in_place, all,
		         d->copied_for ? ", the last copy: " : "", d->copied_for ? d->copied_for : "");
}

void coll_records_close(struct coll_mapped *d)
{
	for (int i = 0; i < MAPPED_REGIONS; i++)
		let_go(&d->own[i]);
}
