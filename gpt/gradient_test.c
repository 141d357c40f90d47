/*
 * Gradients against central differences, in double: every kernel by itself and
 * a whole small model, for the plain loops and for the fastest level.
 *
 * For a function f and a random direction u, (f(x + hu) - f(x - hu)) / 2h is
 * compared with the gradient times u; several directions, and for small tensors
 * every element.
 */
#include "gpt/decode.h"
#include "gpt/groups.h"
#include "gpt/model.h"
#include "gpt/test_util.h"
#include <criterion/criterion.h>
#include <string.h>

#define H     1e-5
#define NEAR  1e-6
#define TRIES 4

static const struct gpt_kernels *const *tables(void)
{
	static const struct gpt_kernels *all[3];

	all[0] = &gpt_kernels_scalar;
	all[1] = gpt_kernels_best();
	return all;
}

typedef double (*loss_fn)(void *arg);

/* Move x along random directions and compare with what grad predicts. */
static void check(const char *what, gpt_real *x, const gpt_real *grad, size_t n, loss_fn loss, void *arg)
{
	gpt_real *saved = malloc(n * sizeof(*saved));

	memcpy(saved, x, n * sizeof(*saved));
	for (int t = 0; t < TRIES; t++) {
		gpt_real *u = random_array(1000 + t, n, 1);
		double predicted = 0, seen, size = norm_of(grad, n) * norm_of(u, n) / sqrt((double)n);

		for (size_t i = 0; i < n; i++) {
			predicted += grad[i] * u[i];
			x[i] = saved[i] + H * u[i];
		}
		seen = loss(arg);
		for (size_t i = 0; i < n; i++)
			x[i] = saved[i] - H * u[i];
		seen = (seen - loss(arg)) / (2 * H);
		memcpy(x, saved, n * sizeof(*saved));
		cr_assert(size > 0, "%s: no gradient at all", what);
		cr_assert(fabs(seen - predicted) <= NEAR * size, "%s: differences say %.12g, gradient %.12g", what,
		          seen, predicted);
		free(u);
	}
	free(saved);
}

/* A kernel under test: sum of dout * f(x ...) is the scalar whose gradient is known. */
struct fixture {
	struct gpt_device dev;
	int batch, len, heads, head_width, vocab;
	gpt_real *x, *bias, *gain, *out, *tmp, *dout, *mean, *rstd, *lse;
	int32_t *tokens;
	size_t out_count;
	double smooth;
};

static double weighted(const struct fixture *f)
{
	double s = 0;

	for (size_t i = 0; i < f->out_count; i++)
		s += f->out[i] * f->dout[i];
	return s;
}

static int rows(const struct fixture *f)
{
	return f->batch * f->len;
}

static int width(const struct fixture *f)
{
	return f->heads * f->head_width;
}

static void setup(struct fixture *f, const struct gpt_kernels *k, int len)
{
	size_t all;

	memset(f, 0, sizeof(*f));
	f->batch = 2;
	f->len = len;
	f->heads = 2;
	f->head_width = 11;
	f->vocab = 23;
	all = (size_t)rows(f) * (3 * width(f) + f->vocab);
	f->dev.k = k;
	f->dev.work_count = k->work_count(len, f->head_width, width(f));
	f->dev.work = random_array(1, f->dev.work_count, 1);
	f->x = random_array(2, all, 1);
	f->bias = random_array(3, 64, 1);
	f->gain = random_array(4, 64, 1);
	f->out = random_array(5, all, 1);
	f->tmp = random_array(6, all, 1);
	f->dout = random_array(7, all, 1);
	f->mean = random_array(8, rows(f), 1);
	f->rstd = random_array(9, rows(f), 1);
	f->lse = random_array(10, (size_t)rows(f) * f->heads, 1);
	f->tokens = random_tokens(11, rows(f), f->vocab);
	f->out_count = (size_t)rows(f) * width(f);
}

static void teardown(struct fixture *f)
{
	gpt_real *const owned[] = {f->dev.work, f->x,    f->bias, f->gain, f->out,
	                           f->tmp,      f->dout, f->mean, f->rstd, f->lse};

	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	free(f->tokens);
}

