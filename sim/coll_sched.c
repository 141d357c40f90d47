/*
 * coll-sched: run the seeded scheduler over a range of seeds.
 *
 *   coll-sched [--deaths] [--seeds A..B] [--max-size N] [--algo NAME] [--keep-going]
 *
 * Prints each failing seed with its scenario; the last line says how many seeds
 * ran, deadlocked and went wrong. Exit status 1 if any did. --deaths: ranks die.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sched.h"

struct options {
	unsigned long long first, last;
	int max_size;
	const char *algo;
	bool keep_going;
	bool deaths;
};

static int usage(void)
{
	fprintf(stderr,
	        "usage: coll-sched [--deaths] [--seeds A..B] [--max-size 2..12] [--algo NAME] [--keep-going]\n");
	return 2;
}

static bool parse(int argc, char **argv, struct options *o)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--keep-going") == 0)
			o->keep_going = true;
		else if (strcmp(argv[i], "--deaths") == 0)
			o->deaths = true;
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

int main(int argc, char **argv)
{
	static const char *const names[] = {"right", "wrong", "deadlock", "error"};
	struct options o = {.first = 1, .last = 100000};
	unsigned long long counts[4] = {0}, events = 0, polls = 0, by_reference = 0, mismatches = 0, ran = 0;
	unsigned long long deaths = 0, right = 0, failed = 0;
	struct sim_sched *s;

	if (!parse(argc, argv, &o))
		return usage();
	if (sim_sched_create(&s, o.algo) != COLL_OK)
		return 1;
	for (unsigned long long seed = o.first; seed <= o.last; seed++) {
		struct sim_result r;

		if (o.deaths)
			sim_deaths_run(s, seed, o.max_size, 0, &r);
		else
			sim_sched_run(s, seed, o.max_size, &r);
		ran++;
		counts[r.what]++;
		events += r.events;
		polls += r.polls;
		by_reference += r.by_reference;
		mismatches += r.mismatch;
		deaths += r.deaths;
		right += r.survived_right;
		failed += r.survived_error;
		if (r.what == SIM_RIGHT)
			continue;
		printf("seed %llu: %s: %s\n", seed, names[r.what], r.why);
		if (!o.keep_going)
			break;
	}
	sim_sched_destroy(&s);
	printf("%llu events, %llu polls, %llu transfers by reference, %llu seeds with a call that differs\n", events,
	       polls, by_reference, mismatches);
	if (o.deaths)
		printf("%llu deaths; operations of others: %llu ended right, %llu with an error\n", deaths, right,
		       failed);
	printf("%llu seeds, %llu deadlocks, %llu wrong, %llu errors\n", ran, counts[SIM_DEADLOCK], counts[SIM_WRONG],
	       counts[SIM_ERROR]);
	return ran != counts[SIM_RIGHT];
}
