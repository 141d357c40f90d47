/*
 * Forward and backward through the model.
 *
 * Weights are stored [out][in], so y = x W^T. A bias that follows a product is
 * added by the kernel that reads the product next, where there is one. The head
 * runs in chunks of rows, loss and gradient together: logits of the whole batch
 * never exist.
 *
 * Every thread of the team runs all of this with its own device; hooks are
 * called by the first thread alone.
 */
#include "gpt/model_inner.h"
#include "gpt/rng.h"
#include "gpt/shares.h"
#include <assert.h>
#include <string.h>

struct pass {
	struct gpt_model *m;
	const int32_t *tokens, *targets;
	int batch, len;
	bool training;
	gpt_real scale;
	double loss;
};

static int rows_of(const struct pass *p)
{
	return p->batch * p->len;
}

static gpt_real *grad(const struct gpt_model *m, int tensor)
{
	return m->grads + m->tensors[tensor].offset;
}

static void ready(const struct pass *p, const struct gpt_device *dev, int tensor)
{
	if (dev->index == 0 && p->m->hooks.ready)
		p->m->hooks.ready(p->m->hooks.arg, tensor);
}

/* Tensors first .. last are about to be read. */
static void need(const struct pass *p, const struct gpt_device *dev, int first, int last)
{
	if (!p->m->hooks.need)
		return;
	for (int t = first; t <= last && dev->index == 0; t++)
		p->m->hooks.need(p->m->hooks.arg, t);
	gpt_team_meet(dev->team);
}

/* y (rows x out) = x (rows x in) W^T */
static void linear(struct gpt_device *dev, gpt_real *y, const gpt_real *x, const gpt_real *w, int rows, int in, int out)
{
	gpt_do_gemm(dev, &(struct gpt_gemm){false, true, rows, out, in, 1, 0, x, w, y, in, in, out});
}

/* dw += dy^T x */
static void weight_grad(struct gpt_device *dev, gpt_real *dw, const gpt_real *dy, const gpt_real *x, int rows, int in,
                        int out)
{
	gpt_do_gemm(dev, &(struct gpt_gemm){true, false, out, in, rows, 1, 1, dy, x, dw, out, in, in});
}

/* dx = dy W */
static void input_grad(struct gpt_device *dev, gpt_real *dx, const gpt_real *dy, const gpt_real *w, int rows, int in,
                       int out)
{
	gpt_do_gemm(dev, &(struct gpt_gemm){false, false, rows, in, out, 1, 0, dy, w, dx, out, in, in});
}

static bool dropping(const struct pass *p)
{
	return p->training && p->m->drop_rate > 0;
}

/* Drop numbers of the rows at a site: 0 the embedding, 1 + 2 l and 2 + 2 l the branches of block l. Which ones is the
 * sequence's, however long the others of the batch are: each has context * width numbers. */
static void drop(const struct pass *p, struct gpt_device *dev, int site, gpt_real *out, const gpt_real *x)
{
	const struct gpt_model *m = p->m;
	const size_t most = (size_t)m->shape.context * (size_t)m->shape.width,
	             each = (size_t)p->len * (size_t)m->shape.width;
	struct gpt_dropout d = {m->drop_rate, gpt_random(gpt_random(m->drop_seed, (uint64_t)site), m->drop_step),
	                        m->drop_first * most};

	if (each == most) {
		gpt_do_dropout(dev, out, x, (size_t)p->batch * each, &d);
		return;
	}
	for (int b = 0; b < p->batch; b++, d.first += most)
		gpt_do_dropout(dev, out + (size_t)b * each, x + (size_t)b * each, each, &d);
}

/* The bias that the next layernorm is to add to m->delta; where numbers are
 * dropped it must be added before. */
static const gpt_real *finish_branch(const struct pass *p, struct gpt_device *dev, int site, const gpt_real *bias)
{
	const int c = p->m->shape.width;

	if (!dropping(p))
		return bias;
	gpt_do_bias_add(dev, p->m->delta, bias, rows_of(p), c);
	drop(p, dev, site, p->m->delta, p->m->delta);
	return p->m->zeros;
}

