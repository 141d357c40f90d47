/*
 * Steps: the batch, gradients that are averaged while backward computes, the update;
 * and validation.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_job.h"
#include "gpt/groups.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Hooks: the model tells when gradients are ready ------------------------ */

static void note(struct job *j, coll_status status)
{
	if (!j->ddp_status)
		j->ddp_status = status;
}

void job_need(void *arg, int tensor)
{
	struct job *j = arg;

	if (j->o.zero)
		note(j, coll_ddp_need(j->ddp, tensor));
}

void job_ready(void *arg, int tensor)
{
	struct job *j = arg;

	if (j->averaging)
		note(j, coll_ddp_ready(j->ddp, tensor));
}

void job_lookup(void *arg, const struct gpt_groups *g)
{
	struct job *j = arg;

	note(j, coll_ddp_rows(j->ddp, j->tensor_count - 1, g->id, g->count));
}

/* ---- The batch ------------------------------------------------------------- */

/* --fault slow: compute nothing for so long. */
static void lose_time(double more_s)
{
	const double until = job_now_s() + more_s;

	while (job_now_s() < until)
		;
}

/* A pass without sequences: what it would have added is there. */
static void skip_pass(struct job *j)
{
	for (int t = j->tensor_count - 1; t >= 0; t--)
		job_ready(j, t);
	if (j->lookup)
		note(j, coll_ddp_rows(j->ddp, j->tensor_count - 1, NULL, 0));
}

/* One pass over sequences of this rank; adds their losses to *loss_sum. */
static int run_pass(struct job *j, long step, const struct part *p, double *loss_sum)
{
	const uint64_t first = job_sequences(j, step);
	int len = 0;
	const int count = (int)(p->end - p->first);
	const bool faulty = job_faulty(j, FAULT_GRADIENT) && step + 1 == j->o.fault_step;
	const double start = job_now_s();
	double sum;

	if (count == 0) {
		skip_pass(j);
		return 0;
	}
	for (long i = p->first; i < p->end; i++) {
		const int targets = job_window_targets(j, first + (uint64_t)job_place(j, i));

		len = targets > len ? targets : len;
	}
	for (long i = p->first; i < p->end; i++)
		if (job_copy_window(j, (int)(i - p->first), len, first + (uint64_t)job_place(j, i)))
			return -1;
	job_expect_windows(j, first + (uint64_t)(j->o.batch + p->first), (uint64_t)count);
	j->data_s += job_now_s() - start;
	gpt_model_set_dropout(j->model, j->o.dropout, (uint64_t)j->o.seed, (uint64_t)step, (uint64_t)p->first);
	sum = gpt_model_train(j->model, j->inputs, j->targets, count, len, faulty ? NAN : (float)job_scale(j));
	*loss_sum += sum;
	if (j->o.deterministic == DETERMINISTIC_WORLD)
		j->leaf_sums[p->leaf] = sum;
	if (job_faulty(j, FAULT_SLOW))
		lose_time(0.5 * (job_now_s() - start));
	return 0;
}

/* ---- Gradients of a step --------------------------------------------------- */

/* The exact wire takes the gradient of every pass, by itself. */
static int all_passes(struct job *j, long step, double *loss_sum)
{
	const bool local = j->o.local_steps > 1;

	memset(j->leaf_sums, 0, (size_t)j->o.leaves * sizeof(*j->leaf_sums));
	for (int p = 0; p < j->passes; p++) {
		const struct part part = job_pass(j, p);

		j->averaging = !local;
		note(j, coll_ddp_begin(j->ddp, !local && p == j->passes - 1));
		if (run_pass(j, step, &part, loss_sum))
			return -1;
		if (j->ddp_status)
			return job_check_ddp(j, j->ddp_status);
	}
	return 0;
}

/* In an order that depends on no rank, whose slices hold whole blocks. */
static int sum_blocks(struct job *j, bool stubbed, double *sum)
{
	const size_t blocks = (j->param_count + GPT_SQUARES_BLOCK - 1) / GPT_SQUARES_BLOCK;

	if (j->o.zero && !stubbed &&
	    job_check(j, coll_all_reduce(j->squares, j->squares, blocks, COLL_F64, COLL_SUM, j->comm, NULL)))
		return -1;
	*sum = 0;
	for (size_t b = 0; b < blocks; b++)
		*sum += j->squares[b];
	return 0;
}