/* A mask is linear: its gradient is the mask again. */
static double dropout_loss(void *arg)
{
	struct fixture *f = arg;
	const struct gpt_dropout d = {0.25, TEST_SEED, 0};

	f->dev.k->dropout(&f->dev, f->out, f->x, f->out_count, &d);
	return weighted(f);
}

static void check_dropout(struct fixture *f)
{
	const struct gpt_dropout d = {0.25, TEST_SEED, 0};
	gpt_real *dx = malloc(f->out_count * sizeof(*dx));

	f->dev.k->dropout(&f->dev, dx, f->dout, f->out_count, &d);
	check("dropout", f->x, dx, f->out_count, dropout_loss, f);
	free(dx);
}

/* y = x W^T, as the model uses it: both gradients are products again. */
static double gemm_loss(void *arg)
{
	struct fixture *f = arg;
	const int n = 7, k = width(f), m = rows(f);

	f->dev.k->gemm(&f->dev, &(struct gpt_gemm){false, true, m, n, k, 1, 0, f->x, f->tmp, f->out, k, k, n});
	return weighted(f);
}

static void check_gemm(struct fixture *f)
{
	const int n = 7, k = width(f), m = rows(f);
	gpt_real *dx = malloc((size_t)m * k * sizeof(*dx)), *dw = calloc((size_t)n * k, sizeof(*dw));

	f->out_count = (size_t)m * n;
	f->dev.k->gemm(&f->dev, &(struct gpt_gemm){true, false, n, k, m, 1, 1, f->dout, f->x, dw, n, k, k});
	f->dev.k->gemm(&f->dev, &(struct gpt_gemm){false, false, m, k, n, 1, 0, f->dout, f->tmp, dx, n, k, k});
	check("product x", f->x, dx, (size_t)m * k, gemm_loss, f);
	check("product w", f->tmp, dw, (size_t)n * k, gemm_loss, f);
	f->out_count = (size_t)m * k;
	free(dx);
	free(dw);
}

static double layernorm_loss(void *arg)
{
	struct fixture *f = arg;

	f->dev.k->layernorm(&f->dev, f->out, NULL, f->mean, f->rstd, f->x, NULL, NULL, f->gain, f->bias, rows(f),
	                    width(f));
	return weighted(f);
}

static double gelu_loss(void *arg)
{
	struct fixture *f = arg;

	memcpy(f->tmp, f->x, f->out_count * sizeof(gpt_real));
	f->dev.k->gelu(&f->dev, f->out, f->tmp, f->bias, rows(f), width(f));
	return weighted(f);
}

static struct gpt_attention attention_of(struct fixture *f)
{
	return (struct gpt_attention){.batch = f->batch,
	                              .len = f->len,
	                              .heads = f->heads,
	                              .head_width = f->head_width,
	                              .qkv = f->x,
	                              .out = f->out,
	                              .lse = f->lse,
	                              .pairs = f->batch * f->heads};
}

static double attention_loss(void *arg)
{
	struct fixture *f = arg;
	struct gpt_attention a = attention_of(f);

	f->dev.k->attention(&f->dev, &a);
	return weighted(f);
}

static double entropy_loss(void *arg)
{
	struct fixture *f = arg;
	double s = 0;

	f->dev.k->cross_entropy(&f->dev, f->x, f->mean, f->tokens, rows(f), f->vocab, 0, f->smooth);
	for (int r = 0; r < rows(f); r++)
		s += 0.5 * f->mean[r];
	return s;
}

static double embed_loss(void *arg)
{
	struct fixture *f = arg;

	f->dev.k->embed(&f->dev, f->out, f->x, f->tmp, f->tokens, 0, rows(f), f->len, width(f));
	return weighted(f);
}

