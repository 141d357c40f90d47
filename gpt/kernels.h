/*
 * What a device must be able to do to run the model: one table of kernels.
 *
 * The model (model.c) calls a device only through this table, so that a second
 * kind of device is a second table and nothing else. Conventions:
 *
 *  - all matrices are row-major; rows = batch * len tokens, width numbers each;
 *  - an output named d* is a gradient; "adds" means the kernel adds to it,
 *    otherwise it overwrites;
 *  - no kernel allocates; the ones that need scratch take it from dev->work;
 *  - a kernel works in the calling thread; what could be shared among threads
 *    takes a range (rows, columns, groups, pairs), cut so that no sum is split;
 *  - a kernel's result depends on its arguments only, not on the machine: all
 *    instruction-set levels of the CPU agree bit for bit (gemm excepted, which
 *    is BLAS).
 */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include "gpt/real.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpt_kernels;
struct gpt_team;

/* A device in use by one thread: its kernels, its scratch (work_count numbers),
 * and which of how many threads of a team it is. */
struct gpt_device {
	const struct gpt_kernels *k;
	gpt_real *work;
	size_t work_count;
	struct gpt_team *team; /* NULL: alone */
	int index, count;
};

/* C = alpha * op(A) op(B) + beta * C; C is m x n, op(A) is m x k; ld* are the
 * distances between stored rows. beta 0 does not read C. */
struct gpt_gemm {
	bool ta, tb;
	int m, n, k;
	gpt_real alpha, beta;
	const gpt_real *a, *b;
	gpt_real *c;
	int lda, ldb, ldc;
};

/* Causal self-attention of batch sequences of len tokens. qkv and dqkv have
 * rows of 3 * heads * head_width numbers (queries, keys, values), out and dout
 * rows of heads * head_width. lse holds, per (sequence, head, token), the log
 * of the sum of exponentials: with it backward recomputes the weights, so that
 * nothing of size len x len is kept. */
struct gpt_attention {
	int batch, len, heads, head_width;
	const gpt_real *qkv;
	gpt_real *out;
	gpt_real *lse;
	const gpt_real *dout; /* backward only */
	gpt_real *dqkv;       /* backward only */
	/* Which of the batch * heads pairs (sequence * heads + head) to do. */
	int first_pair, pairs;
};

/* The rows of a batch grouped by their token, in ascending order of both:
 * group i is token id[i], its rows are row[start[i]] .. row[start[i + 1] - 1]. */
struct gpt_groups {
	int count;
	int32_t *id, *start, *row;
};

/* Which numbers are dropped is a function of (key, index) alone: number i of an
 * array counts as first + i. What is kept is scaled by 1 / (1 - rate). */
struct gpt_dropout {
	double rate;
	uint64_t key, first;
};

/* One AdamW update of n numbers (Loshchilov and Hutter, arXiv 1711.05101). */
struct gpt_adamw {
	gpt_real lr, beta1, beta2, eps, decay;
	gpt_real fix1, fix2;  /* 1 / (1 - beta^t): the bias corrections */
	gpt_real grad_factor; /* gradients are multiplied by it first (clipping) */
};

struct gpt_kernels {
	size_t size; /* of this table */
	const char *name;

	/* Scratch numbers needed for sequences of up to len tokens. */
	size_t (*work_count)(int len, int head_width, int width);

	void (*gemm)(struct gpt_device *dev, const struct gpt_gemm *g);

	/* out[r] = wte[token[r]] + wpe[r mod len] for rows r from first on. */
	void (*embed)(struct gpt_device *dev, gpt_real *out, const gpt_real *wte, const gpt_real *wpe,
	              const int32_t *tokens, int first, int rows, int len, int width);
	/* Adds dout's rows to the rows of dwte they came from, group by group: groups
	 * first .. first + count, so that no two threads write one row. */
	void (*token_grad)(struct gpt_device *dev, gpt_real *dwte, const gpt_real *dout, const struct gpt_groups *g,
	                   int first, int count, int width);
	/* The same for dwpe, positions first .. first + count of len. */
	void (*place_grad)(struct gpt_device *dev, gpt_real *dwpe, const gpt_real *dout, int batch, int len, int first,
	                   int count, int width);

