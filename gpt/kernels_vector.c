/*
 * The CPU kernels in 16-wide vectors (see vec.h), but for attention, which has
 * a file of its own, and the table that names them all.
 *
 * Compiled once per instruction-set level. Every loop makes one pass over its
 * rows while they are in the first-level cache.
 */
#include "gpt/blas.h"
#include "gpt/kernels.h"
#include "gpt/rng.h"
#include "gpt/vec.h"

size_t LEVEL(gpt_attention_work)(int len, int head_width, int width);
void LEVEL(gpt_attention)(struct gpt_device *dev, const struct gpt_attention *a);
void LEVEL(gpt_attention_grad)(struct gpt_device *dev, const struct gpt_attention *a);
extern const struct gpt_kernels LEVEL(gpt_kernels);

#define ROW(p, r, width) ((p) + (size_t)(r) * (width))

static void add_row(gpt_real *to, const gpt_real *from, int n)
{
	for (int i = 0; i < n; i += LANES)
		store(to, i, n, load(to, i, n) + load(from, i, n));
}

static void embed(struct gpt_device *dev, gpt_real *out, const gpt_real *wte, const gpt_real *wpe,
                  const int32_t *tokens, int first, int rows, int len, int width)
{
	for (int r = first; r < first + rows; r++) {
		const gpt_real *token = ROW(wte, tokens[r], width), *place = ROW(wpe, r % len, width);

		for (int i = 0; i < width; i += LANES)
			store(ROW(out, r, width), i, width, load(token, i, width) + load(place, i, width));
	}
}

static void token_grad(struct gpt_device *dev, gpt_real *dwte, const gpt_real *dout, const struct gpt_groups *g,
                       int first, int count, int width)
{
	for (int i = first; i < first + count; i++)
		for (int j = g->start[i]; j < g->start[i + 1]; j++)
			add_row(ROW(dwte, g->id[i], width), ROW(dout, g->row[j], width), width);
}

static void place_grad(struct gpt_device *dev, gpt_real *dwpe, const gpt_real *dout, int batch, int len, int first,
                       int count, int width)
{
	for (int t = first; t < first + count; t++)
		for (int b = 0; b < batch; b++)
			add_row(ROW(dwpe, t, width), ROW(dout, (size_t)b * len + t, width), width);
}

static gpt_real row_mean(const gpt_real *x, int width)
{
	vec sum = splat(0);

	for (int i = 0; i < width; i += LANES)
		sum += load(x, i, width);
	return fold_sum(sum) / width;
}

/* Second pass over a row in cache: subtracting the mean first keeps the digits
 * that sum of squares minus square of sum would lose. */
static gpt_real row_rstd(const gpt_real *x, gpt_real mean, int width)
{
	vec sum = splat(0);

	for (int i = 0; i < width; i += LANES) {
		vec d = load_or(x, i, width, mean) - mean;

		sum += d * d;
	}
	return 1 / GPT_SQRT(fold_sum(sum) / width + (gpt_real)GPT_LAYERNORM_EPS);
}

static void layernorm(struct gpt_device *dev, gpt_real *out, gpt_real *sum, gpt_real *mean, gpt_real *rstd,
                      const gpt_real *x, const gpt_real *delta, const gpt_real *delta_bias, const gpt_real *gain,
                      const gpt_real *bias, int rows, int width)
{
	for (int r = 0; r < rows; r++) {
		const gpt_real *in = ROW(x, r, width);

		if (delta) {
			gpt_real *s = ROW(sum, r, width);
			const gpt_real *d = ROW(delta, r, width);

			for (int i = 0; i < width; i += LANES)
				store(s, i, width,
				      load(in, i, width) + (load(d, i, width) + load(delta_bias, i, width)));
			in = s;
		}
		mean[r] = row_mean(in, width);
		rstd[r] = row_rstd(in, mean[r], width);
		for (int i = 0; i < width; i += LANES) {
			vec norm = (load(in, i, width) - mean[r]) * rstd[r];

			store(ROW(out, r, width), i, width, load(gain, i, width) * norm + load(bias, i, width));
		}
	}
}

