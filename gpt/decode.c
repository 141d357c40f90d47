#include "gpt/decode.h"
#include "gpt/model_inner.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct gpt_decode {
	struct gpt_model *model;
	int count;      /* tokens so far */
	gpt_real *keys; /* layers x context rows of 3 width: query, key, value of each token */
	gpt_real *x;    /* width: the residual stream, then the scratch below */
	gpt_real *norm, *mixed, *delta, *wide, *score;
};

struct gpt_decode *gpt_decode_create(struct gpt_model *m)
{
	const size_t c = m->shape.width, len = m->shape.context;
	struct gpt_decode *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->model = m;
	d->keys = malloc(m->shape.layers * len * 3 * c * sizeof(*d->keys));
	d->x = malloc((8 * c + len) * sizeof(*d->x));
	if (!d->keys || !d->x) {
		gpt_decode_destroy(&d);
		return NULL;
	}
	d->norm = d->x + c;
	d->mixed = d->norm + c;
	d->delta = d->mixed + c;
	d->wide = d->delta + c;
	d->score = d->wide + 4 * c;
	return d;
}

void gpt_decode_destroy(struct gpt_decode **decode)
{
	if (!*decode)
		return;
	free((*decode)->keys);
	free((*decode)->x);
	free(*decode);
	*decode = NULL;
}

void gpt_decode_reset(struct gpt_decode *d)
{
	d->count = 0;
}

int gpt_decode_count(const struct gpt_decode *d)
{
	return d->count;
}

static void product(struct gpt_model *m, gpt_real *y, const gpt_real *x, const gpt_real *w, int in, int out)
{
	struct gpt_device *dev = &m->devs[0];

	dev->k->gemm(dev, &(struct gpt_gemm){false, true, 1, out, in, 1, 0, x, w, y, in, in, out});
}

/* x becomes x + delta + bias (delta may be NULL); d->norm its layernorm. */
static void add_and_normalise(struct gpt_decode *d, const gpt_real *delta, const gpt_real *bias, int gain, int shift)
{
	struct gpt_model *m = d->model;
	struct gpt_device *dev = &m->devs[0];
	gpt_real mean, rstd;

	dev->k->layernorm(dev, d->norm, d->x, &mean, &rstd, d->x, delta, bias, gpt_weight(m, gain),
	                  gpt_weight(m, shift), 1, m->shape.width);
}

/* The newest token's query against all keys of one head; rows are 3 width apart. */
static void attend(struct gpt_decode *d, const gpt_real *rows, int head)
{
	const int c = d->model->shape.width, n = c / d->model->shape.heads, at = head * n;
	const gpt_real *q = rows + (size_t)d->count * 3 * c + at;
	const gpt_real scale = 1 / GPT_SQRT((gpt_real)n);
	gpt_real max = -INFINITY, sum = 0, *out = d->mixed + at;

	for (int t = 0; t <= d->count; t++) {
		const gpt_real *k = rows + (size_t)t * 3 * c + c + at;
		gpt_real s = 0;

		for (int i = 0; i < n; i++)
			s += q[i] * k[i];
		d->score[t] = s * scale;
		max = d->score[t] > max ? d->score[t] : max;
	}
	memset(out, 0, (size_t)n * sizeof(*out));
	for (int t = 0; t <= d->count; t++) {
		const gpt_real *v = rows + (size_t)t * 3 * c + 2 * c + at, e = GPT_EXP(d->score[t] - max);

		sum += e;
		for (int i = 0; i < n; i++)
			out[i] += e * v[i];
	}
	for (int i = 0; i < n; i++)
		out[i] /= sum;
}

/* As layer_forward(), for one row. */
static const gpt_real *decode_layer(struct gpt_decode *d, int l, const gpt_real *bias)
{
	struct gpt_model *m = d->model;
	struct gpt_device *dev = &m->devs[0];
	const int c = m->shape.width;
	gpt_real *rows = d->keys + (size_t)l * m->shape.context * 3 * c, *mine = rows + (size_t)d->count * 3 * c;
#define T(which) gpt_layer_tensor(l, which)
#define W(which) gpt_weight(m, T(which))

	add_and_normalise(d, l ? d->delta : NULL, bias, T(LN1_GAIN), T(LN1_BIAS));
	product(m, mine, d->norm, W(QKV_W), c, 3 * c);
	dev->k->bias_add(dev, mine, W(QKV_B), 1, 3 * c);
	for (int h = 0; h < m->shape.heads; h++)
		attend(d, rows, h);
	product(m, d->delta, d->mixed, W(PROJ_W), c, c);
	add_and_normalise(d, d->delta, W(PROJ_B), T(LN2_GAIN), T(LN2_BIAS));
	product(m, d->wide, d->norm, W(UP_W), c, 4 * c);
	dev->k->gelu(dev, d->wide, d->wide, W(UP_B), 1, 4 * c);
	product(m, d->delta, d->wide, W(DOWN_W), 4 * c, c);
	return W(DOWN_B);
}

void gpt_decode_next(struct gpt_decode *d, int32_t token, gpt_real *logits)
{
	struct gpt_model *m = d->model;
	const int c = m->shape.width, wte = gpt_final_tensor(m, WTE);
	const gpt_real *row = gpt_weight(m, wte) + (size_t)token * c, *place = gpt_weight(m, WPE), *bias = NULL;

	assert(d->count < m->shape.context);
	place += (size_t)d->count * c;
	for (int i = 0; i < c; i++)
		d->x[i] = row[i] + place[i];
	for (int l = 0; l < m->shape.layers; l++)
		bias = decode_layer(d, l, bias);
	add_and_normalise(d, d->delta, bias, gpt_final_tensor(m, LNF_GAIN), gpt_final_tensor(m, LNF_BIAS));
	product(m, logits, d->norm, gpt_weight(m, wte), c, m->shape.vocab);
	d->count++;
}
