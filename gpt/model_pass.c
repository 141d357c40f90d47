/*
 * Forward and backward through the model.
 *
 * Weights are stored [out][in], so y = x W^T. A bias that follows a product is
 * added by the kernel that reads the product next, where there is one. The head
 * runs in chunks of rows, loss and gradient together: logits of the whole batch
 * never exist.
 */
#include "gpt/model_inner.h"
#include <assert.h>
#include <string.h>

static const gpt_real *weight(const struct gpt_model *m, int tensor)
{
	return m->params + m->tensors[tensor].offset;
}

static gpt_real *grad(const struct gpt_model *m, int tensor)
{
	return m->grads + m->tensors[tensor].offset;
}

/* y (rows x out) = x (rows x in) W^T */
static void linear(struct gpt_model *m, gpt_real *y, const gpt_real *x, const gpt_real *w, int rows, int in, int out)
{
	m->dev.k->gemm(&m->dev, &(struct gpt_gemm){false, true, rows, out, in, 1, 0, x, w, y, in, in, out});
}

/* dw += dy^T x; dx (if wanted) = dy W */
static void linear_grad(struct gpt_model *m, gpt_real *dx, gpt_real *dw, const gpt_real *dy, const gpt_real *x,
                        const gpt_real *w, int rows, int in, int out)
{
	m->dev.k->gemm(&m->dev, &(struct gpt_gemm){true, false, out, in, rows, 1, 1, dy, x, dw, out, in, in});
	m->dev.k->gemm(&m->dev, &(struct gpt_gemm){false, false, rows, in, out, 1, 0, dy, w, dx, out, in, in});
}

/* The block's layernorms add what the product before them left in m->delta:
 * the first one the previous block's MLP (nothing for block 0). */
static void layer_forward(struct gpt_model *m, int l, int batch, int len)
{
	const struct gpt_kernels *k = m->dev.k;
	const int c = m->shape.width, rows = batch * len;
	struct layer_acts *a = &m->layers[l];
	const gpt_real *from = l ? m->layers[l - 1].mid : a->in, *delta = l ? m->delta : NULL;
	const gpt_real *delta_bias = l ? weight(m, gpt_layer_tensor(l - 1, DOWN_B)) : NULL;
#define W(which) weight(m, gpt_layer_tensor(l, which))

	k->layernorm(&m->dev, a->norm1, a->in, a->mean1, a->rstd1, from, delta, delta_bias, W(LN1_GAIN), W(LN1_BIAS),
	             rows, c);
	linear(m, a->qkv, a->norm1, W(QKV_W), rows, c, 3 * c);
	k->bias_add(&m->dev, a->qkv, W(QKV_B), rows, 3 * c);
	k->attention(&m->dev, &(struct gpt_attention){.batch = batch,
	                                              .len = len,
	                                              .heads = m->shape.heads,
	                                              .head_width = c / m->shape.heads,
	                                              .qkv = a->qkv,
	                                              .out = a->mixed,
	                                              .lse = a->lse});
	linear(m, m->delta, a->mixed, W(PROJ_W), rows, c, c);
	k->layernorm(&m->dev, a->norm2, a->mid, a->mean2, a->rstd2, a->in, m->delta, W(PROJ_B), W(LN2_GAIN),
	             W(LN2_BIAS), rows, c);
	linear(m, a->up, a->norm2, W(UP_W), rows, c, 4 * c);
	k->gelu(&m->dev, a->gelu, a->up, W(UP_B), rows, 4 * c);
	linear(m, m->delta, a->gelu, W(DOWN_W), rows, 4 * c, c);
}

static int final_tensor(const struct gpt_model *m, int which)
{
	return gpt_layer_tensor(m->shape.layers, 0) + which;
}

/* Up to the input of the head, m->normf. */
static void forward(struct gpt_model *m, const int32_t *tokens, int batch, int len)
{
	const int c = m->shape.width, last = m->shape.layers - 1;

	assert(len >= 1 && len <= m->shape.context);
	assert(batch * len <= m->max_rows);
	m->dev.k->embed(&m->dev, m->layers[0].in, weight(m, WTE), weight(m, WPE), tokens, batch, len, c);
	for (int l = 0; l <= last; l++)
		layer_forward(m, l, batch, len);
	m->dev.k->layernorm(&m->dev, m->normf, m->last, m->meanf, m->rstdf, m->layers[last].mid, m->delta,
	                    weight(m, gpt_layer_tensor(last, DOWN_B)), weight(m, final_tensor(m, LNF_GAIN)),
	                    weight(m, final_tensor(m, LNF_BIAS)), batch * len, c);
}

