/*
 * One transport between two processes of this machine, without an engine: the two meet in
 * shared memory mapped before the fork, open the transport with a service thread each, and
 * make a link with a channel in each direction.
 */
#ifndef COLL_BENCH_WIRE_H
#define COLL_BENCH_WIRE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "transport/transport.h"

struct wire_shared {
	_Alignas(64) atomic_int step[2];
	struct {
		char address[512];
		size_t len;
		struct coll_process_id id;
	} card[2];
	char note[256]; /* the program's own */
};

struct wire {
	const struct coll_transport *t;
	int me; /* 0, or 1: the child */
	pid_t child;
	struct wire_shared *shared;
	int step;
	int log_level;
	void (*relax)(struct wire *w); /* while it waits for the other */
	struct coll_transport_env env;
	void *inst, *link, *tx, *rx;
	pthread_t thread; /* of service() */
	atomic_bool over;
};

/* From here on there are two processes; the child does not outlive the parent. */
void wire_begin(struct wire *w);
void wire_barrier(struct wire *w);
/* An error is the end of the program. */
void wire_check(coll_status status, const char *what);
void wire_connect(struct wire *w);
void wire_channels(struct wire *w, size_t bytes, uint32_t depth);

/* Nanoseconds of one of n, both ends included. */
typedef void (*wire_work)(void *arg, size_t bytes, int n);
double wire_timed(struct wire *w, wire_work work, void *arg, size_t bytes, int n);

/* Both close what they have, and end; what the transport counted of the link it tells now, on
 * stderr at log_level 3. */
_Noreturn void wire_end(struct wire *w);

#endif
