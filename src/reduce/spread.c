/*
 * A reduction whose result goes to several places. If a level has a kernel for it, each
 * vector is stored to all of them from a register. Otherwise the result is made block by block in one
 * place, and copied from there while the block is in the first-level cache.
 */
#include <string.h>

#include "reduce/copy.h"
#include "reduce/reduce.h"
#include "reduce/spread.h"

enum { LINE_BYTES = 64, BLOCK_BYTES = 4096, STREAM_BYTES = 1024, PLACES_MAX = 64 };

struct places {
	char *dst[PLACES_MAX];
	const char *src[PLACES_MAX];
};

static void move_on(struct places *p, int ndst, int nsrc, size_t bytes)
{
	for (int d = 0; d < ndst; d++)
		p->dst[d] += bytes;
	for (int s = 0; s < nsrc; s++)
		p->src[s] += bytes;
}

/* One block. Not by way of a place that is streamed to: it would be read back. */
static void spread_block(const struct coll_reduction *r, const struct places *p, int ndst, int nsrc, bool stream,
                         size_t bytes)
{
	_Alignas(LINE_BYTES) char between[STREAM_BYTES];
	char *first = stream ? between : p->dst[0];

	coll_reduce_run(r, first, (const void *const *)p->src, nsrc, -1, true, bytes / r->elem_bytes);
	for (int d = stream ? 0 : 1; d < ndst; d++) {
		if (stream)
			coll_reduce_stream(p->dst[d], first, bytes);
		else
			coll_reduce_copy(p->dst[d], first, bytes);
	}
}

static void spread_blocks(const struct coll_reduction *r, struct places *p, int ndst, int nsrc, bool stream,
                          size_t bytes)
{
	const size_t block = stream ? STREAM_BYTES : BLOCK_BYTES;

	for (size_t left = bytes; left > 0;) {
		const size_t len = left < block ? left : block;

		spread_block(r, p, ndst, nsrc, stream, len);
		move_on(p, ndst, nsrc, len);
		left -= len;
	}
}

/* Bytes before the first whole line of all places; all, if they do not lie alike. */
static size_t ragged_head(char *const *dst, int ndst, size_t elem_bytes, size_t bytes)
{
	const size_t head = -(uintptr_t)dst[0] % LINE_BYTES;

	for (int d = 1; d < ndst; d++)
		if (-(uintptr_t)dst[d] % LINE_BYTES != head)
			return bytes;
	return head < bytes && head % elem_bytes == 0 ? head : bytes;
}

void coll_reduce_spread(const struct coll_reduction *r, char *const *dst, int ndst, const char *const *src, int nsrc,
                        bool stream, size_t bytes)
{
	struct places p;
	size_t head, middle;

	memcpy(p.dst, dst, (size_t)ndst * sizeof(*dst));
	memcpy(p.src, src, (size_t)nsrc * sizeof(*src));
	if (!r->spread) {
		spread_blocks(r, &p, ndst, nsrc, stream, bytes);
		return;
	}
	/* Whole lines by the kernel; what lies otherwise by lines that are not, without streaming. */
	head = ragged_head(dst, ndst, r->elem_bytes, bytes);
	if (head == bytes) {
		stream = false;
		head = 0;
	}
	spread_blocks(r, &p, ndst, nsrc, false, head);
	middle = (bytes - head) & ~(size_t)(LINE_BYTES - 1);
	if (middle > 0)
		r->spread(r, p.dst, ndst, p.src, nsrc, stream, middle);
	move_on(&p, ndst, nsrc, middle);
	spread_blocks(r, &p, ndst, nsrc, false, bytes - head - middle);
}
