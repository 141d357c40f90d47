/*
 * Arguments: the flags of nccl-tests that mean something here, the rest refused
 * by name. Nothing is guessed: a value that makes no sense ends the program with
 * the flag, the value, and the usage.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "perf.h"
#include "tools/common/flag_guess.h"

static const char *const type_names[COLL_DTYPE_COUNT] = {
        [COLL_I8] = "int8",       [COLL_U8] = "uint8",      [COLL_I16] = "int16", [COLL_U16] = "uint16",
        [COLL_I32] = "int32",     [COLL_U32] = "uint32",    [COLL_I64] = "int64", [COLL_U64] = "uint64",
        [COLL_F16] = "half",      [COLL_BF16] = "bfloat16", [COLL_F32] = "float", [COLL_F64] = "double",
        [COLL_F8E4M3] = "f8e4m3", [COLL_F8E5M2] = "f8e5m2",
};

const char *perf_type_name(coll_dtype type)
{
	return type_names[type];
}

const char *perf_op_name(int op)
{
	return op == PERF_MULSUM ? "mulsum" : coll_op_name((coll_op)op);
}

bool perf_op_supports(coll_dtype type, int op)
{
	const bool real = type >= COLL_F16;

	if (op == COLL_BAND || op == COLL_BOR || op == COLL_BXOR)
		return !real;
	return op != PERF_MULSUM || real;
}

static const char usage_text[] =
        "usage: %s [flags]\n"
        "sizes\n"
        "  -b, --minbytes N[K|M|G]    smallest size (default 32M)\n"
        "  -e, --maxbytes N[K|M|G]    largest size (default 32M)\n"
        "  -i, --stepbytes N[K|M|G]   add this from size to size (default 1M)\n"
        "  -f, --stepfactor N         multiply by this instead; a size of 0 is followed by one element\n"
        "what\n"
        "  -d, --datatype TYPE|all    int8 uint8 int16 uint16 int32 uint32 int64 uint64 half bfloat16\n"
        "                             float double f8e4m3 f8e5m2 (default float)\n"
        "  -o, --op OP|all            sum prod min max avg band bor bxor land lor lxor mulsum (default sum)\n"
        "  -r, --root RANK|all        root (default 0)\n"
        "how\n"
        "  -n, --iters N              timed iterations (default 20)\n"
        "  -w, --warmup_iters N       iterations before them (default 5)\n"
        "  -m, --agg_iters N          calls per iteration (default 1)\n"
        "  -N, --run_cycles N         times through the table; 0: for ever (default 1)\n"
        "  -c, --check N              verified iterations; 0: none (default 1)\n"
        "  -T, --timeout S            end with status 3 when one row takes longer (default: none)\n"
        "  -a, --average 0|1|2|3      over ranks: 0 rank 0, 1 mean, 2 minimum, 3 maximum (default 1)\n"
        "  -R, --local_register 0|1   1: buffers from coll_mem_alloc() (default 0)\n"
        "      --device DEVICE        buffers in memory of cuda, cuda:2, ...; host: none (default: none)\n"
        "  -u, --unalign N            start the buffers N elements behind an aligned address (default 0)\n"
        "      --touch                rewrite the input before each timed call\n"
        "      --check-all            verify every call, timed and untimed ones too; implied by COLL_HOOK\n"
        "      --details              columns behind those of nccl-tests: min, p50, p99, algorithm\n"
        "  -J, --output_file FILE     write the results as JSON too\n"
        "  -g, --ngpus N              ranks of each process, in threads, with a device each (default 1)\n"
        "  -t, --nthreads 1           accepted, as 0 is for -C -D -G -I -K -M -S -p -x -y -z of nccl-tests\n"
        "  -h, --help, --version      this text, or version and commit\n"
        "Start several ranks with collrun, mpirun, torchrun or srun.\n";

enum { TOUCH = 256, CHECK_ALL, DETAILS, DEVICE };

static const struct option long_flags[] = {
        {"minbytes", 1, NULL, 'b'},
        {"maxbytes", 1, NULL, 'e'},
        {"stepbytes", 1, NULL, 'i'},
        {"stepfactor", 1, NULL, 'f'},
        {"datatype", 1, NULL, 'd'},
        {"op", 1, NULL, 'o'},
        {"root", 1, NULL, 'r'},
        {"iters", 1, NULL, 'n'},
        {"warmup_iters", 1, NULL, 'w'},
        {"agg_iters", 1, NULL, 'm'},
        {"run_cycles", 1, NULL, 'N'},
        {"check", 1, NULL, 'c'},
        {"timeout", 1, NULL, 'T'},
        {"average", 1, NULL, 'a'},
        {"local_register", 1, NULL, 'R'},
        {"unalign", 1, NULL, 'u'},
        {"touch", 0, NULL, TOUCH},
        {"check-all", 0, NULL, CHECK_ALL},
        {"output_file", 1, NULL, 'J'},
        {"ngpus", 1, NULL, 'g'},
        {"nthreads", 1, NULL, 't'},
        {"parallel_init", 1, NULL, 'p'},
        {"blocking", 1, NULL, 'z'},
        {"stream_null", 1, NULL, 'y'},
        {"cudagraph", 1, NULL, 'G'},
        {"report_cputime", 1, NULL, 'C'},
        {"report_timestamps", 1, NULL, 'S'},
        {"device_implementation", 1, NULL, 'D'},
        {"per_iter_timing", 1, NULL, 'I'},
        {"per_iter_skip", 1, NULL, 'K'},
        {"memory", 1, NULL, 'M'},
        {"cta_policy", 1, NULL, 'x'},
        {"details", 0, NULL, DETAILS},
        {"device", 1, NULL, DEVICE},
        {"help", 0, NULL, 'h'},
        {"version", 0, NULL, 'V'},
        {NULL, 0, NULL, 0},
};

/* A whole number from min to max, with a unit when units is set. */
static bool parse_number(const char *text, bool units, size_t min, size_t max, size_t *value)
{
	static const char names[] = "KMGT";
	const char *unit;
	char *end;
	double v;

	errno = 0;
	v = strtod(text, &end);
	if (errno || end == text || !(v >= 0) || strpbrk(text, "xXnN"))
		return false;
	if (*end && units && (unit = strchr(names, *end & ~32))) {
		v *= (double)(1ull << (10 * (unit - names + 1)));
		end++;
		if (*end == 'B' || *end == 'b')
			end++;
	}
	if (*end || v != (double)(size_t)v || v < (double)min || v > (double)max)
		return false;
	*value = (size_t)v;
	return true;
}

