/*
 * The optimiser: AdamW over a model's weights, the clipping of its gradients
 * by their global norm, and the learning-rate schedule.
 *
 * A step is gpt_optim_begin() once the norm is known, then gpt_optim_apply() on
 * the parts of the arena that this process updates: all of it, or a slice where
 * each rank updates its own. Memory of means that are never updated is never
 * touched; what is, is touched first by the thread that updates it.
 */
#ifndef GPT_OPTIM_H
#define GPT_OPTIM_H

#include "gpt/model.h"

struct gpt_optim_config {
	double lr; /* at the top of the schedule */
	double beta1, beta2, eps;
	double weight_decay; /* of the tensors that decay */
	double clip;         /* largest global norm of the gradient; 0: no limit */
	int warmup_steps;    /* the rate climbs from 0 to lr ... */
	int total_steps;     /* ... and falls along a cosine to lr * floor here */
	double floor;
};

#define GPT_OPTIM_CONFIG_INIT                                                                                      \
	{                                                                                                          \
		.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .clip = 1, .floor = 0.1 \
	}

struct gpt_optim;

struct gpt_optim *gpt_optim_create(const struct gpt_model *model, const struct gpt_optim_config *config);
void gpt_optim_destroy(struct gpt_optim **optim);

/* The learning rate of step s, counted from 0. */
double gpt_optim_rate(const struct gpt_optim_config *config, int step);

/* Sum of the squares of n numbers; the same bits whatever the number of threads. */
double gpt_sum_squares(struct gpt_model *model, const gpt_real *x, size_t n);

/* The same for every block of so many numbers, the last one smaller, by itself: how x was cut between blocks does not
 * show. Sums has a place for each. */
#define GPT_SQUARES_BLOCK ((size_t)4096)
void gpt_sum_squares_blocks(struct gpt_model *model, const gpt_real *x, size_t n, double *sums);

/* The next step, of gradients with this norm: false, and the weights stay as they
 * are, if it is not finite. The norm is rounded to float first, so that the order
 * in which it was summed does not show in the weights. */
bool gpt_optim_begin(struct gpt_optim *optim, double norm);
/* Update weights first .. first + count from g, their gradients. */
void gpt_optim_apply(struct gpt_optim *optim, struct gpt_model *model, size_t first, size_t count, const gpt_real *g);

/* All at once; returns the gradients' norm before clipping. */
double gpt_optim_step(struct gpt_optim *optim, struct gpt_model *model);

/* For checkpoints: the running means, gpt_param_count() numbers each, and the
 * number of steps done. */
gpt_real *gpt_optim_m(struct gpt_optim *optim);
gpt_real *gpt_optim_v(struct gpt_optim *optim);
void gpt_optim_set_step(struct gpt_optim *optim, int step);

#endif
