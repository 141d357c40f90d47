/*
 * Speed of the reductions: GB/s of every type and operation at every ISA level of
 * this CPU, beside plain copies of the same size, and the cost of the smallest
 * call.
 *
 * A rate counts all traffic: bytes read plus bytes written (a copy of n bytes
 * moves 2 n, a reduction of k inputs (k + 1) n). Every number is the median of nine
 * blocks of at least 5 ms. It reports; it judges nothing.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reduce/copy.h"
#include "reduce/reduce.h"

enum { BLOCKS = 9, INPUTS_MAX = 64 };

struct options {
	size_t bytes;
	int type; /* -1: all */
	int op;   /* -1: all */
	int isa;  /* -1: all */
	int inputs;
};

/* One thing to measure: body runs it once. */
struct subject {
	void (*body)(const struct subject *s);
	const struct coll_reduction *reduction;
	const void *const *src;
	void *dst;
	int inputs;
	size_t bytes;
};

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(const struct subject *s, long turns)
{
	const double begin = now_s();

	for (long i = 0; i < turns; i++) {
		s->body(s);
		__asm__ volatile("" ::: "memory");
	}
	return now_s() - begin;
}

static int compare_doubles(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median seconds of one turn. */
static double measure(const struct subject *s)
{
	double block[BLOCKS];
	long turns = 1;

	while (seconds_of(s, turns) < 5e-3)
		turns *= 2;
	for (int i = 0; i < BLOCKS; i++)
		block[i] = seconds_of(s, turns) / (double)turns;
	qsort(block, BLOCKS, sizeof(block[0]), compare_doubles);
	return block[BLOCKS / 2];
}

static void body_memcpy(const struct subject *s)
{
	memcpy(s->dst, s->src[0], s->bytes);
}

static void body_nt(const struct subject *s)
{
	coll_reduce_copy_nt(s->dst, s->src[0], s->bytes);
}

static void body_reduce(const struct subject *s)
{
	coll_reduce_run(s->reduction, s->dst, s->src, s->inputs, -1, true, s->bytes / s->reduction->elem_bytes);
}

/* Bind and run: what one small call pays. */
static void body_bind(const struct subject *s)
{
	struct coll_reduction r;

	(void)coll_reduce_bind(&r, s->reduction->type, s->reduction->op, 2, s->reduction->isa);
	coll_reduce_run(&r, s->dst, s->src, 2, -1, true, s->bytes / r.elem_bytes);
}

static double rate(const struct subject *s)
{
	return (double)s->bytes * (s->inputs + 1) / measure(s) * 1e-9;
}

static void row(const struct options *o, struct subject s, coll_dtype type, coll_op op)
{
	struct coll_reduction r;

	printf("%-6s %-5s", coll_dtype_name(type), coll_op_name(op));
	s.reduction = &r;
	for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++) {
		if (o->isa >= 0 && o->isa != isa)
			continue;
		s.body = body_reduce;
		s.bytes = o->bytes / coll_dtype_size(type) * coll_dtype_size(type);
		s.inputs = o->inputs;
		(void)coll_reduce_bind(&r, type, op, o->inputs, (enum coll_isa)isa);
		printf(" %9.2f", rate(&s));
		s.body = body_bind;
		s.bytes = 8;
		printf(" %6.2f", measure(&s) * 1e9);
	}
	printf("\n");
	fflush(stdout);
}

static void table(const struct options *o, const struct subject *base)
{
	struct subject s = *base;

	s.inputs = 1;
	s.body = body_memcpy;
	printf("# %zu bytes, %d inputs; rates in GB/s read plus written; ns: bind and run 8 bytes\n", o->bytes,
	       o->inputs);
	printf("# memcpy %.2f", rate(&s));
	s.body = body_nt;
	printf("  non-temporal %.2f\n", rate(&s));
	printf("%-6s %-5s", "type", "op");
	for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++)
		if (o->isa < 0 || o->isa == isa)
			printf(" %9s %6s", coll_reduce_isa_name((enum coll_isa)isa), "ns");
	printf("\n");
	for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++)
		for (coll_op op = 0; op < COLL_OP_COUNT; op++)
			if (coll_reduce_supports(type, op) && (o->type < 0 || o->type == (int)type) &&
			    (o->op < 0 || o->op == (int)op))
				row(o, *base, type, op);
}