static void check_layernorm(struct fixture *f)
{
	gpt_real *dx = calloc(f->out_count, sizeof(*dx)), dgain[64] = {0}, dbias[64] = {0};

	layernorm_loss(f);
	f->dev.k->layernorm_grad(&f->dev, dx, f->dout, f->x, f->mean, f->rstd, f->gain, rows(f), width(f));
	f->dev.k->gain_grad(&f->dev, dgain, dbias, f->dout, f->x, f->mean, f->rstd, rows(f), width(f), 0, width(f));
	check("layernorm x", f->x, dx, f->out_count, layernorm_loss, f);
	check("layernorm gain", f->gain, dgain, width(f), layernorm_loss, f);
	check("layernorm bias", f->bias, dbias, width(f), layernorm_loss, f);
	free(dx);
}

static void check_gelu(struct fixture *f)
{
	gpt_real *dx = malloc(f->out_count * sizeof(*dx)), dbias[64] = {0};

	memcpy(dx, f->dout, f->out_count * sizeof(*dx));
	gelu_loss(f);
	f->dev.k->gelu_grad(&f->dev, dx, f->tmp, rows(f), width(f));
	f->dev.k->bias_grad(&f->dev, dbias, dx, rows(f), width(f), 0, width(f));
	check("gelu x", f->x, dx, f->out_count, gelu_loss, f);
	check("gelu bias", f->bias, dbias, width(f), gelu_loss, f);
	free(dx);
}

static void check_attention(struct fixture *f)
{
	gpt_real *dqkv = random_array(50, 3 * f->out_count, 1);
	struct gpt_attention a = attention_of(f);

	a.dout = f->dout;
	a.dqkv = dqkv;
	attention_loss(f);
	f->dev.k->attention_grad(&f->dev, &a);
	check("attention", f->x, dqkv, 3 * f->out_count, attention_loss, f);
	free(dqkv);
}

/* With a masked row, and without. */
static void check_entropy(struct fixture *f, double smooth, bool masked)
{
	const int32_t kept = f->tokens[0];
	const size_t n = (size_t)rows(f) * f->vocab;
	gpt_real *d = malloc(n * sizeof(*d));

	f->smooth = smooth;
	if (masked)
		f->tokens[0] = -1;
	memcpy(d, f->x, n * sizeof(*d));
	f->dev.k->cross_entropy(&f->dev, d, f->mean, f->tokens, rows(f), f->vocab, 0.5, f->smooth);
	check("cross entropy", f->x, d, n, entropy_loss, f);
	f->tokens[0] = kept;
	free(d);
}

static void check_embed(struct fixture *f)
{
	const size_t n = (size_t)f->vocab * width(f), places = (size_t)f->len * width(f);
	gpt_real *dwte = calloc(n, sizeof(*dwte)), *dwpe = calloc(places, sizeof(*dwpe));
	gpt_real *wte = random_array(60, n, 1), *x = f->x;
	int32_t memory[4096];
	struct gpt_groups g = {0, memory, memory + 2 * rows(f), memory + rows(f)};

	f->x = wte;
	gpt_group_tokens(&g, f->tokens, rows(f), f->vocab, memory + 3 * rows(f) + 1);
	f->dev.k->token_grad(&f->dev, dwte, f->dout, &g, 0, g.count, width(f));
	f->dev.k->place_grad(&f->dev, dwpe, f->dout, f->batch, f->len, 0, f->len, width(f));
	check("token embedding", f->x, dwte, n, embed_loss, f);
	check("position embedding", f->tmp, dwpe, places, embed_loss, f);
	f->x = x;
	free(wte);
	free(dwte);
	free(dwpe);
}

Test(gradient, every_kernel)
{
	static const int lens[] = {1, 2, 7, 67, 130};

	for (int t = 0; tables()[t]; t++)
		for (int l = 0; l < 5; l++) {
			struct fixture f;

			setup(&f, tables()[t], lens[l]);
			check_layernorm(&f);
			check_gelu(&f);
			check_entropy(&f, 0, false);
			check_entropy(&f, 0.1, true);
			check_embed(&f);
			check_dropout(&f);
			check_gemm(&f);
			check_attention(&f);
			teardown(&f);
		}
}

struct whole {
	struct gpt_model *model;
	int32_t *tokens, *targets;
	int batch, len;
};

