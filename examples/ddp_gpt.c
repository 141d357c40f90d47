/*
 * Train a small GPT on a text, on as many ranks as the launcher started.
 *
 *     collrun -n 2 ddp_gpt --steps 300
 *
 * What makes it data-parallel, in the order in which it happens:
 *
 *  1. every rank builds the same model; rank 0's weights are broadcast, and a
 *     checksum proves that all ranks hold the same bits;
 *  2. each step has one global batch, the same for any number of ranks; a rank
 *     takes its share of the sequences and computes gradients on them;
 *  3. gradients are averaged over the ranks with coll_all_reduce, in place, in
 *     slices of one contiguous arena;
 *  4. every rank makes the same update: the weights stay equal without being
 *     sent again.
 *
 * Rank 0 alone reads the text, prints, and writes files.
 */
#include "coll/coll.h"
#include "ddp_gpt_options.h"
#include "ddp_gpt_text.h"
#include "gpt/blas.h"
#include "gpt/checkpoint.h"
#include "gpt/generate.h"
#include "gpt/model.h"
#include "gpt/optim.h"
#include "gpt/sampler.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

/* Gradients travel in slices of this many numbers: large enough to run at full
 * bandwidth, small enough that a slice is still in the cache. */
#define BUCKET_COUNT (1 << 18)

struct job {
	struct options o;
	coll_comm *comm;
	int rank, size;

	struct gpt_tokenizer tokenizer;
	int32_t *tokens; /* the whole text */
	size_t train_count, val_count;

	struct gpt_model *model;
	struct gpt_optim *optim;
	struct gpt_sampler sampler;
	size_t param_count;
	float *grads;              /* library memory: the fastest to reduce */
	int local_batch;           /* sequences per step on this rank */
	int32_t *inputs, *targets; /* local_batch * context */