static bool parse_int(const char *text, int min, int max, int *value)
{
	size_t v;

	if (!parse_number(text, false, (size_t)min, (size_t)max, &v))
		return false;
	*value = (int)v;
	return true;
}

static bool parse_type(const char *text, int *type)
{
	*type = PERF_ALL;
	if (strcmp(text, "all") == 0)
		return true;
	for (int i = 0; i < COLL_DTYPE_COUNT; i++)
		if (strcmp(text, type_names[i]) == 0 || strcmp(text, coll_dtype_name((coll_dtype)i)) == 0)
			*type = i;
	return *type != PERF_ALL;
}

static bool parse_op(const char *text, int *op)
{
	*op = PERF_ALL;
	if (strcmp(text, "all") == 0)
		return true;
	for (int i = 0; i < PERF_OPS; i++)
		if (strcmp(text, perf_op_name(i)) == 0)
			*op = i;
	return *op != PERF_ALL;
}

static bool parse_root(const char *text, int *root)
{
	*root = PERF_ALL;
	return strcmp(text, "all") == 0 || parse_int(text, 0, INT_MAX, root);
}

/* One flag; returns NULL, or what its value should have been. */
static const char *set(struct perf_args *a, int flag, const char *v)
{
	const size_t huge = (size_t)1 << 46;
	int one = 0;

	switch (flag) {
	case 'b': return parse_number(v, true, 0, huge, &a->min_bytes) ? NULL : "a size";
	case 'e': return parse_number(v, true, 0, huge, &a->max_bytes) ? NULL : "a size";
	case 'i': return parse_number(v, true, 1, huge, &a->step_bytes) ? NULL : "a size above 0";
	case 'f': return parse_number(v, false, 2, 1 << 30, &a->factor) ? NULL : "a factor of 2 or more";
	case 'd': return parse_type(v, &a->type) ? NULL : "a type or all";
	case 'o': return parse_op(v, &a->op) ? NULL : "an operation or all";
	case 'r': return parse_root(v, &a->root) ? NULL : "a rank or all";
	case 'n': return parse_int(v, 1, 100000000, &a->iters) ? NULL : "1 or more";
	case 'w': return parse_int(v, 0, 100000000, &a->warmups) ? NULL : "0 or more";
	case 'm': return parse_int(v, 1, 1000000, &a->aggregate) ? NULL : "1 or more";
	case 'N': return parse_int(v, 0, INT_MAX, &a->cycles) ? NULL : "0 or more";
	case 'c': return parse_int(v, 0, INT_MAX, &a->checks) ? NULL : "0 or more";
	case 'T': return parse_int(v, 0, 1000000, &a->timeout_s) ? NULL : "seconds";
	case 'a': return parse_int(v, 0, 3, &a->average) ? NULL : "0, 1, 2 or 3";
	case 'u': return parse_number(v, false, 0, 1 << 20, &a->unalign) ? NULL : "a number of elements";
	case 'R':
		a->library_memory = strcmp(v, "1") == 0;
		return a->library_memory || strcmp(v, "0") == 0 ? NULL : "0 or 1";
	case 'g': return parse_int(v, 1, PERF_RANKS_MAX, &a->ranks) ? NULL : "a number of devices, at most 64";
	/* Of nccl-tests; scripts pass their defaults. */
	case 'p':
	case 'z':
	case 'y':
	case 'G':
	case 'C':
	case 'D':
	case 'I':
	case 'K':
	case 'M':
	case 'S':
	case 'x': return parse_int(v, 0, 0, &one) ? NULL : "0: the other values of nccl-tests have no counterpart here";
	case 't': return parse_int(v, 1, 1, &one) ? NULL : "1: one process is one rank, start more of them";
	case 'J': a->json = v; return *v ? NULL : "a file name";
	case CHECK_ALL: a->check_all = true; return NULL;
	case DETAILS: a->details = true; return NULL;
	case DEVICE: a->device = v; return *v ? NULL : "a device";
	default: a->touch = true; return NULL; /* TOUCH */
	}
}

