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
 *  3. gradients are averaged over the ranks by coll_ddp (coll/ddp.h) while the
 *     backward pass computes the next ones (ddp_gpt_train.c);
 *  4. every rank makes the same update, or, with --zero, that of its slice: the
 *     weights stay equal.
 *
 * Rank 0 alone reads the text, prints, and writes files. What ends a run early is a fact that
 * all ranks have, and each says it (docs/design/ddp.md). This file prepares and ends.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_job.h"
#include "ddp_gpt_out.h"
#include "ddp_gpt_tokens.h"
#include "gpt/blas.h"
#include "gpt/checkpoint.h"
#include "gpt/formats/hf.h"
#include "gpt/generate.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double job_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- Failing ---------------------------------------------------------- */

static void say(const struct job *j, const char *format, va_list args)
{
	char text[sizeof(j->problem)];

	vsnprintf(text, sizeof(text), format, args);
	fprintf(stderr, "ddp_gpt: rank %d: %s\n", j->rank, text);
}

int job_refuse(const struct job *j, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(j, format, args);
	va_end(args);
	return -1;
}

int job_note(struct job *j, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(j, format, args);
	va_end(args);
	if (j->problem[0])
		return -1;
	va_start(args, format);
	vsnprintf(j->problem, sizeof(j->problem), format, args);
	va_end(args);
	return -1;
}

int job_agree(struct job *j)
{
	int32_t first = j->problem[0] ? j->rank : j->size;
	char text[sizeof(j->problem)];

	if (job_check(j, coll_all_reduce(&first, &first, 1, COLL_I32, COLL_MIN, j->comm, NULL)))
		return -1;
	if (first == j->size)
		return 0;
	memcpy(text, j->problem, sizeof(text));
	if (job_check(j, coll_broadcast(text, text, sizeof(text), COLL_U8, first, j->comm, NULL)))
		return -1;
	return j->problem[0] ? -1 : job_refuse(j, "rank %d ended the run: %s", first, text);
}

/* Wherever the others wait. */
static void end_others(struct job *j, const char *reason)
{
	coll_comm_abort(j->comm, reason);
	coll_ddp_abort(j->ddp, reason);
}

int job_abort(struct job *j, const char *format, ...)
{
	char reason[sizeof(j->problem)];
	va_list args;

	va_start(args, format);
	vsnprintf(reason, sizeof(reason), format, args);
	va_end(args);
	end_others(j, reason);
	return job_refuse(j, "%s", reason);
}

/* The library has told all ranks of a death or an abort, which concern all communicators. What
 * else a call fails for may be this rank's alone, or known on one communicator only. */
static int check(struct job *j, coll_status status, const char *story)
{
	if (status == COLL_OK)
		return 0;
	if (status == COLL_ERR_PEER_DEAD || status == COLL_ERR_ABORTED)
		return job_refuse(j, "%s", story);
	return job_abort(j, "%s", story);
}

int job_check(struct job *j, coll_status status)
{
	char story[sizeof(j->problem)];

	if (status)
		snprintf(story, sizeof(story), "%s: %s", coll_status_string(status), coll_last_error(j->comm)->message);
	return check(j, status, story);
}

int job_check_ddp(struct job *j, coll_status status)
{
	return check(j, status, coll_ddp_last_error(j->ddp));
}

/* One all-reduce of {x, not x} finds the least and the greatest at once. */
int job_check_same(struct job *j, uint64_t x, const char *what)
{
	uint64_t both[2] = {x, ~x};

	if (job_check(j, coll_all_reduce(both, both, 2, COLL_U64, COLL_MIN, j->comm, NULL)))
		return -1;
	return both[0] == ~both[1] ? 0 : job_refuse(j, "%s differ between ranks", what);
}

int job_check_weights(struct job *j)
{
	return job_check_same(j, gpt_checksum(0, j->weights, j->param_count * sizeof(float)), "the weights");
}

/* ---- Preparing -------------------------------------------------------- */

