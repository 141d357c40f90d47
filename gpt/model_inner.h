/*
 * What model.c (arenas, life), model_pass.c (forward and backward) and decode.c
 * (one token at a time) share.
 */
#ifndef GPT_MODEL_INNER_H
#define GPT_MODEL_INNER_H

#include "gpt/groups.h"
#include "gpt/model.h"
#include "gpt/team.h"

/* Tensors of a block, in arena order. */
enum { LN1_GAIN, LN1_BIAS, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_GAIN, LN2_BIAS, UP_W, UP_B, DOWN_W, DOWN_B, PER_LAYER };
/* Tensors before and after the blocks. */
enum { WPE, BEFORE_LAYERS };
enum { LNF_GAIN, LNF_BIAS, WTE, AFTER_LAYERS };

/* Rows of logits that exist at once: the head works in chunks. */
#define HEAD_ROWS 128

/* What backward needs of one block; rows * width numbers unless said otherwise. */
struct layer_acts {
	gpt_real *in;            /* residual stream entering the block */
	gpt_real *mean1, *rstd1; /* rows */
	gpt_real *norm1;
	gpt_real *qkv;   /* 3 width */
	gpt_real *lse;   /* heads * rows */
	gpt_real *mixed; /* attention's output */
	gpt_real *mid;   /* residual stream after attention */
	gpt_real *mean2, *rstd2;
	gpt_real *norm2;
	gpt_real *up;   /* 4 width, before GELU */
	gpt_real *gelu; /* 4 width */
};

struct gpt_model {
	struct gpt_shape shape;
	int threads;
	struct gpt_team *team;
	struct gpt_device *devs; /* one per thread */
	struct gpt_hooks hooks;
	struct gpt_memory memory;
	int max_rows;
	int tensor_count;
	struct gpt_tensor *tensors;
	size_t param_count;
	gpt_real *params, *grads, *lookup;
	bool owns_params, owns_grads;

	double drop_rate;
	gpt_real smooth;
	uint64_t drop_seed, drop_step, drop_first;

	struct gpt_groups groups;
	int32_t *group_memory; /* of groups, and vocab numbers to sort by */

	gpt_real *acts; /* one allocation: all that follows */
	struct layer_acts *layers;
	gpt_real *delta; /* what a block's last product adds to the residual stream */
	gpt_real *last;  /* residual stream after the last block */
	gpt_real *meanf, *rstdf, *normf;
	gpt_real *logits; /* head_rows * vocab */
	gpt_real *loss;   /* head_rows */
	gpt_real *dres;   /* gradient of the residual stream */
	gpt_real *dnorm;  /* of a layernorm's output, or of attention's */
	gpt_real *dwide;  /* 4 width: of the MLP's hidden layer, or of qkv */
	gpt_real *ddrop;  /* of a branch's output, where numbers were dropped */
	gpt_real *zeros;  /* width */
};

static inline int gpt_layer_tensor(int layer, int which)
{
	return BEFORE_LAYERS + layer * PER_LAYER + which;
}

static inline int gpt_final_tensor(const struct gpt_model *m, int which)
{
	return gpt_layer_tensor(m->shape.layers, 0) + which;
}

static inline int gpt_head_rows(const struct gpt_model *m)
{
	return m->max_rows < HEAD_ROWS ? m->max_rows : HEAD_ROWS;
}

static inline const gpt_real *gpt_weight(const struct gpt_model *m, int tensor)
{
	return m->params + m->tensors[tensor].offset;
}

#endif