static double whole_loss(void *arg)
{
	struct whole *w = arg;

	return 0.125 * gpt_model_loss(w->model, w->tokens, w->targets, w->batch, w->len);
}

static void check_model(const struct gpt_kernels *k, const struct gpt_shape *shape, int batch, int len)
{
	struct whole w = {gpt_model_create(shape, batch, k, NULL), NULL, NULL, batch, len};
	const struct gpt_tensor *tensors;
	gpt_real *noise;
	double loss;
	int n;

	cr_assert_not_null(w.model);
	w.tokens = random_tokens(70, (size_t)batch * len, shape->vocab);
	w.targets = random_tokens(71, (size_t)batch * len, shape->vocab);
	gpt_model_init(w.model, TEST_SEED);
	/* Away from the quiet start: biases, gains and small weights all matter. */
	noise = random_array(72, gpt_param_count(shape), 0.2);
	for (size_t i = 0; i < gpt_param_count(shape); i++)
		gpt_model_params(w.model)[i] += noise[i];
	loss = 0.125 * gpt_model_train(w.model, w.tokens, w.targets, batch, len, 0.125);
	cr_assert_float_eq(loss, whole_loss(&w), 1e-12 * loss);
	tensors = gpt_model_tensors(w.model, &n);
	for (int i = 0; i < n; i++) {
		/* One token attends to itself alone: its weight is 1 whatever
		 * queries and keys are, so those biases have rounding noise for
		 * a gradient. */
		if (len == 1 && strstr(tensors[i].name, "qkv"))
			continue;
		check(tensors[i].name, gpt_model_params(w.model) + tensors[i].offset,
		      gpt_model_grads(w.model) + tensors[i].offset, tensors[i].count, whole_loss, &w);
	}
	free(noise);
	free(w.tokens);
	free(w.targets);
	gpt_model_destroy(&w.model);
}

Test(gradient, whole_model)
{
	for (int t = 0; tables()[t]; t++) {
		check_model(tables()[t], &(struct gpt_shape){.vocab = 13, 7, 2, 2, 6}, 3, 7);
		check_model(tables()[t], &(struct gpt_shape){.vocab = 29, 11, 1, 1, 17}, 2, 5);
		check_model(tables()[t], &(struct gpt_shape){.vocab = 5, 3, 3, 1, 6}, 2, 1);
	}
	/* More rows than a chunk of the head, more tokens than an attention block. */
	check_model(gpt_kernels_best(), &(struct gpt_shape){.vocab = 11, 101, 2, 2, 10}, 3, 101);
}

Test(gradient, adds_up_over_calls)
{
	const struct gpt_shape shape = {11, 5, 1, 2, 8};
	struct gpt_model *m = gpt_model_create(&shape, 4, gpt_kernels_best(), NULL);
	const size_t n = gpt_param_count(&shape);
	int32_t *tokens = random_tokens(1, 20, 11), *targets = random_tokens(2, 20, 11);
	gpt_real *whole = malloc(n * sizeof(*whole));

	gpt_model_init(m, 1);
	gpt_model_train(m, tokens, targets, 4, 5, 0.05);
	memcpy(whole, gpt_model_grads(m), n * sizeof(*whole));
	gpt_model_zero_grads(m);
	gpt_model_train(m, tokens, targets, 1, 5, 0.05);
	gpt_model_train(m, tokens + 5, targets + 5, 3, 5, 0.05);
	cr_assert(distance(gpt_model_grads(m), whole, n) <= 1e-12);
	free(tokens);
	free(targets);
	free(whole);
	gpt_model_destroy(&m);
}

static struct gpt_model *noisy_model(const struct gpt_shape *shape, const struct gpt_model_options *o)
{
	struct gpt_model *m = gpt_model_open(shape, o);
	gpt_real *noise = random_array(72, gpt_param_count(shape), 0.2);

	cr_assert_not_null(m);
	gpt_model_init(m, TEST_SEED);
	for (size_t i = 0; i < gpt_param_count(shape); i++)
		gpt_model_params(m)[i] += noise[i];
	free(noise);
	return m;
}

