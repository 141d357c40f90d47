/*
 * The optimiser: AdamW over a model's weights, the clipping of its gradients
 * by their global norm, and the learning-rate schedule.
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

/* Update the weights from the gradients; returns the gradients' norm before
 * clipping. Gradients that are not finite leave the weights as they are. */
double gpt_optim_step(struct gpt_optim *optim, struct gpt_model *model);

#endif