/* Each epoch reads every window once. */
static long steps_of_epochs(const struct job *j)
{
	const uint64_t all = (uint64_t)j->o.epochs * job_windows(j);

	return (long)((all + (uint64_t)j->o.batch - 1) / (uint64_t)j->o.batch);
}

static int prepare_data(struct job *j)
{
	if (job_open_data(j))
		return -1;
	if (j->o.epochs)
		j->o.steps = steps_of_epochs(j);
	return 0;
}

static struct gpt_optim_config optim_config(const struct options *o)
{
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;

	c.lr = o->lr;
	c.beta1 = o->beta1;
	c.beta2 = o->beta2;
	c.eps = o->adam_eps;
	c.weight_decay = o->weight_decay;
	c.clip = o->clip;
	c.total_steps = (int)o->steps;
	/* A short run still gets to its full rate. */
	c.warmup_steps = (int)(o->warmup < o->steps / 5 ? o->warmup : o->steps / 5);
	return c;
}

int job_check_memory(struct job *j, bool have)
{
	if (!have)
		job_note(j, "not enough memory");
	return job_agree(j);
}

static coll_ddp_config ddp_config(const struct options *o)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;

	c.bucket_bytes = o->bucket_mb > 0 ? (size_t)(o->bucket_mb * 1048576) : COLL_DDP_AUTO;
	/* Smaller buckets than the first and the last usually are: all are small. */
	if (c.bucket_bytes < 1 << 20)
		c.first_bytes = c.last_bytes = c.bucket_bytes = c.bucket_bytes ? c.bucket_bytes : 1;
	c.wire = o->deterministic == DETERMINISTIC_WORLD ? COLL_DDP_EXACT : (coll_ddp_wire)o->wire;
	c.powersgd_rank = (int)o->powersgd_rank;
	c.zero = (int)o->zero;
	return c;
}

/* The token embedding's lookups go apart from its use as head, so that the head's
 * gradient, the largest, is on its way from the beginning of backward. */
static bool lookups_apart(const struct job *j)
{
	return j->o.deterministic != DETERMINISTIC_WORLD && j->o.local_steps == 1;
}

static int prepare_ddp(struct job *j)
{
	coll_ddp_param *params = calloc((size_t)j->tensor_count, sizeof(*params));
	coll_ddp_config config = ddp_config(&j->o);
	char problem[512] = "";
	coll_status status;

	config.problem = problem;
	config.problem_bytes = sizeof(problem);
	for (int i = 0; params && i < j->tensor_count; i++) {
		const struct gpt_tensor *t = &j->tensors[i];

		params[i] = (coll_ddp_param){t->name, t->rows > 1 ? 2 : 1, {t->count}, j->weights + t->offset, 0, NULL};
		if (t->rows > 1) {
			params[i].dims[0] = t->rows;
			params[i].dims[1] = t->count / t->rows;
		}
	}
	if (job_check_memory(j, params && (j->lookup || !lookups_apart(j)))) {
		free(params);
		return -1;
	}
	params[j->tensor_count - 1].lookup = j->lookup;
	status = coll_ddp_create(&j->ddp, params, j->tensor_count, &config, j->comm);
	free(params);
	coll_ddp_trace(j->ddp, j->o.trace != NULL);
	return check(j, status, problem[0] ? problem : coll_status_string(status));
}

