/*
 * What the library says is the cause of a failure, taken from the lines that ranks write to standard error.
 */
#ifndef COLLRUN_CAUSE_H
#define COLLRUN_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

struct cause {
	int rank_count;
	bool *erred; /* by rank: an error of the library was in its lines */
	int weight;  /* of the text; 0: none yet */
	int rank;    /* whose text it is */
	char text[700];
};

void cause_init(struct cause *c, int rank_count);
void cause_free(struct cause *c);
/* Nothing was said yet. */
void cause_clear(struct cause *c);
/* A line of a rank's standard error, with or without its end. */
void cause_look(struct cause *c, int rank, const char *line, size_t len_bytes);

#endif
