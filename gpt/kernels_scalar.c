/*
 * The kernels as plain loops: what every other table is compared with.
 *
 * Written to be read beside the formulas, never to be fast; no kernel here
 * shares code with the vector ones.
 */
#include "gpt/kernels.h"
#include "gpt/rng.h"

static size_t work_count(int len, int head_width, int width)
{
	(void)head_width;
	(void)width;
	return (size_t)len * 2;
}

static gpt_real at(const gpt_real *x, int ld, bool transposed, int row, int col)
{
	return transposed ? x[(size_t)col * ld + row] : x[(size_t)row * ld + col];
}

static void gemm(struct gpt_device *dev, const struct gpt_gemm *g)
{
	for (int i = 0; i < g->m; i++)
		for (int j = 0; j < g->n; j++) {
			gpt_real s = 0, *c = &g->c[(size_t)i * g->ldc + j];

			for (int p = 0; p < g->k; p++)
				s += at(g->a, g->lda, g->ta, i, p) * at(g->b, g->ldb, g->tb, p, j);
			*c = g->alpha * s + (g->beta == 0 ? 0 : g->beta * *c);
		}
}

static void embed(struct gpt_device *dev, gpt_real *out, const gpt_real *wte, const gpt_real *wpe,
                  const int32_t *tokens, int first, int rows, int len, int width)
{
	for (int r = first; r < first + rows; r++)
		for (int c = 0; c < width; c++)
			out[(size_t)r * width + c] =
			        wte[(size_t)tokens[r] * width + c] + wpe[(size_t)(r % len) * width + c];
}

static void token_grad(struct gpt_device *dev, gpt_real *dwte, const gpt_real *dout, const struct gpt_groups *g,
                       int first, int count, int width)
{
	for (int i = first; i < first + count; i++)
		for (int j = g->start[i]; j < g->start[i + 1]; j++)
			for (int c = 0; c < width; c++)
				dwte[(size_t)g->id[i] * width + c] += dout[(size_t)g->row[j] * width + c];
}

static void place_grad(struct gpt_device *dev, gpt_real *dwpe, const gpt_real *dout, int batch, int len, int first,
                       int count, int width)
{
	for (int t = first; t < first + count; t++)
		for (int b = 0; b < batch; b++)
			for (int c = 0; c < width; c++)
				dwpe[(size_t)t * width + c] += dout[((size_t)b * len + t) * width + c];
}

static void layernorm(struct gpt_device *dev, gpt_real *out, gpt_real *sum, gpt_real *mean, gpt_real *rstd,
                      const gpt_real *x, const gpt_real *delta, const gpt_real *delta_bias, const gpt_real *gain,
                      const gpt_real *bias, int rows, int width)
{
	for (int r = 0; r < rows; r++) {
		const gpt_real *in = x + (size_t)r * width;
		gpt_real mu = 0, var = 0;

		if (delta) {
			for (int c = 0; c < width; c++)
				sum[(size_t)r * width + c] = in[c] + (delta[(size_t)r * width + c] + delta_bias[c]);
			in = sum + (size_t)r * width;
		}
		for (int c = 0; c < width; c++)
			mu += in[c] / width;
		for (int c = 0; c < width; c++)
			var += (in[c] - mu) * (in[c] - mu) / width;
		mean[r] = mu;
		rstd[r] = 1 / GPT_SQRT(var + (gpt_real)GPT_LAYERNORM_EPS);
		for (int c = 0; c < width; c++)
			out[(size_t)r * width + c] = gain[c] * ((in[c] - mu) * rstd[r]) + bias[c];
	}
}

static void layernorm_grad(struct gpt_device *dev, gpt_real *dx, const gpt_real *dout, const gpt_real *x,
                           const gpt_real *mean, const gpt_real *rstd, const gpt_real *gain, int rows, int width)
{
	for (int r = 0; r < rows; r++) {
		const gpt_real *in = x + (size_t)r * width, *d = dout + (size_t)r * width;
		gpt_real m1 = 0, m2 = 0;

		for (int c = 0; c < width; c++) {
			m1 += d[c] * gain[c] / width;
			m2 += d[c] * gain[c] * ((in[c] - mean[r]) * rstd[r]) / width;
		}
		for (int c = 0; c < width; c++) {
			gpt_real norm = (in[c] - mean[r]) * rstd[r];

			dx[(size_t)r * width + c] += (d[c] * gain[c] - m1 - norm * m2) * rstd[r];
		}
	}
}

