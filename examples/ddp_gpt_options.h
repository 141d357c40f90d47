/*
 * The command line of ddp_gpt.
 */
#ifndef DDP_GPT_OPTIONS_H
#define DDP_GPT_OPTIONS_H

#include "gpt/tokenizer.h"
#include <stdbool.h>
#include <stdint.h>

struct options {
	const char *data; /* NULL: the text that comes with the program */
	const char *out;  /* directory for metrics and weights; NULL: none */
	enum gpt_vocab vocab;
	long layers, width, heads, context;
	long batch; /* sequences per step, over all ranks */
	long steps, warmup;
	double lr, weight_decay, clip;
	long seed;
	long log_every, val_every;
	bool no_sample;
	long sample_len, top_k;
	double temperature;
	const char *prompt;
	bool help;
};

/* Fills o from argv; 0, or -1 with the reason on stderr. */
int options_parse(struct options *o, int argc, char **argv);

void options_print_help(void);

/* A number that differs when anything differs that all ranks must agree on. */
uint64_t options_signature(const struct options *o);

#endif
