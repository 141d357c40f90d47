/*
 * The error box: the code that detects an error writes it here; others pass the
 * status on. The first writer wins until it is cleared. A text may begin with an id of its own,
 * "[COLL-1101] settings differ" (messages.h).
 */
#ifndef COLL_BASE_ERROR_H
#define COLL_BASE_ERROR_H

#include <stdarg.h>
#include <stdint.h>

#include "coll/coll.h"

struct coll_error_box {
	coll_status status;
	int rank;
	int exit_status; /* of an abort; 0: none */
	uint64_t operation;
	int step;
	double elapsed_s;
	char host[64];
	char kind[32];
	char link[16];
	char message[640];
};

void coll_error_clear(struct coll_error_box *box);

/* Record status and a printf message (if nothing is recorded yet) and return
 * status. box may be NULL. */
coll_status coll_error_set(struct coll_error_box *box, coll_status status, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

#endif
