/*
 * From which point cached stores to a slot no longer pay: figures for src/engine/slot_policy.h.
 *
 * Two cores of an EPYC guest, slots of 64 KiB, 2026-11-22: cached fills ran at 10 to 44
 * bytes per ns between cores that share a last-level cache and at about 4 between cores that do not;
 * non-temporal ones at 10 to 20 in both cases. Of a vector of 2 MiB gathered by two ranks, us: near
 * 82 cached, 145 streamed; far 521 and 112.
 */
#include "select/far.h"
#include "select/select.h"

void coll_select_far(struct coll_select_far *far)
{
	*far = (struct coll_select_far){
	        .least_bytes = 8192, .slow_bytes_per_ns = 7, .gain = 1.25, .probe_bytes = (uint64_t)32 << 20};
}
