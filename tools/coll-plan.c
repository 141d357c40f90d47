/*
 * coll-plan: print, verify and count plans.
 *
 * The plans are those a communicator would run: same generators, same builder,
 * same lowering. Exit status 0; 1 when a plan fails; 2 for a wrong command line.
 */
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "tools/common/count.h"
#include "tools/common/flag_guess.h"
#include "tools/common/last_flush.h"
#include "tools/common/print.h"
#include "tools/layout_sweep.h"
#include "tools/plan_layout.h"
#include "tools/plan_set.h"

static const char usage[] =
        "usage: coll-plan COLLECTIVE --algo NAME -n RANKS [--rank R] [--root R] [--fused]\n"
        "                 [--ordered] [--lengths uniform|ragged|pairwise]\n"
        "                 [--layout 2x4|1,3,2 [--map block|cyclic|random:SEED] [--rates R,R...]]\n"
        "           print the plan of one rank (0), or of every rank with --rank all\n"
        "       coll-plan verify --all | [COLLECTIVE] [--algo NAME] [-n RANKS] [--root R] [-j THREADS]\n"
        "           prove plans, logical and fused: every contribution once, lengths,\n"
        "           order, no deadlock, no race, in place or not. --all: every algorithm,\n"
        "           1 to 64 ranks and primes to 257, all roots up to 16 ranks, else four\n"
        "       coll-plan verify --layouts [-n RANKS] [-j THREADS]\n"
        "           every algorithm that reads the layout, for all layouts of equal groups in\n"
        "           2 to 4 levels of up to 36 ranks, and 500 uneven ones; also what each group\n"
        "           sends and receives at each level\n"
        "       coll-plan count [COLLECTIVE] [--algo NAME] [-n RANKS] [--root R]\n"
        "                 [--layout 2x4|1,3,2 [--map block|cyclic|random:SEED] [--rates R,R...]]\n"
        "           steps, frames, rounds, and what the busiest rank sends and receives\n"
        "           as multiples of S, the bytes of one vector (or of one block);\n"
        "           with a layout also the busiest host; with sites (2x2x4) also the busiest site,\n"
        "           and with --rates, in Mb/s, the time that a MiB takes over its uplink\n"
        "       coll-plan list\n"
        "           the algorithms of every collective and what they can do\n"
        "       coll-plan --help\n"
        "\n"
        "The text form is described in docs/design/plans.md.\n";

struct options {
	const char *command; /* print, verify, count or list */
	int kind;            /* -1: all */
	const char *algo;    /* NULL: all */
	int size;            /* 0: not given */
	int rank;
	bool all_ranks;
	int root; /* -1: not given */
	bool fused;
	bool ordered;
	bool all;
	bool layouts;
	const char *layout_text, *map, *rates; /* NULL: none; "block"; none */
	struct coll_layout *layout;
	int threads;
	enum plan_lengths lengths;
};

static const char *const lengths_names[PLAN_LENGTHS_COUNT] = {"uniform", "ragged", "pairwise"};

/* ---- Command line ---- */

static void refuse(const char *what, const char *which) __attribute__((noreturn));

static void refuse(const char *what, const char *which)
{
	fprintf(stderr, "coll-plan: %s: %s (see coll-plan --help)\n", what, which);
	exit(2);
}

static int number(const char *flag, const char *text, int least, int most)
{
	int value = 0;

	if (!coll_number_parse(text, least, most, &value))
		refuse(flag, text);
	return value;
}

static enum plan_lengths lengths_from_name(const char *name)
{
	for (int i = 0; i < PLAN_LENGTHS_COUNT; i++)
		if (strcmp(name, lengths_names[i]) == 0)
			return (enum plan_lengths)i;
	refuse("--lengths", name);
}

