/*
 * How fast the GPT kernels are: each beside its floor, and whole training steps.
 *
 *   gpt_bench kernels [flags]	a line per kernel: its time, the floor, the ratio
 *   gpt_bench steps [flags]	a step for each line on stdin, its seconds on stdout
 *
 * The floor is the larger of arithmetic / peak and bytes / bandwidth, both measured here:
 * the peak as the fastest of some products, the bandwidth as that of copying memory that
 * no cache holds. `steps` runs alone with --threads, or under collrun, where the batch is
 * cut over the ranks and gradients are averaged by coll_ddp; lines on stdin let a driver
 * (gpt_peers.py) take turns with others. It measures; it judges nothing.
 */
#include "coll/ddp.h"
#include "gpt/blas.h"
#include "gpt/groups.h"
#include "gpt/optim.h"
#include "gpt/rng.h"
#include "gpt/shares.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bench {
	int batch, len, layers, width, heads, vocab, threads, times;
	struct gpt_model *model;
	double flops, bandwidth; /* per second, all threads */
	/* Of the kernels: rows x 4 width each. */
	float *x, *y, *z, *w, *small, *zeros;
	int32_t *tokens;
	struct gpt_groups groups;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *numbers(size_t n, double scale)
{
	float *x = aligned_alloc(64, (n * sizeof(*x) + 63) / 64 * 64);

	if (!x) {
		fprintf(stderr, "gpt_bench: no memory\n");
		exit(1);
	}
	for (size_t i = 0; i < n; i++)
		x[i] = (float)(scale * (gpt_uniform(1, i) - 0.5));
	return x;
}

/* ---- Kernels ------------------------------------------------------------- */

typedef void (*kernel_fn)(struct bench *b, struct gpt_device *dev);

struct task {
	struct bench *b;
	kernel_fn fn;
};

static void run_task(void *arg, int index)
{
	const struct task *t = arg;

	t->fn(t->b, gpt_model_device(t->b->model) + index);
}

static double best_of(struct bench *b, kernel_fn fn)
{
	struct task t = {b, fn};
	double best = 1e30;

	for (int i = 0; i <= b->times; i++) {
		const double start = now_s();

		gpt_team_run(gpt_model_team(b->model), run_task, &t);
		if (i && now_s() - start < best)
			best = now_s() - start;
	}
	return best;
}

static int rows(const struct bench *b)
{
	return b->batch * b->len;
}

static void up(struct bench *b, struct gpt_device *dev)
{
	const int c = b->width;

	gpt_do_gemm(dev, &(struct gpt_gemm){false, true, rows(b), 4 * c, c, 1, 0, b->x, b->w, b->y, c, c, 4 * c});
}

static void up_grad(struct bench *b, struct gpt_device *dev)
{
	const int c = b->width;

	gpt_do_gemm(dev, &(struct gpt_gemm){true, false, 4 * c, c, rows(b), 1, 1, b->y, b->x, b->w, 4 * c, c, c});
}

static void layernorm(struct bench *b, struct gpt_device *dev)
{
	gpt_do_layernorm(dev, b->y, b->z, b->small, b->small + rows(b), b->x, b->w, b->w, b->w, b->w, rows(b),
	                 b->width);
}

static void layernorm_grad(struct bench *b, struct gpt_device *dev)
{
	gpt_do_layernorm_grad(dev, b->z, b->w, b->w + b->width, b->y, b->x, b->small, b->small + rows(b), b->w, rows(b),
	                      b->width);
}

static void gelu(struct bench *b, struct gpt_device *dev)
{
	/* Its bias is added to what is read: x must not run away, to where results are too small to be normal. */
	gpt_do_gelu(dev, b->y, b->x, b->zeros, rows(b), 4 * b->width);
}

static void gelu_grad(struct bench *b, struct gpt_device *dev)
{
	gpt_do_gelu_grad(dev, b->y, b->x, rows(b), 4 * b->width);
}

static void bias_grad(struct bench *b, struct gpt_device *dev)
{
	gpt_do_bias_grad(dev, b->w, b->y, rows(b), 4 * b->width);
}