/* Loss of all rows; with scale not 0 also m->dnorm, and the head's part of dwte. */
static double head(struct gpt_model *m, const int32_t *targets, int rows, gpt_real scale)
{
	const int c = m->shape.width, vocab = m->shape.vocab;
	double total = 0;

	for (int r = 0; r < rows; r += HEAD_ROWS) {
		const int n = rows - r < HEAD_ROWS ? rows - r : HEAD_ROWS;
		const gpt_real *x = m->normf + (size_t)r * c;

		linear(m, m->logits, x, weight(m, WTE), n, c, vocab);
		m->dev.k->cross_entropy(&m->dev, m->logits, m->loss, targets + r, n, vocab, scale);
		for (int i = 0; i < n; i++)
			total += m->loss[i];
		if (scale != 0)
			linear_grad(m, m->dnorm + (size_t)r * c, grad(m, WTE), m->logits, x, weight(m, WTE), n, c,
			            vocab);
	}
	return total;
}

/* m->dres comes in as the gradient of the block's output and leaves as that of
 * its input; the layernorms add to it what flows through the two branches. */
static void layer_backward(struct gpt_model *m, int l, int batch, int len)
{
	const struct gpt_kernels *k = m->dev.k;
	const int c = m->shape.width, rows = batch * len;
	struct layer_acts *a = &m->layers[l];
#define G(which) grad(m, gpt_layer_tensor(l, which))

	k->bias_grad(&m->dev, G(DOWN_B), m->dres, rows, c);
	linear_grad(m, m->dwide, G(DOWN_W), m->dres, a->gelu, W(DOWN_W), rows, 4 * c, c);
	k->gelu_grad(&m->dev, m->dwide, a->up, rows, 4 * c);
	k->bias_grad(&m->dev, G(UP_B), m->dwide, rows, 4 * c);
	linear_grad(m, m->dnorm, G(UP_W), m->dwide, a->norm2, W(UP_W), rows, c, 4 * c);
	k->layernorm_grad(&m->dev, m->dres, G(LN2_GAIN), G(LN2_BIAS), m->dnorm, a->mid, a->mean2, a->rstd2, W(LN2_GAIN),
	                  rows, c);

	k->bias_grad(&m->dev, G(PROJ_B), m->dres, rows, c);
	linear_grad(m, m->dnorm, G(PROJ_W), m->dres, a->mixed, W(PROJ_W), rows, c, c);
	k->attention_grad(&m->dev, &(struct gpt_attention){.batch = batch,
	                                                   .len = len,
	                                                   .heads = m->shape.heads,
	                                                   .head_width = c / m->shape.heads,
	                                                   .qkv = a->qkv,
	                                                   .out = a->mixed,
	                                                   .lse = a->lse,
	                                                   .dout = m->dnorm,
	                                                   .dqkv = m->dwide});
	k->bias_grad(&m->dev, G(QKV_B), m->dwide, rows, 3 * c);
	linear_grad(m, m->dnorm, G(QKV_W), m->dwide, a->norm1, W(QKV_W), rows, c, 3 * c);
	k->layernorm_grad(&m->dev, m->dres, G(LN1_GAIN), G(LN1_BIAS), m->dnorm, a->in, a->mean1, a->rstd1, W(LN1_GAIN),
	                  rows, c);
}

static void backward(struct gpt_model *m, const int32_t *tokens, int batch, int len)
{
	const int c = m->shape.width, rows = batch * len;

	memset(m->dres, 0, (size_t)rows * c * sizeof(gpt_real));
	m->dev.k->layernorm_grad(&m->dev, m->dres, grad(m, final_tensor(m, LNF_GAIN)),
	                         grad(m, final_tensor(m, LNF_BIAS)), m->dnorm, m->last, m->meanf, m->rstdf,
	                         weight(m, final_tensor(m, LNF_GAIN)), rows, c);
	for (int l = m->shape.layers - 1; l >= 0; l--)
		layer_backward(m, l, batch, len);
	m->dev.k->embed_grad(&m->dev, grad(m, WTE), grad(m, WPE), m->dres, tokens, batch, len, c);
}

double gpt_model_loss(struct gpt_model *m, const int32_t *tokens, const int32_t *targets, int batch, int len)
{
	forward(m, tokens, batch, len);
	return head(m, targets, batch * len, 0);
}

double gpt_model_train(struct gpt_model *m, const int32_t *tokens, const int32_t *targets, int batch, int len,
                       gpt_real scale)
{
	double loss;

	forward(m, tokens, batch, len);
	loss = head(m, targets, batch * len, scale);
	backward(m, tokens, batch, len);
	return loss;
}

void gpt_model_predict(struct gpt_model *m, const int32_t *tokens, int len, gpt_real *logits)
{
	forward(m, tokens, 1, len);
	linear(m, logits, m->normf + (size_t)(len - 1) * m->shape.width, weight(m, WTE), 1, m->shape.width,
	       m->shape.vocab);
}
