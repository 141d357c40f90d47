/*
 * One table holds every flag: name, kind, where it goes, limits, default and
 * help. Anything that is not in the table, or not within its limits, is refused
 * by name.
 */
#include "ddp_gpt_options.h"
#include "gpt/checkpoint.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INTEGER, NUMBER, TEXT, WORD, SWITCH };

struct flag {
	const char *name;
	enum kind kind;
	size_t offset;
	double least, most; /* of numbers */
	const char *start;  /* default, as it would be typed; NULL: none */
	const char *help;
	bool local;        /* may differ between ranks */
	const char *words; /* of WORD: what it takes, joined by | */
};

#define AT(member) offsetof(struct options, member)

static const struct flag flags[] = {
        {"data", TEXT, AT(data), 0, 0, NULL, "text file to learn, read by rank 0 (default: stories of our own)", true,
         NULL},
        {"preset", WORD, AT(preset), 0, 0, "none", "sizes and schedule at once; flags after it may change parts", true,
         "none|tiny|gpt2-124M"},
        {"vocab", WORD, AT(vocab), 0, 0, "char", "char: the distinct bytes of the text; byte: all 256", false,
         "char|byte"},
        {"vocab-size", INTEGER, AT(vocab_size), 0, 1 << 20, "0", "pad the vocabulary to this; 0: do not", false, NULL},
        {"layers", INTEGER, AT(layers), 1, 1024, "4", "blocks of attention and MLP", false, NULL},
        {"width", INTEGER, AT(width), 1, 65536, "128", "numbers per token; a multiple of --heads", false, NULL},
        {"heads", INTEGER, AT(heads), 1, 1024, "4", "attention heads", false, NULL},
        {"context", INTEGER, AT(context), 1, 65536, "64", "tokens per sequence", false, NULL},
        {"batch", INTEGER, AT(batch), 1, 1 << 20, "24",
         "sequences per step over all ranks; a multiple of ranks times --accumulate", false, NULL},
        {"batch-tokens", INTEGER, AT(batch_tokens), 0, 1 << 24, "0", "the batch in tokens instead; 0: --batch counts",
         false, NULL},
        {"accumulate", INTEGER, AT(accumulate), 1, 1 << 20, "1", "micro-steps per step: less memory, the same batch",
         false, NULL},
        {"steps", INTEGER, AT(steps), 1, 1e9, "1000", "training steps", false, NULL},
        {"warmup", INTEGER, AT(warmup), 0, 1e9, "50", "steps in which the learning rate climbs to --lr", false, NULL},
        {"lr", NUMBER, AT(lr), 0, 10, "0.003", "highest learning rate; falls to a tenth along a cosine", false, NULL},
        {"weight-decay", NUMBER, AT(weight_decay), 0, 10, "0.1", "AdamW weight decay of matrices and embeddings", false,
         NULL},
        {"clip", NUMBER, AT(clip), 0, 1e9, "1", "largest norm of the gradient; 0: no limit", false, NULL},
        {"dropout", NUMBER, AT(dropout), 0, 0.95, "0", "share of numbers dropped from embeddings and branches", false,
         NULL},
        {"seed", INTEGER, AT(seed), 0, 1e15, "1", "seed of initial weights, order of the data, and sample", false,
         NULL},
        {"threads", INTEGER, AT(threads), 1, 256, "1", "threads per rank that compute", true, NULL},
        {"wire", WORD, AT(wire), 0, 0, "plain", "format in which gradients are sent", false,
         "plain|bf16|int8|powersgd"},
        {"powersgd-rank", INTEGER, AT(powersgd_rank), 1, 1024, "8", "rank of --wire powersgd", false, NULL},
        {"zero", INTEGER, AT(zero), 0, 2, "0",
         "1: each rank updates a slice of the weights; 2: and keeps only that slice of the gradients", false, NULL},
        {"local-steps", INTEGER, AT(local_steps), 1, 1e9, "1",
         "ranks step independently and average their weights after this many steps", false, NULL},
        {"deterministic", WORD, AT(deterministic), 0, 0, "run",
         "world: the same bits on 1, 2, 4 ... ranks up to --leaves", false, "run|world"},
        {"leaves", INTEGER, AT(leaves), 1, 1 << 12, "8", "parts of the batch that --deterministic=world sums", false,
         NULL},
        {"bucket-mb", NUMBER, AT(bucket_mb), 0, 1e6, "25", "largest bucket of gradients; 0: measured", false, NULL},
        {"log-every", INTEGER, AT(log_every), 1, 1e9, "50", "steps between progress lines", false, NULL},
        {"val-every", INTEGER, AT(val_every), 0, 1e9, "250", "steps between validations; 0: only at the end", false,
         NULL},
        {"val-windows", INTEGER, AT(val_windows), 0, 1e9, "1024",
         "sequences that a validation reads, spread evenly; 0: all", false, NULL},
        {"save-every", INTEGER, AT(save_every), 0, 1e9, "0", "steps between states for --resume; 0: none", false, NULL},
        {"out", TEXT, AT(out), 0, 0, NULL,
         "directory for metrics.jsonl, loss.svg, model.ckpt and state.ckpt, written by rank 0", true, NULL},
        {"resume", SWITCH, AT(resume), 0, 0, NULL, "continue from state.ckpt in --out, if it exists", true, NULL},
        {"minutes", NUMBER, AT(minutes), 0, 1e7, "0", "save and leave after this time, with status 75; 0: no limit",
         true, NULL},
        {"stop-file", TEXT, AT(stop_file), 0, 0, NULL, "save and leave once this file exists", true, NULL},
        {"trace", TEXT, AT(trace), 0, 0, NULL,
         "write the times of the buckets to this file, rank appended (Perfetto JSON)", true, NULL},
        {"stub", SWITCH, AT(stub), 0, 0, NULL,
         "send no gradients, to measure a step without communication (not for training)", false, NULL},
        {"overlap", SWITCH, AT(overlap), 0, 0, NULL,
         "send gradients in every other step, to measure how much of the time is hidden (not for training)", false,
         NULL},
        {"peak-gflops", NUMBER, AT(peak_gflops), 0, 1e9, "0",
         "of all ranks, for MFU; 0: measured with a matrix product", true, NULL},
        {"prompt", TEXT, AT(prompt), 0, 0, "", "text that the sample continues", true, NULL},
        {"sample-len", INTEGER, AT(sample_len), 1, 1e6, "400", "bytes in the sample", true, NULL},
        {"temperature", NUMBER, AT(temperature), 0, 100, "0.7", "of the sample; 0: always the likeliest", true, NULL},
        {"top-k", INTEGER, AT(top_k), 0, 1e6, "40", "draw among the k likeliest; 0: among all", true, NULL},
        {"no-sample", SWITCH, AT(no_sample), 0, 0, NULL, "print no sample", true, NULL},
        {"no-cache", SWITCH, AT(no_cache), 0, 0, NULL, "sample without the key cache: slower, same text", true, NULL},
        {"model", TEXT, AT(model), 0, 0, NULL, "with 'ddp_gpt sample': the model.ckpt to sample from", true, NULL},
        {"fault", WORD, AT(fault), 0, 0, "none",
         "for tests: one rank alone meets a gradient that is not finite, or has too little memory", true,
         "none|gradient|memory"},
        {"fault-rank", INTEGER, AT(fault_rank), 0, 1 << 20, "0", "the rank of --fault", true, NULL},
        {"fault-step", INTEGER, AT(fault_step), 1, 1e9, "1", "the step of --fault gradient", true, NULL},
        {"help", SWITCH, AT(help), 0, 0, NULL, "print this", true, NULL},
};

