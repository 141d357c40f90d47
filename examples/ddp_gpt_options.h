/*
 * The command line of ddp_gpt.
 */
#ifndef DDP_GPT_OPTIONS_H
#define DDP_GPT_OPTIONS_H

#include "gpt/tokenizer.h"
#include <stdbool.h>
#include <stdint.h>

/* Positions in the lists of words that the flags take. */
enum { DETERMINISTIC_RUN, DETERMINISTIC_WORLD };
enum { FAULT_NONE, FAULT_GRADIENT, FAULT_MEMORY };

struct options {
	bool sampling;     /* `ddp_gpt sample`: no training, text from --model */
	const char *model; /* what to sample from */
	const char *data;  /* NULL: the text that comes with the program */
	const char *out;   /* directory for metrics and weights; NULL: none */
	long preset;
	long vocab; /* enum gpt_vocab */
	long vocab_size;
	long layers, width, heads, context;
	long batch;        /* sequences per step, over all ranks */
	long batch_tokens; /* the same in tokens; 0: --batch counts */
	long accumulate;
	long steps, warmup;
	double lr, weight_decay, clip, dropout;
	long seed;
	long threads;
	long wire, powersgd_rank, zero, local_steps, deterministic, leaves;
	double bucket_mb; /* 0: measured */
	long log_every, val_every, val_windows, save_every;
	double minutes;        /* 0: no limit */
	const char *stop_file; /* NULL: none */
	bool resume, stub, overlap;
	const char *trace;
	double peak_gflops; /* 0: measured */
	bool no_sample, no_cache;
	long sample_len, top_k;
	double temperature;
	const char *prompt;
	long fault, fault_rank, fault_step; /* for tests: what one rank alone meets, and when */
	bool help;
	char problem[256]; /* why options_parse() refused */
};

/* Fills o from argv; 0, or -1 with the reason in o->problem. */
int options_parse(struct options *o, int argc, char **argv);

void options_print_help(void);

/* A number that differs when anything differs that all ranks must agree on. */
uint64_t options_signature(const struct options *o);

#endif