static struct gpt_attention attention_of(const struct pass *p, int l)
{
	const struct gpt_model *m = p->m;
	const struct layer_acts *a = &m->layers[l];

	return (struct gpt_attention){.batch = p->batch,
	                              .len = p->len,
	                              .heads = m->shape.heads,
	                              .head_width = m->shape.width / m->shape.heads,
	                              .qkv = a->qkv,
	                              .out = a->mixed,
	                              .lse = a->lse};
}

/* The block's layernorms add what the product before them left in m->delta:
 * the first one the previous block's MLP (nothing for block 0). Returns the bias
 * still to be added to m->delta. */
static const gpt_real *layer_forward(const struct pass *p, struct gpt_device *dev, int l, const gpt_real *delta_bias)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width, rows = rows_of(p);
	struct layer_acts *a = &m->layers[l];
	const struct gpt_attention attention = attention_of(p, l);
	const gpt_real *from = l ? m->layers[l - 1].mid : a->in, *delta = l ? m->delta : NULL, *bias;
#define W(which) gpt_weight(m, gpt_layer_tensor(l, which))

	need(p, dev, gpt_layer_tensor(l, 0), gpt_layer_tensor(l, PER_LAYER - 1));
	gpt_do_layernorm(dev, a->norm1, a->in, a->mean1, a->rstd1, from, delta, delta_bias, W(LN1_GAIN), W(LN1_BIAS),
	                 rows, c);
	linear(dev, a->qkv, a->norm1, W(QKV_W), rows, c, 3 * c);
	gpt_do_bias_add(dev, a->qkv, W(QKV_B), rows, 3 * c);
	gpt_do_attention(dev, &attention);
	linear(dev, m->delta, a->mixed, W(PROJ_W), rows, c, c);
	bias = finish_branch(p, dev, 1 + 2 * l, W(PROJ_B));
	gpt_do_layernorm(dev, a->norm2, a->mid, a->mean2, a->rstd2, a->in, m->delta, bias, W(LN2_GAIN), W(LN2_BIAS),
	                 rows, c);
	linear(dev, a->up, a->norm2, W(UP_W), rows, c, 4 * c);
	gpt_do_gelu(dev, a->gelu, a->up, W(UP_B), rows, 4 * c);
	linear(dev, m->delta, a->gelu, W(DOWN_W), rows, 4 * c, c);
	return finish_branch(p, dev, 2 + 2 * l, W(DOWN_B));
}

/* Up to the input of the head, m->normf. */
static void forward(const struct pass *p, struct gpt_device *dev)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width, last = m->shape.layers - 1, rows = rows_of(p);
	const int lnf_gain = gpt_final_tensor(m, LNF_GAIN), lnf_bias = gpt_final_tensor(m, LNF_BIAS);
	const int wte = gpt_final_tensor(m, WTE);
	const gpt_real *bias = NULL;

	need(p, dev, WPE, WPE);
	need(p, dev, wte, wte);
	gpt_do_embed(dev, m->layers[0].in, gpt_weight(m, wte), gpt_weight(m, WPE), p->tokens, rows, p->len, c);
	if (dropping(p))
		drop(p, dev, 0, m->layers[0].in, m->layers[0].in);
	for (int l = 0; l <= last; l++)
		bias = layer_forward(p, dev, l, bias);
	need(p, dev, lnf_gain, lnf_bias);
	gpt_do_layernorm(dev, m->normf, m->last, m->meanf, m->rstdf, m->layers[last].mid, m->delta, bias,
	                 gpt_weight(m, lnf_gain), gpt_weight(m, lnf_bias), rows, c);
}