/* What a preset stands for; flags after it may change parts. */
static const struct {
	const char *flag, *value;
} presets[][10] = {
        [1] = {{"layers", "4"},
               {"width", "128"},
               {"heads", "4"},
               {"context", "64"},
               {"batch", "12"},
               {"steps", "2000"},
               {"warmup", "100"},
               {NULL, NULL}},
        [2] = {{"layers", "12"},
               {"width", "768"},
               {"heads", "12"},
               {"context", "1024"},
               {"vocab-size", "50257"},
               {"batch", "8"},
               {"lr", "0.0006"},
               {"warmup", "700"},
               {NULL, NULL}},
};

#define FLAG_COUNT (sizeof(flags) / sizeof(*flags))

static void *place(struct options *o, const struct flag *f)
{
	return (char *)o + f->offset;
}

__attribute__((format(printf, 2, 3))) static int complain(struct options *o, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(o->problem, sizeof(o->problem), format, args);
	va_end(args);
	return -1;
}

static int refuse(struct options *o, const struct flag *f, const char *value, const char *why)
{
	return complain(o, "--%s %s: %s", f->name, value, why);
}

static int set_number(struct options *o, const struct flag *f, const char *value)
{
	char *end, why[96];
	double x;

	errno = 0;
	x = f->kind == INTEGER ? (double)strtol(value, &end, 10) : strtod(value, &end);
	if (end == value || *end || errno)
		return refuse(o, f, value, f->kind == INTEGER ? "not a whole number" : "not a number");
	snprintf(why, sizeof(why), "must be from %.15g to %.15g", f->least, f->most);
	if (!(x >= f->least && x <= f->most))
		return refuse(o, f, value, why);
	if (f->kind == INTEGER)
		*(long *)place(o, f) = (long)x;
	else
		*(double *)place(o, f) = x;
	return 0;
}

