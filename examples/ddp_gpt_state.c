/*
 * What is written to --out to go on from: weights, the optimiser's means, step, and what
 * compressed wires still owe.
 *
 * Rank 0 writes and reads; with --zero each rank has means of its slices only, so
 * they are summed at rank 0 (zeros elsewhere). What a wire owes is each rank's own: rank 0
 * holds it for all of them while it writes or reads. Whether it worked is agreed.
 */
#include "ddp_gpt_job.h"
#include "gpt/checkpoint.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int path_of(const struct job *j, const char *name, char *path, size_t len_bytes)
{
	if ((size_t)snprintf(path, len_bytes, "%s/%s", j->o.out, name) < len_bytes)
		return 0;
	errno = ENAMETOOLONG;
	return -1;
}

/* Of rank 0 alone, which job_agree() makes all ranks'. */
static int note_unwritten(struct job *j, const char *name)
{
	return job_note(j, "cannot write %s in %s: %s", name, j->o.out, strerror(errno));
}

/* What all ranks' wires owe, at rank 0; *all is NULL where there is nothing. */
static int gather_owed(struct job *j, char **all)
{
	const size_t len_bytes = coll_ddp_state_bytes(j->ddp);
	char *mine = len_bytes ? malloc(len_bytes) : NULL;
	int rc = 0;

	*all = NULL;
	if (!len_bytes)
		return 0;
	*all = j->rank ? NULL : malloc((size_t)j->size * len_bytes);
	if (job_check_memory(j, mine && (*all || j->rank))) {
		rc = -1;
	} else {
		coll_ddp_state_save(j->ddp, mine);
		rc = job_check(j, coll_gather(mine, *all, len_bytes, COLL_U8, 0, j->comm, NULL));
	}
	free(mine);
	return rc;
}

/* The other way round; all: rank 0's, of as many ranks. */
static int scatter_owed(struct job *j, const char *all)
{
	const size_t len_bytes = coll_ddp_state_bytes(j->ddp);
	char *mine = malloc(len_bytes);
	int rc = job_check_memory(j, mine != NULL);

	if (!rc)
		rc = job_check(j, coll_scatter(all, mine, len_bytes, COLL_U8, 0, j->comm, NULL));
	if (!rc)
		rc = job_check_ddp(j, coll_ddp_state_load(j->ddp, mine, len_bytes));
	free(mine);
	return rc;
}

static int write_state(struct job *j, float *m, float *v, void *owed, long steps_done)
{
	const struct gpt_checkpoint c = {.shape = *gpt_model_shape(j->model),
	                                 .tokenizer = j->tokenizer,
	                                 .step = (uint64_t)steps_done,
	                                 .signature = j->signature,
	                                 .ranks = (uint64_t)j->size,
	                                 .weights = j->weights,
	                                 .m = m,
	                                 .v = v,
	                                 .extra = owed,
	                                 .extra_bytes = owed ? (size_t)j->size * coll_ddp_state_bytes(j->ddp) : 0};
	char path[4096];

	if (path_of(j, "state.ckpt", path, sizeof(path)) == 0 && gpt_checkpoint_save(path, &c) == 0)
		return 0;
	return note_unwritten(j, "state.ckpt");
}

/* Ranks that step by themselves have means of their own, as they have weights: where these are
 * averaged to be saved, so are the means, and the run goes on from them as a resumed one does. */
static int average_means(struct job *j)
{
	float *means[] = {gpt_optim_m(j->optim), gpt_optim_v(j->optim)};

	for (int i = 0; i < 2; i++)
		if (job_check(j,
		              coll_all_reduce(means[i], means[i], j->param_count, COLL_F32, COLL_AVG, j->comm, NULL)))
			return -1;
	return 0;
}

int job_save_state(struct job *j, long steps_done)
{
	const size_t n = j->param_count;
	float *m = gpt_optim_m(j->optim), *v = gpt_optim_v(j->optim), *whole = NULL;
	char *owed = NULL;
	int rc = 0;

	if (j->o.local_steps > 1 && average_means(j))
		return -1;
	if (!j->o.out)
		return 0;
	if (j->o.zero) {
		whole = j->rank ? NULL : malloc(2 * n * sizeof(*whole));
		if (job_check_memory(j, j->rank || whole)) {
			free(whole);
			return -1;
		}
		rc = job_check(j, coll_reduce(m, whole, n, COLL_F32, COLL_SUM, 0, j->comm, NULL));
		rc = rc ? rc
		        : job_check(j,
		                    coll_reduce(v, whole ? whole + n : NULL, n, COLL_F32, COLL_SUM, 0, j->comm, NULL));
		m = whole;
		v = whole ? whole + n : NULL;
	}
	if (!rc)
		rc = gather_owed(j, &owed);
	if (!rc && j->rank == 0)
		write_state(j, m, v, owed, steps_done);
	if (!rc)
		rc = job_agree(j);
	free(whole);
	free(owed);
	return rc;
}

