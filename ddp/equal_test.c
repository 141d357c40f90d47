/*
 * One global batch, learned by 1, 2, 3 and 4 ranks, by the GPT model on coll_ddp: the
 * same gradients, losses and weights but for rounding, and the same bits where sums have
 * one order only. Compiled for float and for double.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "coll/ddp.h"
#include "gpt/groups.h"
#include "gpt/model.h"
#include "gpt/optim.h"
#include "gpt/rng.h"
#include "tests/plain.h"

#ifdef GPT_DOUBLE
#define TYPE COLL_F64
#define NEAR 1e-12
#else
#define TYPE COLL_F32
#define NEAR 5e-6
#endif

#define BATCH 12
#define STEPS 20
#define SEED  20261121u

static const struct gpt_shape shape = {29, 16, 2, 2, 24}, tiny = {11, 8, 1, 2, 8};

/* How to train, and what came of it. */
struct way {
	const struct gpt_shape *shape;
	int ranks, steps, passes;
	size_t bucket_bytes;
	int zero;
	bool together; /* lookups go where the head's gradients go */

	gpt_real *grads; /* of step 1 */
	gpt_real *weights;
	double loss[STEPS];
};

struct rank {
	pthread_t id;
	struct way *w;
	coll_comm *comm;
	int index;
	struct gpt_model *model;
	struct gpt_tensor *tensors;
	int tensor_count;
	coll_ddp *ddp;
};

static void ready(void *arg, int tensor)
{
	struct rank *r = arg;

	CHECK(coll_ddp_ready(r->ddp, tensor) == COLL_OK, "%s", coll_ddp_last_error(r->ddp));
}

static void need(void *arg, int tensor)
{
	CHECK(coll_ddp_need(((struct rank *)arg)->ddp, tensor) == COLL_OK);
}

static void lookup(void *arg, const struct gpt_groups *g)
{
	struct rank *r = arg;

	CHECK(coll_ddp_rows(r->ddp, r->tensor_count - 1, g->id, g->count) == COLL_OK);
}

static void open_ddp(struct rank *r, gpt_real *weights, gpt_real *table)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_param *p = calloc((size_t)r->tensor_count, sizeof(*p));

	for (int i = 0; i < r->tensor_count; i++) {
		const struct gpt_tensor *t = &r->tensors[i];

		p[i] = (coll_ddp_param){t->name, 2, {t->rows, t->count / t->rows}, weights + t->offset, 0, NULL};
	}
	p[r->tensor_count - 1].lookup = table;
	c.type = TYPE;
	c.zero = r->w->zero;
	c.first_bytes = c.bucket_bytes = c.last_bytes = r->w->bucket_bytes;
	CHECK(coll_ddp_create(&r->ddp, p, r->tensor_count, &c, r->comm) == COLL_OK);
	free(p);
}

/* This rank's part of the global batch of a step. */
static double passes(struct rank *r, int step)
{
	const struct way *w = r->w;
	const int len = w->shape->context, mine = BATCH / w->ranks / w->passes;
	int32_t tokens[BATCH * 16 + 1], targets[BATCH * 16];
	double loss = 0;

	for (int p = 0; p < w->passes; p++) {
		const int first = (r->index * w->passes + p) * mine;

		for (int i = 0; i < mine * len; i++) {
			const uint64_t at = (uint64_t)step * 100000 + (uint64_t)(first * len + i);

			tokens[i] = (int32_t)(gpt_random(SEED, at) % (uint64_t)w->shape->vocab);
			targets[i] = (tokens[i] * 3 + 1) % w->shape->vocab;
		}
		CHECK(coll_ddp_begin(r->ddp, p == w->passes - 1) == COLL_OK);
		loss += gpt_model_train(r->model, tokens, targets, mine, len,
		                        (gpt_real)(1.0 / (mine * len) / w->passes));
	}
	return loss / (BATCH * len);
}