static int sum_slices(struct job *j, double *sum)
{
	return job_check(j, coll_all_reduce(sum, sum, 1, COLL_F64, COLL_SUM, j->comm, NULL));
}

/* Bucket after bucket: its part of the norm is taken while it is in the cache and the
 * next one is still on its way. */
static int take_buckets(struct job *j, bool stubbed, double *norm)
{
	const bool world = j->o.deterministic == DETERMINISTIC_WORLD;
	coll_ddp_bucket_info b;
	double sum = 0;

	if (world)
		memset(j->squares, 0, (j->param_count / GPT_SQUARES_BLOCK + 1) * sizeof(*j->squares));
	for (int i = 0; i < coll_ddp_bucket_count(j->ddp); i++) {
		if (job_check_ddp(j, coll_ddp_wait_bucket(j->ddp, i)) ||
		    job_check_ddp(j, coll_ddp_bucket(j->ddp, i, &b)))
			return -1;
		if (world)
			gpt_sum_squares_blocks(j->model, b.slice_grads, b.slice_count,
			                       j->squares + b.slice_first / GPT_SQUARES_BLOCK);
		else
			sum += gpt_sum_squares(j->model, b.slice_grads, b.slice_count);
	}
	if (job_check_ddp(j, coll_ddp_wait(j->ddp)))
		return -1;
	if (world ? sum_blocks(j, stubbed, &sum) : j->o.zero && !stubbed && sum_slices(j, &sum))
		return -1;
	*norm = sqrt(sum);
	return 0;
}

/* From the last bucket to the first: the next forward pass needs them in that order. */
static int update(struct job *j)
{
	coll_ddp_bucket_info b;

	for (int i = coll_ddp_bucket_count(j->ddp) - 1; i >= 0; i--) {
		coll_ddp_bucket(j->ddp, i, &b);
		gpt_optim_apply(j->optim, j->model, b.slice_first, b.slice_count, b.slice_grads);
		if (job_check_ddp(j, coll_ddp_updated(j->ddp, i)))
			return -1;
	}
	return 0;
}

/* Has this rank a gradient of its own, that the others have not? */
static bool alone(const struct job *j, long step)
{
	return j->o.local_steps > 1 || job_stubbed(j, step);
}

/* An average is the same on all ranks, which find this in the same step. A rank's own gradient is noted: the
 * rank goes on, at the others' pace, until they meet. A rank that waited for them meanwhile might find them late. */
static int refuse_gradient(struct job *j, long step)
{
	static const char format[] = "step %ld: the gradient is not finite; try a smaller --lr";

	if (!alone(j, step))
		return job_abort(j, format, step + 1);
	if (!j->problem[0])
		job_note(j, format, step + 1);
	return 0;
}

/* One step; *norm is the averaged gradient's. */
static int train_step(struct job *j, long step, double *loss_sum, double *norm)
{
	*loss_sum = 0;
	job_deal_step(j, step);
	j->tokens += (uint64_t)j->batch_targets;
	coll_ddp_stub(j->ddp, job_stubbed(j, step));
	if (!j->o.zero || step == j->first_step)
		coll_ddp_zero(j->ddp);
	if (all_passes(j, step, loss_sum) || take_buckets(j, job_stubbed(j, step), norm))
		return -1;
	if (!gpt_optim_begin(j->optim, *norm) ? refuse_gradient(j, step) : update(j))
		return -1;
	if (j->o.zero)
		coll_ddp_zero(j->ddp);
	if (j->o.local_steps > 1 && (step + 1) % j->o.local_steps == 0)
		return job_agree(j) || job_check_ddp(j, coll_ddp_average_weights(j->ddp)) ? -1 : 0;
	return 0;
}

/* ---- Validation ------------------------------------------------------------ */

