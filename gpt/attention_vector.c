/*
 * Causal attention in blocks with an online softmax: nothing of size len x len
 * is stored (Rabe and Staats, arXiv 2112.05682; Dao et al., arXiv 2205.14135).
 *
 * Forward keeps, per query row, the maximum and the sum of exponentials seen so
 * far, and rescales the output row when a later key block raises the maximum.
 * Backward recomputes each block of weights from the saved log-sum-exp. Blocks
 * are visited in one fixed order, so sums are the same from run to run.
 * Compiled once per instruction-set level; the products go through BLAS.
 */
#include "gpt/blas.h"
#include "gpt/kernels.h"
#include "gpt/vec.h"

#define BLOCK 64

size_t LEVEL(gpt_attention_work)(int len, int head_width, int width);
void LEVEL(gpt_attention)(struct gpt_device *dev, const struct gpt_attention *a);
void LEVEL(gpt_attention_grad)(struct gpt_device *dev, const struct gpt_attention *a);

/* One head of one sequence: pointers to its first token, and the scratch. */
struct head {
	const gpt_real *q, *k, *v, *dout;
	gpt_real *dq, *dk, *dv, *out, *lse;
	int width, in_step, out_step;
	gpt_real scale;
	gpt_real *p, *ds;    /* BLOCK x BLOCK */
	gpt_real *max, *sum; /* BLOCK */
	gpt_real *mean;      /* len: sum over keys of weight * its gradient */
};

size_t LEVEL(gpt_attention_work)(int len, int head_width, int width)
{
	return 2 * BLOCK * BLOCK + 2 * BLOCK + (size_t)len;
}

static struct head head_of(const struct gpt_attention *a, gpt_real *work, int b, int h)
{
	const int width = a->heads * a->head_width;
	const size_t in = (size_t)b * a->len * 3 * width + (size_t)h * a->head_width;
	const size_t out = (size_t)b * a->len * width + (size_t)h * a->head_width;
	struct head hd = {.q = a->qkv + in, .k = a->qkv + in + width, .v = a->qkv + in + 2 * width};

	hd.out = a->out + out;
	hd.lse = a->lse + ((size_t)b * a->heads + h) * a->len;
	hd.width = a->head_width;
	hd.in_step = 3 * width;
	hd.out_step = width;
	hd.scale = 1 / GPT_SQRT((gpt_real)a->head_width);
	hd.p = work;
	hd.ds = hd.p + BLOCK * BLOCK;
	hd.max = hd.ds + BLOCK * BLOCK;
	hd.sum = hd.max + BLOCK;
	hd.mean = hd.sum + BLOCK;
	if (a->dqkv) {
		hd.dout = a->dout + out;
		hd.dq = a->dqkv + in;
		hd.dk = a->dqkv + in + width;
		hd.dv = a->dqkv + in + 2 * width;
	}
	return hd;
}

/* c (m x n, rows ldc apart) = alpha * a b^T + beta * c, both with width columns. */
static void mul_nt(int m, int n, int k, gpt_real alpha, const gpt_real *a, int lda, const gpt_real *b, int ldb,
                   gpt_real *c, int ldc)
{
	gpt_blas_gemm(&(struct gpt_gemm){false, true, m, n, k, alpha, 0, a, b, c, lda, ldb, ldc});
}

static void mul(bool ta, int m, int n, int k, const gpt_real *a, const gpt_real *b, int ldb, gpt_real beta, gpt_real *c,
                int ldc)
{
	gpt_blas_gemm(&(struct gpt_gemm){ta, false, m, n, k, 1, beta, a, b, c, BLOCK, ldb, ldc});
}

INLINE gpt_real dot(const gpt_real *a, const gpt_real *b, int n)
{
	vec sum = splat(0);

	for (int i = 0; i < n; i += LANES)
		sum += load(a, i, n) * load(b, i, n);
	return fold_sum(sum);
}

/* Lanes i .. i+15 of a row of full scores of which n count: the others are of keys that come later. A whole load and
 * a mask: lane by lane, nearly every row of a block on the diagonal would be. */
INLINE vec live_scores(const gpt_real *x, int i, int n, int full)
{
	const vec v = load_or(x, i, full, -INFINITY);

	return i + LANES <= n ? v : pick(lanes_below(n - i), v, splat(-INFINITY));
}

/* Turn n scores into exponentials, the rest of the row (to full) into zeros;
 * carry the row's running maximum and sum; return the factor of what was
 * summed before. */
INLINE gpt_real soften(gpt_real *x, int n, int full, gpt_real *max, gpt_real *sum)
{
	vec top = splat(*max), total = splat(0);
	gpt_real factor, new_max;

	for (int i = 0; i < n; i += LANES)
		top = vec_max(top, live_scores(x, i, n, full));
	new_max = fold_max(top);
	factor = *max == -INFINITY ? 0 : GPT_EXP(*max - new_max);
	for (int i = 0; i < n; i += LANES) {
		vec e = vec_exp(live_scores(x, i, n, full) - new_max);

		total += e;
		store(x, i, full, e);
	}
	for (int i = (n + LANES - 1) / LANES * LANES; i < full; i += LANES)
		store(x, i, full, splat(0));
	*max = new_max;
	*sum = *sum * factor + fold_sum(total);
	return factor;
}

