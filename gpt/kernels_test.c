/*
 * Every level's kernels against the plain loops, in float: odd widths, one
 * token, lengths that are no multiple of a block. And all levels against each
 * other, bit for bit.
 */
#include "gpt/groups.h"
#include "gpt/test_util.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define NEAR 3e-6

struct dims {
	int batch, len, heads, head_width, vocab;
};

static const struct dims cases[] = {{1, 1, 1, 1, 2},    {2, 3, 1, 5, 7},    {1, 1, 3, 7, 31},    {3, 17, 2, 16, 97},
                                    {2, 64, 4, 32, 64}, {1, 65, 2, 8, 256}, {2, 131, 3, 13, 19}, {1, 200, 1, 64, 300}};

/* What a run of all kernels leaves behind: compared array by array. */
#define ARRAYS 26
struct results {
	gpt_real *data[ARRAYS];
	size_t count[ARRAYS];
	const char *name[ARRAYS];
	int n;
	double norm2;
};

static gpt_real *keep(struct results *r, const char *name, uint64_t stream, size_t count)
{
	cr_assert_lt(r->n, ARRAYS);
	r->name[r->n] = name;
	r->count[r->n] = count;
	/* Random contents: kernels that add must add, others must overwrite. */
	r->data[r->n] = random_array(stream, count, 1);
	return r->data[r->n++];
}

static void run_embed_grad(const struct gpt_kernels *k, struct gpt_device *dev, const struct dims *d,
                           const int32_t *tokens, const gpt_real *dout, gpt_real *dwte, gpt_real *dwpe)
{
	const int c = d->heads * d->head_width, rows = d->batch * d->len;
	int32_t *memory = malloc((3 * (size_t)rows + 1 + d->vocab) * sizeof(*memory));
	struct gpt_groups g = {0, memory, memory + 2 * rows, memory + rows};

	gpt_group_tokens(&g, tokens, rows, d->vocab, memory + 3 * rows + 1);
	k->token_grad(dev, dwte, dout, &g, 0, g.count / 2, c);
	k->token_grad(dev, dwte, dout, &g, g.count / 2, g.count - g.count / 2, c);
	k->place_grad(dev, dwpe, dout, d->batch, d->len, 0, d->len / 2, c);
	k->place_grad(dev, dwpe, dout, d->batch, d->len, d->len / 2, d->len - d->len / 2, c);
	free(memory);
}

/* Kernels that sum over rows, in two parts of the columns. */
static void run_columns(const struct gpt_kernels *k, struct gpt_device *dev, const struct dims *d, const gpt_real *dout,
                        const gpt_real *sum, const gpt_real *mean, const gpt_real *rstd, struct results *out)
{
	const int c = d->heads * d->head_width, rows = d->batch * d->len, cut = c > 16 ? 16 : 0;
	gpt_real *dgain = keep(out, "dgain", 21, c), *dbias = keep(out, "dbias", 22, c);
	gpt_real *sums = keep(out, "bias_grad", 23, c);

	k->gain_grad(dev, dgain, dbias, dout, sum, mean, rstd, rows, c, 0, cut);
	k->gain_grad(dev, dgain, dbias, dout, sum, mean, rstd, rows, c, cut, c - cut);
	k->bias_grad(dev, sums, dout, rows, c, 0, cut);
	k->bias_grad(dev, sums, dout, rows, c, cut, c - cut);
}

