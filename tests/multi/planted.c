/*
 * Which planted defect the programs rounds-planted, ways_all-planted, cuda_queues-planted,
 * cuda_records-planted and cuda_graphs-planted have: SOAK_PLANTED names it, before main() begins. A wrong name ends it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/planted.h"

enum coll_planted coll_planted;

static const char *const names[] = {"none",         "wrong-rank",    "deaf",         "named-file",    "wrong-byte",
                                    "silent-end",   "wrong-row",     "late-kernel",  "pageable-copy", "late-stream",
                                    "host-touch",   "stale-words",   "early-record", "no-tail",       "stale-region",
                                    "wrong-offset", "kept-in-place", "early-taken",  "early-clear"};

__attribute__((constructor)) static void choose(void)
{
	const char *wanted = getenv("SOAK_PLANTED");

	for (size_t i = 0; wanted && i < sizeof(names) / sizeof(names[0]); i++)
		if (strcmp(wanted, names[i]) == 0) {
			coll_planted = (enum coll_planted)i;
			return;
		}
	fprintf(stderr, "SOAK_PLANTED must name a defect\n");
	_exit(64);
}
