/*
 * A GPT-2-shaped decoder: token and position embedding, pre-norm blocks of
 * causal attention and a GELU MLP, a final layernorm, and the token embedding
 * again as output head; trained on next-token cross-entropy.
 *
 * All weights lie in one arena and all gradients in another of the same
 * layout, in the order of the forward pass but for the token embedding, which
 * comes last: backward finishes gradients from the end of the arena to its
 * beginning, the head's first. Every activation is allocated at creation; a step
 * allocates nothing.
 */
#ifndef GPT_MODEL_H
#define GPT_MODEL_H

#include "gpt/kernels.h"

struct gpt_shape {
	int vocab;
	int context; /* longest sequence */
	int layers;
	int heads;
	int width; /* a multiple of heads */
};

/* A named slice of the arenas. */
struct gpt_tensor {
	char name[40]; /* as in GPT-2: "h.0.attn.qkv.weight" */
	size_t offset, count;
	size_t rows;   /* of a matrix [rows][count / rows]; 1 for a vector */
	bool decay;    /* weight decay applies: matrices yes, biases and gains no */
	double init;   /* standard deviation of the initial values ... */
	double centre; /* ... around this one */
};

struct gpt_model;

/* How many numbers the arenas hold. */
size_t gpt_param_count(const struct gpt_shape *shape);

/* The tensors of a model of this shape, in arena order; free() the list. NULL: no memory. */
struct gpt_tensor *gpt_shape_tensors(const struct gpt_shape *shape, int *count);

/* NULL if the shape makes sense, else what is wrong with it. */
const char *gpt_shape_problem(const struct gpt_shape *shape);

/* Called by the thread that called the model; any of them may be NULL. Tensors
 * are numbered as in gpt_model_tensors(). */
struct gpt_hooks {
	void *arg;
	/* The weights of the tensor are about to be read. */
	void (*need)(void *arg, int tensor);
	/* Its gradient is as gpt_model_train() leaves it: called from the last
	 * tensor to the first. */
	void (*ready)(void *arg, int tensor);
	/* The lookups' gradients were added to the rows g->id of the lookup arena. */
	void (*lookup)(void *arg, const struct gpt_groups *g);
};

struct gpt_model_options {
	int max_batch; /* sequences of shape->context tokens at once */
	const struct gpt_kernels *kernels;
	int threads; /* 0: 1 */
	/* Memory for gpt_param_count() weights and as many gradients which the
	 * caller keeps; NULL: the model's own. */
	gpt_real *weights, *grads;
	/* The token embedding is both head and table. Gradients of the lookups
	 * are added to this (vocab * width) instead of the head's; NULL: to
	 * the same place. */
	gpt_real *lookup;
	struct gpt_hooks hooks;
};

/* NULL when memory runs out or the shape is impossible. The weights are as they
 * are given, else zero until gpt_model_init(). */
struct gpt_model *gpt_model_open(const struct gpt_shape *shape, const struct gpt_model_options *options);
/* The same with one thread, and weights of its own. */
struct gpt_model *gpt_model_create(const struct gpt_shape *shape, int max_batch, const struct gpt_kernels *kernels,
                                   gpt_real *grads);
void gpt_model_destroy(struct gpt_model **model);

/* Initial weights, a function of shape and seed alone. */
void gpt_model_init(struct gpt_model *model, uint64_t seed);

/* From now on gpt_model_train() drops numbers of the embedding and of each
 * branch's output at this rate, as (seed, step, number of the sequence in the global
 * batch, place) say; the batch's first sequence is first_sequence. 0: none. */
void gpt_model_set_dropout(struct gpt_model *model, double rate, uint64_t seed, uint64_t step, uint64_t first_sequence);

/* From now on gpt_model_train() smooths labels by this much (cross_entropy of kernels.h). 0: not. */
void gpt_model_set_smoothing(struct gpt_model *model, double smooth);

/* Sum of the losses over batch * len targets (target r follows token r; -1: masked, it adds nothing). */
double gpt_model_loss(struct gpt_model *model, const int32_t *tokens, const int32_t *targets, int batch, int len);

/* The same, and adds the gradient of scale * sum of losses to the gradients. */
double gpt_model_train(struct gpt_model *model, const int32_t *tokens, const int32_t *targets, int batch, int len,
                       gpt_real scale);

/* Scores (shape->vocab numbers) of what follows the last of len tokens. */
void gpt_model_predict(struct gpt_model *model, const int32_t *tokens, int len, gpt_real *logits);

void gpt_model_zero_grads(struct gpt_model *model);

const struct gpt_shape *gpt_model_shape(const struct gpt_model *model);
struct gpt_device *gpt_model_device(struct gpt_model *model);
struct gpt_team *gpt_model_team(struct gpt_model *model);
gpt_real *gpt_model_params(struct gpt_model *model);
gpt_real *gpt_model_grads(struct gpt_model *model);
const struct gpt_tensor *gpt_model_tensors(const struct gpt_model *model, int *count);

/* What creation allocated, in bytes; a step allocates nothing more. */
struct gpt_memory {
	size_t weights, grads, activations, scratch;
	size_t logits;          /* part of the activations */
	size_t largest_of_rows; /* the largest array that grows with batch * context */
};
struct gpt_memory gpt_model_memory(const struct gpt_model *model);

#endif
