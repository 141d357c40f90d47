/*
 * The list of dead members: see dead.h. What a death ends is error.c's.
 */
#include "core/dead.h"

#include <stdlib.h>

bool coll_comm_note_dead(struct coll_comm *comm, int rank)
{
	struct coll_dead_members *d = coll_comm_dead(comm);

	if (!d) {
		d = calloc(1, sizeof(*d) + (size_t)comm->size * sizeof(d->rank[0]));
		if (!d)
			return false;
		atomic_store_explicit(&comm->dead, d, memory_order_release);
	}
	d->rank[atomic_load_explicit(&d->count, memory_order_relaxed)] = rank;
	atomic_fetch_add_explicit(&d->count, 1, memory_order_release);
	return true;
}