/* What does not fit is refused: going on would not be the same run. */
static int check_state(struct job *j, const struct gpt_checkpoint *c)
{
	const struct gpt_shape *s = gpt_model_shape(j->model);

	if (!c->m || memcmp(&c->shape, s, sizeof(*s)) != 0 || c->signature != j->signature ||
	    memcmp(c->tokenizer.token_of, j->tokenizer.token_of, sizeof(c->tokenizer.token_of)) != 0)
		return job_note(j, "--resume: state.ckpt in %s is of a run with other flags or another text", j->o.out);
	if (c->ranks != (uint64_t)j->size)
		fprintf(stderr,
		        "ddp_gpt: --resume: the run had %d ranks and now has %d: results agree up to rounding\n",
		        (int)c->ranks, j->size);
	return 0;
}

/* What each rank owes: of another number of ranks it is nobody's, and lost. */
static const void *owed_by(const struct job *j, const struct gpt_checkpoint *c)
{
	const size_t len_bytes = (size_t)j->size * coll_ddp_state_bytes(j->ddp);

	return len_bytes && c->extra_bytes == len_bytes && c->ranks == (uint64_t)j->size ? c->extra : NULL;
}

/* The step to begin at; 0: there is no state; -1: there is one that does not fit. */
static int64_t read_state(struct job *j, struct gpt_checkpoint *c)
{
	char path[4096];
	int64_t step;

	if (path_of(j, "state.ckpt", path, sizeof(path)) || gpt_checkpoint_read(path, c)) {
		if (errno == ENOENT)
			return 0;
		return job_note(j, "--resume: state.ckpt in %s: %s", j->o.out,
		                errno == EILSEQ ? "not a checkpoint, or a damaged one" : strerror(errno));
	}
	step = check_state(j, c) ? -1 : (int64_t)c->step;
	if (step > 0) {
		memcpy(j->weights, c->weights, j->param_count * sizeof(float));
		memcpy(gpt_optim_m(j->optim), c->m, j->param_count * sizeof(float));
		memcpy(gpt_optim_v(j->optim), c->v, j->param_count * sizeof(float));
	}
	return step;
}

/* Means of what this rank does not update are zero, or the next state would hold them twice. */
static void clear_others(struct job *j, float *x)
{
	coll_ddp_bucket_info b;

	for (int i = 0; i < coll_ddp_bucket_count(j->ddp); i++) {
		coll_ddp_bucket(j->ddp, i, &b);
		memset(x + b.first, 0, (b.slice_first - b.first) * sizeof(*x));
		memset(x + b.slice_first + b.slice_count, 0,
		       (b.first + b.count - b.slice_first - b.slice_count) * sizeof(*x));
	}
}

/* Means and what wires owe, as rank 0 has read them. */
static int spread_state(struct job *j, const void *owed)
{
	float *means[] = {gpt_optim_m(j->optim), gpt_optim_v(j->optim)};
	int32_t owing = owed != NULL;

	for (int i = 0; i < 2; i++) {
		if (job_check(j, coll_broadcast(means[i], means[i], j->param_count, COLL_F32, 0, j->comm, NULL)))
			return -1;
		if (j->o.zero)
			clear_others(j, means[i]);
	}
	if (job_check(j, coll_broadcast(&owing, &owing, 1, COLL_I32, 0, j->comm, NULL)))
		return -1;
	return owing ? scatter_owed(j, owed) : 0;
}

int job_resume(struct job *j)
{
	struct gpt_checkpoint c = {0};
	int64_t step = 0;
	int rc;

	if (!j->o.resume)
		return 0;
	if (j->rank == 0)
		step = read_state(j, &c);
	rc = job_agree(j) || job_check(j, coll_broadcast(&step, &step, 1, COLL_I64, 0, j->comm, NULL)) ? -1 : 0;
	if (!rc && step > 0)
		rc = spread_state(j, owed_by(j, &c));
	gpt_checkpoint_free(&c);
	if (rc)
		return -1;
	j->first_step = (long)step;
	gpt_optim_set_step(j->optim, (int)step);
	if (j->rank == 0)
		printf("ddp_gpt: continuing after step %ld\n", j->first_step);
	return 0;
}

static int write_model(struct job *j)
{
	char path[4096];

	if (path_of(j, "model.ckpt", path, sizeof(path)) == 0 &&
	    gpt_checkpoint_write(path, j->model, &j->tokenizer, (uint64_t)j->done) == 0)
		return 0;
	return note_unwritten(j, "model.ckpt");
}

int job_save_model(struct job *j)
{
	if (!j->o.out)
		return 0;
	if (j->rank == 0)
		write_model(j);
	return job_agree(j);
}
