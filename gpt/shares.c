#include "gpt/shares.h"
#include <string.h>

#define UNIT 16 /* numbers: one vector, and at least one cache line */

static struct gpt_share share(const struct gpt_device *dev, size_t n, size_t unit)
{
	return gpt_share(n, unit, dev->index, dev->count);
}

/* The side of C with more rows or columns is cut. */
void gpt_do_gemm(struct gpt_device *dev, const struct gpt_gemm *g)
{
	struct gpt_gemm mine = *g;
	struct gpt_share s;

	if (g->n >= g->m) {
		s = share(dev, (size_t)g->n, UNIT);
		mine.n = (int)s.count;
		mine.b += g->tb ? s.first * (size_t)g->ldb : s.first;
		mine.c += s.first;
	} else {
		s = share(dev, (size_t)g->m, UNIT);
		mine.m = (int)s.count;
		mine.a += g->ta ? s.first : s.first * (size_t)g->lda;
		mine.c += s.first * (size_t)g->ldc;
	}
	if (s.count)
		dev->k->gemm(dev, &mine);
	gpt_team_meet(dev->team);
}

void gpt_do_embed(struct gpt_device *dev, gpt_real *out, const gpt_real *wte, const gpt_real *wpe,
                  const int32_t *tokens, int rows, int len, int width)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);

	dev->k->embed(dev, out, wte, wpe, tokens, (int)s.first, (int)s.count, len, width);
	gpt_team_meet(dev->team);
}

void gpt_do_token_grad(struct gpt_device *dev, gpt_real *dwte, const gpt_real *dout, const struct gpt_groups *g,
                       int width)
{
	const struct gpt_share s = share(dev, (size_t)g->count, 1);

	dev->k->token_grad(dev, dwte, dout, g, (int)s.first, (int)s.count, width);
	gpt_team_meet(dev->team);
}

void gpt_do_place_grad(struct gpt_device *dev, gpt_real *dwpe, const gpt_real *dout, int batch, int len, int width)
{
	const struct gpt_share s = share(dev, (size_t)len, 1);

	dev->k->place_grad(dev, dwpe, dout, batch, len, (int)s.first, (int)s.count, width);
	gpt_team_meet(dev->team);
}

void gpt_do_layernorm(struct gpt_device *dev, gpt_real *out, gpt_real *sum, gpt_real *mean, gpt_real *rstd,
                      const gpt_real *x, const gpt_real *delta, const gpt_real *delta_bias, const gpt_real *gain,
                      const gpt_real *bias, int rows, int width)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);
	const size_t at = s.first * (size_t)width;

	dev->k->layernorm(dev, out + at, sum ? sum + at : NULL, mean + s.first, rstd + s.first, x + at,
	                  delta ? delta + at : NULL, delta_bias, gain, bias, (int)s.count, width);
	gpt_team_meet(dev->team);
}

void gpt_do_layernorm_grad(struct gpt_device *dev, gpt_real *dx, gpt_real *dgain, gpt_real *dbias, const gpt_real *dout,
                           const gpt_real *x, const gpt_real *mean, const gpt_real *rstd, const gpt_real *gain,
                           int rows, int width)
{
	const struct gpt_share r = share(dev, (size_t)rows, 1), c = share(dev, (size_t)width, UNIT);
	const size_t at = r.first * (size_t)width;

	dev->k->gain_grad(dev, dgain, dbias, dout, x, mean, rstd, rows, width, (int)c.first, (int)c.count);
	dev->k->layernorm_grad(dev, dx + at, dout + at, x + at, mean + r.first, rstd + r.first, gain, (int)r.count,
	                       width);
	gpt_team_meet(dev->team);
}

void gpt_do_bias_add(struct gpt_device *dev, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);

	dev->k->bias_add(dev, x + s.first * (size_t)width, bias, (int)s.count, width);
	gpt_team_meet(dev->team);
}

void gpt_do_bias_grad(struct gpt_device *dev, gpt_real *dbias, const gpt_real *dout, int rows, int width)
{
	const struct gpt_share s = share(dev, (size_t)width, UNIT);

	dev->k->bias_grad(dev, dbias, dout, rows, width, (int)s.first, (int)s.count);
	gpt_team_meet(dev->team);
}

void gpt_do_dropout(struct gpt_device *dev, gpt_real *out, const gpt_real *x, size_t n, const struct gpt_dropout *d)
{
	const struct gpt_share s = share(dev, n, UNIT);
	struct gpt_dropout mine = *d;

	mine.first += s.first;
	dev->k->dropout(dev, out + s.first, x + s.first, s.count, &mine);
	gpt_team_meet(dev->team);
}

void gpt_do_gelu(struct gpt_device *dev, gpt_real *out, gpt_real *x, const gpt_real *bias, int rows, int width)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);
	const size_t at = s.first * (size_t)width;

	dev->k->gelu(dev, out + at, x + at, bias, (int)s.count, width);
	gpt_team_meet(dev->team);
}

void gpt_do_gelu_grad(struct gpt_device *dev, gpt_real *d, const gpt_real *x, int rows, int width)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);
	const size_t at = s.first * (size_t)width;

	dev->k->gelu_grad(dev, d + at, x + at, (int)s.count, width);
	gpt_team_meet(dev->team);
}

static struct gpt_attention my_pairs(const struct gpt_device *dev, const struct gpt_attention *a)
{
	const struct gpt_share s = share(dev, (size_t)a->batch * (size_t)a->heads, 1);
	struct gpt_attention mine = *a;

	mine.first_pair = (int)s.first;
	mine.pairs = (int)s.count;
	return mine;
}

void gpt_do_attention(struct gpt_device *dev, const struct gpt_attention *a)
{
	const struct gpt_attention mine = my_pairs(dev, a);

	dev->k->attention(dev, &mine);
	gpt_team_meet(dev->team);
}

void gpt_do_attention_grad(struct gpt_device *dev, const struct gpt_attention *a)
{
	const struct gpt_attention mine = my_pairs(dev, a);

	dev->k->attention_grad(dev, &mine);
	gpt_team_meet(dev->team);
}

void gpt_do_cross_entropy(struct gpt_device *dev, gpt_real *logits, gpt_real *loss, const int32_t *targets, int rows,
                          int vocab, gpt_real scale, gpt_real smooth)
{
	const struct gpt_share s = share(dev, (size_t)rows, 1);

	dev->k->cross_entropy(dev, logits + s.first * (size_t)vocab, loss + s.first, targets + s.first, (int)s.count,
	                      vocab, scale, smooth);
	gpt_team_meet(dev->team);
}

void gpt_do_zero(struct gpt_device *dev, gpt_real *x, size_t n)
{
	const struct gpt_share s = share(dev, n, UNIT);

	memset(x + s.first, 0, s.count * sizeof(*x));
	gpt_team_meet(dev->team);
}
