/*
 * See layout_sweep.h.
 */
#include "tools/layout_sweep.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/common/count.h"
#include "tools/plan_layout.h"
#include "tools/plan_set.h"

enum { FACTORS_MAX = 5, RANDOM_SEED = 20261123, ALL_ROOTS_MAX = 12 };

/* One layout to be swept: factors, or a seed. */
struct job {
	int factors[FACTORS_MAX];
	int nfactors; /* 0: random */
	uint64_t seed;
};

struct state {
	const struct layout_sweep *sweep;
	struct job *jobs;
	int njobs, capacity;
	atomic_int next;
	atomic_long layouts, plans, failed;
};

/* ---- The list of layouts ---- */

static void add(struct state *st, const struct job *job)
{
	if (st->njobs == st->capacity) {
		st->capacity = st->capacity ? 2 * st->capacity : 256;
		st->jobs = realloc(st->jobs, (size_t)st->capacity * sizeof(*st->jobs));
		if (!st->jobs) {
			fprintf(stderr, "out of memory\n");
			exit(1);
		}
	}
	st->jobs[st->njobs++] = *job;
}

/* All ways to write n as a product of further factors >= 2; at most five, that is four levels and the ranks. */
static void factorise(struct state *st, struct job *job, int n)
{
	if (job->nfactors > 0 && n > 1 && job->nfactors < FACTORS_MAX) {
		struct job one = *job;

		one.factors[one.nfactors++] = n;
		one.seed = 0;
		add(st, &one);
		one.seed = (uint64_t)st->njobs;
		add(st, &one);
	}
	for (int f = 2; f < n && job->nfactors + 1 < FACTORS_MAX; f++) {
		if (n % f)
			continue;
		job->factors[job->nfactors++] = f;
		factorise(st, job, n / f);
		job->nfactors--;
	}
}

/* Hosts of one rank, for the rows that serve them. */
static void add_chain(struct state *st, int n)
{
	struct job job = {.factors = {n, 1}, .nfactors = 2};

	add(st, &job);
	job.seed = (uint64_t)st->njobs;
	add(st, &job);
}

static bool is_chain(const struct job *job)
{
	return job->nfactors > 0 && job->factors[job->nfactors - 1] == 1;
}

/* ---- Counts ---- */

static void fail(struct state *st, const struct plan_set *set, const char *form, const char *why)
{
	char layout[96];

	atomic_fetch_add(&st->failed, 1);
	coll_layout_print(set->layout, layout, sizeof(layout));
	printf("FAILED %s %s %s %s root=%d: %s\n", coll_plan_kind_name(set->algo->kind), set->algo->name, form, layout,
	       set->root, why);
}

static int ceil_log2(int n)
{
	int k = 0;

	while ((1 << k) < n)
		k++;
	return k;
}

static uint32_t ranks_of(const struct coll_layout *l, uint32_t level, uint32_t group)
{
	return l->level[level].first[group + 1] - l->level[level].first[group];
}

/* The bound of a group of a level, in chunks; *exact: it must be met, not only kept. */
static void bound_of(const struct plan_set *set, uint32_t level, uint32_t group, bool regular, uint64_t *out,
                     uint64_t *in, bool *exact)
{
	const struct coll_layout *l = set->layout;
	const uint64_t chunks = set->logical[0]->chunks, groups = l->level[level].groups;
	const uint64_t n = (uint64_t)l->size, own = ranks_of(l, level, group);
	/* Hosts of any sizes; several levels of uneven groups are not bounded at each of them. */
	const bool bounded = l->nlevels == 1 && l->level[0].links;
	uint64_t fewest = own;

	for (uint32_t g = 0; g < l->level[level].groups; g++)
		fewest = ranks_of(l, level, g) < fewest ? ranks_of(l, level, g) : fewest;

	*exact = true;
	switch (set->algo->kind) {
	case COLL_KIND_ALL_REDUCE:
		*out = *in = 2 * (groups - 1) * (chunks / groups);
		if (l->share) /* chunks + share (groups - 2) */
			*out = *in = chunks + l->share[group] * (chunks / l->parts) * (groups - 2);
		break;
	case COLL_KIND_REDUCE_SCATTER: /* one sum of each block of others leaves */
		*out = n - own;
		*in = regular ? n - own : bounded ? n - fewest : UINT64_MAX;
		*exact = regular;
		break;
	case COLL_KIND_ALL_GATHER:
		*in = n - own;
		*out = regular ? n - own : bounded ? n - fewest : UINT64_MAX;
		*exact = regular;
		break;
	case COLL_KIND_BARRIER: *out = *in = UINT64_MAX; break;
	default: /* broadcast, reduce: the vector once, over links */
		*out = *in = l->level[level].links ? chunks : UINT64_MAX;
		*exact = false;
	}
}