static int usage(FILE *f, int status)
{
	fprintf(f, "usage: reduce_bench [options]\n"
	           "  --bytes N[K|M|G]  bytes of one input (default 16K)\n"
	           "  --type NAME       one type: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64\n"
	           "                    f8e4m3 f8e5m2\n"
	           "  --op NAME         one operation: sum prod min max avg band bor bxor land lor lxor\n"
	           "  --inputs N        inputs of one call, 2 .. 64 (default 2)\n"
	           "  --isa NAME        one level: scalar avx2 avx512\n"
	           "  --help            this text\n");
	return status;
}

static int refuse(const char *what, const char *value)
{
	fprintf(stderr, "reduce_bench: %s: %s\n", what, value);
	return usage(stderr, 2);
}

static size_t parse_bytes(const char *text)
{
	static const char units[] = "KMG";
	char *end;
	double v = strtod(text, &end);
	const char *unit = *end ? strchr(units, *end & ~32) : NULL;

	if (unit)
		v *= (double)(1ull << (10 * (unit - units + 1)));
	if (end == text || (*end && (!unit || end[1])) || !(v >= 8) || v > 1e12)
		return 0;
	return (size_t)v;
}

static int type_from_name(const char *name)
{
	for (int i = 0; i < COLL_DTYPE_COUNT; i++)
		if (strcmp(name, coll_dtype_name((coll_dtype)i)) == 0)
			return i;
	return -1;
}

static int op_from_name(const char *name)
{
	for (int i = 0; i < COLL_OP_COUNT; i++)
		if (strcmp(name, coll_op_name((coll_op)i)) == 0)
			return i;
	return -1;
}

static int isa_from_name(const char *name)
{
	for (int i = 0; i <= (int)coll_reduce_best_isa(); i++)
		if (strcmp(name, coll_reduce_isa_name((enum coll_isa)i)) == 0)
			return i;
	return -1;
}

/* 0 to go on, else the exit status plus one. */
static int parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {{"bytes", 1, NULL, 'b'}, {"type", 1, NULL, 't'},   {"op", 1, NULL, 'o'},
	                                      {"isa", 1, NULL, 'i'},   {"inputs", 1, NULL, 'n'}, {"help", 0, NULL, 'h'},
	                                      {NULL, 0, NULL, 0}};
	int c;

	while ((c = getopt_long(argc, argv, "h", longs, NULL)) != -1) {
		if (c == 'b' && !(o->bytes = parse_bytes(optarg)))
			return 1 + refuse("not a size of 8 bytes or more", optarg);
		if (c == 't' && (o->type = type_from_name(optarg)) < 0)
			return 1 + refuse("no such type", optarg);
		if (c == 'o' && (o->op = op_from_name(optarg)) < 0)
			return 1 + refuse("no such operation", optarg);
		if (c == 'i' && (o->isa = isa_from_name(optarg)) < 0)
			return 1 + refuse("no such level on this CPU", optarg);
		if (c == 'n' && ((o->inputs = atoi(optarg)) < 2 || o->inputs > INPUTS_MAX))
			return 1 + refuse("not a number of inputs from 2 to 64", optarg);
		if (c == 'h')
			return 1 + usage(stdout, 0);
		if (c == '?')
			return 1 + usage(stderr, 2);
	}
	return optind < argc ? 1 + refuse("unexpected argument", argv[optind]) : 0;
}

int main(int argc, char **argv)
{
	struct options o = {.bytes = 16384, .type = -1, .op = -1, .isa = -1, .inputs = 2};
	const void *src[INPUTS_MAX];
	const int stop = parse(&o, argc, argv);
	char *pool;
	size_t stride;

	if (stop)
		return stop - 1;
	/* Lines apart, so that the buffers do not fall on the same cache sets. */
	stride = (o.bytes + 63) / 64 * 64 + 256;
	pool = aligned_alloc(64, stride * (size_t)(o.inputs + 1));
	if (!pool) {
		fprintf(stderr, "reduce_bench: out of memory\n");
		return 1;
	}
	/* 0x3c in every byte is a moderate number in every type. */
	memset(pool, 0x3c, stride * (size_t)(o.inputs + 1));
	for (int s = 0; s < o.inputs; s++)
		src[s] = pool + stride * (size_t)(s + 1);
	table(&o, &(struct subject){.src = src, .dst = pool, .bytes = o.bytes, .inputs = o.inputs});
	free(pool);
	return 0;
}