static int prepare_buffers(struct job *j, const struct gpt_shape *shape)
{
	const size_t pass_tokens = (size_t)j->pass_batch * j->o.context;
	struct gpt_model_options o = {.max_batch = j->pass_batch,
	                              .kernels = gpt_kernels_best(),
	                              .threads = (int)j->o.threads,
	                              .weights = j->weights,
	                              .grads = coll_ddp_grads(j->ddp),
	                              .lookup = j->lookup,
	                              .hooks = {j, job_need, job_ready, job_lookup}};

	j->inputs = malloc(pass_tokens * sizeof(*j->inputs));
	j->window = malloc(((size_t)j->o.context + 1) * sizeof(*j->window));
	j->of_ranks = calloc((size_t)j->size, sizeof(*j->of_ranks));
	j->targets = malloc(pass_tokens * sizeof(*j->targets));
	j->seen = calloc(job_val_windows(j) + 1, 1);
	j->val_sums = calloc(job_val_windows(j) + 1, sizeof(*j->val_sums));
	j->leaf_sums = calloc((size_t)j->o.leaves, sizeof(*j->leaf_sums));
	j->squares = calloc(j->param_count / GPT_SQUARES_BLOCK + 1, sizeof(*j->squares));
	j->model = gpt_model_open(shape, &o);
	if (j->model)
		gpt_model_set_smoothing(j->model, j->o.label_smoothing);
	j->optim = j->model ? gpt_optim_create(j->model, &j->optim_config) : NULL;
	return job_check_memory(j, !job_faulty(j, FAULT_MEMORY) && j->inputs && j->targets && j->of_ranks && j->seen &&
	                                   j->window && j->optim && j->val_sums && j->leaf_sums && j->squares);
}

static int prepare_model(struct job *j)
{
	const long vocab = j->o.vocab_size > j->tokenizer.size ? j->o.vocab_size : j->tokenizer.size;
	const struct gpt_shape shape = {(int)vocab, (int)j->o.context, (int)j->o.layers, (int)j->o.heads,
	                                (int)j->o.width};
	void *weights = NULL;

	j->optim_config = optim_config(&j->o);
	j->param_count = gpt_param_count(&shape);
	j->tensors = gpt_shape_tensors(&shape, &j->tensor_count);
	if (coll_mem_alloc(j->comm, &weights, j->param_count * sizeof(float)))
		job_note(j, "no memory for %zu weights: %s", j->param_count, coll_last_error(j->comm)->message);
	j->weights = weights;
	if (job_check_memory(j, j->tensors != NULL))
		return -1;
	if (lookups_apart(j))
		j->lookup = calloc((size_t)vocab * j->o.width, sizeof(*j->lookup));
	if (prepare_ddp(j) || prepare_buffers(j, &shape))
		return -1;
	/* The others get them from rank 0. */
	if (j->rank == 0)
		gpt_model_init(j->model, (uint64_t)j->o.seed);
	return job_init_weights(j);
}

static int share_weights(struct job *j)
{
	if (job_resume(j) || job_check_ddp(j, coll_ddp_share(j->ddp, 0)))
		return -1;
	return job_check_weights(j);
}

/* ---- Ending ----------------------------------------------------------- */

static void print_byte(void *arg, uint8_t byte)
{
	putchar(byte);
}

/* What of the prompt the vocabulary has no tokens for. */
static void name_unknown(const struct gpt_tokenizer *t, const char *prompt)
{
	bool named[256] = {false};
	int count = 0;

	for (const char *p = prompt; *p; p++) {
		const uint8_t byte = (uint8_t)*p;

		if (gpt_tokenizer_knows(t, byte) || named[byte])
			continue;
		named[byte] = true;
		fprintf(stderr, "%s\\x%02x",
		        count++ ? " " : "ddp_gpt: the vocabulary lacks bytes of the prompt, left out: ", byte);
	}
	if (count)
		fprintf(stderr, "\n");
}

static int print_sample(const struct options *o, struct gpt_model *model, const struct gpt_tokenizer *t)
{
	const struct gpt_generate g = {(int)o->sample_len, o->temperature, (int)o->top_k, (uint64_t)o->seed,
	                               o->no_cache};

	name_unknown(t, o->prompt);
	printf("---- sample: %ld tokens, temperature %g, top-k %ld ----\n%s", o->sample_len, o->temperature, o->top_k,
	       o->prompt);
	if (gpt_generate(model, t, &g, o->prompt, print_byte, NULL)) {
		fprintf(stderr, "ddp_gpt: no memory for the sample\n");
		return -1;
	}
	printf("\n");
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "ddp_gpt: cannot write the sample: %s\n", strerror(errno));
		return -1;
	}
	return 0;
}

