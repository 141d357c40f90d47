/*
 * One table holds every flag: name, kind, where it goes, limits, default and
 * help. Anything that is not in the table, or not within its limits, is refused
 * by name.
 */
#include "ddp_gpt_options.h"
#include "gpt/checkpoint.h"
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INTEGER, NUMBER, TEXT, VOCAB, SWITCH };

struct flag {
	const char *name;
	enum kind kind;
	size_t offset;
	double least, most; /* of numbers */
	const char *start;  /* default, as it would be typed; NULL: none */
	const char *help;
	bool local; /* may differ between ranks */
};

#define AT(member) offsetof(struct options, member)

static const struct flag flags[] = {
        {"data", TEXT, AT(data), 0, 0, NULL, "text file to learn, read by rank 0 (default: this project's own text)",
         true},
        {"vocab", VOCAB, AT(vocab), 0, 0, "char", "char: the distinct bytes of the text; byte: all 256", false},
        {"layers", INTEGER, AT(layers), 1, 1024, "4", "blocks of attention and MLP", false},
        {"width", INTEGER, AT(width), 1, 65536, "128", "numbers per token; a multiple of --heads", false},
        {"heads", INTEGER, AT(heads), 1, 1024, "4", "attention heads", false},
        {"context", INTEGER, AT(context), 1, 65536, "64", "tokens per sequence", false},
        {"batch", INTEGER, AT(batch), 1, 1 << 20, "24",
         "sequences per step over all ranks; a multiple of the number of ranks", false},
        {"steps", INTEGER, AT(steps), 1, 1e9, "1000", "training steps", false},
        {"warmup", INTEGER, AT(warmup), 0, 1e9, "50", "steps in which the learning rate climbs to --lr", false},
        {"lr", NUMBER, AT(lr), 0, 10, "0.003", "highest learning rate; falls to a tenth along a cosine", false},
        {"weight-decay", NUMBER, AT(weight_decay), 0, 10, "0.1", "AdamW weight decay of matrices and embeddings",
         false},
        {"clip", NUMBER, AT(clip), 0, 1e9, "1", "largest norm of the gradient; 0: no limit", false},
        {"seed", INTEGER, AT(seed), 0, 1e15, "1", "of initial weights, order of the data, and the sample", false},
        {"log-every", INTEGER, AT(log_every), 1, 1e9, "50", "steps between progress lines", false},
        {"val-every", INTEGER, AT(val_every), 0, 1e9, "250", "steps between validations; 0: only at the end", false},
        {"out", TEXT, AT(out), 0, 0, NULL, "directory for metrics.jsonl and model.ckpt, written by rank 0", true},
        {"prompt", TEXT, AT(prompt), 0, 0, "", "what the sample continues", true},
        {"sample-len", INTEGER, AT(sample_len), 1, 1e6, "400", "bytes in the sample", true},
        {"temperature", NUMBER, AT(temperature), 0, 100, "0.8", "of the sample; 0: always the likeliest", true},
        {"top-k", INTEGER, AT(top_k), 0, 1e6, "40", "draw among the k likeliest; 0: among all", true},
        {"no-sample", SWITCH, AT(no_sample), 0, 0, NULL, "print no sample", true},
        {"help", SWITCH, AT(help), 0, 0, NULL, "print this", true},
};

#define FLAG_COUNT (sizeof(flags) / sizeof(*flags))

static void *place(struct options *o, const struct flag *f)
{
	return (char *)o + f->offset;
}

static int refuse(const struct flag *f, const char *value, const char *why)
{
	fprintf(stderr, "ddp_gpt: --%s %s: %s\n", f->name, value, why);
	return -1;
}