static void run_rows(const struct gpt_kernels *k, struct gpt_device *dev, const struct dims *d, struct results *out)
{
	const int c = d->heads * d->head_width, rows = d->batch * d->len;
	const size_t all = (size_t)rows * c;
	int32_t *tokens = random_tokens(1, rows, d->vocab);
	gpt_real *wte = random_array(2, (size_t)d->vocab * c, 1), *wpe = random_array(3, (size_t)d->len * c, 1);
	gpt_real *dout = random_array(4, all, 1), *delta = random_array(5, all, 1), *bias = random_array(6, c, 1);
	gpt_real *gain = random_array(7, c, 1), *shift = random_array(8, c, 1);
	gpt_real *x = keep(out, "embed", 9, all), *sum = keep(out, "layernorm sum", 10, all);
	gpt_real *norm = keep(out, "layernorm", 11, all), *mean = keep(out, "mean", 12, rows);
	gpt_real *rstd = keep(out, "rstd", 13, rows);
	gpt_real *wide = keep(out, "bias_add, gelu x", 14, all), *act = keep(out, "gelu", 15, all);
	gpt_real *loss = keep(out, "loss", 16, rows), *logits = keep(out, "dlogits", 17, (size_t)rows * d->vocab);

	/* In two parts, as two threads would. */
	k->embed(dev, x, wte, wpe, tokens, 0, rows / 2, d->len, c);
	k->embed(dev, x, wte, wpe, tokens, rows / 2, rows - rows / 2, d->len, c);
	run_embed_grad(k, dev, d, tokens, dout, keep(out, "dwte", 18, (size_t)d->vocab * c),
	               keep(out, "dwpe", 19, (size_t)d->len * c));
	k->layernorm(dev, norm, NULL, mean, rstd, x, NULL, NULL, gain, shift, rows, c);
	k->layernorm(dev, norm, sum, mean, rstd, x, delta, bias, gain, shift, rows, c);
	k->layernorm_grad(dev, keep(out, "layernorm dx", 20, all), dout, sum, mean, rstd, gain, rows, c);
	run_columns(k, dev, d, dout, sum, mean, rstd, out);
	k->bias_add(dev, wide, shift, rows, c);
	k->dropout(dev, keep(out, "dropout", 25, all), dout, all, &(struct gpt_dropout){0.3, 12345, (1ull << 32) - 7});
	k->gelu(dev, act, wide, bias, rows, c);
	k->gelu_grad(dev, keep(out, "gelu_grad", 24, all), wide, rows, c);
	k->cross_entropy(dev, logits, loss, tokens, rows, d->vocab, 0.25f, 0);
	tokens[rows / 2] = -1;
	k->cross_entropy(dev, keep(out, "smooth dlogits", 26, (size_t)rows * d->vocab),
	                 keep(out, "smooth loss", 27, rows), tokens, rows, d->vocab, 0.25f, 0.1f);
	out->norm2 = k->sum_squares(dev, dout, all);
	free(tokens);
	free(wte);
	free(wpe);
	free(dout);
	free(delta);
	free(bias);
	free(gain);
	free(shift);
}

static void run_attention(const struct gpt_kernels *k, struct gpt_device *dev, const struct dims *d,
                          struct results *out)
{
	const size_t c = (size_t)d->heads * d->head_width, rows = (size_t)d->batch * d->len;
	gpt_real *qkv = random_array(30, 3 * rows * c, 1), *dout = random_array(31, rows * c, 1);
	struct gpt_attention a = {.batch = d->batch, .len = d->len, .heads = d->heads, .head_width = d->head_width};
	const int all = d->batch * d->heads;

	a.qkv = qkv;
	a.dout = dout;
	a.out = keep(out, "attention", 32, rows * c);
	a.lse = keep(out, "lse", 33, rows * d->heads);
	a.dqkv = keep(out, "dqkv", 34, 3 * rows * c);
	for (int part = 0; part < 2; part++) {
		a.first_pair = part ? all / 2 : 0;
		a.pairs = part ? all - all / 2 : all / 2;
		k->attention(dev, &a);
		k->attention_grad(dev, &a);
	}
	free(qkv);
	free(dout);
}

static void run_adamw(const struct gpt_kernels *k, struct gpt_device *dev, struct results *out)
{
	const size_t n = 1009;
	gpt_real *p = keep(out, "weights", 40, n), *m = keep(out, "adam m", 41, n), *v = keep(out, "adam v", 42, n);
	gpt_real *g = random_array(43, n, 1);

	for (size_t i = 0; i < n; i++)
		v[i] *= v[i];
	k->adamw(dev, p, m, v, g, n, &(struct gpt_adamw){1e-2f, 0.9f, 0.99f, 1e-8f, 0.1f, 2.5f, 9.5f, 0.75f});
	free(g);
}

