/*
 * Reductions by a function of the user: inout[i] = left[i] op inout[i].
 *
 * Folded left to right in blocks that stay in L1. The function sees operands
 * aligned to their type, and never writes to an input: each right operand is
 * copied to a block of its own, or to dst for the last one when nothing still to
 * be read lies there.
 */
#include <stdalign.h>
#include <string.h>

#include "reduce/copy.h"
#include "reduce/internal.h"
#include "reduce/user.h"

enum { BLOCK_BYTES = 4096 };

static bool aligned(const void *p, size_t elem_bytes)
{
	return (uintptr_t)p % elem_bytes == 0;
}

/* dst may take the right operand while left is read: left is not dst. */
static void combine_block(const struct coll_reduction *r, char *dst, const char *const *src, int nsrc, size_t at,
                          size_t count)
{
	alignas(64) char blocks[2][BLOCK_BYTES];
	const size_t len = count * r->elem_bytes;
	const char *left = src[0] + at;
	int turn = 0;

	if (!aligned(left, r->elem_bytes))
		left = memcpy(blocks[turn++ % 2], left, len);
	for (int s = 1; s < nsrc; s++) {
		const char *right = src[s] + at;
		char *inout = blocks[turn++ % 2];

		if (s == nsrc - 1 && left != dst + at && aligned(dst + at, r->elem_bytes))
			inout = dst + at;
		if (inout != right)
			memcpy(inout, right, len);
		r->user_fn(r->user_arg, left, inout, count, r->type);
		left = inout;
	}
	if (left != dst + at)
		memcpy(dst + at, left, len);
}

void coll_reduce_user(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw, bool last,
                      size_t count)
{
	const size_t block = BLOCK_BYTES / r->elem_bytes;

	(void)raw;
	(void)last;
	if (nsrc == 1) {
		coll_reduce_copy(dst, src[0], count * r->elem_bytes);
		return;
	}
	for (size_t i = 0; i < count; i += block)
		combine_block(r, dst, (const char *const *)src, nsrc, i * r->elem_bytes,
		              count - i < block ? count - i : block);
}