	/* sum = x + delta + delta_bias, then out = gain * (sum - mean) * rstd + bias,
	 * one pass. delta NULL: sum is not written and x is normalised. */
	void (*layernorm)(struct gpt_device *dev, gpt_real *out, gpt_real *sum, gpt_real *mean, gpt_real *rstd,
	                  const gpt_real *x, const gpt_real *delta, const gpt_real *delta_bias, const gpt_real *gain,
	                  const gpt_real *bias, int rows, int width);
	/* x is what was normalised. Adds to dx. */
	void (*layernorm_grad)(struct gpt_device *dev, gpt_real *dx, const gpt_real *dout, const gpt_real *x,
	                       const gpt_real *mean, const gpt_real *rstd, const gpt_real *gain, int rows, int width);
	/* Adds to columns first .. first + count of dgain and dbias: all rows, in order. */
	void (*gain_grad)(struct gpt_device *dev, gpt_real *dgain, gpt_real *dbias, const gpt_real *dout,
	                  const gpt_real *x, const gpt_real *mean, const gpt_real *rstd, int rows, int width, int first,
	                  int count);

	/* x += bias on every row. */
	void (*bias_add)(struct gpt_device *dev, gpt_real *x, const gpt_real *bias, int rows, int width);
	/* Adds the sums of columns first .. first + count of dout to dbias. */
	void (*bias_grad)(struct gpt_device *dev, gpt_real *dbias, const gpt_real *dout, int rows, int width, int first,
	                  int count);

	/* out = x with some numbers dropped; the same call on a gradient is its backward. */
	void (*dropout)(struct gpt_device *dev, gpt_real *out, const gpt_real *x, size_t n,
	                const struct gpt_dropout *d);

	/* x += bias; out = GELU(x), the tanh form (arXiv 1606.08415). */
	void (*gelu)(struct gpt_device *dev, gpt_real *out, gpt_real *x, const gpt_real *bias, int rows, int width);
	/* d *= GELU'(x), x as gelu() left it. */
	void (*gelu_grad)(struct gpt_device *dev, gpt_real *d, const gpt_real *x, int rows, int width);

	void (*attention)(struct gpt_device *dev, const struct gpt_attention *a);
	void (*attention_grad)(struct gpt_device *dev, const struct gpt_attention *a);

	/* loss[r] = (1 - smooth) times -log softmax(logits[r])[target[r]], plus smooth times the mean of
	 * -log softmax(logits[r]) (label smoothing, arXiv 1512.00567); then, if scale is not 0,
	 * logits become their own gradient of scale * sum of loss. A target of -1 is masked: both are 0. */
	void (*cross_entropy)(struct gpt_device *dev, gpt_real *logits, gpt_real *loss, const int32_t *targets,
	                      int rows, int vocab, gpt_real scale, gpt_real smooth);

	double (*sum_squares)(struct gpt_device *dev, const gpt_real *x, size_t n);
	/* p: weights, m and v: running means of gradient and squared gradient. */
	void (*adamw)(struct gpt_device *dev, gpt_real *p, gpt_real *m, gpt_real *v, const gpt_real *g, size_t n,
	              const struct gpt_adamw *a);
};

#define GPT_LAYERNORM_EPS 1e-5

/* Plain loops, the oracle of all others. */
extern const struct gpt_kernels gpt_kernels_scalar;

/* The fastest level this processor has; or one by name ("scalar", "base",
 * "avx2", "avx512"), NULL if it is not in this build or the processor lacks it. */
const struct gpt_kernels *gpt_kernels_best(void);
const struct gpt_kernels *gpt_kernels_by_name(const char *name);

#endif