static const struct flag *named(const char *name, size_t len)
{
	for (size_t i = 0; i < FLAG_COUNT; i++)
		if (strlen(flags[i].name) == len && !strncmp(name, flags[i].name, len))
			return &flags[i];
	return NULL;
}

/* The place of value in the list of words; -1: it is not there. */
static long find_word(const char *words, const char *value)
{
	const size_t len = strlen(value);

	for (long i = 0; words; i++) {
		const char *end = strchr(words, '|');
		const size_t n = end ? (size_t)(end - words) : strlen(words);

		if (n == len && !strncmp(words, value, n))
			return i;
		words = end ? end + 1 : NULL;
	}
	return -1;
}

static int set_word(struct options *o, const struct flag *f, const char *value)
{
	const long word = find_word(f->words, value);
	char why[128];

	snprintf(why, sizeof(why), "must be one of %s", f->words);
	if (word < 0)
		return refuse(o, f, value, why);
	*(long *)place(o, f) = word;
	return 0;
}

static int set(struct options *o, const struct flag *f, const char *value)
{
	switch (f->kind) {
	case INTEGER:
	case NUMBER: return set_number(o, f, value);
	case TEXT: *(const char **)place(o, f) = value; return 0;
	case WORD: return set_word(o, f, value);
	case SWITCH: *(bool *)place(o, f) = true; return 0;
	}
	return -1;
}

static int apply_preset(struct options *o)
{
	const size_t known = sizeof(presets) / sizeof(*presets);

	for (int i = 0; (size_t)o->preset < known && presets[o->preset][i].flag; i++) {
		const char *flag = presets[o->preset][i].flag;

		if (set(o, named(flag, strlen(flag)), presets[o->preset][i].value))
			return -1;
	}
	return 0;
}

/* The flag that arg ("--lr" or "--lr=1") names, and its value if it has one. */
static const struct flag *find(struct options *o, const char *arg, const char **value)
{
	const char *equals = strchr(arg, '=');
	const size_t len = equals ? (size_t)(equals - arg) : strlen(arg);
	const struct flag *f = len > 2 && !strncmp(arg, "--", 2) ? named(arg + 2, len - 2) : NULL;

	*value = equals ? equals + 1 : NULL;
	if (!f)
		complain(o, "unknown argument %s (--help lists all)", arg);
	return f;
}