static void take_step(struct rank *r, struct gpt_optim *o, int step)
{
	const size_t n = gpt_param_count(r->w->shape);
	double loss = passes(r, step), sum = 0;
	coll_ddp_bucket_info b;

	CHECK(coll_all_reduce(&loss, &loss, 1, COLL_F64, COLL_SUM, r->comm, NULL) == COLL_OK);
	CHECK(coll_ddp_wait(r->ddp) == COLL_OK, "%s", coll_ddp_last_error(r->ddp));
	if (r->index == 0) {
		r->w->loss[step] = loss;
		if (step == 0 && !r->w->zero)
			memcpy(r->w->grads, gpt_model_grads(r->model), n * sizeof(gpt_real));
	}
	for (int i = 0; i < coll_ddp_bucket_count(r->ddp); i++) {
		coll_ddp_bucket(r->ddp, i, &b);
		sum += gpt_sum_squares(r->model, b.slice_grads, b.slice_count);
	}
	if (r->w->zero)
		CHECK(coll_all_reduce(&sum, &sum, 1, COLL_F64, COLL_SUM, r->comm, NULL) == COLL_OK);
	CHECK(gpt_optim_begin(o, sqrt(sum)));
	for (int i = coll_ddp_bucket_count(r->ddp) - 1; i >= 0; i--) {
		coll_ddp_bucket(r->ddp, i, &b);
		gpt_optim_apply(o, r->model, b.slice_first, b.slice_count, b.slice_grads);
		CHECK(coll_ddp_updated(r->ddp, i) == COLL_OK);
	}
	coll_ddp_zero(r->ddp);
}

static void *train(void *arg)
{
	struct rank *r = arg;
	struct way *w = r->w;
	const size_t n = gpt_param_count(w->shape), width = (size_t)w->shape->width;
	struct gpt_optim_config c = GPT_OPTIM_CONFIG_INIT;
	gpt_real *weights = calloc(n, sizeof(*weights)),
	         *table = calloc((size_t)w->shape->vocab * width, sizeof(*table));
	struct gpt_model_options o = {.max_batch = BATCH, .kernels = gpt_kernels_best(), .weights = weights};
	struct gpt_optim *optim;

	r->tensors = gpt_shape_tensors(w->shape, &r->tensor_count);
	open_ddp(r, weights, w->together ? NULL : table);
	o.grads = coll_ddp_grads(r->ddp);
	o.lookup = w->together ? NULL : table;
	o.hooks = (struct gpt_hooks){r, need, ready, w->together ? NULL : lookup};
	r->model = gpt_model_open(w->shape, &o);
	gpt_model_init(r->model, r->index ? 7 : SEED);
	CHECK(coll_ddp_share(r->ddp, 0) == COLL_OK);
	c.total_steps = STEPS;
	c.lr = 1e-3;
	optim = gpt_optim_create(r->model, &c);
	for (int s = 0; s < w->steps; s++)
		take_step(r, optim, s);
	CHECK(coll_ddp_need(r->ddp, -1) == COLL_OK);
	if (r->index == 0)
		memcpy(w->weights, weights, n * sizeof(*weights));
	gpt_optim_destroy(&optim);
	gpt_model_destroy(&r->model);
	CHECK(coll_ddp_destroy(&r->ddp) == COLL_OK);
	CHECK(coll_comm_destroy(&r->comm) == COLL_OK);
	free(r->tensors);
	free(weights);
	free(table);
	return NULL;
}

static struct way go(struct way w)
{
	struct rank ranks[4] = {0};
	coll_comm *comms[4] = {NULL};

	w.grads = calloc(gpt_param_count(w.shape), sizeof(*w.grads));
	w.weights = calloc(gpt_param_count(w.shape), sizeof(*w.weights));
	CHECK(coll_comm_create_all(comms, w.ranks, NULL) == COLL_OK);
	for (int i = 0; i < w.ranks; i++) {
		ranks[i] = (struct rank){.w = &w, .comm = comms[i], .index = i};
		pthread_create(&ranks[i].id, NULL, train, &ranks[i]);
	}
	for (int i = 0; i < w.ranks; i++)
		pthread_join(ranks[i].id, NULL);
	return w;
}

static void drop(struct way *w)
{
	free(w->grads);
	free(w->weights);
}

