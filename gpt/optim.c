/*
 * AdamW, clipping, schedule. Elementwise and in a fixed order: replicas that
 * start equal and see equal gradients stay equal, bit for bit.
 */
#include "gpt/optim.h"
#include <stdlib.h>

struct gpt_optim {
	struct gpt_optim_config config;
	int step;
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

/* What the gradients are multiplied by so that their norm is at most clip. */
static double clip_factor(double norm, double clip)
{
	return clip > 0 && norm > clip ? clip / norm : 1;
}

double gpt_optim_step(struct gpt_optim *o, struct gpt_model *model)
{
	const struct gpt_optim_config *c = &o->config;
	struct gpt_device *dev = gpt_model_device(model);
	gpt_real *p = gpt_model_params(model), *g = gpt_model_grads(model);
	const double norm = sqrt(dev->k->sum_squares(dev, g, gpt_param_count(gpt_model_shape(model))));
	const double rate = gpt_optim_rate(c, o->step);
	struct gpt_adamw a = {(gpt_real)rate, (gpt_real)c->beta1, (gpt_real)c->beta2, (gpt_real)c->eps};
	const struct gpt_tensor *t;
	int n;

	o->step++;
	if (!isfinite(norm))
		return norm;
	a.fix1 = (gpt_real)(1 / (1 - pow(c->beta1, o->step)));
	a.fix2 = (gpt_real)(1 / (1 - pow(c->beta2, o->step)));
	a.grad_factor = (gpt_real)clip_factor(norm, c->clip);
	t = gpt_model_tensors(model, &n);
	for (int i = 0; i < n; i++) {
		const size_t at = t[i].offset;

		a.decay = t[i].decay ? (gpt_real)c->weight_decay : 0;
		dev->k->adamw(dev, p + at, o->m + at, o->v + at, g + at, t[i].count, &a);
	}
	return norm;
}
