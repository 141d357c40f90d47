/*
 * The shared core of the perf programs: what one collective has to say about
 * itself, and the parts that do the rest (arguments, data and its verification,
 * timing, report). On the public interface only: what these programs can do, a
 * user's program can.
 *
 * One program is one rank, or with -g several in threads. All ranks walk through the same rows in the same
 * order, so every decision here depends only on the arguments, which must be
 * equal on all ranks.
 */
#ifndef COLL_BENCH_PERF_H
#define COLL_BENCH_PERF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "coll/coll.h"

/* Operations in the order of `-o all`: the public ones, then the premultiplied sum. */
enum { PERF_MULSUM = COLL_OP_COUNT, PERF_OPS };
/* The scale of the premultiplied sum: exact in every type. */
#define PERF_MULSUM_SCALE 0.5

/* ---- Arguments (args.c) ---- */

enum { PERF_ALL = -1 };

struct perf_args {
	size_t min_bytes;
	size_t max_bytes;
	size_t step_bytes;   /* with factor 0 */
	size_t factor;       /* 0: by step_bytes */
	int type;            /* or PERF_ALL */
	int op;              /* or PERF_ALL */
	int root;            /* or PERF_ALL */
	int iters;           /* timed iterations */
	int warmups;         /* untimed ones before them */
	int checks;          /* verified iterations; 0: none */
	int aggregate;       /* calls per iteration */
	int cycles;          /* times through the whole table; 0: for ever */
	int timeout_s;       /* per row; 0: none beyond the library's own */
	const char *json;    /* path or NULL */
	bool library_memory; /* buffers from coll_mem_alloc() */
	const char *device;  /* coll_config.device, or NULL; with one, buffers are its memory */
	int ranks;           /* of each process */
	size_t unalign;      /* elements from an aligned address */
	int average;         /* 0 rank 0, 1 mean, 2 minimum, 3 maximum over ranks */
	bool touch;          /* rewrite the input before each timed call */
	bool details;        /* our columns behind those of nccl-tests */
	bool check_all;      /* verify every call; results that may round are left out */
};

/* Returns 0 to go on; else the exit status plus one (help, or a refusal that was
 * explained on stderr). */
int perf_args_parse(struct perf_args *args, const char *program, int argc, char **argv);

const char *perf_type_name(coll_dtype type); /* "float", as users of nccl-tests know them */
const char *perf_op_name(int op);
bool perf_op_supports(coll_dtype type, int op);

/* ---- A collective ---- */

/* One call. count is the argument of the call: elements of the vector or of one block. */
struct perf_call {
	size_t count;
	coll_dtype type;
	coll_op op;
	int root;
	int rank;
	int size;
	coll_comm *comm;
};

/* What elements [at, at + count) of the output must be: elements first .. of the
 * input of rank source, or of the reduction of all inputs. */
enum { PERF_REDUCED = -1 };
struct perf_segment {
	size_t at;
	size_t count;
	int source;
	size_t first;
};

/* Whose inputs a rank's result has. */
enum perf_prefix { PERF_OF_ALL, PERF_UP_TO_OWN, PERF_BEFORE_OWN };

struct perf_collective {
	const char *program; /* "allreduce_perf" */
	const char *kind;    /* "all_reduce" */
	bool reduces;
	bool rooted;
	bool blocks;   /* the size column covers one block per rank */
	bool in_place; /* has an in-place form */
	bool no_data;  /* barrier */
	enum perf_prefix prefix;
	/* busbw / algbw for n ranks. */
	double (*bus_factor)(int n);
	/* Elements of input and output on this rank; 0: not used. */
	void (*extent)(const struct perf_call *c, size_t *in, size_t *out);
	/* Elements from the start of the one buffer, when in place; NULL: 0 and 0. */
	void (*place)(const struct perf_call *c, size_t *in_at, size_t *out_at);
	/* Segment k of the output of this rank; false when there is none. */
	bool (*segment)(const struct perf_call *c, int k, struct perf_segment *s);
	coll_status (*run)(const struct perf_call *c, const void *in, void *out);
};

/* main() of every program. */
int perf_main(const struct perf_collective *what, int argc, char **argv);

/* Factors shared by several collectives. */
double perf_bus_one(int n);
double perf_bus_others(int n); /* (n - 1) / n */

/* ---- Data (data.c, oracle.c) ---- */

/* Elements of one type, operation and number of ranks: made for any rank and
 * index without communication, and what their reduction must be. */
struct perf_data;
/* op -1: copied only. ranks: so many of size, the first ones, are reduced. exact: no result rounds, so that any changed
 * bit shows. NULL: out of memory. */
struct perf_data *perf_data_create(coll_dtype type, int op, int size, int ranks, bool exact);
void perf_data_destroy(struct perf_data **data);
/* Elements first .. first + count of rank's input. salt makes another data set. */
void perf_data_fill(struct perf_data *data, int rank, uint64_t salt, size_t first, size_t count, void *out);
/* Number of elements at got that are not what s says. */
uint64_t perf_data_check(struct perf_data *data, const struct perf_segment *s, uint64_t salt, const void *got);
/* Of all bytes, to compare results between ranks. */
uint64_t perf_data_hash(const void *buf, size_t len_bytes);

