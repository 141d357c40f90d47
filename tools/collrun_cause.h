/*
 * What the library says is the cause of a failure, taken from the lines that ranks write to standard error.
 */
#ifndef COLLRUN_CAUSE_H
#define COLLRUN_CAUSE_H

#include <stdbool.h>
#include <stddef.h>

enum { CAUSE_IDS_MAX = 32 };

struct cause {
	int rank_count;
	bool *erred; /* by rank: an error of the library was in its lines */
	int weight;  /* of the text; 0: none yet */
	int rank;    /* whose text it is */
	char text[700];
	int id_count; /* errors of the log that were shown, and who logged them first */
	struct {
		int id, rank;
	} shown[CAUSE_IDS_MAX];
	int repeated; /* lines that were not shown again */
};

void cause_init(struct cause *c, int rank_count);
void cause_free(struct cause *c);
/* Nothing was said yet. */
void cause_clear(struct cause *c);
/* A line of a rank's standard error, with or without its end. True if it need not be shown: the library logs an error
 * that another rank has logged. Several may find the same one at the same time. */
bool cause_look(struct cause *c, int rank, const char *line, size_t len_bytes);

#endif
