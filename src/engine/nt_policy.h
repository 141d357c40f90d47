/*
 * Store policy: whether the results of a call are written with cached or with non-temporal stores.
 *
 * A cached store first reads the line that it overwrites, and displaces data that is still to be read.
 * If the working set of all ranks of a host fits its caches, cached stores are free, and non-temporal stores,
 * which go to memory, are costly. Virtual machines misreport cache sizes: they see the size of a cache of which
 * they have a small share. So between two bounds calls are made both ways and timed:
 *
 *   less than least_bytes   cached
 *   2 * reported_bytes or more  non-temporal
 *   between                 first by assume_bytes. Then a trial: some calls each way, and the
 *                           faster one stays; again after 32, 64 ... 1024 such calls
 *
 * Ranks that make the same calls have their trials at the same time, as long as their results agree. This is not
 * required: it is a local fact, and results do not depend on it. It reads no clock: the caller passes the
 * time of the rank's own work, without its waits.
 *
 * The later use of the results is not timed: the next reader finds them in memory, not in a cache.
 * Hence `gain`. docs/design/shm-large.md has the measurements.
 */
#ifndef COLL_ENGINE_NT_POLICY_H
#define COLL_ENGINE_NT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is stored to results; each is judged by itself. */
enum coll_nt_pass {
	COLL_NT_COPY,   /* copied from memory that ranks share */
	COLL_NT_SUM,    /* reduced to one place */
	COLL_NT_SPREAD, /* reduced to the places of all ranks */
	COLL_NT_STAGED, /* copied or reduced from slots and tiles */
	COLL_NT_PASSES
};
enum { COLL_NT_SIZES = 16 };

/* Bytes are those that one rank's caller gives to the call, input and result. */
struct coll_nt_rule {
	size_t least_bytes;    /* they fit a core's own caches */
	size_t assume_bytes;   /* from here on past the caches, as long as nothing is known */
	size_t reported_bytes; /* the rank's share of the last caches, as the system tells it */
	double gain;           /* the other way must be so many times quicker */
};

/* Calls of one pass, of sizes within a factor of two. */
struct coll_nt_class {
	bool known;       /* begun: streams is its own */
	bool streams;     /* between looks */
	bool looks;       /* calls are made both ways */
	uint8_t tried[2]; /* in this look: cached, streamed */
	double best[2];   /* of those, bytes per ns */
	uint32_t left;    /* calls to the next look */
	uint32_t hold;    /* the next `left` */
};

/* Of one communicator; one thread at a time. */
struct coll_nt {
	struct coll_nt_rule rule;
	struct coll_nt_class classes[COLL_NT_PASSES][COLL_NT_SIZES];
};

struct coll_nt_choice {
	bool stream;
	bool timed; /* tell how long the passes took */
};

void coll_nt_init(struct coll_nt *s, struct coll_nt_rule rule);

/* The next call. */
struct coll_nt_choice coll_nt_choose(struct coll_nt *s, enum coll_nt_pass pass, size_t bytes);
/* A call that was timed has ended. */
void coll_nt_took(struct coll_nt *s, enum coll_nt_pass pass, size_t bytes, bool stream, uint64_t ns);

/* Calls that are not timed: by what the system tells alone. */
static inline bool coll_nt_by_size(const struct coll_nt *s, size_t bytes)
{
	return bytes >= s->rule.reported_bytes;
}

#endif
