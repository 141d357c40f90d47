/*
 * Tiles as if each plan sent whole slots, and had scratch for each window.
 */
#include "engine/range.h"

size_t coll_run_scratch_bytes(const struct coll_plan *plan, size_t tile, size_t elem_bytes, uint32_t windows)
{
	return tile * elem_bytes * windows;
}

size_t coll_run_tile(const struct coll_plan *plan, size_t elem_bytes, size_t slot_bytes)
{
	return slot_bytes / elem_bytes;
}