static void layernorm_grad(struct gpt_device *dev, gpt_real *dx, const gpt_real *dout, const gpt_real *x,
                           const gpt_real *mean, const gpt_real *rstd, const gpt_real *gain, int rows, int width)
{
	for (int r = 0; r < rows; r++) {
		const gpt_real *in = ROW(x, r, width), *d = ROW(dout, r, width);
		gpt_real *to = ROW(dx, r, width), m1, m2;
		vec s1 = splat(0), s2 = splat(0);

		for (int i = 0; i < width; i += LANES) {
			vec weighted = load(d, i, width) * load(gain, i, width);

			s1 += weighted;
			s2 += weighted * ((load(in, i, width) - mean[r]) * rstd[r]);
		}
		m1 = fold_sum(s1) / width;
		m2 = fold_sum(s2) / width;
		for (int i = 0; i < width; i += LANES) {
			vec norm = (load(in, i, width) - mean[r]) * rstd[r];
			vec weighted = load(d, i, width) * load(gain, i, width);

			store(to, i, width, load(to, i, width) + (weighted - m1 - norm * m2) * rstd[r]);
		}
	}
}

static void gain_grad(struct gpt_device *dev, gpt_real *dgain, gpt_real *dbias, const gpt_real *dout, const gpt_real *x,
                      const gpt_real *mean, const gpt_real *rstd, int rows, int width, int first, int count)
{
	for (int i = first; i < first + count; i += LANES) {
		vec g = load(dgain, i, width), s = load(dbias, i, width);

		for (int r = 0; r < rows; r++) {
			vec d = load(ROW(dout, r, width), i, width);

			g += d * ((load(ROW(x, r, width), i, width) - mean[r]) * rstd[r]);
			s += d;
		}
		store(dgain, i, first + count, g);
		store(dbias, i, first + count, s);
	}
}

static void bias_add(struct gpt_device *dev, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	for (int r = 0; r < rows; r++)
		add_row(ROW(x, r, width), bias, width);
}

static void bias_grad(struct gpt_device *dev, gpt_real *dbias, const gpt_real *dout, int rows, int width, int first,
                      int count)
{
	for (int i = first; i < first + count; i += LANES) {
		vec s = load(dbias, i, width);

		for (int r = 0; r < rows; r++)
			s += load(ROW(dout, r, width), i, width);
		store(dbias, i, first + count, s);
	}
}

static void dropout(struct gpt_device *dev, gpt_real *out, const gpt_real *x, size_t n, const struct gpt_dropout *d)
{
	const uint32_t least = gpt_drop_least(d->rate);
	const gpt_real scale = (gpt_real)(1 / (1 - d->rate));

	for (size_t i = 0; i < n; i++) {
		const gpt_real kept = x[i] * scale;

		out[i] = gpt_drop_bits(d->key, d->first + i) >= least ? kept : 0;
	}
}

#define GELU_A ((gpt_real)0.7978845608028654) /* sqrt(2 / pi) */
#define GELU_B ((gpt_real)0.044715)

/* (1 + tanh u) / 2 = 1 / (1 + e^-2u), with u the cubic of GELU. */
INLINE vec gelu_gate(vec x)
{
	return 1 / (1 + vec_exp(-2 * GELU_A * (x + GELU_B * x * x * x)));
}

static void gelu(struct gpt_device *dev, gpt_real *out, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < width; i += LANES) {
			vec in = load(ROW(x, r, width), i, width) + load(bias, i, width);

			store(ROW(x, r, width), i, width, in);
			store(ROW(out, r, width), i, width, in * gelu_gate(in));
		}
}

/* d(x s)/dx = s + x s (1 - s) 2 u', with s the gate. */
static void gelu_grad(struct gpt_device *dev, gpt_real *d, const gpt_real *x, int rows, int width)
{
	for (int r = 0; r < rows; r++)
		for (int i = 0; i < width; i += LANES) {
			vec in = load(ROW(x, r, width), i, width), s = gelu_gate(in);
			vec slope = 2 * GELU_A * (1 + 3 * GELU_B * in * in);
			gpt_real *to = ROW(d, r, width);

			store(to, i, width, load(to, i, width) * (s + in * s * (1 - s) * slope));
		}
}

