/*
 * The table of flags: what ddp_gpt_options.c parses and prints.
 */
#ifndef DDP_GPT_FLAGS_H
#define DDP_GPT_FLAGS_H

#include "ddp_gpt_options.h"
#include <stddef.h>

enum flag_kind {
	INTEGER,
	NUMBER,
	TEXT,
	WORD,
	SWITCH,
	LIST,  /* TEXT that may be given again */
	STEPS, /* a whole number, or "epoch" */
	STATE, /* a step, "latest", "auto", or nothing */
};

struct flag {
	const char *name;
	enum flag_kind kind;
	size_t offset;
	double least, most; /* of numbers */
	const char *start;  /* default, as it would be typed; NULL: none */
	const char
	        *help; /* NULL: that of the row before, on whose line it stands; "": it is for tests, and not printed */
	enum option_kind of;
	const char *words; /* of WORD: what it takes, joined by |; of TEXT: what it is */
};

/* Rows without an offset's flag, kind TEXT and help only, are headings. */
extern const struct flag ddp_gpt_flags[];
extern const int ddp_gpt_flag_count;

#endif