static int check_together(struct options *o)
{
	if (o->width % o->heads)
		return complain(o, "--width %ld is not a multiple of --heads %ld", o->width, o->heads);
	if (o->batch_tokens % o->context)
		return complain(o, "--batch-tokens %ld is not a multiple of --context %ld", o->batch_tokens,
		                o->context);
	if (o->batch_tokens)
		o->batch = o->batch_tokens / o->context;
	if (o->batch * o->context > 1 << 24)
		return complain(o, "--batch %ld times --context %ld is more than 2^24 tokens per step", o->batch,
		                o->context);
	if (o->zero && (o->wire || o->local_steps > 1 || o->deterministic))
		return complain(o, "--zero needs --wire plain and excludes --local-steps and --deterministic=world");
	if (o->deterministic && (o->wire || o->local_steps > 1 || o->accumulate > 1))
		return complain(o,
		                "--deterministic=world needs --wire plain and excludes --local-steps and --accumulate");
	if (o->deterministic && (o->leaves & (o->leaves - 1) || o->batch % o->leaves))
		return complain(o, "--leaves %ld must be a power of two that divides --batch %ld", o->leaves, o->batch);
	if (o->wire && o->local_steps > 1)
		return complain(o, "--wire applies to gradients; --local-steps averages weights instead");
	if (o->overlap && (o->stub || o->resume || o->local_steps > 1 || o->steps < 4))
		return complain(o,
		                "--overlap needs four --steps or more and excludes --stub, --resume and --local-steps");
	/* Each step is timed. */
	if (o->overlap)
		o->log_every = 1;
	if (o->resume && !o->out)
		return complain(o, "--resume needs --out");
	if (o->sampling && !o->model)
		return complain(o, "sample needs --model");
	return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < FLAG_COUNT; i++)
		if (flags[i].start && set(o, &flags[i], flags[i].start))
			return -1;
	o->sampling = argc > 1 && !strcmp(argv[1], "sample");
	for (int i = 1 + o->sampling; i < argc; i++) {
		const char *value;
		const struct flag *f = find(o, argv[i], &value);

		if (!f)
			return -1;
		if (f->kind == SWITCH && value)
			return refuse(o, f, value, "takes no value");
		if (f->kind != SWITCH && !value && !(value = argv[++i]))
			return complain(o, "--%s needs a value", f->name);
		if (set(o, f, value))
			return -1;
		if (f->offset == AT(preset) && apply_preset(o))
			return -1;
	}
	return o->help ? 0 : check_together(o);
}

void options_print_help(void)
{
	printf("ddp_gpt: train a small GPT on a text, gradients averaged over all ranks.\n\n"
	       "  ddp_gpt [flags]                 alone\n"
	       "  collrun -n 2 ddp_gpt [flags]    on two ranks\n"
	       "  ddp_gpt sample --model FILE     text from a trained model\n"
	       "  ddp_gpt --version               version and commit\n\n");
	for (size_t i = 0; i < FLAG_COUNT; i++) {
		const struct flag *f = &flags[i];

		printf("  --%-15s %s", f->name, f->help);
		if (f->words)
			printf(": %s", f->words);
		printf(f->start && *f->start ? " (%s)\n" : "\n", f->start);
	}
}

uint64_t options_signature(const struct options *o)
{
	uint64_t h = 0;

	for (size_t i = 0; i < FLAG_COUNT; i++) {
		const size_t size = flags[i].kind == SWITCH ? sizeof(bool) : sizeof(long);

		_Static_assert(sizeof(long) == sizeof(double), "one size for both kinds of number");
		if (!flags[i].local)
			h = gpt_checksum(h, (const char *)o + flags[i].offset, size);
	}
	return h;
}
