/*
 * The command line: flags by the table of ddp_gpt_flags.c, what excludes what, and --help.
 */
#include "ddp_gpt_options.h"
#include "ddp_gpt_flags.h"
#include "gpt/checkpoint.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) offsetof(struct options, member)

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
	x = f->kind != NUMBER ? (double)strtol(value, &end, 10) : strtod(value, &end);
	if (end == value || *end || errno || *value == ' ')
		return refuse(o, f, value, f->kind != NUMBER ? "not a whole number" : "not a number");
	snprintf(why, sizeof(why), "must be from %.15g to %.15g", f->least, f->most);
	if (!(x >= f->least && x <= f->most))
		return refuse(o, f, value, why);
	if (f->kind != NUMBER)
		*(long *)place(o, f) = (long)x;
	else
		*(double *)place(o, f) = x;
	return 0;
}

static const struct flag *named(const char *name, size_t len)
{
	for (int i = 0; i < ddp_gpt_flag_count; i++) {
		const struct flag *f = &ddp_gpt_flags[i];

		if (f->name && strlen(f->name) == len && !strncmp(name, f->name, len))
			return f;
	}
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

static bool is_latest(const char *value)
{
	return !strcmp(value, "latest") || !strcmp(value, "auto");
}

static int set_state(struct options *o, const struct flag *f, const char *value)
{
	char *end;
	long step;

	*(long *)place(o, f) = RESUME_LATEST;
	if (!value || is_latest(value))
		return 0;
	errno = 0;
	step = strtol(value, &end, 10);
	if (*value < '0' || *value > '9' || *end || errno || step < 1)
		return refuse(o, f, value, "must be a step, or latest");
	*(long *)place(o, f) = step;
	return 0;
}

static int set_steps(struct options *o, const struct flag *f, const char *value)
{
	if (strcmp(value, "epoch") != 0)
		return set_number(o, f, value);
	*(long *)place(o, f) = EVERY_EPOCH;
	return 0;
}

static int add_to_list(struct options *o, const struct flag *f, const char *value)
{
	struct option_list *list = place(o, f);

	if (list->count == OPTION_LIST_MOST)
		return refuse(o, f, value, "more than 64 of them");
	list->at[list->count++] = value;
	return 0;
}

static int set(struct options *o, const struct flag *f, const char *value)
{
	switch (f->kind) {
	case STATE: return set_state(o, f, value);
	case STEPS: return set_steps(o, f, value);
	case INTEGER:
	case NUMBER: return set_number(o, f, value);
	case TEXT: *(const char **)place(o, f) = value; return 0;
	case LIST: return add_to_list(o, f, value);
	case WORD: return set_word(o, f, value);
	case SWITCH: *(bool *)place(o, f) = true; return 0;
	}
	return -1;
}

static void note_given(struct options *o, const struct flag *f)
{
	const long i = f - ddp_gpt_flags;

	o->given[i / 64] |= (uint64_t)1 << i % 64;
}

bool options_given(const struct options *o, const char *name)
{
	const long i = named(name, strlen(name)) - ddp_gpt_flags;

	return o->given[i / 64] >> i % 64 & 1;
}

static int apply_preset(struct options *o)
{
	const size_t known = sizeof(presets) / sizeof(*presets);

	for (int i = 0; (size_t)o->preset < known && presets[o->preset][i].flag; i++) {
		const char *flag = presets[o->preset][i].flag;
		const struct flag *f = named(flag, strlen(flag));

		if (set(o, f, presets[o->preset][i].value))
			return -1;
		note_given(o, f);
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

static const char id_letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";

int options_check(struct options *o)
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
	if (o->balance && o->documents != DOCUMENTS_APART)
		return complain(o, "--balance needs --documents apart: else all sequences are of one length");
	/* Its deal depends on the ranks, and so does how many passes each makes. */
	if (o->balance && (o->deterministic || o->zero == 2 || o->dropout > 0))
		return complain(o, "--balance excludes --deterministic=world, --zero 2 and --dropout");
	if (o->token_bytes == 3)
		return complain(o, "--token-bytes 3: must be 2 or 4");
	if (o->zero && (o->wire || o->local_steps > 1))
		return complain(o, "--zero needs --wire plain and excludes --local-steps");
	if (o->zero == 2 && o->deterministic)
		return complain(o, "--deterministic=world excludes --zero 2: its sums are those of whole gradients");
	if (o->deterministic && (o->wire || o->local_steps > 1))
		return complain(o, "--deterministic=world needs --wire plain and excludes --local-steps");
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
	if (o->overwrite && o->resume)
		return complain(o, "--overwrite removes what --resume goes on with");
	if (o->overwrite && !o->out)
		return complain(o, "--overwrite needs --out");
	if (o->epochs && options_given(o, "steps"))
		return complain(o, "--epochs and --steps: only one of them says when training ends");
	if (o->run_id && (!*o->run_id || strlen(o->run_id) > 64 || o->run_id[strspn(o->run_id, id_letters)]))
		return complain(o, "--run-id %s: must be 1 to 64 letters, digits, -, _ or .", o->run_id);
	if (o->tokenizer && options_given(o, "vocab"))
		return complain(o, "--tokenizer and --vocab: only one of them says what a token is");
	if (o->sampling && !o->model)
		return complain(o, "sample needs --model");
	return 0;
}

/* The value of a flag: behind =, or the next argument. --resume takes one only if it looks like one. */
static const char *value_of(const struct flag *f, const char *behind, char **argv, int *i)
{
	if (behind || f->kind == SWITCH)
		return behind;
	if (f->kind == STATE &&
	    (!argv[*i + 1] || (!is_latest(argv[*i + 1]) && (*argv[*i + 1] < '0' || *argv[*i + 1] > '9'))))
		return NULL;
	return argv[++*i];
}

static int set_defaults(struct options *o)
{
	for (int i = 0; i < ddp_gpt_flag_count; i++)
		if (ddp_gpt_flags[i].start && set(o, &ddp_gpt_flags[i], ddp_gpt_flags[i].start))
			return -1;
	return 0;
}

int options_parse(struct options *o, int argc, char **argv)
{
	memset(o, 0, sizeof(*o));
	if (set_defaults(o))
		return -1;
	o->sampling = argc > 1 && !strcmp(argv[1], "sample");
	for (int i = 1 + o->sampling; i < argc; i++) {
		const char *arg = argv[i], *value;
		const struct flag *f;

		if (o->sampling && i == 2 && *arg != '-') {
			o->model = arg;
			continue;
		}
		f = find(o, strcmp(arg, "-h") ? arg : "--help", &value);
		if (!f)
			return -1;
		if (f->kind == SWITCH && value)
			return refuse(o, f, value, "takes no value");
		value = value_of(f, value, argv, &i);
		if (f->kind != SWITCH && f->kind != STATE && !value)
			return complain(o, "--%s needs a value", f->name);
		if (set(o, f, value))
			return -1;
		note_given(o, f);
		if (f->offset == AT(preset) && apply_preset(o))
			return -1;
	}
	return o->help ? 0 : options_check(o);
}

/* "--name VALUE" behind what is in the line already; returns how long it is then. */
static size_t put_name(char *line, size_t at, size_t len_bytes, const struct flag *f)
{
	static const char *const takes[] = {[INTEGER] = "N", [NUMBER] = "X", [STEPS] = "N"};
	const char *value = f->kind == SWITCH ? "" : f->words ? f->words : takes[f->kind];

	return at + (size_t)snprintf(line + at, len_bytes - at, "%s--%s%s%s", at ? ", " : "", f->name,
	                             *value ? " " : "", value);
}

/* The flags of one line; returns how many they are. */
static int print_flags(const struct flag *f, int most)
{
	char names[128], defaults[128];
	size_t name_at = 0, at = 0;
	int count = 0;

	do {
		name_at = put_name(names, name_at, sizeof(names), f + count);
		if (f[count].start && *f[count].start)
			at += (size_t)snprintf(defaults + at, sizeof(defaults) - at, "%s%s", at ? ", " : " (",
			                       f[count].start);
	} while (++count < most && f[count].name && !f[count].help);
	if (*f->help)
		printf("  %-32s %s%s%s\n", names, f->help, at ? defaults : "", at ? ")" : "");
	return count;
}

void options_print_help(void)
{
	printf("ddp_gpt: train a small GPT on a text, gradients averaged over all ranks.\n"
	       "  ddp_gpt [flags]                 alone\n"
	       "  collrun -n 2 ddp_gpt [flags]    on two ranks\n"
	       "  ddp_gpt sample DIR [flags]      text from a trained model\n"
	       "  ddp_gpt tokenizer train --size N --to FILE TEXT..          learn a vocabulary\n"
	       "  ddp_gpt tokenize --tokenizer FILE --to FILE.bin TEXT..     a file of tokens\n"
	       "  ddp_gpt decode --tokenizer FILE FILE.bin..                 its text\n"
	       "  ddp_gpt --version               version and commit\n");
	for (int i = 0; i < ddp_gpt_flag_count;) {
		const struct flag *f = &ddp_gpt_flags[i];

		if (!f->name && *f->help)
			printf("%s\n", f->help);
		i += f->name ? print_flags(f, ddp_gpt_flag_count - i) : 1;
	}
}

/* ---- What others ask of the table --------------------------------------------- */

int options_count(void)
{
	return ddp_gpt_flag_count;
}

const char *options_name(int i)
{
	return ddp_gpt_flags[i].name;
}

enum option_kind options_kind(int i)
{
	return ddp_gpt_flags[i].of;
}

/* With spaces between; false: there is none. */
static bool print_list(const struct option_list *list, char *text, size_t len_bytes)
{
	size_t at = 0;

	for (int i = 0; i < list->count && at < len_bytes; i++)
		at += (size_t)snprintf(text + at, len_bytes - at, "%s%s", i ? " " : "", list->at[i]);
	return list->count > 0;
}

static bool print_word(const struct flag *f, long word, char *text, size_t len_bytes)
{
	const char *at = f->words;

	while (word-- > 0)
		at = strchr(at, '|') + 1;
	snprintf(text, len_bytes, "%.*s", (int)strcspn(at, "|"), at);
	return true;
}

bool options_text(const struct options *o, int i, char *text, size_t len_bytes)
{
	const struct flag *f = &ddp_gpt_flags[i];
	const void *at = (const char *)o + f->offset;
	const long n =
	        f->kind == NUMBER || f->kind == TEXT || f->kind == LIST || f->kind == SWITCH ? 0 : *(const long *)at;

	switch (f->kind) {
	case NUMBER: snprintf(text, len_bytes, "%.15g", *(const double *)at); return true;
	case TEXT:
		if (!*(const char *const *)at)
			return false;
		snprintf(text, len_bytes, "%s", *(const char *const *)at);
		return true;
	case LIST: return print_list(at, text, len_bytes);
	case WORD: return print_word(f, n, text, len_bytes);
	case SWITCH: snprintf(text, len_bytes, "%s", *(const bool *)at ? "true" : "false"); return true;
	case STATE:
		if (n <= 0) {
			snprintf(text, len_bytes, "latest");
			return n != 0;
		}
		break;
	case STEPS:
		if (n == EVERY_EPOCH) {
			snprintf(text, len_bytes, "epoch");
			return true;
		}
		break;
	case INTEGER: break;
	}
	snprintf(text, len_bytes, "%ld", n);
	return true;
}

uint64_t options_signature(const struct options *o)
{
	uint64_t h = 0;
	char text[512];

	for (int i = 0; i < ddp_gpt_flag_count; i++)
		if (ddp_gpt_flags[i].name && ddp_gpt_flags[i].of != OPTION_LOCAL &&
		    options_text(o, i, text, sizeof(text)))
			h = gpt_checksum(h, text, strlen(text));
	return h;
}
