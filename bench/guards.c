/*
 * The price of diagnosis and of calls that never hang: an 8-byte all-reduce between two
 * processes, by two builds of this library that differ in -Dguards only, in the same two
 * processes, turn by turn.
 *
 *   guards WITH.so WITHOUT.so [BLOCKS]
 *
 * Prints the median of the paired blocks' ratios, and the interval that holds the true
 * median with 95 % (order statistics). bench/guards.sh
 * builds both and runs this.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pair.h"

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
	const coll_config cfg = pair_config(p, settings);

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

int main(int argc, char **argv)
{
	const int blocks = argc > 3 ? atoi(argv[3]) : PAIR_BLOCKS;
	struct build builds[2] = {{0}};
	struct pair_side sides[2] = {{calls, &builds[0], 0}, {calls, &builds[1], 0}};
	struct pair_verdict v;
	struct pair p;
	int status = 0;

	if (argc < 3 || blocks < PAIR_BLOCKS || blocks > PAIR_BLOCKS_MAX) {
		fprintf(stderr, "usage: guards WITH.so WITHOUT.so [BLOCKS, %d to %d]\n", PAIR_BLOCKS, PAIR_BLOCKS_MAX);
		return 2;
	}
	pair_begin(&p, 4096);
	for (int i = 0; i < 2; i++) {
		load(&builds[i], argv[1 + i]);
		connect_build(&builds[i], &p);
		pair_calibrate(&p, &sides[i]);
	}
	pair_compare(&p, sides, blocks, &v);
	if (p.rank == 0)
		printf("8-byte all_reduce, %d paired blocks: with guards %.1f ns, without %.1f ns (medians); "
		       "ratio %.3f (95 %% interval %.3f .. %.3f)\n",
		       blocks, v.seconds[0] * 1e9, v.seconds[1] * 1e9, v.ratio, v.low, v.high);
	for (int i = 0; i < 2; i++) {
		status |= builds[i].failed || builds[i].out[0] != 3 || builds[i].out[1] != 30;
		status |= builds[i].destroy(&builds[i].comm) != COLL_OK;
	}
	return pair_end(&p, status);
}
