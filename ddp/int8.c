/*
 * Eight bits per number, with error feedback. Blocks of 256 numbers share a
 * scale: the largest magnitude is 127. Two rounds: every rank gets all ranks'
 * parts of its own chunk (all_to_all), sums them in float, and tells the sum, in
 * eight bits again, to all (all_gather). What either rounding loses is kept and added
 * next time. All ranks, the owner of a chunk too, take the sum as it was sent.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"

#define BLOCK 256

struct int8_state {
	size_t chunk, chunk_bytes; /* per rank */
	size_t chunk_count;        /* the ranks */
	float *lost;               /* of the gradient; size * chunk, zero padded */
	float *sum, *sum_lost;     /* of this rank's chunk */
	int8_t *out, *in;          /* size * chunk_bytes: numbers, then scales, chunk by chunk */
};

static void release(struct bucket *b)
{
	struct int8_state *s = b->scratch;

	if (!s)
		return;
	free(s->lost);
	free(s->sum);
	free(s->sum_lost);
	free(s->out);
	free(s->in);
	free(s);
	b->scratch = NULL;
}

static coll_status prepare(coll_ddp *d, struct bucket *b)
{
	const size_t n = (size_t)d->size;
	struct int8_state *s = calloc(1, sizeof(*s));

	b->scratch = s;
	if (!s)
		return ddp_fail(d, COLL_ERR_MEMORY, "no memory for a bucket");
	s->chunk = ((b->count + n - 1) / n + BLOCK - 1) / BLOCK * BLOCK;
	s->chunk_count = n;
	s->chunk_bytes = s->chunk + s->chunk / BLOCK * sizeof(float);
	s->lost = calloc(n * s->chunk, sizeof(float));
	s->sum = calloc(s->chunk, sizeof(float));
	s->sum_lost = calloc(s->chunk, sizeof(float));
	s->out = calloc(n, s->chunk_bytes);
	s->in = calloc(n, s->chunk_bytes);
	if (s->lost && s->sum && s->sum_lost && s->out && s->in)
		return COLL_OK;
	return ddp_fail(d, COLL_ERR_MEMORY, "no memory for a bucket of %zu numbers", b->count);
}

static int phases(const coll_ddp *d)
{
	return 2;
}

/* The largest magnitude of a block, by its bits: those of a NaN are above all. */
static float top_of(const float *x)
{
	uint32_t most = 0;
	float top;

	for (int j = 0; j < BLOCK; j++) {
		uint32_t bits;

		memcpy(&bits, &x[j], sizeof(bits));
		bits &= 0x7fffffff;
		most = bits > most ? bits : most;
	}
	memcpy(&top, &most, sizeof(top));
	return top;
}

static void round_block(float *restrict x, int8_t *restrict q, float scale, float back)
{
	for (int j = 0; j < BLOCK; j++) {
		const float r = x[j] * back;
		const int rounded = (int)(r + (r < 0 ? -0.5f : 0.5f));

		q[j] = (int8_t)rounded;
		x[j] -= (float)rounded * scale;
	}
}

/* Write x as blocks to q and scales; x becomes what that loses. */
static void pack_blocks(float *x, size_t n, int8_t *q, char *scales)
{
	for (size_t i = 0; i < n; i += BLOCK) {
		const float top = top_of(x + i);
		float scale = top / 127, back = top > 0 ? 127 / top : 0;

		if (isfinite(top) && isfinite(back)) {
			round_block(x + i, q + i, scale, back);
		} else {
			/* What is not finite must not look finite to others; what is so small that its
			 * inverse is not, is nothing. */
			scale = isfinite(top) ? 0 : top;
			memset(q + i, 1, BLOCK);
			memset(x + i, 0, BLOCK * sizeof(*x));
		}
		memcpy(scales + i / BLOCK * sizeof(scale), &scale, sizeof(scale));
	}
}

/* to[i] = (or +=) the n numbers that pack_blocks() wrote to q and scales; only the first keep. */
static void unpack_blocks(float *to, size_t n, size_t keep, bool add, const int8_t *q, const char *scales)
{
	for (size_t i = 0; i < n && i < keep; i += BLOCK) {
		const size_t end = i + BLOCK < keep ? i + BLOCK : keep;
		float scale;

		memcpy(&scale, scales + i / BLOCK * sizeof(scale), sizeof(scale));
		for (size_t j = i; j < end; j++)
			to[j] = (add ? to[j] : 0) + (float)q[j] * scale;
	}
}

static coll_status send_parts(coll_ddp *d, struct bucket *b, coll_comm *comm, coll_stream *stream)
{
	struct int8_state *s = b->scratch;
	const float *g = (const float *)d->grads + b->first;

	for (size_t i = 0; i < b->count; i++)
		s->lost[i] += g[i];
	for (int r = 0; r < d->size; r++) {
		int8_t *q = s->out + (size_t)r * s->chunk_bytes;

		pack_blocks(s->lost + (size_t)r * s->chunk, s->chunk, q, (char *)q + s->chunk);
	}
	/* Past the end nothing is lost. */
	memset(s->lost + b->count, 0, ((size_t)d->size * s->chunk - b->count) * sizeof(float));
	ddp_count(d, (size_t)d->size * s->chunk_bytes, (double)(d->size - 1) * (double)s->chunk_bytes);
	return coll_all_to_all(s->out, s->in, s->chunk_bytes, COLL_I8, comm, stream);
}

static coll_status send_sum(coll_ddp *d, struct bucket *b, coll_comm *comm, coll_stream *stream)
{
	struct int8_state *s = b->scratch;

	memcpy(s->sum, s->sum_lost, s->chunk * sizeof(float));
	for (int r = 0; r < d->size; r++) {
		const int8_t *q = s->in + (size_t)r * s->chunk_bytes;

		unpack_blocks(s->sum, s->chunk, s->chunk, true, q, (const char *)q + s->chunk);
	}
	pack_blocks(s->sum, s->chunk, s->out, (char *)s->out + s->chunk);
	memcpy(s->sum_lost, s->sum, s->chunk * sizeof(float));
	ddp_count(d, s->chunk_bytes, (double)(d->size - 1) * (double)s->chunk_bytes);
	return coll_all_gather(s->out, s->in, s->chunk_bytes, COLL_I8, comm, stream);
}

static coll_status start(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	return phase ? send_sum(d, b, comm, stream) : send_parts(d, b, comm, stream);
}

static void finish(coll_ddp *d, struct bucket *b)
{
	const struct int8_state *s = b->scratch;
	float *g = (float *)d->grads + b->first;

	for (int r = 0; r < d->size; r++) {
		const size_t at = (size_t)r * s->chunk, left = at < b->count ? b->count - at : 0;
		const int8_t *q = s->in + (size_t)r * s->chunk_bytes;

		unpack_blocks(g + at, s->chunk, left, false, q, (const char *)q + s->chunk);
	}
}

static size_t kept(const struct bucket *b, struct piece *pieces)
{
	const struct int8_state *s = b->scratch;

	pieces[0] = (struct piece){s->lost, s->chunk_count * s->chunk * sizeof(float)};
	pieces[1] = (struct piece){s->sum_lost, s->chunk * sizeof(float)};
	return 2;
}

const struct wire ddp_wire_int8 = {"int8", NULL, prepare, release, phases, start, finish, kept};
