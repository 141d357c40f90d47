/*
 * AdamW, clipping, schedule. Elementwise and in a fixed order: replicas that
 * start equal and see equal gradients stay equal, bit for bit.
 */
#include "gpt/optim.h"
#include "gpt/team.h"
#include <stdlib.h>

/* Sums of squares are taken in this many pieces, whoever takes them. */
#define PIECES 64
#define UNIT   16

struct gpt_optim {
	struct gpt_optim_config config;
	int step;
	struct gpt_adamw now; /* of the step begun; decay is per tensor */
	gpt_real *m, *v;
};

struct gpt_optim *gpt_optim_create(const struct gpt_model *model, const struct gpt_optim_config *config)
{
	const size_t n = gpt_param_count(gpt_model_shape(model));
	struct gpt_optim *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->config = *config;
	o->m = calloc(n, sizeof(*o->m));
	o->v = calloc(n, sizeof(*o->v));
	if (!o->m || !o->v)
		gpt_optim_destroy(&o);
	return o;
}

void gpt_optim_destroy(struct gpt_optim **optim)
{
	if (!*optim)
		return;
	free((*optim)->m);
	free((*optim)->v);
	free(*optim);
	*optim = NULL;
}

double gpt_optim_rate(const struct gpt_optim_config *c, int step)
{
	double done;

	if (step < c->warmup_steps)
		return c->lr * (step + 1) / c->warmup_steps;
	if (step >= c->total_steps)
		return c->lr * c->floor;
	done = (double)(step - c->warmup_steps) / (c->total_steps - c->warmup_steps);
	return c->lr * (c->floor + (1 - c->floor) * (1 + cos(M_PI * done)) / 2);
}

struct squares {
	struct gpt_model *model;
	const gpt_real *x;
	size_t n;
	double piece[PIECES];
};

static void sum_share(void *arg, int index)
{
	struct squares *s = arg;
	struct gpt_device *dev = gpt_model_device(s->model) + index;
	const struct gpt_share mine = gpt_share(PIECES, 1, dev->index, dev->count);

	for (size_t p = mine.first; p < mine.first + mine.count; p++) {
		const struct gpt_share piece = gpt_share(s->n, UNIT, (int)p, PIECES);

		s->piece[p] = dev->k->sum_squares(dev, s->x + piece.first, piece.count);
	}
}

double gpt_sum_squares(struct gpt_model *model, const gpt_real *x, size_t n)
{
	struct squares s = {.model = model, .x = x, .n = n};
	double total = 0;

	gpt_team_run(gpt_model_team(model), sum_share, &s);
	for (int p = 0; p < PIECES; p++)
		total += s.piece[p];
	return total;
}

struct block_squares {
	struct gpt_model *model;
	const gpt_real *x;
	size_t n;
	double *sums;
};

static void square_blocks(void *arg, int index)
{
	const struct block_squares *s = arg;
	struct gpt_device *dev = gpt_model_device(s->model) + index;
	const size_t blocks = (s->n + GPT_SQUARES_BLOCK - 1) / GPT_SQUARES_BLOCK;
	const struct gpt_share mine = gpt_share(blocks, 1, dev->index, dev->count);

	for (size_t b = mine.first; b < mine.first + mine.count; b++) {
		const size_t first = b * GPT_SQUARES_BLOCK, rest = s->n - first;

		s->sums[b] =
		        dev->k->sum_squares(dev, s->x + first, rest < GPT_SQUARES_BLOCK ? rest : GPT_SQUARES_BLOCK);
	}
}

void gpt_sum_squares_blocks(struct gpt_model *model, const gpt_real *x, size_t n, double *sums)
{
	gpt_team_run(gpt_model_team(model), square_blocks, &(struct block_squares){model, x, n, sums});
}

/* What the gradients are multiplied by so that their norm is at most clip. */
static double clip_factor(double norm, double clip)
{
	return clip > 0 && norm > clip ? clip / norm : 1;
}

bool gpt_optim_begin(struct gpt_optim *o, double norm)
{
	const struct gpt_optim_config *c = &o->config;
	const double rate = gpt_optim_rate(c, o->step);

	o->step++;
	if (!isfinite(norm))
		return false;
	o->now = (struct gpt_adamw){(gpt_real)rate, (gpt_real)c->beta1, (gpt_real)c->beta2, (gpt_real)c->eps};
	o->now.fix1 = (gpt_real)(1 / (1 - pow(c->beta1, o->step)));
	o->now.fix2 = (gpt_real)(1 / (1 - pow(c->beta2, o->step)));
	o->now.grad_factor = (gpt_real)clip_factor((double)(float)norm, c->clip);
	return true;
}

struct update {
	struct gpt_optim *o;
	struct gpt_model *model;
	size_t first, count;
	const gpt_real *g;
};

/* The part of tensor t within from .. to. */
static void update_tensor(const struct update *u, struct gpt_device *dev, const struct gpt_tensor *t, size_t from,
                          size_t to)
{
	const size_t lo = t->offset > from ? t->offset : from;
	const size_t hi = t->offset + t->count < to ? t->offset + t->count : to;
	struct gpt_adamw a = u->o->now;

	if (lo >= hi)
		return;
	a.decay = t->decay ? (gpt_real)u->o->config.weight_decay : 0;
	dev->k->adamw(dev, gpt_model_params(u->model) + lo, u->o->m + lo, u->o->v + lo, u->g + (lo - u->first), hi - lo,
	              &a);
}

static void update_share(void *arg, int index)
{
	const struct update *u = arg;
	struct gpt_device *dev = gpt_model_device(u->model) + index;
	const struct gpt_share mine = gpt_share(u->count, UNIT, dev->index, dev->count);
	const size_t from = u->first + mine.first, to = from + mine.count;
	const struct gpt_tensor *t;
	int n;

	t = gpt_model_tensors(u->model, &n);
	for (int i = 0; i < n; i++)
		update_tensor(u, dev, &t[i], from, to);
}

void gpt_optim_apply(struct gpt_optim *o, struct gpt_model *model, size_t first, size_t count, const gpt_real *g)
{
	gpt_team_run(gpt_model_team(model), update_share, &(struct update){o, model, first, count, g});
}

double gpt_optim_step(struct gpt_optim *o, struct gpt_model *model)
{
	const size_t n = gpt_param_count(gpt_model_shape(model));
	const double norm = sqrt(gpt_sum_squares(model, gpt_model_grads(model), n));

	if (gpt_optim_begin(o, norm))
		gpt_optim_apply(o, model, 0, n, gpt_model_grads(model));
	return norm;
}

gpt_real *gpt_optim_m(struct gpt_optim *o)
{
	return o->m;
}

gpt_real *gpt_optim_v(struct gpt_optim *o)
{
	return o->v;
}

void gpt_optim_set_step(struct gpt_optim *o, int step)
{
	o->step = step;
}