static void scale_row(gpt_real *x, gpt_real by, int n)
{
	for (int i = 0; i < n; i += LANES)
		store(x, i, n, load(x, i, n) * by);
}

/* Queries i0 .. i0+rows against keys j0 .. j0+cols, j0 <= i0. */
static void forward_block(const struct head *h, int i0, int rows, int j0, int cols)
{
	gpt_real *out = h->out + (size_t)i0 * h->out_step;

	mul_nt(rows, cols, h->width, h->scale, h->q + (size_t)i0 * h->in_step, h->in_step,
	       h->k + (size_t)j0 * h->in_step, h->in_step, h->p, BLOCK);
	for (int r = 0; r < rows; r++) {
		gpt_real factor = soften(h->p + r * BLOCK, j0 == i0 ? r + 1 : cols, cols, &h->max[r], &h->sum[r]);

		if (j0 > 0 && factor != 1)
			scale_row(out + (size_t)r * h->out_step, factor, h->width);
	}
	mul(false, rows, h->width, cols, h->p, h->v + (size_t)j0 * h->in_step, h->in_step, j0 > 0, out, h->out_step);
}

static void forward_head(const struct head *h, int len)
{
	for (int i0 = 0; i0 < len; i0 += BLOCK) {
		const int rows = len - i0 < BLOCK ? len - i0 : BLOCK;

		for (int r = 0; r < rows; r++) {
			h->max[r] = -INFINITY;
			h->sum[r] = 0;
		}
		for (int j0 = 0; j0 <= i0; j0 += BLOCK)
			forward_block(h, i0, rows, j0, j0 < i0 ? BLOCK : rows);
		for (int r = 0; r < rows; r++) {
			h->lse[i0 + r] = h->max[r] + GPT_LOG(h->sum[r]);
			scale_row(h->out + (size_t)(i0 + r) * h->out_step, 1 / h->sum[r], h->width);
		}
	}
}

void LEVEL(gpt_attention)(struct gpt_device *dev, const struct gpt_attention *a)
{
	for (int p = a->first_pair; p < a->first_pair + a->pairs; p++) {
		struct head h = head_of(a, dev->work, p / a->heads, p % a->heads);

		forward_head(&h, a->len);
	}
}

/* p = exp(score - lse), ds = p * (dp - mean) * scale, for the row's n live keys. */
INLINE void backward_row(gpt_real *p, gpt_real *ds, int n, int full, gpt_real lse, gpt_real mean, gpt_real scale)
{
	for (int i = 0; i < full; i += LANES) {
		vec e = i < n ? vec_exp(live_scores(p, i, n, full) - lse) : splat(0);

		store(p, i, full, e);
		store(ds, i, full, e * (load(ds, i, full) - mean) * scale);
	}
}

static void backward_block(const struct head *h, int i0, int rows, int j0, int cols)
{
	const size_t qi = (size_t)i0 * h->in_step, kj = (size_t)j0 * h->in_step;
	const gpt_real *dout = h->dout + (size_t)i0 * h->out_step;

	mul_nt(rows, cols, h->width, h->scale, h->q + qi, h->in_step, h->k + kj, h->in_step, h->p, BLOCK);
	mul_nt(rows, cols, h->width, 1, dout, h->out_step, h->v + kj, h->in_step, h->ds, BLOCK);
	for (int r = 0; r < rows; r++)
		backward_row(h->p + r * BLOCK, h->ds + r * BLOCK, j0 == i0 ? r + 1 : cols, cols, h->lse[i0 + r],
		             h->mean[i0 + r], h->scale);
	/* The first block to touch a row of dq, dk or dv overwrites it. */
	mul(true, cols, h->width, rows, h->p, dout, h->out_step, i0 > j0, h->dv + kj, h->in_step);
	mul(true, cols, h->width, rows, h->ds, h->q + qi, h->in_step, i0 > j0, h->dk + kj, h->in_step);
	mul(false, rows, h->width, cols, h->ds, h->k + kj, h->in_step, j0 > 0, h->dq + qi, h->in_step);
}

void LEVEL(gpt_attention_grad)(struct gpt_device *dev, const struct gpt_attention *a)
{
	for (int p = a->first_pair; p < a->first_pair + a->pairs; p++) {
		struct head h = head_of(a, dev->work, p / a->heads, p % a->heads);

		for (int t = 0; t < a->len; t++)
			h.mean[t] = dot(h.dout + (size_t)t * h.out_step, h.out + (size_t)t * h.out_step, h.width);
		for (int j0 = 0; j0 < a->len; j0 += BLOCK)
			for (int i0 = j0; i0 < a->len; i0 += BLOCK)
				backward_block(&h, i0, a->len - i0 < BLOCK ? a->len - i0 : BLOCK, j0,
				               a->len - j0 < BLOCK ? a->len - j0 : BLOCK);
	}
}