/* What the oracle says about one position: the bits of the result and, where the
 * operation may round, how far from value it may be (negative: not at all). */
struct perf_expected {
	uint64_t bits;
	double value;
	double tolerance;
};
uint64_t perf_oracle_input(coll_dtype type, int op, int size, int rank, uint32_t position);
/* Of the inputs that the first ranks of size ranks have. */
struct perf_expected perf_oracle_result(coll_dtype type, int op, int size, int ranks, uint32_t position);
double perf_oracle_widen(coll_dtype type, uint64_t bits); /* of a float type */

/* ---- Ranks of this process (ranks.c) ---- */

enum { PERF_RANKS_MAX = 64 };
struct perf_job {
	int ranks; /* of each process */
	const char *device;
	coll_comm *processes; /* NULL: one rank in each */
	coll_unique_id id;
	coll_comm **comms; /* NULL: several processes, or one rank */
};
/* Before the threads of the ranks; after them. Whatever begin returns, end may be called. */
coll_status perf_job_begin(struct perf_job *job, int ranks, const char *device);
coll_status perf_job_end(struct perf_job *job);
/* The communicator of a rank, by the thread of that rank. */
coll_status perf_job_create(const struct perf_job *job, int index, coll_comm **comm);

/* ---- Numbers between ranks (exchange.c) ---- */

enum { PERF_NUMBERS = 16 };
struct perf_numbers {
	uint64_t word[PERF_NUMBERS];
	uint64_t checksum;
};
/* all: one entry per rank. COLL_ERR_CORRUPT (and a line on stderr) when a checksum
 * does not fit. */
coll_status perf_exchange(coll_comm *comm, const uint64_t *mine, int count, struct perf_numbers *all);

/* ---- Device memory (device.c) ---- */

coll_status perf_device_write(void *device, const void *host, size_t len_bytes);
coll_status perf_device_read(void *host, const void *device, size_t len_bytes);
/* The GPU that has the memory at `device`. */
struct perf_gpu {
	int ordinal;
	unsigned domain, bus, slot; /* on PCI */
	char name[64];
};
bool perf_device_gpu(const void *device, struct perf_gpu *gpu);

/* ---- Timing (measure.c) and report (report.c) ---- */

/* Seconds per call. */
struct perf_times {
	double mean;
	double min;
	double p50;
	double p99;
};

struct perf_row {
	size_t bytes;
	struct perf_call call;
	int op;
	struct {
		struct perf_times times;
		double algbw; /* GB/s */
		double busbw;
		uint64_t wrong;
	} place[2]; /* out of place, in place; without a form in place, two runs out of place */
	char algorithm[48];
};

/* The buffers of one row and what to do with them. */
struct perf_test {
	const struct perf_collective *what;
	const struct perf_args *args;
	struct perf_call call;
	struct perf_data *data;
	size_t elem_bytes;
	size_t bytes; /* of the size column: decides, alike on all ranks, how to time */
	char *in;     /* host memory, filled and verified */
	char *out;
	char *in_device, *out_device; /* device memory of which they are copies; NULL: none */
	size_t in_count;
	size_t out_count;
	uint64_t salt;
	double *samples;              /* args->iters */
	struct perf_numbers *numbers; /* of each rank */
	const char **way;             /* how the call that was timed last was made; NULL: not known */
};

/* The call under test, on device buffers where there are any. */
coll_status perf_run(const struct perf_test *t);
coll_status perf_fill_input(const struct perf_test *t);
/* What the last timed call left in the output is the result of one call on the
 * input as filled. */
bool perf_measure_leaves_result(const struct perf_test *t, bool in_place);
coll_status perf_measure(const struct perf_test *t, struct perf_times *times);
/* One call and its time, kept as sample number index. */
coll_status perf_measure_one(const struct perf_test *t, int index);
/* The times that the samples of all iterations give, joined over ranks. */
coll_status perf_measure_samples(const struct perf_test *t, double total_s, struct perf_times *times);

struct perf_report {
	const struct perf_collective *what;
	const struct perf_args *args;
	FILE *table; /* NULL on ranks that print nothing */
	FILE *json;
	bool json_comma;
	double busbw_sum;
	int busbw_count;
	uint64_t wrong;
};

/* Words of each rank's numbers for perf_report_begin(). Without a device: the rank's place on its host, PCI address 0,
 * the name "CPU". */
enum { PERF_PID, PERF_OPENED, PERF_DEVICE, PERF_DOMAIN, PERF_BUS, PERF_SLOT, PERF_NAME, PERF_NAME_WORDS = 8 };
enum { PERF_BEGIN = PERF_NAME + PERF_NAME_WORDS };
void perf_report_begin(struct perf_report *r, const struct perf_collective *what, const struct perf_args *args,
                       coll_comm *comm, const struct perf_numbers *ranks);
void perf_report_row(struct perf_report *r, const struct perf_row *row);
/* complete: all rows were run. */
void perf_report_end(struct perf_report *r, bool complete);

#endif
