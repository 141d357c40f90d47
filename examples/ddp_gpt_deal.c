/*
 * Who computes what of a step's batch.
 *
 * Rank r of n has the sequences floor(r B / n) .. floor((r + 1) B / n) of a batch of B, in --accumulate passes that
 * differ by at most one sequence. With --deterministic=world the batch is cut in leaves first, whatever the number of
 * ranks: each leaf is a pass of its own, since a product over more rows may round differently, and rank r has the
 * leaves floor(r L / n) .. floor((r + 1) L / n). Nothing need divide anything; passes and ranks may have no sequence.
 *
 * With --balance documents are dealt by their lengths instead, the longest first, each to the rank with the fewest
 * tokens so far; a pass then has as many, padded to its longest, as fit.
 */
#include "ddp_gpt_data.h"
#include "ddp_gpt_job.h"
#include "gpt/blas.h"
#include <stdlib.h>
#include <string.h>

struct document {
	int targets;
	long place;
};

struct dealt {
	struct document *batch; /* of all ranks */
	long *loads;            /* by rank */
	long *places, *cuts;    /* of this rank, by pass; of --balance */
};

static long cut(long count, long part, long parts)
{
	return (long)((int64_t)count * part / parts);
}

static long least(long a, long b)
{
	return a < b ? a : b;
}

struct part job_pass(const struct job *j, int pass)
{
	const struct options *o = &j->o;
	const long rank_first = cut(o->batch, j->rank, j->size),
	           mine = cut(o->batch, j->rank + 1, j->size) - rank_first;
	const long leaves_end = cut(o->leaves, j->rank + 1, j->size);
	const long leaf = least(cut(o->leaves, j->rank, j->size) + pass, leaves_end);

	if (o->balance)
		return (struct part){j->dealt->cuts[pass], j->dealt->cuts[pass + 1], 0};
	if (o->deterministic == DETERMINISTIC_WORLD)
		return (struct part){cut(o->batch, leaf, o->leaves),
		                     cut(o->batch, least(leaf + 1, leaves_end), o->leaves), leaf};
	return (struct part){rank_first + cut(mine, pass, o->accumulate),
	                     rank_first + cut(mine, pass + 1, o->accumulate), 0};
}

long job_share(const struct job *j)
{
	return job_pass(j, j->passes - 1).end - job_pass(j, 0).first;
}

long job_place(const struct job *j, long i)
{
	return j->o.balance ? j->dealt->places[i] : i;
}

/* ---- Documents --------------------------------------------------------------------------- */

static int longest_first(const void *a, const void *b)
{
	const struct document *x = a, *y = b;

	if (x->targets != y->targets)
		return x->targets < y->targets ? 1 : -1;
	return x->place < y->place ? -1 : x->place > y->place;
}

static void balance(struct job *j)
{
	struct dealt *d = j->dealt;
	long own = 0, fits = 0;

	qsort(d->batch, (size_t)j->o.batch, sizeof(*d->batch), longest_first);
	memset(d->loads, 0, (size_t)j->size * sizeof(*d->loads));
	j->passes = 0;
	j->own_targets = 0;
	for (long i = 0; i < j->o.batch; i++) {
		const struct document *next = &d->batch[i];
		int rank = 0;

		for (int r = 1; r < j->size; r++)
			rank = d->loads[r] < d->loads[rank] ? r : rank;
		d->loads[rank] += next->targets;
		if (rank != j->rank)
			continue;
		/* The first of a pass is its longest. */
		if (fits == 0) {
			fits = (long)j->pass_batch * j->o.context / next->targets;
			d->cuts[j->passes++] = own;
		}
		fits--;
		d->places[own++] = next->place;
		j->own_targets += next->targets;
	}
	/* A pass without any. */
	if (j->passes == 0)
		d->cuts[j->passes++] = 0;
	d->cuts[j->passes] = own;
}

static void count_targets(struct job *j, long step)
{
	const uint64_t first = job_sequences(j, step);

	j->batch_targets = 0;
	for (long i = 0; i < j->o.batch; i++) {
		j->dealt->batch[i] = (struct document){job_window_targets(j, first + (uint64_t)i), i};
		j->batch_targets += j->dealt->batch[i].targets;
	}
}

void job_deal_step(struct job *j, long step)
{
	if (!j->dealt) {
		j->batch_targets = (double)j->o.batch * (double)j->o.context;
		j->own_targets = (double)job_share(j) * (double)j->o.context;
		return;
	}
	count_targets(j, step);
	if (j->o.balance) {
		balance(j);
		return;
	}
	j->own_targets = 0;
	for (long i = job_pass(j, 0).first; i < job_pass(j, j->passes - 1).end; i++)
		j->own_targets += j->dealt->batch[i].targets;
}

static int open_dealt(struct job *j)
{
	const size_t batch = (size_t)j->o.batch;
	struct dealt *d = calloc(1, sizeof(*d));

	j->dealt = d;
	if (d) {
		d->batch = calloc(batch, sizeof(*d->batch));
		d->loads = calloc((size_t)j->size, sizeof(*d->loads));
		d->places = calloc(batch, sizeof(*d->places));
		d->cuts = calloc(batch + 2, sizeof(*d->cuts));
	}
	return job_check_memory(j, d && d->batch && d->loads && d->places && d->cuts);
}

void job_close_deal(struct job *j)
{
	if (j->dealt) {
		free(j->dealt->batch);
		free(j->dealt->loads);
		free(j->dealt->places);
		free(j->dealt->cuts);
	}
	free(j->dealt);
	j->dealt = NULL;
}

/* ---- All of it ------------------------------------------------------------------------------ */

static int up(long a, long b)
{
	return (int)((a + b - 1) / b);
}

int job_deal(struct job *j)
{
	const struct options *o = &j->o;

	if (o->local_steps > 1 && o->batch < j->size)
		return job_refuse(j, "--local-steps: --batch %ld is less than a sequence for each of the %d ranks",
		                  o->batch, j->size);
	if (o->deterministic == DETERMINISTIC_WORLD) {
		const long leaves = cut(o->leaves, j->rank + 1, j->size) - cut(o->leaves, j->rank, j->size);

		j->passes = leaves ? (int)leaves : 1;
		j->pass_batch = up(o->batch, o->leaves);
	} else {
		j->passes = (int)o->accumulate;
		j->pass_batch = up(up(o->batch, j->size), o->accumulate);
	}
	return o->documents == DOCUMENTS_APART ? open_dealt(j) : 0;
}

/* The gradient of a pass is summed or averaged over ranks to the mean over the batch. */
double job_scale(const struct job *j)
{
	if (j->o.local_steps > 1)
		return 1 / j->own_targets;
	return (j->o.deterministic == DETERMINISTIC_WORLD ? 1 : j->size) / j->batch_targets;
}

int job_check_arithmetic(struct job *j)
{
	char own[128] = "", first[sizeof(own)];

	if (j->o.deterministic != DETERMINISTIC_WORLD)
		return 0;
	snprintf(own, sizeof(own), "kernels %s, BLAS %s, --threads %ld", gpt_kernels_best()->name, gpt_blas_core(),
	         j->o.threads);
	memcpy(first, own, sizeof(own));
	if (job_check(j, coll_broadcast(first, first, sizeof(first), COLL_U8, 0, j->comm, NULL)))
		return -1;
	if (strcmp(own, first) != 0)
		job_note(j, "--deterministic=world: this rank has %s, rank 0 %s", own, first);
	return job_agree(j);
}