static int set_number(struct options *o, const struct flag *f, const char *value)
{
	char *end, why[96];
	double x;

	errno = 0;
	x = f->kind == INTEGER ? (double)strtol(value, &end, 10) : strtod(value, &end);
	if (end == value || *end || errno)
		return refuse(f, value, f->kind == INTEGER ? "not a whole number" : "not a number");
	snprintf(why, sizeof(why), "must be from %.15g to %.15g", f->least, f->most);
	if (!(x >= f->least && x <= f->most))
		return refuse(f, value, why);
	if (f->kind == INTEGER)
		*(long *)place(o, f) = (long)x;
	else
		*(double *)place(o, f) = x;
	return 0;
}

static int set(struct options *o, const struct flag *f, const char *value)
{
	switch (f->kind) {
	case INTEGER:
	case NUMBER: return set_number(o, f, value);
	case TEXT: *(const char **)place(o, f) = value; return 0;
	case VOCAB:
		if (strcmp(value, "char") != 0 && strcmp(value, "byte") != 0)
			return refuse(f, value, "must be char or byte");
		*(enum gpt_vocab *)place(o, f) = strcmp(value, "byte") == 0 ? GPT_VOCAB_BYTE : GPT_VOCAB_CHAR;
		return 0;
	case SWITCH: *(bool *)place(o, f) = true; return 0;
	}
	return -1;
}

/* The flag that arg ("--lr" or "--lr=1") names, and its value if it has one. */
static const struct flag *find(const char *arg, const char **value)
{
	const char *equals = strchr(arg, '=');
	const size_t len = equals ? (size_t)(equals - arg) : strlen(arg);

	*value = equals ? equals + 1 : NULL;
	for (size_t i = 0; i < FLAG_COUNT && len > 2 && !strncmp(arg, "--", 2); i++)
		if (strlen(flags[i].name) == len - 2 && !strncmp(arg + 2, flags[i].name, len - 2))
			return &flags[i];
	fprintf(stderr, "ddp_gpt: unknown argument %s (--help lists all)\n", arg);
	return NULL;
}

static int check_together(const struct options *o)
{
	if (o->width % o->heads) {
		fprintf(stderr, "ddp_gpt: --width %ld is not a multiple of --heads %ld\n", o->width, o->heads);
		return -1;
	}
	if (o->batch * o->context > 1 << 24) {
		fprintf(stderr, "ddp_gpt: --batch %ld times --context %ld is more than 2^24 tokens per step\n",
		        o->batch, o->context);
		return -1;
	}
	return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	for (size_t i = 0; i < FLAG_COUNT; i++)
		if (flags[i].start && set(o, &flags[i], flags[i].start))
			return -1;
	for (int i = 1; i < argc; i++) {
		const char *value;
		const struct flag *f = find(argv[i], &value);

		if (!f)
			return -1;
		if (f->kind == SWITCH && value)
			return refuse(f, value, "takes no value");
		if (f->kind != SWITCH && !value && !(value = argv[++i])) {
			fprintf(stderr, "ddp_gpt: --%s needs a value\n", f->name);
			return -1;
		}
		if (set(o, f, value))
			return -1;
	}
	return o->help ? 0 : check_together(o);
}

void options_print_help(void)
{
	printf("ddp_gpt: train a small GPT on a text, gradients averaged over all ranks.\n\n"
	       "  ddp_gpt [flags]                 alone\n"
	       "  collrun -n 2 ddp_gpt [flags]    on two ranks\n\n");
	for (size_t i = 0; i < FLAG_COUNT; i++) {
		const struct flag *f = &flags[i];

		printf("  --%-14s %s", f->name, f->help);
		printf(f->start && *f->start ? " (%s)\n" : "\n", f->start);
	}
}

uint64_t options_signature(const struct options *o)
{
	uint64_t h = 0;

	for (size_t i = 0; i < FLAG_COUNT; i++) {
		const size_t size = flags[i].kind == VOCAB ? sizeof(enum gpt_vocab) : sizeof(long);

		_Static_assert(sizeof(long) == sizeof(double), "one size for both kinds of number");
		if (!flags[i].local)
			h = gpt_checksum(h, (const char *)o + flags[i].offset, size);
	}
	return h;
}
