/*
 * Where filling a slot through the caches stops paying: figures for src/engine/slot_policy.h.
 *
 * Two cores of an EPYC guest, slots of 64 KiB, 2026-11-22: fills through the caches ran at 10 to 44
 * bytes per ns between cores that share a last cache and at about 4 between cores that do not;
 * streamed ones at 10 to 20 in both cases. Of a vector of 2 MiB gathered by two ranks, us: near
 * 82 cached, 145 streamed; far 521 and 112.
 */
#include "select/far.h"
#include "base/limits.h"
#include "select/select.h"

void coll_select_far(struct coll_select_far *far)
{
	*far = (struct coll_select_far){.least_bytes = COLL_SLOT_STREAM_MIN,
	                                .slow_bytes_per_ns = 7,
	                                .gain = 1.25,
	                                .probe_bytes = COLL_SLOT_PROBE_BYTES};
}