/* Handle a flag that takes a value; false when it is none of those. */
static bool take_value(struct options *o, const char *flag, const char *value)
{
	if (strcmp(flag, "--algo") == 0)
		o->algo = value;
	else if (strcmp(flag, "-n") == 0)
		o->size = number(flag, value, 1, 65536);
	else if (strcmp(flag, "--rank") == 0 && strcmp(value, "all") == 0)
		o->all_ranks = true;
	else if (strcmp(flag, "--rank") == 0)
		o->rank = number(flag, value, 0, INT_MAX);
	else if (strcmp(flag, "--root") == 0)
		o->root = number(flag, value, 0, INT_MAX);
	else if (strcmp(flag, "--layout") == 0)
		o->layout_text = value;
	else if (strcmp(flag, "--map") == 0)
		o->map = value;
	else if (strcmp(flag, "--rates") == 0)
		o->rates = value;
	else if (strcmp(flag, "-j") == 0)
		o->threads = number(flag, value, 1, 64);
	else if (strcmp(flag, "--lengths") == 0)
		o->lengths = lengths_from_name(value);
	else
		return false;
	return true;
}

static bool takes_value(const char *flag)
{
	static const char *const flags[] = {"--algo",    "-n",       "--rank", "--root", "-j",
	                                    "--lengths", "--layout", "--map",  "--rates"};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (strcmp(flag, flags[i]) == 0)
			return true;
	return false;
}

static void take_flag(struct options *o, const char *flag)
{
	char unknown[160];

	if (strcmp(flag, "--fused") == 0)
		o->fused = true;
	else if (strcmp(flag, "--ordered") == 0)
		o->ordered = true;
	else if (strcmp(flag, "--all") == 0)
		o->all = true;
	else if (strcmp(flag, "--layouts") == 0)
		o->layouts = true;
	else {
		snprintf(unknown, sizeof(unknown), "%.60s%s", flag, flag_guess(usage, flag).text);
		refuse("unknown flag", unknown);
	}
}

static void take_word(struct options *o, const char *word)
{
	int kind = coll_plan_kind_from_name(word);

	if (!o->command && (strcmp(word, "verify") == 0 || strcmp(word, "count") == 0 || strcmp(word, "list") == 0)) {
		o->command = word;
		return;
	}
	if (kind < 0 || o->kind >= 0)
		refuse(kind < 0 ? "unknown collective or command" : "one collective too many", word);
	o->kind = kind;
	if (!o->command)
		o->command = "print";
}

static struct options parse(int argc, char **argv)
{
	struct options o = {.kind = -1, .root = -1, .threads = 2};

	last_flush_check("coll-plan");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			exit(0);
		}
		if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
			printf("coll-plan %s\n", coll_version_text());
			exit(0);
		}
		if (takes_value(argv[i])) {
			if (i + 1 == argc)
				refuse("flag without a value", argv[i]);
			take_value(&o, argv[i], argv[i + 1]);
			i++;
		} else if (argv[i][0] == '-') {
			take_flag(&o, argv[i]);
		} else {
			take_word(&o, argv[i]);
		}
	}
	if (!o.command) {
		fputs(usage, stderr);
		exit(2);
	}
	if ((o.map || o.rates) && !o.layout_text)
		refuse("needs --layout", o.map ? "--map" : "--rates");
	if (o.layout_text) {
		int size;

		if (!plan_layout_parse(o.layout_text, o.map ? o.map : "block", o.rates, &o.layout, &size))
			refuse("not a layout like 2x4 or 1,3,2 with a map like random:1", o.layout_text);
		if (o.size && o.size != size)
			refuse("another number of ranks than -n", o.layout_text);
		o.size = size;
	}
	return o;
}

static bool selected(const struct options *o, const struct coll_algo *a)
{
	return (o->kind < 0 || a->kind == (enum coll_kind)o->kind) && (!o->algo || strcmp(o->algo, a->name) == 0);
}

/* A name that selects nothing is a mistake. */
static void check_selection(const struct options *o)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (selected(o, &coll_algos[i]))
			return;
	refuse(o->kind < 0 ? "no such algorithm" : "no such algorithm for this collective", o->algo ? o->algo : "");
}

/* With a layout the rows that need one, too. */
static bool serves(const struct options *o, const struct coll_algo *a, bool ordered, enum plan_lengths lengths)
{
	return (!a->cost && o->layout && !ordered && lengths == PLAN_UNIFORM) ||
	       plan_set_serves(a, o->size, ordered, lengths);
}

/* ---- print ---- */

static void print_plan(const struct coll_plan *plan)
{
	size_t len = coll_plan_print(plan, NULL, 0) + 1;
	char *text = malloc(len);

	if (!text)
		refuse("out of memory for plan of", plan->algo);
	coll_plan_print(plan, text, len);
	fputs(text, stdout);
	free(text);
}