	FILE *metrics;
	double comm_s;     /* in all-reduce since the last progress line */
	double last_log_s; /* when that was */
	int last_log_step;
	double first_loss, loss, val_loss, train_s;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Failing ---------------------------------------------------------- */

/* What every rank knows is said once. */
__attribute__((format(printf, 2, 3))) static int refuse(const struct job *j, const char *format, ...)
{
	va_list args;

	if (j->rank)
		return -1;
	va_start(args, format);
	fprintf(stderr, "ddp_gpt: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	return -1;
}

/* Pass on whether a call worked; the first failure is told in full. */
static int check(const struct job *j, coll_status status)
{
	if (status == COLL_OK)
		return 0;
	fprintf(stderr, "ddp_gpt: rank %d: %s: %s\n", j->rank, coll_status_string(status),
	        coll_last_error(j->comm)->message);
	return -1;
}

/* Do all ranks hold the same number? One all-reduce of {x, not x} finds the
 * least and the greatest at once. */
static int check_same(const struct job *j, uint64_t x, const char *what)
{
	uint64_t both[2] = {x, ~x};

	if (check(j, coll_all_reduce(both, both, 2, COLL_U64, COLL_MIN, j->comm, NULL)))
		return -1;
	return both[0] == ~both[1] ? 0 : refuse(j, "%s differ between ranks", what);
}

/* ---- Preparing -------------------------------------------------------- */

/* Rank 0 reads; the length goes out first, and 0 tells everybody to give up. */
static int load_text(struct job *j, uint8_t **text, size_t *len_bytes)
{
	uint64_t len = 0;

	*text = NULL;
	if (j->rank == 0 && text_read(j->o.data, text, len_bytes) == 0)
		len = *len_bytes;
	if (check(j, coll_broadcast(&len, &len, 1, COLL_U64, 0, j->comm, NULL)) || len == 0)
		return -1;
	*len_bytes = len;
	if (j->rank && !(*text = malloc(len))) {
		fprintf(stderr, "ddp_gpt: rank %d: no memory for %zu bytes of text\n", j->rank, (size_t)len);
		coll_comm_abort(j->comm, "out of memory");
		return -1;
	}
	return check(j, coll_broadcast(*text, *text, len, COLL_U8, 0, j->comm, NULL));
}

/* The last tenth is for validation. */
static int split_text(struct job *j, size_t count)
{
	const size_t least = (size_t)j->o.context + 1;

	j->train_count = count - count / 10;
	j->val_count = count / 10;
	if (j->val_count >= least)
		return 0;
	return refuse(j, "the text has %zu bytes; a tenth of it must hold --context %ld plus one: at least %zu bytes",
	              count, j->o.context, 10 * least);
}

static int prepare_text(struct job *j)
{
	uint8_t *text;
	size_t len_bytes = 0;
	int rc = load_text(j, &text, &len_bytes);

	if (!rc)
		rc = split_text(j, len_bytes);
	if (!rc) {
		gpt_tokenizer_init(&j->tokenizer, j->o.vocab, text, len_bytes);
		j->tokens = malloc(len_bytes * sizeof(*j->tokens));
		if (j->tokens)
			gpt_tokenizer_encode(&j->tokenizer, text, len_bytes, j->tokens);
		if (j->tokenizer.size < 2)
			rc = refuse(j, "the text is one byte repeated: nothing to learn");
	}
	free(text);
	return rc;
}

static int split_batch(struct job *j)
{
	if (j->o.batch % j->size)
		return refuse(j, "--batch %ld does not divide by %d ranks", j->o.batch, j->size);
	j->local_batch = (int)(j->o.batch / j->size);
	return 0;
}

static struct gpt_optim_config optim_config(const struct options *o)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;

	c.lr = o->lr;
	c.weight_decay = o->weight_decay;
	c.clip = o->clip;
	c.total_steps = (int)o->steps;
	/* A short run still gets to its full rate. */
	c.warmup_steps = (int)(o->warmup < o->steps / 5 ? o->warmup : o->steps / 5);
	return c;
}

/* Memory may run out on one rank alone: all ranks hear of it. */
static int check_memory(struct job *j, bool have)
{
	int32_t all = have;

	if (check(j, coll_all_reduce(&all, &all, 1, COLL_I32, COLL_MIN, j->comm, NULL)))
		return -1;
	return all ? 0 : refuse(j, "not enough memory on some rank");
}

static int prepare_model(struct job *j)
{
	const struct gpt_shape shape = {j->tokenizer.size, (int)j->o.context, (int)j->o.layers, (int)j->o.heads,
	                                (int)j->o.width};
	const struct gpt_optim_config config = optim_config(&j->o);
	const size_t batch_tokens = (size_t)j->local_batch * j->o.context;
	void *grads = NULL;

	j->param_count = gpt_param_count(&shape);
	if (check(j, coll_mem_alloc(j->comm, &grads, j->param_count * sizeof(float))))
		return -1;
	j->grads = grads;
	j->inputs = malloc(batch_tokens * sizeof(*j->inputs));
	j->targets = malloc(batch_tokens * sizeof(*j->targets));
	j->model = gpt_model_create(&shape, j->local_batch, gpt_kernels_best(), j->grads);
	j->optim = j->model ? gpt_optim_create(j->model, &config) : NULL;
	if (check_memory(j, j->inputs && j->targets && j->tokens && j->optim))
		return -1;
	gpt_model_init(j->model, (uint64_t)j->o.seed);
	gpt_sampler_init(&j->sampler, (uint64_t)j->o.seed, j->train_count, (int)j->o.context);
	return 0;
}

static int check_weights(struct job *j)
{
	return check_same(j, gpt_checksum(0, gpt_model_params(j->model), j->param_count * sizeof(float)),
	                  "the weights");
}

static int share_weights(struct job *j)
{
	float *w = gpt_model_params(j->model);

	if (check(j, coll_broadcast(w, w, j->param_count, COLL_F32, 0, j->comm, NULL)))
		return -1;
	return check_weights(j);
}

/* One rank writes; all must know whether it can. */
static int open_metrics(struct job *j)
{
	int32_t ok = 1;

	if (j->rank == 0 && j->o.out) {
		char path[4096];

		snprintf(path, sizeof(path), "%s/metrics.jsonl", j->o.out);
		if (mkdir(j->o.out, 0777) == 0 || errno == EEXIST)
			j->metrics = fopen(path, "we");
		ok = j->metrics != NULL;
		if (!ok)
			fprintf(stderr, "ddp_gpt: cannot write %s: %s\n", path, strerror(errno));
	}
	if (check(j, coll_broadcast(&ok, &ok, 1, COLL_I32, 0, j->comm, NULL)))
		return -1;
	return ok ? 0 : -1;
}

static void print_start(const struct job *j)
{
	if (j->rank)
		return;
	printf("ddp_gpt: %d rank%s, %zu weights (%ld layers, width %ld, %ld heads, context %ld), vocabulary %d\n",
	       j->size, j->size > 1 ? "s" : "", j->param_count, j->o.layers, j->o.width, j->o.heads, j->o.context,
	       j->tokenizer.size);
	printf("ddp_gpt: %zu tokens to train on, %zu to validate; %ld tokens per step, %ld steps; kernels %s, BLAS "
	       "%s\n",
	       j->train_count, j->val_count, j->o.batch * j->o.context, j->o.steps, gpt_model_device(j->model)->k->name,
	       gpt_blas_core());
}

/* ---- Training --------------------------------------------------------- */

static void copy_window(struct job *j, int place, size_t start)
{
	const size_t len = (size_t)j->o.context;

	memcpy(j->inputs + place * len, j->tokens + start, len * sizeof(*j->tokens));
	memcpy(j->targets + place * len, j->tokens + start + 1, len * sizeof(*j->tokens));
}

/* This rank's sequences of the global batch of a step. */
static void load_batch(struct job *j, long step)
{
	const uint64_t first = (uint64_t)step * j->o.batch + (uint64_t)j->rank * j->local_batch;

	for (int i = 0; i < j->local_batch; i++)
		copy_window(j, i, gpt_sampler_start(&j->sampler, first + i));
}

/* From the end of the arena, where backward finishes first, to its start. */
static int average_grads(struct job *j)
{
	const double start = now_s();
	int rc = 0;

	for (size_t end = j->param_count; end > 0 && !rc;) {
		const size_t count = end < BUCKET_COUNT ? end : BUCKET_COUNT;
		float *g = j->grads + end - count;

		rc = check(j, coll_all_reduce(g, g, count, COLL_F32, COLL_AVG, j->comm, NULL));
		end -= count;
	}
	j->comm_s += now_s() - start;
	return rc;
}

/* Mean over all ranks of a sum over count things on this one. */
static int mean_over_ranks(struct job *j, double sum, double count, double *mean)
{
	double both[2] = {sum, count};

	if (check(j, coll_all_reduce(both, both, 2, COLL_F64, COLL_SUM, j->comm, NULL)))
		return -1;
	*mean = both[0] / both[1];
	return 0;
}

/* Every window of the validation text exactly once, whatever the number of ranks. */
static int validate(struct job *j)
{
	const int len = (int)j->o.context;
	const size_t windows = gpt_sampler_val_windows(j->val_count, len);
	double sum = 0, count = 0;

	for (size_t w = (size_t)j->rank; w < windows;) {
		int n = 0;

		for (; n < j->local_batch && w < windows; n++, w += (size_t)j->size)
			copy_window(j, n, j->train_count + w * (size_t)len);
		sum += gpt_model_loss(j->model, j->inputs, j->targets, n, len);
		count += (double)n * len;
	}
	if (mean_over_ranks(j, sum, count, &j->val_loss))
		return -1;
	/* Replicas that drifted apart would go unnoticed in the loss. */
	return check_weights(j);
}

static void report(struct job *j, long step, bool validated, double norm, double rate)
{
	const double now = now_s(), elapsed = now - j->last_log_s;
	const double steps = (double)(step - j->last_log_step), share = j->comm_s / elapsed;
	const double speed = steps * (double)(j->o.batch * j->o.context) / elapsed;
	char val[32] = "";

	if (validated)
		snprintf(val, sizeof(val), "  val_loss %.4f", j->val_loss);
	if (j->rank == 0)
		printf("step %5ld/%ld  loss %.4f%s  norm %.2f  %.0f tokens/s  %.1f ms/step  comm %.1f %%\n", step,
		       j->o.steps, j->loss, val, norm, speed, 1e3 * elapsed / steps, 100 * share);
	if (j->metrics) {
		fprintf(j->metrics, "{\"step\":%ld,\"loss\":%.6f,", step, j->loss);
		if (validated)
			fprintf(j->metrics, "\"val_loss\":%.6f,", j->val_loss);
		fprintf(j->metrics,
		        "\"lr\":%.6g,\"grad_norm\":%.6g,\"tokens_per_s\":%.1f,\"ms_per_step\":%.3f,\"comm_share\":%.4f}"
		        "\n",
		        rate, norm, speed, 1e3 * elapsed / steps, share);
		fflush(j->metrics);
	}
	j->comm_s = 0;
	j->last_log_step = (int)step;
}

/* One step; *norm is the averaged gradient's. */
static int train_step(struct job *j, long step, double *loss_sum, double *norm)
{
	const int len = (int)j->o.context;

	load_batch(j, step);
	gpt_model_zero_grads(j->model);
	*loss_sum = gpt_model_train(j->model, j->inputs, j->targets, j->local_batch, len,
	                            1.0f / (float)(j->local_batch * len));
	if (average_grads(j))
		return -1;
	*norm = gpt_optim_step(j->optim, j->model);
	if (isfinite(*norm))
		return 0;
	return refuse(j, "step %ld: the gradient is not finite; try a smaller --lr", step + 1);
}

static int train(struct job *j)
{
	const struct gpt_optim_config config = optim_config(&j->o);
	const double start = now_s();

	j->last_log_s = start;
	for (long step = 0; step < j->o.steps; step++) {
		const bool last = step + 1 == j->o.steps;
		const bool validating = last || (j->o.val_every && (step + 1) % j->o.val_every == 0);
		double sum, norm;

		if (train_step(j, step, &sum, &norm))
			return -1;
		if (step > 0 && !validating && (step + 1) % j->o.log_every)
			continue;
		if (mean_over_ranks(j, sum, (double)j->local_batch * (double)j->o.context, &j->loss))
			return -1;
		if (step == 0)
			j->first_loss = j->loss;
		/* Validation is left out of the speed that is printed. */
		const double before = now_s();

		if (validating && validate(j))
			return -1;
		j->last_log_s += now_s() - before;
		report(j, step + 1, validating, norm, gpt_optim_rate(&config, (int)step));
		j->last_log_s = now_s();
	}
	j->train_s = now_s() - start;
	return 0;
}

/* ---- Ending ----------------------------------------------------------- */

static int save(struct job *j)
{
	char path[4096];

	if (j->rank || !j->o.out)
		return 0;
	snprintf(path, sizeof(path), "%s/model.ckpt", j->o.out);
	if (gpt_checkpoint_write(path, j->model, &j->tokenizer, (uint64_t)j->o.steps) == 0)
		return 0;
	fprintf(stderr, "ddp_gpt: cannot write %s: %s\n", path, strerror(errno));
	return -1;
}

static void print_byte(void *arg, uint8_t byte)
{
	putchar(byte);
}

static int print_sample(struct job *j)
{
	const struct gpt_generate g = {(int)j->o.sample_len, j->o.temperature, (int)j->o.top_k, (uint64_t)j->o.seed};

	printf("---- sample: %ld bytes, temperature %g, top-k %ld ----\n%s", j->o.sample_len, j->o.temperature,
	       j->o.top_k, j->o.prompt);
	if (gpt_generate(j->model, &j->tokenizer, &g, j->o.prompt, print_byte, NULL))
		return refuse(j, "no memory for the sample");
	printf("\n");
	return 0;
}

static int run(struct job *j)
{
	if (split_batch(j) || check_same(j, options_signature(&j->o), "the options"))
		return -1;
	if (prepare_text(j) || prepare_model(j) || share_weights(j) || open_metrics(j))
		return -1;
	print_start(j);
	if (train(j) || save(j))
		return -1;
	if (j->rank == 0)
		printf("loss %.4f -> %.4f in %.1f s\nfinal val_loss=%.4f\n", j->first_loss, j->loss, j->train_s,
		       j->val_loss);
	return 0;
}

/* Ending together, before rank 0 alone writes its sample: nobody waits for it. */
static int leave(struct job *j)
{
	int rc = 0;

	if (j->comm) {
		coll_mem_free(j->comm, j->grads);
		j->grads = NULL;
		rc = coll_comm_destroy(&j->comm) != COLL_OK;
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct job j = {0};
	int rc;

	gpt_blas_start(argv);
	if (options_parse(&j.o, argc, argv))
		return 2;
	if (j.o.help) {
		options_print_help();
		return 0;
	}
	if (coll_comm_create(&j.comm, NULL) != COLL_OK) {
		fprintf(stderr, "ddp_gpt: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	j.rank = coll_comm_rank(j.comm);
	j.size = coll_comm_size(j.comm);
	setvbuf(stdout, NULL, _IOLBF, 0);
	rc = run(&j);
	rc = leave(&j) || rc;
	if (!rc && j.rank == 0 && !j.o.no_sample)
		rc = print_sample(&j);
	if (j.metrics)
		fclose(j.metrics);
	gpt_optim_destroy(&j.optim);
	gpt_model_destroy(&j.model);
	free(j.tokens);
	free(j.inputs);
	free(j.targets);
	return rc ? 1 : 0;
}