static void gain_grad(struct gpt_device *dev, gpt_real *dgain, gpt_real *dbias, const gpt_real *dout, const gpt_real *x,
                      const gpt_real *mean, const gpt_real *rstd, int rows, int width, int first, int count)
{
	for (int r = 0; r < rows; r++)
		for (int c = first; c < first + count; c++) {
			const size_t i = (size_t)r * width + c;

			dgain[c] += dout[i] * ((x[i] - mean[r]) * rstd[r]);
			dbias[c] += dout[i];
		}
}

static void bias_add(struct gpt_device *dev, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < width; c++)
			x[(size_t)r * width + c] += bias[c];
}

static void bias_grad(struct gpt_device *dev, gpt_real *dbias, const gpt_real *dout, int rows, int width, int first,
                      int count)
{
	for (int r = 0; r < rows; r++)
		for (int c = first; c < first + count; c++)
			dbias[c] += dout[(size_t)r * width + c];
}

static void dropout(struct gpt_device *dev, gpt_real *out, const gpt_real *x, size_t n, const struct gpt_dropout *d)
{
	const uint32_t least = gpt_drop_least(d->rate);
	const gpt_real scale = (gpt_real)(1 / (1 - d->rate));

	for (size_t i = 0; i < n; i++)
		out[i] = gpt_drop_bits(d->key, d->first + i) >= least ? x[i] * scale : 0;
}

#define GELU_A ((gpt_real)0.7978845608028654) /* sqrt(2 / pi) */
#define GELU_B ((gpt_real)0.044715)

static void gelu(struct gpt_device *dev, gpt_real *out, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	bias_add(dev, x, bias, rows, width);
	for (size_t i = 0; i < (size_t)rows * width; i++)
		out[i] = x[i] / 2 * (1 + GPT_TANH(GELU_A * (x[i] + GELU_B * x[i] * x[i] * x[i])));
}

static void gelu_grad(struct gpt_device *dev, gpt_real *d, const gpt_real *x, int rows, int width)
{
	for (size_t i = 0; i < (size_t)rows * width; i++) {
		gpt_real t = GPT_TANH(GELU_A * (x[i] + GELU_B * x[i] * x[i] * x[i]));
		gpt_real slope = GELU_A * (1 + 3 * GELU_B * x[i] * x[i]);

		d[i] *= (1 + t) / 2 + x[i] / 2 * (1 - t * t) * slope;
	}
}

static gpt_real dot(const gpt_real *a, const gpt_real *b, int n)
{
	gpt_real s = 0;

	for (int i = 0; i < n; i++)
		s += a[i] * b[i];
	return s;
}

/* One head of one sequence, as pointers to its first token. */
struct head {
	const gpt_real *q, *k, *v, *dout;
	gpt_real *dq, *dk, *dv, *out, *lse;
	int in_step, out_step; /* numbers from one token to the next */
	gpt_real scale;
};

static struct head head_of(const struct gpt_attention *a, int b, int h)
{
	const int width = a->heads * a->head_width;
	const size_t in = (size_t)b * a->len * 3 * width + (size_t)h * a->head_width;
	const size_t out = (size_t)b * a->len * width + (size_t)h * a->head_width;
	struct head hd = {.q = a->qkv + in, .k = a->qkv + in + width, .v = a->qkv + in + 2 * width};

	hd.out = a->out + out;
	hd.lse = a->lse + ((size_t)b * a->heads + h) * a->len;
	hd.in_step = 3 * width;
	hd.out_step = width;
	hd.scale = 1 / GPT_SQRT((gpt_real)a->head_width);
	if (a->dqkv) {
		hd.dout = a->dout + out;
		hd.dq = a->dqkv + in;
		hd.dk = a->dqkv + in + width;
		hd.dv = a->dqkv + in + 2 * width;
	}
	return hd;
}

/* Token t of one head looks at tokens 0..t; p holds its weights. */
static void attend(const struct head *h, int t, int n, gpt_real *p)
{
	gpt_real max = -INFINITY, sum = 0;
	gpt_real *out = h->out + (size_t)t * h->out_step;

	for (int s = 0; s <= t; s++) {
		p[s] = h->scale * dot(h->q + (size_t)t * h->in_step, h->k + (size_t)s * h->in_step, n);
		max = p[s] > max ? p[s] : max;
	}
	for (int s = 0; s <= t; s++)
		sum += p[s] = GPT_EXP(p[s] - max);
	h->lse[t] = max + GPT_LOG(sum);
	for (int c = 0; c < n; c++) {
		out[c] = 0;
		for (int s = 0; s <= t; s++)
			out[c] += p[s] / sum * h->v[(size_t)s * h->in_step + c];
	}
}