static int print(const struct options *o)
{
	const struct coll_algo *a;
	struct plan_set set;
	char why[256];

	if (!o->algo || !o->size)
		refuse("needs a collective and", o->algo ? "-n" : "--algo");
	a = coll_algo_find((enum coll_kind)o->kind, o->algo);
	if (!a)
		refuse("no such algorithm for this collective", o->algo);
	if (o->rank >= o->size || o->root >= o->size)
		refuse("not below the number of ranks", o->rank >= o->size ? "--rank" : "--root");
	if (!serves(o, a, o->ordered, o->lengths))
		refuse("this algorithm does not serve such a call", o->algo);
	if (plan_set_build_layout(&set, a, o->layout, o->size, o->root < 0 ? 0 : o->root, o->ordered, o->lengths, why,
	                          sizeof(why))) {
		fprintf(stderr, "coll-plan: %s\n", why);
		return 1;
	}
	for (int r = o->all_ranks ? 0 : o->rank; r <= (o->all_ranks ? o->size - 1 : o->rank); r++)
		print_plan(plan_set_plans(&set, o->fused)[r]);
	plan_set_free(&set);
	return 0;
}

/* ---- verify ---- */

enum { SIZES_MAX = 128 };

struct sweep {
	const struct options *o;
	int sizes[SIZES_MAX];
	int nsizes;
	atomic_int next; /* (size, algorithm), largest sizes first */
	atomic_long plans;
	atomic_long failed;
};

static bool is_prime(int n)
{
	for (int d = 2; d * d <= n; d++)
		if (n % d == 0)
			return false;
	return n > 1;
}

static void choose_sizes(struct sweep *w)
{
	if (w->o->size) {
		w->sizes[w->nsizes++] = w->o->size;
		return;
	}
	for (int n = 257; n >= 1; n--)
		if (n <= 64 || is_prime(n))
			w->sizes[w->nsizes++] = n;
}

/* All roots up to 16 ranks, else four. */
static void choose_roots(const struct sweep *w, enum coll_kind kind, int n, int roots[16], int *nroots)
{
	const int few[] = {0, 1, n / 2, n - 1};

	*nroots = 0;
	if (w->o->root >= 0)
		roots[(*nroots)++] = w->o->root;
	else if (!plan_kind_has_root(kind))
		roots[(*nroots)++] = 0;
	else if (n <= 16)
		for (int r = 0; r < n; r++)
			roots[(*nroots)++] = r;
	else
		for (int i = 0; i < 4; i++)
			roots[(*nroots)++] = few[i];
}

static void report(struct sweep *w, const struct coll_algo *a, int n, int root, bool ordered, enum plan_lengths lengths,
                   const char *form, const char *why)
{
	atomic_fetch_add(&w->failed, 1);
	printf("FAILED %s %s %s n=%d root=%d%s%s%s: %s\n", coll_plan_kind_name(a->kind), a->name, form, n, root,
	       ordered ? " ordered" : "", coll_plan_kind_is_block(a->kind) ? " " : "",
	       coll_plan_kind_is_block(a->kind) ? lengths_names[lengths] : "", why);
}

static void verify_set(struct sweep *w, const struct plan_set *set)
{
	char why[256];

	for (int fused = 0; fused < 2; fused++) {
		atomic_fetch_add(&w->plans, 1);
		if (plan_set_verify(set, fused, why, sizeof(why)))
			report(w, set->algo, set->size, set->root, set->ordered, set->lengths,
			       fused ? "fused" : "logical", why);
	}
}

/* Every variant of a call, the most demanding first: a proof of the same steps for
 * a more demanding call proves the lesser one too. */