static struct gpt_attention attention_of(const struct bench *b)
{
	return (struct gpt_attention){.batch = b->batch,
	                              .len = b->len,
	                              .heads = b->heads,
	                              .head_width = b->width / b->heads,
	                              .qkv = b->x,
	                              .out = b->z,
	                              .lse = b->small};
}

static void attention(struct bench *b, struct gpt_device *dev)
{
	const struct gpt_attention a = attention_of(b);

	gpt_do_attention(dev, &a);
}

static void attention_grad(struct bench *b, struct gpt_device *dev)
{
	struct gpt_attention a = attention_of(b);

	a.dout = b->z;
	a.dqkv = b->y;
	gpt_do_attention_grad(dev, &a);
}

static void cross_entropy(struct bench *b, struct gpt_device *dev)
{
	gpt_do_cross_entropy(dev, b->w, b->small, b->tokens, rows(b) < 64 ? rows(b) : 64, b->vocab, 1e-3f, 0);
}

static void embed(struct bench *b, struct gpt_device *dev)
{
	gpt_do_embed(dev, b->y, b->w, b->x, b->tokens, rows(b), b->len, b->width);
}

static void token_grad(struct bench *b, struct gpt_device *dev)
{
	gpt_do_token_grad(dev, b->w, b->y, &b->groups, b->width);
}

static void dropout(struct bench *b, struct gpt_device *dev)
{
	const struct gpt_dropout d = {0.1, 1, 0};

	gpt_do_dropout(dev, b->y, b->x, (size_t)rows(b) * b->width, &d);
}

static void adamw(struct bench *b, struct gpt_device *dev)
{
	const size_t n = (size_t)b->width * b->width * 4;
	const struct gpt_share s = gpt_share(n, 16, dev->index, dev->count);
	const struct gpt_adamw a = {1e-9f, 0.9f, 0.99f, 1e-8f, 0.1f, 1, 1, 1};

	dev->k->adamw(dev, b->w + s.first, b->w + n + s.first, b->w + 2 * n + s.first, b->w + 3 * n + s.first, s.count,
	              &a);
	gpt_team_meet(dev->team);
}

static void copy(struct bench *b, struct gpt_device *dev)
{
	const size_t n = (size_t)b->width * b->vocab / 4;
	const struct gpt_share s = gpt_share(n, 16, dev->index, dev->count);

	memcpy(b->w + 2 * n + s.first, b->w + s.first, s.count * sizeof(float));
	gpt_team_meet(dev->team);
}

static void line(struct bench *b, const char *name, kernel_fn fn, double flops, double bytes)
{
	const double seconds = best_of(b, fn), floor = fmax(flops / b->flops, bytes / b->bandwidth);

	printf("%-16s %9.1f us   floor %9.1f us (%s)   %5.2f\n", name, 1e6 * seconds, 1e6 * floor,
	       flops / b->flops > bytes / b->bandwidth ? "arithmetic" : "memory", seconds / floor);
}

static void kernels(struct bench *b)
{
	const double r = rows(b), c = b->width, f = sizeof(float), n = 4 * c * c, t = b->len;

	b->bandwidth = 1;
	b->bandwidth = 2 * f * (double)((size_t)b->width * b->vocab / 4) / best_of(b, copy);
	b->flops = 2 * r * 4 * c * c / best_of(b, up);
	printf("%d x %d tokens, width %d, %d heads, vocabulary %d, %d threads, %s, BLAS %s: %.1f GF/s, %.1f GB/s\n",
	       b->batch, b->len, b->width, b->heads, b->vocab, b->threads, gpt_model_device(b->model)->k->name,
	       gpt_blas_core(), 1e-9 * b->flops, 1e-9 * b->bandwidth);
	printf("Memory floors are those of memory that no cache holds: less than 1 is a cache.\n");
	line(b, "product", up, 2 * r * n, 0);
	line(b, "product, dW", up_grad, 2 * r * n, 0);
	line(b, "layernorm+add", layernorm, 0, 4 * r * c * f);
	line(b, "layernorm, back", layernorm_grad, 0, 4 * r * c * f);
	line(b, "gelu", gelu, 0, 3 * 4 * r * c * f);
	line(b, "gelu, back", gelu_grad, 0, 3 * 4 * r * c * f);
	line(b, "bias, back", bias_grad, 0, 4 * r * c * f);
	line(b, "attention", attention, 2 * r * t * c, 4 * r * c * f);
	line(b, "attention, back", attention_grad, 5 * r * t * c, 8 * r * c * f);
	line(b, "cross entropy", cross_entropy, 0, 2 * fmin(r, 64) * b->vocab * f);
	line(b, "embedding", embed, 0, 3 * r * c * f);
	line(b, "embedding, back", token_grad, 0, 3 * r * c * f);
	line(b, "dropout", dropout, 0, 2 * r * c * f);
	line(b, "adamw", adamw, 0, 7 * n * f);
}