static gpt_real row_max(const gpt_real *x, int n)
{
	vec max = splat(-INFINITY);

	for (int i = 0; i < n; i += LANES)
		max = vec_max(max, load_or(x, i, n, -INFINITY));
	return fold_max(max);
}

/* Of e^(x - max), which takes the place of x if keep. */
INLINE gpt_real row_exp_sum(gpt_real *x, gpt_real max, int n, bool keep)
{
	vec sum = splat(0);

	for (int i = 0; i < n; i += LANES) {
		const vec e = vec_exp(load_or(x, i, n, -INFINITY) - max);

		sum += e;
		if (keep)
			store(x, i, n, e);
	}
	return fold_sum(sum);
}

static void cross_entropy(struct gpt_device *dev, gpt_real *logits, gpt_real *loss, const int32_t *targets, int rows,
                          int vocab, gpt_real scale, gpt_real smooth)
{
	const gpt_real less = scale * smooth / (gpt_real)vocab;

	for (int r = 0; r < rows; r++) {
		gpt_real *x = ROW(logits, r, vocab);
		gpt_real sum, max, hit;

		if (targets[r] < 0) {
			loss[r] = 0;
			if (scale != 0)
				memset(x, 0, (size_t)vocab * sizeof(*x));
			continue;
		}
		max = row_max(x, vocab);
		hit = x[targets[r]];
		if (smooth > 0)
			hit -= smooth * (hit - row_mean(x, vocab));
		if (scale == 0) {
			loss[r] = max + GPT_LOG(row_exp_sum(x, max, vocab, false)) - hit;
			continue;
		}
		sum = row_exp_sum(x, max, vocab, true);
		loss[r] = max + GPT_LOG(sum) - hit;
		for (int i = 0; i < vocab; i += LANES)
			store(x, i, vocab, load(x, i, vocab) * (scale / sum) - less);
		x[targets[r]] -= scale * (1 - smooth);
	}
}

static double sum_squares(struct gpt_device *dev, const gpt_real *x, size_t n)
{
	double lane[LANES] = {0}, total = 0;
	size_t i;

	for (i = 0; i + LANES <= n; i += LANES)
		for (int l = 0; l < LANES; l++)
			lane[l] += (double)x[i + l] * (double)x[i + l];
	for (; i < n; i++)
		lane[i % LANES] += (double)x[i] * (double)x[i];
	for (int l = 0; l < LANES; l++)
		total += lane[l];
	return total;
}

/* Replicas update their own copy of the weights: that they stay equal on
 * machines of different levels rests on the sameness of bits across levels. */
static void adamw(struct gpt_device *dev, gpt_real *restrict p, gpt_real *restrict m, gpt_real *restrict v,
                  const gpt_real *restrict g, size_t n, const struct gpt_adamw *a)
{
	const struct gpt_adamw k = *a;

	for (size_t i = 0; i < n; i++) {
		gpt_real grad = g[i] * k.grad_factor;

		m[i] = k.beta1 * m[i] + (1 - k.beta1) * grad;
		v[i] = k.beta2 * v[i] + (1 - k.beta2) * (grad * grad);
		p[i] -= k.lr * ((m[i] * k.fix1) / (GPT_SQRT(v[i] * k.fix2) + k.eps) + k.decay * p[i]);
	}
}

static void gemm(struct gpt_device *dev, const struct gpt_gemm *g)
{
	gpt_blas_gemm(g);
}

const struct gpt_kernels LEVEL(gpt_kernels) = {
        sizeof(struct gpt_kernels),
        GPT_STR(GPT_LEVEL),
        LEVEL(gpt_attention_work),
        gemm,
        embed,
        token_grad,
        place_grad,
        layernorm,
        layernorm_grad,
        gain_grad,
        bias_add,
        bias_grad,
        dropout,
        gelu,
        gelu_grad,
        LEVEL(gpt_attention),
        LEVEL(gpt_attention_grad),
        cross_entropy,
        sum_squares,
        adamw,
};