static double norm(const gpt_real *a, const gpt_real *b, size_t n)
{
	double s = 0;

	for (size_t i = 0; i < n; i++)
		s += ((double)a[i] - (b ? (double)b[i] : 0)) * ((double)a[i] - (b ? (double)b[i] : 0));
	return sqrt(s);
}

/* Tensor by tensor; one that is next to nothing is judged by the whole. */
static void check_grads(const struct way *got, const struct way *want, const char *what)
{
	const double whole = norm(want->grads, NULL, gpt_param_count(want->shape));
	int count;
	struct gpt_tensor *t = gpt_shape_tensors(want->shape, &count);

	for (int i = 0; i < count; i++) {
		const gpt_real *a = got->grads + t[i].offset, *b = want->grads + t[i].offset;
		const double size = norm(b, NULL, t[i].count), off = norm(a, b, t[i].count);

		CHECK(off <= NEAR * (size > 1e-6 * whole ? size : whole), "%s, %d ranks, %s: off by %g of %g", what,
		      got->ranks, t[i].name, off, size);
	}
	free(t);
}

static void check_losses(const struct way *got, const struct way *want, const char *what)
{
	for (int s = 0; s < want->steps; s++)
		CHECK(fabs(got->loss[s] - want->loss[s]) <= 1e-5, "%s, %d ranks, step %d: %.8f, alone %.8f", what,
		      got->ranks, s, got->loss[s], want->loss[s]);
}

static const struct way alone = {.shape = &shape, .ranks = 1, .steps = STEPS, .passes = 1, .together = true};

TEST(equal, any_number_of_ranks)
{
	struct way want = go(alone);

	CHECK(want.loss[STEPS - 1] < want.loss[0] - 0.1, "it does not learn: %g, %g", want.loss[0],
	      want.loss[STEPS - 1]);
	for (int n = 1; n <= 4; n++)
		for (int together = 0; together < 2; together++) {
			struct way w = alone, got;

			w.ranks = n;
			w.together = together;
			w.bucket_bytes = 8192;
			got = go(w);
			check_grads(&got, &want, together ? "lookups together" : "lookups apart");
			check_losses(&got, &want, "plain");
			drop(&got);
		}
	drop(&want);
}

TEST(equal, any_limit_of_buckets)
{
	static const size_t limits[] = {1, 1 << 20, (size_t)1 << 40};

	for (int n = 2; n <= 4; n++) {
		struct way first = {0};

		for (int i = 0; i < 3; i++) {
			struct way w = {.shape = &tiny, .ranks = n, .steps = 2, .passes = 1, .bucket_bytes = limits[i]};

			w = go(w);
			if (i == 0) {
				first = w;
				continue;
			}
			check_grads(&w, &first, "buckets");
			CHECK(n > 2 || !memcmp(w.grads, first.grads, gpt_param_count(&tiny) * sizeof(gpt_real)),
			      "limit %zu: other bits", limits[i]);
			CHECK(n > 2 || !memcmp(w.weights, first.weights, gpt_param_count(&tiny) * sizeof(gpt_real)),
			      "limit %zu: other bits", limits[i]);
			drop(&w);
		}
		drop(&first);
	}
}

TEST(equal, slices_and_micro_steps)
{
	const size_t count = gpt_param_count(&shape);

	for (int n = 1; n <= 4; n++) {
		struct way w = alone, want;

		w.ranks = n;
		w.bucket_bytes = 8192;
		w.together = false;
		want = go(w);
		for (w.zero = 1; w.zero <= 2; w.zero++) {
			struct way got = go(w);

			check_losses(&got, &want, "slices");
			CHECK(norm(got.weights, want.weights, count) <= 20 * NEAR * norm(want.weights, NULL, count));
			CHECK(n > 2 || !memcmp(got.weights, want.weights, count * sizeof(gpt_real)),
			      "zero %d on %d ranks: other bits", w.zero, n);
			drop(&got);
		}
		for (w.zero = 0, w.passes = n == 3 ? 2 : 3; w.zero <= 2; w.zero++) {
			struct way got = go(w);

			if (w.zero == 0)
				check_grads(&got, &want, "micro-steps");
			check_losses(&got, &want, "micro-steps");
			drop(&got);
		}
		drop(&want);
	}
}