static void attention(struct gpt_device *dev, const struct gpt_attention *a)
{
	for (int p = a->first_pair; p < a->first_pair + a->pairs; p++) {
		struct head h = head_of(a, p / a->heads, p % a->heads);

		for (int t = 0; t < a->len; t++)
			attend(&h, t, a->head_width, dev->work);
	}
}

static void attend_grad(const struct head *h, int t, int n)
{
	const gpt_real *q = h->q + (size_t)t * h->in_step, *dout = h->dout + (size_t)t * h->out_step;
	const gpt_real *out = h->out + (size_t)t * h->out_step;
	const gpt_real mean = dot(dout, out, n); /* sum over s of p * dp */

	for (int s = 0; s <= t; s++) {
		const size_t row = (size_t)s * h->in_step;
		gpt_real p = GPT_EXP(h->scale * dot(q, h->k + row, n) - h->lse[t]);
		gpt_real ds = p * (dot(dout, h->v + row, n) - mean) * h->scale;

		for (int c = 0; c < n; c++) {
			h->dq[(size_t)t * h->in_step + c] += ds * h->k[row + c];
			h->dk[row + c] += ds * q[c];
			h->dv[row + c] += p * dout[c];
		}
	}
}

static void attention_grad(struct gpt_device *dev, const struct gpt_attention *a)
{
	for (int p = a->first_pair; p < a->first_pair + a->pairs; p++) {
		struct head h = head_of(a, p / a->heads, p % a->heads);

		for (int t = 0; t < a->len; t++)
			for (int c = 0; c < a->head_width; c++) {
				h.dq[(size_t)t * h.in_step + c] = 0;
				h.dk[(size_t)t * h.in_step + c] = 0;
				h.dv[(size_t)t * h.in_step + c] = 0;
			}
		for (int t = 0; t < a->len; t++)
			attend_grad(&h, t, a->head_width);
	}
}

static void cross_entropy(struct gpt_device *dev, gpt_real *logits, gpt_real *loss, const int32_t *targets, int rows,
                          int vocab, gpt_real scale, gpt_real smooth)
{
	for (int r = 0; r < rows; r++) {
		gpt_real *x = logits + (size_t)r * vocab, max = -INFINITY, sum = 0, all = 0;

		if (targets[r] < 0) {
			loss[r] = 0;
			for (int v = 0; v < vocab && scale != 0; v++)
				x[v] = 0;
			continue;
		}
		for (int v = 0; v < vocab; v++) {
			max = x[v] > max ? x[v] : max;
			all += x[v];
		}
		for (int v = 0; v < vocab; v++)
			sum += GPT_EXP(x[v] - max);
		loss[r] = max + GPT_LOG(sum) - x[targets[r]];
		if (smooth > 0)
			loss[r] += smooth * (x[targets[r]] - all / vocab);
		for (int v = 0; v < vocab && scale != 0; v++)
			x[v] = scale * (GPT_EXP(x[v] - max) / sum - (1 - smooth) * (v == targets[r]) - smooth / vocab);
	}
}

static double sum_squares(struct gpt_device *dev, const gpt_real *x, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += (double)x[i] * x[i];
	return s;
}

static void adamw(struct gpt_device *dev, gpt_real *p, gpt_real *m, gpt_real *v, const gpt_real *g, size_t n,
                  const struct gpt_adamw *a)
{
	for (size_t i = 0; i < n; i++) {
		gpt_real grad = g[i] * a->grad_factor;

		m[i] = a->beta1 * m[i] + (1 - a->beta1) * grad;
		v[i] = a->beta2 * v[i] + (1 - a->beta2) * (grad * grad);
		p[i] -= a->lr * ((m[i] * a->fix1) / (GPT_SQRT(v[i] * a->fix2) + a->eps) + a->decay * p[i]);
	}
}

const struct gpt_kernels gpt_kernels_scalar = {
        sizeof(struct gpt_kernels),
        "scalar",
        work_count,
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
        attention,
        attention_grad,
        cross_entropy,
        sum_squares,
        adamw,
};
