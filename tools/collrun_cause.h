/*
 * What the library says is the cause of a failure, taken from the lines that ranks write to standard error.
 */
#ifndef COLLRUN_CAUSE_H
#define COLLRUN_CAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CAUSE_SHOWN_MAX = 32 };

struct cause_shown {
	uint64_t text, without_rank; /* hashes: of the whole text, and without the number of its rank */
	uint64_t at_ns;
	int rank;
};

struct cause {
	int rank_count;
	bool *erred;     /* by rank: an error of the library was in its lines */
	int weight;      /* of the text; 0: none yet */
	int rank;        /* whose text it is */
	int exit_status; /* of the first abort that gave one, 1 to 255; 0: none did */
	char text[700];
	unsigned shown_count;
	struct cause_shown shown[CAUSE_SHOWN_MAX]; /* the latest errors of the log that were shown; a ring */
	int repeated;                              /* lines left out since that was said */
};

void cause_init(struct cause *c, int rank_count);
void cause_free(struct cause *c);
/* Nothing was said yet. */
void cause_clear(struct cause *c);
/* A line of a rank's standard error, with or without its end. True if it need not be shown: the library logs the same
 * text, but for the number of the rank, that another rank logged within the last second. */
bool cause_look(struct cause *c, int rank, const char *line, size_t len_bytes);

#endif