/* Loss of all rows; in training also m->dnorm, and the head's part of dwte. */
static void head(struct pass *p, struct gpt_device *dev)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width, vocab = m->shape.vocab, rows = rows_of(p), step = gpt_head_rows(m);
	const int wte = gpt_final_tensor(m, WTE);

	for (int r = 0; r < rows; r += step) {
		const int n = rows - r < step ? rows - r : step;
		const gpt_real *x = m->normf + (size_t)r * c;

		linear(dev, m->logits, x, gpt_weight(m, wte), n, c, vocab);
		gpt_do_cross_entropy(dev, m->logits, m->loss, p->targets + r, n, vocab, p->training ? p->scale : 0,
		                     p->training ? m->smooth : 0);
		for (int i = 0; i < n && dev->index == 0; i++)
			p->loss += m->loss[i];
		if (!p->training) {
			gpt_team_meet(dev->team);
			continue;
		}
		weight_grad(dev, grad(m, wte), m->logits, x, n, c, vocab);
		if (m->lookup && r + n == rows)
			ready(p, dev, wte);
		input_grad(dev, m->dnorm + (size_t)r * c, m->logits, gpt_weight(m, wte), n, c, vocab);
	}
}

/* The gradient of a branch's output, given that of the residual stream. */
static const gpt_real *branch_grad(const struct pass *p, struct gpt_device *dev, int site)
{
	if (!dropping(p))
		return p->m->dres;
	drop(p, dev, site, p->m->ddrop, p->m->dres);
	return p->m->ddrop;
}

/* Through y = x W^T + bias of block l: gradients of both, then dx. The weight's comes before dx and is told at once:
 * on the wire it has all of the rest to hide behind. */
static void product_backward(const struct pass *p, struct gpt_device *dev, int l, int weight, gpt_real *dx,
                             const gpt_real *dy, const gpt_real *x, int in, int out)
{
	struct gpt_model *m = p->m;
	const int w = gpt_layer_tensor(l, weight), bias = w + 1, rows = rows_of(p);

	gpt_do_bias_grad(dev, grad(m, bias), dy, rows, out);
	ready(p, dev, bias);
	weight_grad(dev, grad(m, w), dy, x, rows, in, out);
	ready(p, dev, w);
	input_grad(dev, dx, dy, gpt_weight(m, w), rows, in, out);
}

/* Through the layernorm of block l whose output's gradient is m->dnorm, into that of the residual stream. */
static void norm_backward(const struct pass *p, struct gpt_device *dev, int l, int gain, const gpt_real *x,
                          const gpt_real *mean, const gpt_real *rstd)
{
	struct gpt_model *m = p->m;
	const int g = gpt_layer_tensor(l, gain), bias = g + 1;

	gpt_do_layernorm_grad(dev, m->dres, grad(m, g), grad(m, bias), m->dnorm, x, mean, rstd, gpt_weight(m, g),
	                      rows_of(p), m->shape.width);
	ready(p, dev, bias);
	ready(p, dev, g);
}

static void mlp_backward(const struct pass *p, struct gpt_device *dev, int l)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width;
	const struct layer_acts *a = &m->layers[l];

	product_backward(p, dev, l, DOWN_W, m->dwide, branch_grad(p, dev, 2 + 2 * l), a->gelu, 4 * c, c);
	gpt_do_gelu_grad(dev, m->dwide, a->up, rows_of(p), 4 * c);
	product_backward(p, dev, l, UP_W, m->dnorm, m->dwide, a->norm2, c, 4 * c);
	norm_backward(p, dev, l, LN2_GAIN, a->mid, a->mean2, a->rstd2);
}

static void attention_backward(const struct pass *p, struct gpt_device *dev, int l)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width;
	const struct layer_acts *a = &m->layers[l];
	struct gpt_attention attention = attention_of(p, l);

	product_backward(p, dev, l, PROJ_W, m->dnorm, branch_grad(p, dev, 1 + 2 * l), a->mixed, c, c);
	attention.dout = m->dnorm;
	attention.dqkv = m->dwide;
	gpt_do_attention_grad(dev, &attention);
	product_backward(p, dev, l, QKV_W, m->dnorm, m->dwide, a->norm1, c, 3 * c);
	norm_backward(p, dev, l, LN1_GAIN, a->in, a->mean1, a->rstd1);
}

