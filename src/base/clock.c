/*
 * Whose time it is: see clock.h.
 */
#include "base/clock.h"

#include <stddef.h>

_Atomic(const struct coll_clock_source *) coll_clock_source;

void coll_clock_take(const struct coll_clock_source *source)
{
	atomic_store_explicit(&coll_clock_source, source, memory_order_release);
}
