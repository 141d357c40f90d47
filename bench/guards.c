/*
 * The price of diagnosis and of calls that never hang: an 8-byte all-reduce between two
 * processes, by two builds of this library that differ in -Dguards only, in the same two
 * processes, turn by turn.
 *
 *   guards WITH.so WITHOUT.so [BLOCKS]
 *
 * Prints the median of the paired blocks' ratios, and the interval that holds the true
 * median with 95 % (order statistics, no assumption on the distribution). bench/guards.sh
 * builds both and runs this.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

enum { BLOCKS_MIN = 30, BLOCKS_MAX = 1000 };

/* One build, at both ranks. */
struct build {
	__typeof__(coll_comm_create) *create;
	__typeof__(coll_comm_destroy) *destroy;
	__typeof__(coll_all_reduce) *all_reduce;
	__typeof__(coll_last_error) *last_error;
	coll_comm *comm;
	float in[2], out[2];
	int failed;
};

static void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	if (!p) {
		fprintf(stderr, "guards: %s\n", dlerror());
		exit(1);
	}
	return p;
}

/* Local: the two know nothing of each other. */
static void load(struct build *b, const char *path)
{
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);

	if (!lib) {
		fprintf(stderr, "guards: %s\n", dlerror());
		exit(1);
	}
	*(void **)&b->create = symbol(lib, "coll_comm_create");
	*(void **)&b->destroy = symbol(lib, "coll_comm_destroy");
	*(void **)&b->all_reduce = symbol(lib, "coll_all_reduce");
	*(void **)&b->last_error = symbol(lib, "coll_last_error");
}

static void connect_build(struct build *b, struct pair *p)
{
	static const char *const settings[] = {"COLL_TRANSPORTS=shm", NULL};
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = p->rank;
	cfg.size = 2;
	cfg.exchange = pair_exchange;
	cfg.exchange_arg = p;
	cfg.settings = settings;
	if (b->create(&b->comm, &cfg) != COLL_OK) {
		fprintf(stderr, "rank %d: %s\n", p->rank, b->last_error(NULL)->message);
		exit(1);
	}
	b->in[0] = (float)p->rank + 1;
	b->in[1] = 10 * b->in[0];
}

static void calls(void *arg, int times)
{
	struct build *b = arg;

	for (int i = 0; i < times; i++)
		if (b->all_reduce(b->in, b->out, 2, COLL_F32, COLL_SUM, b->comm, NULL) != COLL_OK)
			b->failed = 1;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, *y = b;

	return x < *y ? -1 : x > *y;
}

static void report(double *ratios, double *with, double *without, int n)
{
	/* Ranks of the order statistics that enclose the median with 95 %: binomial, normal
	 * approximation. */
	const int reach = (int)ceil(1.96 * sqrt(n) / 2), low = n / 2 - reach, high = n / 2 + reach;

	qsort(ratios, (size_t)n, sizeof(*ratios), by_value);
	qsort(with, (size_t)n, sizeof(*with), by_value);
	qsort(without, (size_t)n, sizeof(*without), by_value);
	printf("8-byte all_reduce, %d paired blocks: with guards %.1f ns, without %.1f ns (medians); "
	       "ratio %.3f (95 %% interval %.3f .. %.3f)\n",
	       n, with[n / 2] * 1e9, without[n / 2] * 1e9, ratios[n / 2], ratios[low > 0 ? low : 0],
	       ratios[high < n ? high : n - 1]);
}

int main(int argc, char **argv)
{
	static double ratios[BLOCKS_MAX], with[BLOCKS_MAX], without[BLOCKS_MAX];
	const int blocks = argc > 3 ? atoi(argv[3]) : BLOCKS_MIN;
	struct build builds[2] = {{0}};
	struct pair_side sides[2] = {{calls, &builds[0], 0}, {calls, &builds[1], 0}};
	struct pair p;
	int status = 0;

	if (argc < 3 || blocks < BLOCKS_MIN || blocks > BLOCKS_MAX) {
		fprintf(stderr, "usage: guards WITH.so WITHOUT.so [BLOCKS, %d to %d]\n", BLOCKS_MIN, BLOCKS_MAX);
		return 2;
	}
	pair_begin(&p, 4096);
	for (int i = 0; i < 2; i++) {
		load(&builds[i], argv[1 + i]);
		connect_build(&builds[i], &p);
		pair_calibrate(&p, &sides[i]);
	}
	for (int b = 0; b < blocks; b++) {
		double seconds[2];

		pair_block(&p, sides, seconds);
		with[b] = seconds[0];
		without[b] = seconds[1];
		ratios[b] = seconds[0] / seconds[1];
	}
	if (p.rank == 0)
		report(ratios, with, without, blocks);
	for (int i = 0; i < 2; i++) {
		status |= builds[i].failed || builds[i].out[0] != 3 || builds[i].out[1] != 30;
		status |= builds[i].destroy(&builds[i].comm) != COLL_OK;
	}
	return pair_end(&p, status);
}