/* A directory, or a model.ckpt of an earlier version. */
static int read_model(const char *path, struct gpt_hf *hf)
{
	struct gpt_checkpoint c;
	char why[1024];

	if (gpt_hf_is_directory(path)) {
		if (gpt_hf_read(path, true, hf, why, sizeof(why)) == 0 && hf->has_tokenizer)
			return 0;
		fprintf(stderr, "ddp_gpt: %s\n", hf->weights ? "the model has no tokenizer.json" : why);
		free(hf->weights);
		return -1;
	}
	if (gpt_checkpoint_read(path, &c)) {
		fprintf(stderr, "ddp_gpt: %s: %s\n", path,
		        errno == EILSEQ ? "not a model: neither a directory nor a checkpoint" : strerror(errno));
		return -1;
	}
	*hf = (struct gpt_hf){.shape = c.shape, .tokenizer = c.tokenizer, .has_tokenizer = true, .weights = c.weights};
	return 0;
}

/* `ddp_gpt sample`: no ranks, no training. */
static int sample(const struct options *o)
{
	struct gpt_hf c;
	struct gpt_model *model;
	int rc;

	if (read_model(o->model, &c))
		return 1;
	model = gpt_model_open(&c.shape, &(struct gpt_model_options){.max_batch = 1,
	                                                             .kernels = gpt_kernels_best(),
	                                                             .threads = (int)o->threads,
	                                                             .weights = c.weights});
	rc = model ? print_sample(o, model, &c.tokenizer) : -1;
	gpt_model_destroy(&model);
	gpt_tokenizer_free(&c.tokenizer);
	free(c.weights);
	return rc ? 1 : 0;
}

static int write_trace(struct job *j)
{
	char path[4096];

	if (!j->o.trace)
		return 0;
	snprintf(path, sizeof(path), "%s.%d", j->o.trace, j->rank);
	return coll_ddp_trace_write(j->ddp, path) ? job_note(j, "%s", coll_ddp_last_error(j->ddp)) : 0;
}

/* Rank 0 alone writes and reads files, but all ranks help: whether there are any is its choice. */
static int follow_first_rank(struct job *j)
{
	int64_t files[2] = {j->o.out != NULL, j->o.resume};

	if (job_check(j, coll_broadcast(files, files, 2, COLL_I64, 0, j->comm, NULL)))
		return -1;
	if (j->rank)
		j->o.out = files[0] ? "" : NULL;
	j->o.resume = (long)files[1];
	return 0;
}

static void print_stopped(const struct job *j)
{
	printf("ddp_gpt: asked to leave: ended after step %ld of %ld; ", j->done, j->o.steps);
	if (j->o.out)
		printf("state and model are in %s, --resume goes on\n", j->o.out);
	else
		printf("nothing is saved without --out\n");
}

/* Until the options are known to be equal, what follows from them is not. */
static int run(struct job *j)
{
	if (job_check_same(j, options_signature(&j->o), "the options") || follow_first_rank(j) || job_check_out(j) ||
	    job_init_shape(j) || job_share_tokenizer(j) || job_deal(j) || job_check_arithmetic(j))
		return -1;
	if (prepare_data(j) || prepare_model(j) || share_weights(j) || job_open_out(j) || job_open_metrics(j) ||
	    job_stop_open(j))
		return -1;
	job_print_start(j);
	if (job_train(j) || job_save_model(j, "model"))
		return -1;
	job_print_overlap(j);
	if (j->rank == 0 && j->stopped)
		print_stopped(j);
	else if (j->rank == 0)
		printf("loss %.4f -> %.4f in %.1f s, validated on %zu of %zu windows\nfinal val_loss=%.4f\n",
		       j->first_loss, j->loss, j->train_s, job_val_windows(j), job_all_val_windows(j), j->val_loss);
	job_draw_curve(j);
	write_trace(j);
	job_close_metrics(j);
	return job_agree(j);
}