static void fill(struct bench *b)
{
	const size_t all = (size_t)rows(b) * b->width * 4, table = (size_t)b->vocab * b->width;
	const size_t most = table > 16 * (size_t)b->width * b->width ? table : 16 * (size_t)b->width * b->width;
	int32_t *memory = calloc(3 * (size_t)rows(b) + 1 + (size_t)b->vocab, sizeof(*memory));

	b->x = numbers(all, 1);
	b->y = numbers(all, 1);
	b->z = numbers(all, 1);
	b->w = numbers(most, 0.02);
	b->small = numbers((size_t)rows(b) * b->heads + 4 * b->width + 2 * (size_t)rows(b), 1);
	b->zeros = numbers(4 * (size_t)b->width, 0);
	b->groups = (struct gpt_groups){0, memory, memory + 2 * rows(b), memory + rows(b)};
	gpt_group_tokens(&b->groups, b->tokens, rows(b), b->vocab, memory + 3 * rows(b) + 1);
}

/* ---- Steps ---------------------------------------------------------------- */

struct stepper {
	struct bench *b;
	coll_comm *comm;
	coll_ddp *ddp;
	int tensor_count;
	float *weights, *lookup;
	struct gpt_optim *optim;
};

static void ready(void *arg, int tensor)
{
	coll_ddp_ready(((struct stepper *)arg)->ddp, tensor);
}

static void lookup(void *arg, const struct gpt_groups *g)
{
	struct stepper *s = arg;

	coll_ddp_rows(s->ddp, s->tensor_count - 1, g->id, g->count);
}

static void one_step(struct stepper *s)
{
	struct bench *b = s->b;
	const size_t n = coll_ddp_count(s->ddp);
	coll_ddp_bucket_info info;
	double sum = 0;

	gpt_model_zero_grads(b->model);
	coll_ddp_begin(s->ddp, 1);
	gpt_model_train(b->model, b->tokens, b->tokens + 1, b->batch, b->len, 1.0f / (float)rows(b));
	for (int i = 0; i < coll_ddp_bucket_count(s->ddp); i++) {
		coll_ddp_wait_bucket(s->ddp, i);
		coll_ddp_bucket(s->ddp, i, &info);
		sum += gpt_sum_squares(b->model, info.slice_grads, info.slice_count);
	}
	if (coll_ddp_wait(s->ddp) != COLL_OK) {
		fprintf(stderr, "gpt_bench: %s\n", coll_ddp_last_error(s->ddp));
		exit(1);
	}
	if (gpt_optim_begin(s->optim, sqrt(sum)))
		gpt_optim_apply(s->optim, b->model, 0, n, gpt_model_grads(b->model));
}