/* The loss of the step: leaf by leaf, whoever computed them. */
static int sum_leaves(struct job *j)
{
	const size_t leaves = (size_t)j->o.leaves;
	double sum = 0;

	if (job_check(j, coll_all_reduce(j->leaf_sums, j->leaf_sums, leaves, COLL_F64, COLL_SUM, j->comm, NULL)))
		return -1;
	for (size_t i = 0; i < leaves; i++)
		sum += j->leaf_sums[i];
	j->loss = sum / j->batch_targets;
	return 0;
}

/* One exchange a progress line: what each rank did since the last, and the loss of the step over all of them. */
static int gather_ranks(struct job *j, double loss_sum)
{
	struct of_rank mine = {loss_sum, j->own_targets, 0, 0};
	double sum = 0, tokens = 0;

	j->stats = (coll_ddp_stats)COLL_DDP_STATS_INIT;
	coll_ddp_get_stats(j->ddp, &j->stats, 1);
	j->log_s = job_now_s() - j->last_log_s;
	mine.waited_s = j->stats.waited_s;
	mine.computed_s = j->log_s - j->stats.waited_s;
	if (job_check(j, coll_all_gather(&mine, j->of_ranks, sizeof(mine) / sizeof(double), COLL_F64, j->comm, NULL)))
		return -1;
	for (int r = 0; r < j->size; r++) {
		sum += j->of_ranks[r].loss_sum;
		tokens += j->of_ranks[r].tokens;
	}
	j->loss = sum / tokens;
	return j->o.deterministic == DETERMINISTIC_WORLD ? sum_leaves(j) : 0;
}

/* Each window is counted where it was read: all counts must be one. */
static int check_windows(struct job *j, size_t windows)
{
	if (job_check(j, coll_all_reduce(j->seen, j->seen, windows, COLL_U8, COLL_SUM, j->comm, NULL)))
		return -1;
	for (size_t w = 0; w < windows; w++)
		if (j->seen[w] != 1)
			return job_refuse(j, "validation window %zu was read %d times", w, j->seen[w]);
	return 0;
}

/* Weights that every rank holds alike, wherever they were last updated. The ranks meet. */
static int settle_weights(struct job *j)
{
	if (job_agree(j))
		return -1;
	if (j->o.local_steps > 1 && job_check_ddp(j, coll_ddp_average_weights(j->ddp)))
		return -1;
	return job_check_ddp(j, coll_ddp_need(j->ddp, -1));
}

/* Windows that are read in one pass: the same ones on any number of ranks where bits must be. */
static size_t val_group(const struct job *j, size_t windows)
{
	const size_t most = (size_t)j->pass_batch, share = (windows + (size_t)j->size - 1) / (size_t)j->size;

	return j->o.deterministic == DETERMINISTIC_WORLD || most < share ? most : share;
}

static int validate_group(struct job *j, size_t first, size_t end, double *sum)
{
	int len = 0;

	for (size_t w = first; w < end; w++) {
		const int targets = job_val_window_targets(j, w);

		len = targets > len ? targets : len;
	}
	for (size_t w = first; w < end; w++) {
		if (job_copy_val_window(j, (int)(w - first), len, w))
			return -1;
		j->seen[w]++;
	}
	*sum = gpt_model_loss(j->model, j->inputs, j->targets, (int)(end - first), len);
	return 0;
}

/* The windows that a validation reads: the same each time, exactly once, whatever the number of ranks. */
static int validate(struct job *j)
{
	const size_t windows = job_val_windows(j), group = val_group(j, windows),
	             groups = (windows + group - 1) / group;
	double sum = 0, targets = 0;

	if (settle_weights(j))
		return -1;
	memset(j->seen, 0, windows);
	memset(j->val_sums, 0, groups * sizeof(*j->val_sums));
	for (size_t g = (size_t)j->rank; g < groups; g += (size_t)j->size) {
		const size_t end = (g + 1) * group;

		if (validate_group(j, g * group, end < windows ? end : windows, &j->val_sums[g]))
			return -1;
	}
	if (check_windows(j, windows) ||
	    job_check(j, coll_all_reduce(j->val_sums, j->val_sums, groups, COLL_F64, COLL_SUM, j->comm, NULL)))
		return -1;
	for (size_t g = 0; g < groups; g++)
		sum += j->val_sums[g];
	for (size_t w = 0; w < windows; w++)
		targets += job_val_window_targets(j, w);
	j->val_loss = sum / targets;
	/* Replicas that drifted apart would go unnoticed in the loss. */
	return j->o.stub || j->o.overlap ? 0 : job_check_weights(j);
}