/* Ending together, before rank 0 alone writes its sample: nobody waits for it, and whether
 * it can be written is rank 0's status alone. The sample needs the weights, which were the
 * communicator's. */
static int leave(struct job *j)
{
	const size_t len_bytes = j->param_count * sizeof(float);
	float *kept = !j->rank && j->weights && !j->o.no_sample ? malloc(len_bytes) : NULL;
	int rc = job_stop_close(j) || coll_ddp_destroy(&j->ddp) != COLL_OK;

	if (kept)
		memcpy(kept, j->weights, len_bytes);
	coll_mem_free(j->comm, j->weights);
	j->weights = kept;
	return coll_comm_destroy(&j->comm) != COLL_OK || rc;
}

static int sample_at_end(struct job *j)
{
	const struct gpt_shape shape = *gpt_model_shape(j->model);
	int rc = -1;

	gpt_model_destroy(&j->model);
	if (j->weights)
		j->model = gpt_model_open(&shape, &(struct gpt_model_options){.max_batch = 1,
		                                                              .kernels = gpt_kernels_best(),
		                                                              .weights = j->weights});
	if (j->model)
		rc = print_sample(&j->o, j->model, &j->tokenizer);
	else
		fprintf(stderr, "ddp_gpt: no memory for the sample\n");
	return rc;
}

static int end_status(enum stop stopped)
{
	if (stopped == STOP_INTERRUPTED)
		return STATUS_INTERRUPTED;
	return stopped == STOP_LEAVE ? STATUS_AGAIN : 0;
}

/* A full disk is an error. */
static void last_flush(void)
{
	const bool failed = ferror(stdout) != 0;

	if (fflush(stdout) == 0 && !failed)
		return;
	fprintf(stderr, "ddp_gpt: cannot write standard output\n");
	_exit(1);
}

int main(int argc, char **argv)
{
	struct job j = {0};
	bool bad_options;
	int rc;

	atexit(last_flush);
	gpt_blas_start(argv);
	if (argc == 2 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
		return printf("ddp_gpt %s\n", coll_version_text()) < 0;
	if (tokens_wanted(argc, argv))
		return tokens_main(argc, argv);
	bad_options = options_parse(&j.o, argc, argv) != 0;
	if (j.o.help && !bad_options) {
		options_print_help();
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (j.o.sampling && bad_options)
		return fprintf(stderr, "ddp_gpt: %s\n", j.o.problem), 2;
	if (j.o.sampling)
		return sample(&j.o);
	if (coll_comm_create(&j.comm, NULL) != COLL_OK) {
		fprintf(stderr, "ddp_gpt: %s\n", bad_options ? j.o.problem : coll_last_error(NULL)->message);
		return bad_options ? 2 : 1;
	}
	j.rank = coll_comm_rank(j.comm);
	j.size = coll_comm_size(j.comm);
	j.terminal = j.rank == 0 && isatty(STDOUT_FILENO);
	/* A rank with wrong options joins the others to give them the reason. */
	if (bad_options)
		job_note(&j, "%s", j.o.problem);
	bad_options = job_agree(&j) != 0;
	rc = bad_options ? -1 : run(&j);
	rc = leave(&j) || rc;
	if (!rc && !j.stopped && j.rank == 0 && !j.o.no_sample)
		rc = sample_at_end(&j);
	rc = job_close_metrics(&j) || rc;
	gpt_optim_destroy(&j.optim);
	gpt_model_destroy(&j.model);
	free(j.weights); /* leave() has put a copy there, or NULL */
	gpt_tokenizer_free(&j.tokenizer);
	free(j.tensors);
	free(j.lookup);
	job_close_data(&j);
	job_close_deal(&j);
	free(j.window);
	free(j.inputs);
	free(j.targets);
	free(j.val_sums);
	free(j.leaf_sums);
	free(j.squares);
	free(j.of_ranks);
	free(j.seen);
	free(j.curve);
	free(j.taken);
	return bad_options ? STATUS_REFUSED : rc ? STATUS_FAILED : end_status(j.stopped);
}
