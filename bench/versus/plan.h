/*
 * What a run of versus measures: its flags, read and checked.
 */
#ifndef COLL_BENCH_VERSUS_PLAN_H
#define COLL_BENCH_VERSUS_PLAN_H

#include <limits.h>

#include "cell.h"

enum { PLAN_CELLS_MAX = 1024, PLAN_BLOCKS_MAX = 1001, PLAN_REFUSED = 2 };

struct plan {
	const char *path[2]; /* old, new: as given */
	char real[2][PATH_MAX];
	int ranks;
	int blocks; /* of each cell */
	struct cell_how how;
	int hosts; /* network namespaces that the ranks are in; 0: that of this program */
	char *host[RANKS_MAX];
	double below;     /* 0: nothing is repeated */
	const char *json; /* NULL: none */
	int cells;
	struct cell cell[PLAN_CELLS_MAX];
};

/* -1: go on. Else the exit status: 0 after --help, PLAN_REFUSED after a message. */
int plan_parse(struct plan *p, int argc, char **argv);

#endif