static const struct gpt_shape small = {11, 9, 2, 2, 10};

/* Losses come from training passes, where numbers are dropped, with gradients thrown away. */
static double dropped_loss(void *arg)
{
	struct whole *w = arg;

	return 0.125 * gpt_model_train(w->model, w->tokens, w->targets, w->batch, w->len, 1);
}

Test(gradient, with_dropout)
{
	const struct gpt_model_options o = {.max_batch = 3, .kernels = gpt_kernels_best()};
	struct whole w = {noisy_model(&small, &o), random_tokens(70, 27, 11), random_tokens(71, 27, 11), 3, 9};
	const size_t n = gpt_param_count(&small);
	gpt_real *grad = malloc(n * sizeof(*grad));
	double loss;

	gpt_model_set_dropout(w.model, 0.2, 5, 7, 1000);
	loss = gpt_model_train(w.model, w.tokens, w.targets, 3, 9, 0.125);
	cr_assert_gt(fabs(loss - gpt_model_loss(w.model, w.tokens, w.targets, 3, 9)), 1e-3);
	memcpy(grad, gpt_model_grads(w.model), n * sizeof(*grad));
	check("dropout in the model", gpt_model_params(w.model), grad, n, dropped_loss, &w);
	/* The masks belong to the sequences, not to their place in a batch. */
	gpt_model_zero_grads(w.model);
	for (int b = 0; b < 3; b++) {
		gpt_model_set_dropout(w.model, 0.2, 5, 7, 1000 + (uint64_t)b);
		loss -= gpt_model_train(w.model, w.tokens + 9 * b, w.targets + 9 * b, 1, 9, 0.125);
	}
	cr_assert(fabs(loss) < 1e-10);
	cr_assert(distance(gpt_model_grads(w.model), grad, n) <= 1e-12);
	free(grad);
	free(w.tokens);
	free(w.targets);
	gpt_model_destroy(&w.model);
}

/* Documents of several lengths side by side, padded on the right where targets are masked, are what they are one at a
 * time: losses and gradients, labels smoothed, numbers dropped. */
Test(gradient, of_padded_documents_is_of_one_at_a_time)
{
	static const int lens[] = {7, 4, 1, 6};
	const struct gpt_model_options o = {.max_batch = 4, .kernels = gpt_kernels_best()};
	struct gpt_model *m = noisy_model(&small, &o);
	const size_t n = gpt_param_count(&small);
	int32_t *tokens = random_tokens(70, 28, 11), *targets = random_tokens(71, 28, 11);
	gpt_real *want = malloc(n * sizeof(*want));

	for (int dropped = 0; dropped < 2; dropped++) {
		double loss = 0;

		gpt_model_set_smoothing(m, 0.1);
		gpt_model_zero_grads(m);
		for (int b = 0; b < 4; b++) {
			gpt_model_set_dropout(m, 0.2 * dropped, 5, 7, 1000 + (uint64_t)b);
			loss += gpt_model_train(m, tokens + 7 * b, targets + 7 * b, 1, lens[b], 0.05);
			for (int t = lens[b]; t < 7; t++)
				targets[7 * b + t] = -1;
		}
		memcpy(want, gpt_model_grads(m), n * sizeof(*want));
		gpt_model_zero_grads(m);
		gpt_model_set_dropout(m, 0.2 * dropped, 5, 7, 1000);
		loss -= gpt_model_train(m, tokens, targets, 4, 7, 0.05);
		cr_assert(fabs(loss) < 1e-11, "%g", loss);
		cr_assert(distance(gpt_model_grads(m), want, n) <= 1e-12 * norm_of(want, n));
	}
	free(want);
	free(tokens);
	free(targets);
	gpt_model_destroy(&m);
}

struct seen {
	int next, lookups, needed;
	bool ordered;
};

static void saw_ready(void *arg, int tensor)
{
	struct seen *s = arg;

	s->ordered &= tensor == s->next;
	s->next = tensor - 1;
}

static void saw_need(void *arg, int tensor)
{
	((struct seen *)arg)->needed |= 1 << (tensor % 30);
}

