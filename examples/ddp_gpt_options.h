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
enum { DOCUMENTS_JOINED, DOCUMENTS_APART };
enum { STRIDE_AUTO, STRIDE_1, STRIDE_CONTEXT };
enum { SAVE_F32, SAVE_BF16 };
enum { METRICS_JSONL, METRICS_CSV };
enum { FAULT_NONE, FAULT_GRADIENT, FAULT_MEMORY, FAULT_SLOW };

/* --resume without a step, and --save-every epoch. */
enum { RESUME_LATEST = -1, EVERY_EPOCH = -1 };

/* Must it be equal on all ranks, and where a run goes on from a state? Of the model: both. Of the run: on all ranks. */
enum option_kind { OPTION_LOCAL, OPTION_OF_RUN, OPTION_OF_MODEL };

/* What a flag was given, again and again. */
#define OPTION_LIST_MOST 64
struct option_list {
	const char *at[OPTION_LIST_MOST];
	long count;
};

struct options {
	bool sampling;                     /* `ddp_gpt sample`: no training, text from --model */
	const char *model;                 /* what to sample from */
	struct option_list data, val_data; /* none: the text that comes with the program; a tenth of --data */
	long stride, documents, token_bytes;
	bool special, balance;
	const char *field; /* of a line of JSON */
	long skip_bad;
	const char *init; /* directory of a model to begin with; NULL: none */
	const char *out;  /* directory for metrics and weights; NULL: none */
	long preset;
	const char *tokenizer; /* file or directory; NULL: --vocab counts */
	long vocab;            /* enum gpt_vocab */
	long vocab_size;
	long layers, width, heads, context;
	long batch;        /* sequences per step, over all ranks */
	long batch_tokens; /* the same in tokens; 0: --batch counts */
	long accumulate;
	long steps, warmup;
	long epochs;       /* instead of steps; 0: steps count */
	uint64_t given[2]; /* a bit for each flag that was typed, or is of a preset */
	double lr, weight_decay, beta1, beta2, adam_eps, clip, dropout, label_smoothing;
	long seed;
	long threads;
	long wire, powersgd_rank, zero, local_steps, deterministic, leaves;
	double bucket_mb;                                   /* 0: measured */
	long log_every, val_every, val_windows, save_every; /* EVERY_EPOCH */
	double minutes;                                     /* 0: no limit */
	const char *stop_file;                              /* NULL: none */
	long keep, model_every, save_type;
	long resume; /* a step, RESUME_LATEST, or 0: no */
	const char *run_id;
	long metrics;
	bool tensorboard, per_rank;
	bool overwrite, keep_best, stub, overlap;
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

/* What excludes what, again: something was changed since. -1 with the reason in o->problem. */
int options_check(struct options *o);
bool options_given(const struct options *o, const char *name);

void options_print_help(void);

/* Every flag by its number. */
int options_count(void);
/* NULL: it is a heading. */
const char *options_name(int flag);
enum option_kind options_kind(int flag);
/* Its value as it would be typed; false: it has none. */
bool options_text(const struct options *o, int flag, char *text, size_t len_bytes);

/* A number that differs when anything differs that all ranks must agree on. */
uint64_t options_signature(const struct options *o);

#endif
