/*
 * Who computes what of a step's batch.
 *
 * Rank r of n has the sequences floor(r B / n) .. floor((r + 1) B / n) of a batch of B, in --accumulate passes that
 * differ by at most one sequence. With --deterministic=world the batch is cut in leaves first, whatever the number of
 * ranks: each leaf is a pass of its own, since a product over more rows may round differently, and rank r has the
 * leaves floor(r L / n) .. floor((r + 1) L / n). Nothing need divide anything; passes and ranks may have no sequence.
 */
#include "ddp_gpt_job.h"
#include "gpt/blas.h"
#include <string.h>

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
	return 0;
}

/* The gradient of a pass is summed or averaged over ranks to the mean over the batch. */
double job_scale(const struct job *j)
{
	const double targets = (double)j->o.batch * (double)j->o.context;

	if (j->o.local_steps > 1)
		return 1 / ((double)job_share(j) * (double)j->o.context);
	return (j->o.deterministic == DETERMINISTIC_WORLD ? 1 : j->size) / targets;
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
