/*
 * A GPT-2-shaped decoder: token and position embedding, pre-norm blocks of
 * causal attention and a GELU MLP, a final layernorm, and the token embedding
 * again as output head; trained on next-token cross-entropy.
 *
 * All weights lie in one arena and all gradients in another of the same
 * layout, in the order of the forward pass: backward finishes them from the
 * end to the beginning. Every activation is allocated at creation; a step
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
	bool decay;    /* weight decay applies: matrices yes, biases and gains no */
	double init;   /* standard deviation of the initial values ... */
	double centre; /* ... around this one */
};

struct gpt_model;

/* How many numbers the arenas hold. */
size_t gpt_param_count(const struct gpt_shape *shape);

/* NULL if the shape makes sense, else what is wrong with it. */
const char *gpt_shape_problem(const struct gpt_shape *shape);

/*
 * A model for up to max_batch sequences of shape->context tokens at once.
 * grads: memory for gpt_param_count() numbers which the caller keeps, or NULL
 * to let the model own it. Returns NULL when memory runs out. The weights are
 * zero until gpt_model_init().
 */
struct gpt_model *gpt_model_create(const struct gpt_shape *shape, int max_batch, const struct gpt_kernels *kernels,
                                   gpt_real *grads);
void gpt_model_destroy(struct gpt_model **model);

/* Initial weights, a function of shape and seed alone. */
void gpt_model_init(struct gpt_model *model, uint64_t seed);

/* Sum of the losses over batch * len targets (target r follows token r). */
double gpt_model_loss(struct gpt_model *model, const int32_t *tokens, const int32_t *targets, int batch, int len);

/* The same, and adds the gradient of scale * sum of losses to the gradients. */
double gpt_model_train(struct gpt_model *model, const int32_t *tokens, const int32_t *targets, int batch, int len,
                       gpt_real scale);

/* Scores (shape->vocab numbers) of what follows the last of len tokens. */
void gpt_model_predict(struct gpt_model *model, const int32_t *tokens, int len, gpt_real *logits);

void gpt_model_zero_grads(struct gpt_model *model);

const struct gpt_shape *gpt_model_shape(const struct gpt_model *model);
struct gpt_device *gpt_model_device(struct gpt_model *model);
gpt_real *gpt_model_params(struct gpt_model *model);
gpt_real *gpt_model_grads(struct gpt_model *model);
const struct gpt_tensor *gpt_model_tensors(const struct gpt_model *model, int *count);

#endif