static int refuse(const char *program)
{
	fprintf(stderr, usage_text, program);
	return 1 + 2;
}

/* Contradictions between flags. */
static const char *contradiction(const struct perf_args *a)
{
	if (a->min_bytes > a->max_bytes)
		return "the smallest size (-b) exceeds the largest (-e)";
	if (a->type != PERF_ALL && a->op != PERF_ALL && !perf_op_supports((coll_dtype)a->type, a->op))
		return "the operation (-o) is not defined on the type (-d)";
	if (a->ranks > 1 && (!a->device || strcmp(a->device, "host") == 0))
		return "several ranks in a process (-g) are for devices (--device)";
	return NULL;
}

int perf_args_parse(struct perf_args *args, const char *program, int argc, char **argv)
{
	const char *wants, *contradicts;
	bool max_given = false;
	int flag;

	*args = (struct perf_args){.min_bytes = 32 << 20,
	                           .max_bytes = 32 << 20,
	                           .step_bytes = 1 << 20,
	                           .type = COLL_F32,
	                           .op = COLL_SUM,
	                           .iters = 20,
	                           .warmups = 5,
	                           .checks = 1,
	                           .aggregate = 1,
	                           .cycles = 1,
	                           .average = 1,
	                           .ranks = 1};
	opterr = 0;
	while ((flag = getopt_long(argc, argv, "+:b:e:i:f:d:o:r:n:w:m:N:c:T:a:u:R:g:t:J:p:z:y:x:G:C:D:I:K:M:S:h",
	                           long_flags, NULL)) != -1) {
		if (flag == 'h') {
			printf(usage_text, program);
			return 1 + 0;
		}
		if (flag == 'V') {
			printf("%s %s\n", program, coll_version_text());
			return 1 + 0;
		}
		if (flag == ':' || flag == '?') {
			flag_refused(program, usage_text, flag, argv);
			return refuse(program);
		}
		wants = set(args, flag, optarg);
		if (wants) {
			fprintf(stderr, "%s: flag -%c %s: wanted %s\n", program, flag, optarg, wants);
			return refuse(program);
		}
		max_given |= flag == 'e';
	}
	if (optind < argc) {
		fprintf(stderr, "%s: unexpected argument %s\n", program, argv[optind]);
		return refuse(program);
	}
	if (!max_given && args->max_bytes < args->min_bytes)
		args->max_bytes = args->min_bytes;
	contradicts = contradiction(args);
	if (contradicts) {
		fprintf(stderr, "%s: %s\n", program, contradicts);
		return refuse(program);
	}
	return 0;
}