static void verify_call(struct sweep *w, const struct coll_algo *a, int n, int root)
{
	static const struct {
		bool ordered;
		enum plan_lengths lengths;
	} variants[] = {
	        {true, PLAN_PAIRWISE},  {true, PLAN_RAGGED},  {true, PLAN_UNIFORM},
	        {false, PLAN_PAIRWISE}, {false, PLAN_RAGGED}, {false, PLAN_UNIFORM},
	};
	struct plan_set sets[6];
	int nsets = 0;
	char why[256];

	for (int v = 0; v < 6; v++) {
		bool known = false;

		if (!plan_set_serves(a, n, variants[v].ordered, variants[v].lengths))
			continue;
		if (plan_set_build(&sets[nsets], a, n, root, variants[v].ordered, variants[v].lengths, why,
		                   sizeof(why))) {
			atomic_fetch_add(&w->plans, 1);
			report(w, a, n, root, variants[v].ordered, variants[v].lengths, "building", why);
			continue;
		}
		for (int i = 0; i < nsets; i++)
			known |= sets[i].ordered >= sets[nsets].ordered && sets[i].lengths >= sets[nsets].lengths &&
			         plan_set_equal(&sets[i], &sets[nsets]);
		if (known) {
			plan_set_free(&sets[nsets]);
			continue;
		}
		verify_set(w, &sets[nsets++]);
	}
	while (nsets > 0)
		plan_set_free(&sets[--nsets]);
}

static void verify_size(struct sweep *w, const struct coll_algo *a, int n)
{
	int roots[16], nroots;

	choose_roots(w, a->kind, n, roots, &nroots);
	for (int i = 0; i < nroots; i++)
		if (roots[i] < n)
			verify_call(w, a, n, roots[i]);
}

static void *work(void *arg)
{
	struct sweep *w = arg;
	const int nalgos = (int)coll_algos_count;

	for (;;) {
		int i = atomic_fetch_add(&w->next, 1);

		if (i >= w->nsizes * nalgos)
			return NULL;
		if (selected(w->o, &coll_algos[i % nalgos]))
			verify_size(w, &coll_algos[i % nalgos], w->sizes[i / nalgos]);
	}
}

/* Whether all rows that are selected do. */
static bool needs_layout(const struct options *o)
{
	for (size_t i = 0; i < coll_algos_count; i++)
		if (selected(o, &coll_algos[i]) && coll_algos[i].cost)
			return false;
	return true;
}

static int verify(const struct options *o)
{
	struct sweep w = {.o = o};
	pthread_t threads[64];
	int started = 0;

	if (o->layout_text)
		refuse("cannot be verified: verify --layouts sweeps them", "--layout");
	if (o->layouts) {
		if (o->all || o->kind >= 0 || o->algo || o->root >= 0)
			refuse("--layouts cannot be combined with a choice", "verify");
		const struct layout_sweep sweep = {
		        .most = o->size ? o->size : 36, .randoms = 500, .random_most = 32, .threads = o->threads};
		const struct layout_sweep_result r = layout_sweep_run(&sweep);

		printf("%ld layouts, %ld plans, %ld failed\n", r.layouts, r.plans, r.failed);
		return r.failed != 0;
	}
	if (o->all && (o->kind >= 0 || o->algo || o->size || o->root >= 0))
		refuse("--all cannot be combined with a choice", "verify");
	if (!o->all && o->kind < 0 && !o->algo && !o->size)
		refuse("needs --all, a collective, --algo or -n", "verify");
	choose_sizes(&w);
	while (started < o->threads - 1 && pthread_create(&threads[started], NULL, work, &w) == 0)
		started++;
	work(&w);
	while (started > 0)
		pthread_join(threads[--started], NULL);
	if (atomic_load(&w.plans) == 0)
		refuse(needs_layout(o) ? "needs a layout, as verify --layouts makes them" : "not for so many ranks",
		       o->algo ? o->algo : "verify");
	printf("%ld plans, %ld failed\n", atomic_load(&w.plans), atomic_load(&w.failed));
	return atomic_load(&w.failed) != 0;
}

/* ---- count ---- */

/* The most that a group of a level sends or receives. */
static double busiest(const struct plan_set *set, uint32_t level)
{
	const struct coll_layout *l = set->layout;
	uint64_t *counts = calloc((size_t)l->size * 2, sizeof(*counts)), most = 0;

	if (!counts)
		refuse("out of memory for", set->algo->name);
	coll_plan_group_counts(plan_set_plans(set, false), l, level, counts, counts + l->size);
	for (int i = 0; i < 2 * l->size; i++)
		most = counts[i] > most ? counts[i] : most;
	free(counts);
	return (double)most;
}

static bool has_sites(const struct options *o)
{
	return o->layout && coll_layout_hosts(o->layout) > 0;
}