static void embed_backward(const struct pass *p, struct gpt_device *dev)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width, rows = rows_of(p), wte = gpt_final_tensor(m, WTE);
	const gpt_real *d = branch_grad(p, dev, 0);

	if (dev->index == 0)
		gpt_group_tokens(&m->groups, p->tokens, rows, m->shape.vocab, m->groups.start + m->max_rows + 1);
	gpt_do_place_grad(dev, grad(m, WPE), d, p->batch, p->len, c);
	ready(p, dev, WPE);
	gpt_do_token_grad(dev, m->lookup ? m->lookup : grad(m, wte), d, &m->groups, c);
	if (!m->lookup)
		ready(p, dev, wte);
	else if (dev->index == 0 && m->hooks.lookup)
		m->hooks.lookup(m->hooks.arg, &m->groups);
}

/* m->dres is, before each block's backward, the gradient of its output; the
 * layernorms add to it what flows through the two branches. */
static void backward(const struct pass *p, struct gpt_device *dev)
{
	struct gpt_model *m = p->m;
	const int c = m->shape.width, rows = rows_of(p);
	const int gain = gpt_final_tensor(m, LNF_GAIN), bias = gpt_final_tensor(m, LNF_BIAS);

	gpt_do_zero(dev, m->dres, (size_t)rows * c);
	gpt_do_layernorm_grad(dev, m->dres, grad(m, gain), grad(m, bias), m->dnorm, m->last, m->meanf, m->rstdf,
	                      gpt_weight(m, gain), rows, c);
	ready(p, dev, bias);
	ready(p, dev, gain);
	for (int l = m->shape.layers - 1; l >= 0; l--) {
		mlp_backward(p, dev, l);
		attention_backward(p, dev, l);
	}
	embed_backward(p, dev);
}

static void run_pass(void *arg, int index)
{
	struct pass *p = arg;
	struct gpt_device *dev = &p->m->devs[index];

	forward(p, dev);
	if (p->targets)
		head(p, dev);
	if (p->training)
		backward(p, dev);
}

static double run(struct pass *p)
{
	assert(p->len >= 1 && p->len <= p->m->shape.context);
	assert(rows_of(p) <= p->m->max_rows);
	gpt_team_run(p->m->team, run_pass, p);
	return p->loss;
}

double gpt_model_loss(struct gpt_model *m, const int32_t *tokens, const int32_t *targets, int batch, int len)
{
	return run(&(struct pass){.m = m, .tokens = tokens, .targets = targets, .batch = batch, .len = len});
}

double gpt_model_train(struct gpt_model *m, const int32_t *tokens, const int32_t *targets, int batch, int len,
                       gpt_real scale)
{
	return run(&(struct pass){m, tokens, targets, batch, len, true, scale, 0});
}

void gpt_model_predict(struct gpt_model *m, const int32_t *tokens, int len, gpt_real *logits)
{
	const int c = m->shape.width;

	run(&(struct pass){.m = m, .tokens = tokens, .batch = 1, .len = len});
	m->devs[0].k->gemm(&m->devs[0],
	                   &(struct gpt_gemm){false, true, 1, m->shape.vocab, c, 1, 0, m->normf + (size_t)(len - 1) * c,
	                                      gpt_weight(m, gpt_final_tensor(m, WTE)), logits, c, c, m->shape.vocab});
}

static void zero_share(void *arg, int index)
{
	struct gpt_model *m = arg;

	gpt_do_zero(&m->devs[index], m->grads, m->param_count);
}

void gpt_model_zero_grads(struct gpt_model *m)
{
	gpt_team_run(m->team, zero_share, m);
}
