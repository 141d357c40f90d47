/*
 * Connections to candidate ports of the root that have no answer yet, while others are tried. So who holds ports and
 * says nothing costs a rank a moment each, and a root that answers late is found all the same. Invariant: no two go to
 * one place; each has its time limit from its own beginning.
 */
#include "bootstrap/rendezvous_tries.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"

bool rendezvous_tries_add(struct rendezvous_tries *t, struct coll_wire *w, const struct coll_address *at, int target)
{
	if (t->count == RENDEZVOUS_TRIES_MAX)
		return false;
	t->wire[t->count] = *w;
	t->target[t->count] = target;
	t->at[t->count++] = *at;
	memset(w, 0, sizeof(*w));
	w->fd = -1;
	w->state = COLL_WIRE_CLOSED;
	return true;
}

bool rendezvous_tries_has(const struct rendezvous_tries *t, const struct coll_address *at)
{
	for (int i = 0; i < t->count; i++)
		if (t->at[i].len == at->len && memcmp(&t->at[i].at, &at->at, at->len) == 0)
			return true;
	return false;
}

static void forget(struct rendezvous_tries *t, int i)
{
	t->wire[i] = t->wire[--t->count];
	t->at[i] = t->at[t->count];
	t->target[i] = t->target[t->count];
}

bool rendezvous_tries_proved(struct rendezvous_tries *t, struct coll_wire *w, int *target)
{
	for (int i = 0; i < t->count; i++) {
		if (t->wire[i].state != COLL_WIRE_OPEN)
			continue;
		*w = t->wire[i];
		*target = t->target[i];
		forget(t, i);
		return true;
	}
	return false;
}

static uint64_t end_ns(const struct coll_wire *w)
{
	return w->born_ns + COLL_DELAY_NS(ROOT_TRY);
}

void rendezvous_tries_sweep(struct rendezvous_tries *t, char *stranger, size_t cap)
{
	char place[120];

	for (int i = t->count - 1; i >= 0; i--) {
		struct coll_wire *w = &t->wire[i];

		if (w->state != COLL_WIRE_CLOSED && coll_clock_ns() <= end_ns(w))
			continue;
		if (w->stranger) {
			coll_address_text(&t->at[i], place, sizeof(place));
			snprintf(stranger, cap, "%.90s: %.60s", place, w->cause);
		}
		coll_wire_close(w);
		forget(t, i);
	}
}

uint64_t rendezvous_tries_end_ns(const struct rendezvous_tries *t)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < t->count; i++)
		if (end_ns(&t->wire[i]) < first)
			first = end_ns(&t->wire[i]);
	return first;
}

void rendezvous_tries_close(struct rendezvous_tries *t)
{
	while (t->count > 0)
		coll_wire_close(&t->wire[--t->count]);
}