static void count_one(const struct options *o, const struct coll_algo *a, int n, int root)
{
	struct coll_plan_counts most = {0}, c;
	struct plan_set set;
	uint32_t rounds = 0, fused_steps = 0;
	uint64_t sent = 0;
	char why[256];

	if (plan_set_build_layout(&set, a, o->layout, n, root, false, PLAN_UNIFORM, why, sizeof(why)) ||
	    coll_plan_rounds(plan_set_plans(&set, false), n, &rounds)) {
		printf("%-15s %-14s %5d  cannot be built\n", coll_plan_kind_name(a->kind), a->name, n);
		return;
	}
	for (int r = 0; r < n; r++) {
		coll_plan_count(set.logical[r], &c);
		sent += c.sent_chunks;
		most.steps = c.steps > most.steps ? c.steps : most.steps;
		most.sends = c.sends > most.sends ? c.sends : most.sends;
		most.sent_chunks = c.sent_chunks > most.sent_chunks ? c.sent_chunks : most.sent_chunks;
		most.received_chunks =
		        c.received_chunks > most.received_chunks ? c.received_chunks : most.received_chunks;
		coll_plan_count(set.fused[r], &c);
		fused_steps = c.steps > fused_steps ? c.steps : fused_steps;
	}
	double unit = coll_plan_kind_is_block(a->kind) ? 1 : set.logical[0]->chunks;

	printf("%-15s %-14s %5d %7u %7u %7u %7u %9.3f S %9.3f S %10.3f S", coll_plan_kind_name(a->kind), a->name, n,
	       most.steps, fused_steps, most.sends, rounds, (double)most.sent_chunks / unit,
	       (double)most.received_chunks / unit, (double)sent / unit);
	if (o->layout)
		printf(" %10.3f S", busiest(&set, coll_layout_hosts(o->layout)) / unit);
	if (has_sites(o))
		printf(" %10.3f S", busiest(&set, 0) / unit);
	if (has_sites(o) && o->layout->level[0].mbps) /* Mb/s are 125 bytes a ms */
		printf(" %10.3f ms", busiest(&set, 0) / unit * (1 << 20) / (125.0 * o->layout->level[0].mbps));
	printf("\n");
	plan_set_free(&set);
}

static int count(const struct options *o)
{
	int n = o->size ? o->size : 8;
	int root = o->root < 0 ? 0 : o->root;

	if (root >= n)
		refuse("not below the number of ranks", "--root");
	printf("%-15s %-14s %5s %7s %7s %7s %7s %11s %11s %12s%s%s%s\n", "collective", "algorithm", "ranks", "steps",
	       "fused", "sends", "rounds", "sent", "received", "all sent", o->layout ? "         host" : "",
	       has_sites(o) ? "         site" : "", has_sites(o) && o->layout->level[0].mbps ? "    a MiB over" : "");
	for (size_t i = 0; i < coll_algos_count; i++)
		if (selected(o, &coll_algos[i]) &&
		    (n == o->size ? serves(o, &coll_algos[i], false, PLAN_UNIFORM)
		                  : plan_set_serves(&coll_algos[i], n, false, PLAN_UNIFORM)))
			count_one(o, &coll_algos[i], n, root);
	return 0;
}

/* ---- list ---- */

static int list(void)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		printf("%-15s %-14s", coll_plan_kind_name(a->kind), a->name);
		if (a->max_size)
			printf(" up to %d ranks", a->max_size);
		if (a->flags & COLL_ALGO_ORDERED)
			printf(" ordered");
		if (a->flags & COLL_ALGO_RAGGED)
			printf(" ragged");
		if (a->flags & COLL_ALGO_PAIRWISE)
			printf(" pairwise");
		printf("\n");
	}
	return 0;
}

static int execute(const struct options *o)
{
	if (strcmp(o->command, "verify") == 0)
		return verify(o);
	if (strcmp(o->command, "count") == 0)
		return count(o);
	if (strcmp(o->command, "list") == 0)
		return list();
	return print(o);
}

int main(int argc, char **argv)
{
	struct options o = parse(argc, argv);
	int status;

	check_selection(&o);
	status = execute(&o);
	coll_layout_destroy(&o.layout);
	return status;
}
