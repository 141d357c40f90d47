/*
 * coll-sched: run the seeded scheduler over a range of seeds.
 *
 *   coll-sched [--deaths [--every]] [--seeds A..B] [--max-size N] [--algo NAME] [--keep-going]
 *
 * Prints each failing seed with its scenario; the last line says how many seeds
 * ran, deadlocked and went wrong. Exit status 1 if any did. --deaths: ranks die;
 * --every: each seed once for every call of its transport that the first to die makes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/scheduler.h"

struct options {
	unsigned long long first, last;
	int max_size;
	const char *algo;
	bool keep_going;
	bool deaths;
	bool every; /* call of the first victim, one after the other */
};

struct totals {
	unsigned long long ran, counts[4], events, polls, by_reference, mismatches, deaths, right, failed;
};

static int usage(void)
{
	fprintf(stderr, "usage: coll-sched [--deaths [--every]] [--seeds A..B] [--max-size 2..12] [--algo NAME] "
	                "[--keep-going]\n");
	return 2;
}

static bool parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--keep-going") == 0)
			o->keep_going = true;
		else if (strcmp(argv[i], "--deaths") == 0)
			o->deaths = true;
		else if (strcmp(argv[i], "--every") == 0)
			o->deaths = o->every = true;
		else if (i + 1 == argc)
			return false;
		else if (strcmp(argv[i], "--seeds") == 0 && sscanf(argv[i + 1], "%llu..%llu", &o->first, &o->last) == 2)
			i++;
		else if (strcmp(argv[i], "--max-size") == 0 && sscanf(argv[i + 1], "%d", &o->max_size) == 1)
			i++;
		else if (strcmp(argv[i], "--algo") == 0)
			o->algo = argv[++i];
		else
			return false;
	}
	if (!o->max_size)
		o->max_size = o->deaths ? 6 : 7;
	return o->first <= o->last && o->max_size >= 2 && o->max_size <= 12;
}

/* at: the call of its transport in which the first victim dies, 0 random. */
static void run_seed(const struct options *o, struct sim_sched *s, unsigned long long seed, unsigned long long at,
                     struct sim_result *r, struct totals *t)
{
	static const char *const names[] = {"right", "wrong", "deadlock", "error"};

	if (o->deaths)
		sim_deaths_run(s, seed, o->max_size, at, 0, r);
	else
		sim_sched_run(s, seed, o->max_size, r);
	t->ran++;
	t->counts[r->what]++;
	t->events += r->events;
	t->polls += r->polls;
	t->by_reference += r->by_reference;
	t->mismatches += r->mismatch;
	t->deaths += r->deaths;
	t->right += r->survived_right;
	t->failed += r->survived_error;
	if (r->what == SIM_RIGHT)
		return;
	printf("seed %llu", seed);
	if (at)
		printf(", death in call %llu", at);
	printf(": %s: %s\n", names[r->what], r->why);
}

static void run_all(const struct options *o, struct sim_sched *s, struct totals *t)
{
	struct sim_result r;

	for (unsigned long long seed = o->first; seed <= o->last; seed++) {
		unsigned long long at = o->every;

		do
			run_seed(o, s, seed, at, &r, t);
		while (at++ && !r.outlived && (r.what == SIM_RIGHT || o->keep_going));
		if (r.what != SIM_RIGHT && !o->keep_going)
			return;
	}
}

int main(int argc, char **argv)
{
	struct options o = {.first = 1, .last = 100000};
	struct totals t = {0};
	struct sim_sched *s;

	if (!parse(argc, argv, &o))
		return usage();
	if (sim_sched_create(&s, o.algo) != COLL_OK)
		return 1;
	run_all(&o, s, &t);
	sim_sched_destroy(&s);
	printf("%llu events, %llu polls, %llu transfers by reference, %llu seeds with a call that differs\n", t.events,
	       t.polls, t.by_reference, t.mismatches);
	if (o.deaths)
		printf("%llu deaths; operations of others: %llu ended right, %llu with an error\n", t.deaths, t.right,
		       t.failed);
	printf("%llu seeds, %llu deadlocks, %llu wrong, %llu errors\n", t.ran, t.counts[SIM_DEADLOCK],
	       t.counts[SIM_WRONG], t.counts[SIM_ERROR]);
	return t.ran != t.counts[SIM_RIGHT];
}