/* ---- All steps --------------------------------------------------------------- */

/* Has the time come that --save-every and its like name, after the step? */
static bool due(const struct job *j, long every, long step)
{
	if (every == EVERY_EPOCH)
		return job_sequences(j, step + 1) / job_windows(j) > job_sequences(j, step) / job_windows(j);
	return every && (step + 1) % every == 0;
}

static void print_epoch(const struct job *j, long step)
{
	const uint64_t windows = job_windows(j), epoch = job_sequences(j, step) / windows;

	if (j->rank == 0 && j->o.epochs && (step == j->first_step || due(j, EVERY_EPOCH, step - 1)))
		printf("epoch %llu of %ld | batch %ld | %llu steps\n", (unsigned long long)epoch + 1, j->o.epochs,
		       j->o.batch, (unsigned long long)((windows + (uint64_t)j->o.batch - 1) / (uint64_t)j->o.batch));
}

/* The weights in --out, every so often, and after a validation that is better than all before. */
static int save_models(struct job *j, long step, bool validated)
{
	const bool best = validated && j->val_loss < j->best;

	if (best)
		j->best = j->val_loss;
	if (due(j, j->o.model_every, step) && (settle_weights(j) || job_save_model(j, "model")))
		return -1;
	return best && j->o.keep_best ? job_save_model(j, "best") : 0;
}

static int log_step(struct job *j, long step, bool validating, double loss_sum, double norm)
{
	if ((alone(j, step) && job_agree(j)) || gather_ranks(j, loss_sum))
		return -1;
	if (step == j->first_step)
		j->first_loss = j->loss;
	/* Validation is left out of the speed that is printed. */
	if (validating && validate(j))
		return -1;
	job_report(j, step + 1, validating, norm, gpt_optim_rate(&j->optim_config, (int)step));
	j->last_log_s = job_now_s();
	j->last_log_tokens = j->tokens;
	j->data_s = 0;
	return 0;
}

/* The state after the steps done, unless it is there already. */
static int save(struct job *j, long done)
{
	if (done == j->saved)
		return 0;
	j->saved = done;
	return settle_weights(j) || job_save_state(j, done) ? -1 : 0;
}

/* Before a step: does the run end here, by request? */
static int heed(struct job *j, long step, bool *leave)
{
	enum stop stop;

	if (job_stop_ask(j, step, &stop))
		return -1;
	*leave = stop >= STOP_LEAVE;
	if (*leave)
		j->stopped = stop;
	return stop == STOP_NONE ? 0 : save(j, step);
}

int job_train(struct job *j)
{
	const double start = job_now_s();
	bool leave = false;

	j->last_log_s = start;
	j->last_log_tokens = j->tokens;
	j->last_log_step = j->done = j->first_step;
	j->saved = -1;
	j->best = INFINITY;
	/* A run that had ended is only told again. */
	if (j->first_step >= j->o.steps) {
		if (validate(j))
			return -1;
		j->first_loss = j->loss = j->val_loss;
	}
	for (long step = j->first_step; step < j->o.steps; step++) {
		const bool last = step + 1 == j->o.steps;
		const bool validating = last || due(j, j->o.val_every, step);
		double sum, norm;

		print_epoch(j, step);
		if (heed(j, step, &leave))
			return -1;
		if (leave)
			break;
		if (train_step(j, step, &sum, &norm))
			return -1;
		if (step == j->first_step || validating || (step + 1) % j->o.log_every == 0) {
			if (log_step(j, step, validating, sum, norm))
				return -1;
		} else {
			job_print_live(j, step + 1);
		}
		j->done = step + 1;
		if (save_models(j, step, validating) ||
		    ((due(j, j->o.save_every, step) || (last && j->o.save_every)) && save(j, step + 1)))
			return -1;
	}
	if (job_stop_finish(j))
		return -1;
	j->train_s = job_now_s() - start;
	return 0;
}