static void run_all(const struct gpt_kernels *k, const struct dims *d, struct results *out)
{
	struct gpt_device dev = {.k = k};

	memset(out, 0, sizeof(*out));
	dev.work_count = k->work_count(d->len, d->head_width, d->heads * d->head_width);
	/* Garbage in scratch must not matter: NaN would show. */
	dev.work = malloc(dev.work_count * sizeof(gpt_real));
	memset(dev.work, 0xff, dev.work_count * sizeof(gpt_real));
	run_rows(k, &dev, d, out);
	run_attention(k, &dev, d, out);
	run_adamw(k, &dev, out);
	free(dev.work);
}

static void drop(struct results *r)
{
	for (int i = 0; i < r->n; i++)
		free(r->data[i]);
}

Test(kernels, every_level_equals_plain_loops)
{
	static const char *const levels[] = {"base", "avx2", "avx512"};

	for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
		struct results want, first = {0};

		run_all(&gpt_kernels_scalar, &cases[c], &want);
		for (int l = 0; l < 3; l++) {
			const struct gpt_kernels *k = gpt_kernels_by_name(levels[l]);
			struct results got;

			if (!k)
				continue;
			run_all(k, &cases[c], &got);
			cr_assert_eq(got.n, want.n);
			for (int i = 0; i < got.n; i++) {
				double off = distance(got.data[i], want.data[i], got.count[i]);

				cr_assert(off <= NEAR, "case %zu, %s, %s: off by %g", c, k->name, got.name[i], off);
			}
			cr_assert_float_eq(got.norm2, want.norm2, 1e-9 * want.norm2);
			if (!first.n) {
				first = got;
				continue;
			}
			for (int i = 0; i < got.n; i++)
				cr_assert(!memcmp(got.data[i], first.data[i], got.count[i] * sizeof(gpt_real)),
				          "case %zu: %s differs between %s and %s", c, got.name[i], levels[0], k->name);
			cr_assert_eq(got.norm2, first.norm2);
			drop(&got);
		}
		drop(&first);
		drop(&want);
	}
}

Test(kernels, gemm_equals_plain_loops)
{
	static const int sizes[][3] = {{1, 1, 1}, {2, 3, 5}, {17, 19, 23}, {64, 32, 64}, {1, 97, 128}};

	for (int s = 0; s < 5; s++)
		for (int form = 0; form < 8; form++) {
			const int m = sizes[s][0], n = sizes[s][1], k = sizes[s][2], pad = 3;
			const bool ta = form & 1, tb = form & 2;
			gpt_real *a = random_array(1, (size_t)(m + pad) * (k + pad), 1);
			gpt_real *b = random_array(2, (size_t)(k + pad) * (n + pad), 1);
			gpt_real *x = random_array(3, (size_t)m * (n + pad), 1);
			gpt_real *y = random_array(3, (size_t)m * (n + pad), 1);
			struct gpt_gemm g = {ta, tb, m, n, k, 0.5f, form & 4 ? 1 : 0, a, b, x};
			struct gpt_device dev = {0};

			g.lda = (ta ? m : k) + pad;
			g.ldb = (tb ? k : n) + pad;
			g.ldc = n + pad;
			gpt_kernels_best()->gemm(&dev, &g);
			g.c = y;
			gpt_kernels_scalar.gemm(&dev, &g);
			cr_assert(distance(x, y, (size_t)m * (n + pad)) <= NEAR, "%d x %d x %d, form %d", m, n, k,
			          form);
			free(a);
			free(b);
			free(x);
			free(y);
		}
}

/* The largest logits float can hold in a model gone wrong must not give NaN. */
Test(kernels, cross_entropy_of_huge_logits)
{
	gpt_real x[3] = {3e38f, -3e38f, 1e38f}, loss;
	int32_t target = 1;
	struct gpt_device dev = {0};

	gpt_kernels_best()->cross_entropy(&dev, x, &loss, &target, 1, 3, 1, 0);
	cr_assert_eq(x[0], 1);
	cr_assert_eq(x[1], -1);
	cr_assert_eq(x[2], 0);
	cr_assert(loss > 1e38f);
}