static void open_steps(struct stepper *s, const struct gpt_shape *shape)
{
	struct gpt_optim_config config = GPT_OPTIM_CONFIG_INIT;
	struct gpt_tensor *t = gpt_shape_tensors(shape, &s->tensor_count);
	coll_ddp_param *p = calloc((size_t)s->tensor_count, sizeof(*p));
	struct gpt_model_options o = {
	        .max_batch = s->b->batch, .kernels = gpt_kernels_best(), .threads = s->b->threads};

	s->weights = numbers(gpt_param_count(shape), 0);
	s->lookup = calloc((size_t)shape->vocab * shape->width, sizeof(*s->lookup));
	for (int i = 0; i < s->tensor_count; i++)
		p[i] = (coll_ddp_param){t[i].name, 2,   {t[i].rows, t[i].count / t[i].rows}, s->weights + t[i].offset,
		                        0,         NULL};
	p[s->tensor_count - 1].lookup = s->lookup;
	if (coll_comm_create(&s->comm, NULL) || coll_ddp_create(&s->ddp, p, s->tensor_count, NULL, s->comm)) {
		fprintf(stderr, "gpt_bench: %s\n", coll_last_error(s->comm)->message);
		exit(1);
	}
	o.grads = coll_ddp_grads(s->ddp);
	o.weights = s->weights;
	o.lookup = s->lookup;
	o.hooks = (struct gpt_hooks){s, NULL, ready, lookup};
	gpt_model_destroy(&s->b->model);
	s->b->model = gpt_model_open(shape, &o);
	gpt_model_init(s->b->model, 1);
	s->optim = gpt_optim_create(s->b->model, &config);
	free(p);
	free(t);
}

/* A step for each line on rank 0's stdin; its seconds there. */
static void steps(struct bench *b, const struct gpt_shape *shape)
{
	struct stepper s = {.b = b};
	int32_t more = 1;
	char text[16];

	open_steps(&s, shape);
	for (;;) {
		double start;

		if (coll_comm_rank(s.comm) == 0)
			more = fgets(text, sizeof(text), stdin) != NULL;
		coll_broadcast(&more, &more, 1, COLL_I32, 0, s.comm, NULL);
		if (!more)
			break;
		start = now_s();
		one_step(&s);
		if (coll_comm_rank(s.comm) == 0) {
			printf("%.6f\n", now_s() - start);
			fflush(stdout);
		}
	}
	gpt_optim_destroy(&s.optim);
	coll_ddp_destroy(&s.ddp);
	coll_comm_destroy(&s.comm);
	free(s.weights);
	free(s.lookup);
}

static int *flag(struct bench *b, const char *name)
{
	const struct {
		const char *name;
		int *at;
	} all[] = {{"--batch", &b->batch}, {"--len", &b->len},     {"--layers", &b->layers},   {"--width", &b->width},
	           {"--heads", &b->heads}, {"--vocab", &b->vocab}, {"--threads", &b->threads}, {"--times", &b->times}};

	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		if (!strcmp(all[i].name, name))
			return all[i].at;
	return NULL;
}

int main(int argc, char **argv)
{
	struct bench b = {4, 64, 12, 768, 12, 50257, 1, 20};
	struct gpt_shape shape;
	bool stepping;

	gpt_blas_start(argv);
	stepping = argc > 1 && !strcmp(argv[1], "steps");
	for (int i = 2; i < argc; i += 2) {
		int *at = flag(&b, argv[i]);

		if (!at || i + 1 == argc || (*at = (int)strtol(argv[i + 1], NULL, 10)) < 1) {
			fprintf(stderr, "gpt_bench: what is %s?\n", argv[i]);
			return 2;
		}
	}
	if (argc < 2 || (!stepping && strcmp(argv[1], "kernels") != 0)) {
		fprintf(stderr,
		        "usage: gpt_bench kernels|steps [--batch N] [--len N] [--layers N] [--width N] [--heads N] "
		        "[--vocab N] [--threads N] [--times N]\n");
		return 2;
	}
	shape = (struct gpt_shape){stepping ? b.vocab : 2, b.len, stepping ? b.layers : 1, b.heads, b.width};
	b.tokens = calloc((size_t)b.batch * b.len + 1, sizeof(*b.tokens));
	for (int i = 0; i <= b.batch * b.len; i++)
		b.tokens[i] = (int32_t)(gpt_random(3, (uint64_t)i) % (uint64_t)b.vocab);
	if (stepping) {
		steps(&b, &shape);
	} else {
		b.model = gpt_model_open(&shape, &(struct gpt_model_options){.max_batch = 1,
		                                                             .kernels = gpt_kernels_best(),
		                                                             .threads = b.threads});
		fill(&b);
		kernels(&b);
		free(b.groups.id);
		free(b.x);
		free(b.y);
		free(b.z);
		free(b.w);
		free(b.small);
		free(b.zeros);
	}
	gpt_model_destroy(&b.model);
	free(b.tokens);
	return 0;
}