/* Whether all groups have equally many children at every stage up to the level. */
static bool is_regular(const struct coll_layout *l, uint32_t level)
{
	for (uint32_t i = 0; i <= level; i++) {
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		if (most != fewest)
			return false;
	}
	return true;
}

static void check_level(struct state *st, const struct plan_set *set, uint32_t level, uint64_t *out, uint64_t *in)
{
	const struct coll_layout *l = set->layout;
	const bool even = is_regular(l, l->nlevels), block = coll_plan_kind_is_block(set->algo->kind);
	char why[160];

	if (set->algo->flags & COLL_ALGO_SHORT)
		return;
	coll_plan_group_counts(plan_set_plans(set, false), l, level, out, in);
	for (uint32_t g = 0; g < l->level[level].groups; g++) {
		uint64_t most_out, most_in;
		bool exact, fine;

		bound_of(set, level, g, even, &most_out, &most_in, &exact);
		/* Where the outer groups are uneven a vector's lanes are shared out in whole numbers. */
		if (!block && !is_regular(l, level))
			continue;
		fine = exact ? out[g] == most_out && in[g] == most_in : out[g] <= most_out && in[g] <= most_in;
		if (fine)
			continue;
		snprintf(why, sizeof(why),
		         "group %u of level %u sends %llu and receives %llu chunks, bounds %llu and %llu", g, level,
		         (unsigned long long)out[g], (unsigned long long)in[g], (unsigned long long)most_out,
		         (unsigned long long)most_in);
		fail(st, set, "counted", why);
	}
}

static void check_rounds(struct state *st, const struct plan_set *set)
{
	const int most = ceil_log2(set->size) + (int)set->layout->nlevels;
	const enum coll_kind kind = set->algo->kind;
	uint32_t rounds = 0;
	char why[96];

	if (kind == COLL_KIND_BROADCAST || kind == COLL_KIND_REDUCE || set->algo->flags & COLL_ALGO_SHORT ||
	    !is_regular(set->layout, set->layout->nlevels))
		return;
	if (coll_plan_rounds(plan_set_plans(set, false), set->size, &rounds) == COLL_OK &&
	    rounds <= (uint32_t)(kind == COLL_KIND_ALL_REDUCE ? 2 * most : most))
		return;
	snprintf(why, sizeof(why), "%u rounds", rounds);
	fail(st, set, "counted", why);
}

/* A row for short vectors: in every round one frame at most leaves or enters a host, so as many as rounds. */
static void check_short(struct state *st, const struct plan_set *set)
{
	const struct coll_layout *l = set->layout;
	const uint32_t level = coll_layout_hosts(l), hosts = l->level[level].groups;
	const uint64_t most = (uint64_t)ceil_log2((int)hosts) + ((hosts & (hosts - 1)) != 0);
	uint64_t *counts;
	char why[96];

	if (!(set->algo->flags & COLL_ALGO_SHORT))
		return;
	counts = calloc((size_t)l->size * 2, sizeof(*counts));
	if (!counts)
		return;
	coll_plan_group_counts(plan_set_plans(set, false), l, level, counts, counts + l->size);
	for (uint32_t g = 0; g < hosts; g++) {
		if (counts[g] <= most && counts[(uint32_t)l->size + g] <= most)
			continue;
		snprintf(why, sizeof(why), "host %u sends %llu and receives %llu frames", g,
		         (unsigned long long)counts[g], (unsigned long long)counts[(uint32_t)l->size + g]);
		fail(st, set, "counted", why);
		break;
	}
	free(counts);
}

/* The price says what the busiest host and group of level 0 send or receive: no less than is counted, and no more
 * where groups are equal, unless that depends on the root. Hosts of uneven sites are priced only roughly. */
static void check_links(struct state *st, const struct plan_set *set)
{
	const struct coll_layout *l = set->layout;
	const double unit = coll_plan_kind_is_block(set->algo->kind) ? 1 : set->logical[0]->chunks;
	const bool exact = is_regular(l, l->nlevels) && !plan_kind_has_root(set->algo->kind) &&
	                   !(set->algo->flags & COLL_ALGO_SHORT);
	const uint32_t levels[2] = {coll_layout_hosts(l), 0};
	uint64_t *counts = calloc((size_t)l->size * 2, sizeof(*counts));
	struct coll_algo_cost inside, between;
	struct coll_algo_links links;
	char why[120];

	if (!counts || set->algo->kind == COLL_KIND_BARRIER || !l->level[0].links) {
		free(counts);
		return;
	}
	set->algo->split(l, &inside, &between, &links);
	for (int i = is_regular(l, levels[0]) ? 0 : 1; i < 2; i++) {
		const double priced = i ? links.outermost : links.host;
		uint64_t most = 0;

		coll_plan_group_counts(plan_set_plans(set, false), l, levels[i], counts, counts + l->size);
		for (int g = 0; g < 2 * l->size; g++)
			if ((uint32_t)(g % l->size) < l->level[levels[i]].groups && counts[g] > most)
				most = counts[g];
		if ((double)most <= priced * unit * 1.000001 && (!exact || (double)most > priced * unit * 0.999999))
			continue;
		snprintf(why, sizeof(why), "a group of level %u moves %llu chunks, the price says %.2f", levels[i],
		         (unsigned long long)most, priced * unit);
		fail(st, set, "priced", why);
	}
	free(counts);
}