static void saw_lookup(void *arg, const struct gpt_groups *g)
{
	((struct seen *)arg)->lookups += g->count;
}

/* Head and lookups apart add up to what they are together; gradients are ready from the last tensor to the first; a
 * team computes what one thread does. */
Test(gradient, lookups_apart_hooks_and_teams)
{
	const size_t n = gpt_param_count(&small), table = (size_t)small.vocab * small.width;
	int32_t *tokens = random_tokens(70, 27, 11), *targets = random_tokens(71, 27, 11);
	struct gpt_model_options o = {.max_batch = 3, .kernels = gpt_kernels_best()};
	struct gpt_model *together = noisy_model(&small, &o);
	gpt_real *lookup = calloc(table, sizeof(*lookup));
	const double want = gpt_model_train(together, tokens, targets, 3, 9, 0.125);

	o.lookup = lookup;
	for (o.threads = 1; o.threads <= 3; o.threads++) {
		struct seen seen = {.ordered = true};
		const struct gpt_tensor *t;
		struct gpt_model *m;
		double loss;
		int count;

		memset(lookup, 0, table * sizeof(*lookup));
		o.hooks = (struct gpt_hooks){&seen, saw_need, saw_ready, saw_lookup};
		m = noisy_model(&small, &o);
		t = gpt_model_tensors(m, &count);
		seen.next = count - 1;
		loss = gpt_model_train(m, tokens, targets, 3, 9, 0.125);
		cr_assert_float_eq(loss, want, 1e-12 * want);
		cr_assert(seen.ordered && seen.next == -1, "%d threads: %d", o.threads, seen.next);
		cr_assert(seen.lookups > 1 && seen.lookups <= 11 && seen.needed);
		cr_assert_str_eq(t[count - 1].name, "wte");
		for (size_t i = 0; i < table; i++)
			gpt_model_grads(m)[t[count - 1].offset + i] += lookup[i];
		cr_assert(distance(gpt_model_grads(m), gpt_model_grads(together), n) <= 1e-13, "%d threads", o.threads);
		gpt_model_destroy(&m);
	}
	free(lookup);
	free(tokens);
	free(targets);
	gpt_model_destroy(&together);
}

/* Memory grows with the length of sequences, not with its square, and never holds the logits of a batch. */
Test(gradient, no_buffer_is_len_by_len_or_holds_all_logits)
{
	struct gpt_memory at[2];

	for (int i = 0; i < 2; i++) {
		const struct gpt_shape s = {501, 1024 << i, 1, 2, 8};
		struct gpt_model *m = gpt_model_create(&s, 2, gpt_kernels_best(), NULL);
		const size_t rows = 2 * (size_t)s.context;

		at[i] = gpt_model_memory(m);
		cr_assert_lt(at[i].logits, rows * 501 * sizeof(gpt_real) / 8);
		cr_assert_lt(at[i].largest_of_rows, (size_t)s.context * s.context * sizeof(gpt_real) / 8);
		gpt_model_destroy(&m);
	}
	cr_assert_leq(at[1].activations, 2 * at[0].activations);
	cr_assert_leq(at[1].scratch, 2 * at[0].scratch);
}

/* Token by token is what a whole pass says, at every length. */
Test(gradient, decoding_with_kept_keys)
{
	const struct gpt_model_options o = {.max_batch = 1, .kernels = gpt_kernels_best()};
	struct gpt_model *m = noisy_model(&small, &o);
	struct gpt_decode *d = gpt_decode_create(m);
	int32_t *tokens = random_tokens(70, 9, 11);
	gpt_real a[11], b[11];

	for (int again = 0; again < 2; again++) {
		for (int t = 0; t < 9; t++) {
			gpt_decode_next(d, tokens[t], a);
			gpt_model_predict(m, tokens, t + 1, b);
			cr_assert(distance(a, b, 11) <= 1e-13, "after %d tokens", t + 1);
		}
		gpt_decode_reset(d);
	}
	free(tokens);
	gpt_decode_destroy(&d);
	gpt_model_destroy(&m);
}