/* The price's longest frame bounds every rank's: tiles are cut by it. */
static void check_frame(struct state *st, const struct plan_set *set)
{
	struct coll_algo_cost cost;
	const double chunks = coll_plan_kind_is_block(set->algo->kind) ? 1 : set->logical[0]->chunks;
	char why[96];

	coll_algo_cost(set->algo, set->size, set->layout, &cost);
	for (int r = 0; r < set->size; r++) {
		if (set->logical[r]->max_run <= (uint32_t)(cost.frame * chunks + 0.5))
			continue;
		snprintf(why, sizeof(why), "rank %d: a run of %u chunks, the price says %.2f", r,
		         set->logical[r]->max_run, cost.frame * chunks);
		fail(st, set, "counted", why);
		return;
	}
}

/* ---- One layout ---- */

static void verify(struct state *st, const struct coll_algo *a, const struct coll_layout *l, int root)
{
	const enum plan_lengths lengths = coll_plan_kind_is_block(a->kind) ? PLAN_RAGGED : PLAN_UNIFORM;
	uint64_t *counts;
	struct plan_set set;
	char why[256];

	if (plan_set_build_layout(&set, a, l, l->size, root, false, lengths, why, sizeof(why))) {
		set = (struct plan_set){.algo = a, .layout = l, .root = root};
		fail(st, &set, "building", why);
		return;
	}
	for (int fused = 0; fused < 2; fused++) {
		atomic_fetch_add(&st->plans, 1);
		if (plan_set_verify(&set, fused, why, sizeof(why)))
			fail(st, &set, fused ? "fused" : "logical", why);
	}
	counts = calloc((size_t)l->size * 2, sizeof(*counts));
	for (uint32_t level = 0; counts && level < l->nlevels; level++)
		check_level(st, &set, level, counts, counts + l->size);
	free(counts);
	check_rounds(st, &set);
	check_short(st, &set);
	check_links(st, &set);
	check_frame(st, &set);
	plan_set_free(&set);
}

static void sweep_layout(struct state *st, const struct coll_layout *l, bool chain)
{
	const int n = l->size, few[] = {0, 1, n / 2, n - 1};

	atomic_fetch_add(&st->layouts, 1);
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		if (!a->split || (chain && !(a->flags & COLL_ALGO_CHAIN)))
			continue;
		if (!plan_kind_has_root(a->kind))
			verify(st, a, l, 0);
		else if (n <= ALL_ROOTS_MAX)
			for (int root = 0; root < n; root++)
				verify(st, a, l, root);
		else
			for (int r = 0; r < 4; r++)
				verify(st, a, l, few[r]);
	}
}

static void *work(void *arg)
{
	struct state *st = arg;

	for (;;) {
		const int i = atomic_fetch_add(&st->next, 1);
		const struct job *job = &st->jobs[i];
		struct coll_layout *l = NULL;
		bool fine;

		if (i >= st->njobs)
			return NULL;
		if (job->nfactors)
			fine = plan_layout_even(job->factors, job->nfactors, job->seed, &l);
		else
			fine = plan_layout_random(job->seed, st->sweep->random_most, &l);
		if (!fine) {
			atomic_fetch_add(&st->failed, 1);
			printf("FAILED to make layout %d\n", i);
		}
		if (l)
			sweep_layout(st, l, is_chain(job));
		coll_layout_destroy(&l);
	}
}

struct layout_sweep_result layout_sweep_run(const struct layout_sweep *sweep)
{
	struct state st = {.sweep = sweep};
	pthread_t threads[64];
	int started = 0;

	/* The largest first: threads then end together. */
	for (int n = sweep->most; n >= 3; n--) {
		struct job job = {.nfactors = 0};

		factorise(&st, &job, n);
		add_chain(&st, n);
	}
	for (int i = 0; i < sweep->randoms; i++) {
		const struct job job = {.seed = RANDOM_SEED + (uint64_t)i};

		add(&st, &job);
	}
	while (started < sweep->threads - 1 && started < 64 && pthread_create(&threads[started], NULL, work, &st) == 0)
		started++;
	work(&st);
	while (started > 0)
		pthread_join(threads[--started], NULL);
	free(st.jobs);
	return (struct layout_sweep_result){atomic_load(&st.layouts), atomic_load(&st.plans), atomic_load(&st.failed)};
}
