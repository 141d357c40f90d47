/*
 * What the ranks of a communicator tell each other about their hosts, and the levels inside the hosts that follow from
 * it. Pure: the same input gives the same output on every rank. survey.h makes the exchange.
 */
#ifndef COLL_COMM_INSIDE_H
#define COLL_COMM_INSIDE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "context/context.h"
#include "plan/layout.h"
#include "topology/digest.h"
#include "topology/search.h"

/* What each rank sends: which digest its host has, and its own place in it. */
struct coll_inside_info {
	uint64_t hash;      /* of the digest */
	uint32_t len_bytes; /* of the digest; 0: it has none */
	int16_t package, numa, l3, core;
	uint32_t pad;
};
static_assert(sizeof(struct coll_inside_info) == 24, "no padding travels");

/* The info of a rank that may use these CPUs of a host. */
struct coll_inside_info coll_inside_info_of(const uint8_t *digest, size_t len_bytes, const cpu_set_t *cpus);

/* The distinct digests: which of them each rank has (-1: none), and the lowest rank that has it, which is the one to
 * send it. Returns how many they are. */
int coll_inside_digests(const struct coll_inside_info *infos, int ranks, int *digest_of, int *sender);

struct coll_inside_in {
	int ranks, hosts;
	const uint32_t *host_of; /* by rank */
	const struct coll_inside_info *infos;
	int digests;
	const int *digest_of, *sender;
	const uint8_t (*bytes)[COLL_DIGEST_MAX];
	unsigned forced; /* as in search.h */
};

struct coll_inside {
	int levels;
	enum coll_level level[COLL_INSIDE_LEVELS_MAX];
	uint32_t *group_of[COLL_INSIDE_LEVELS_MAX]; /* by rank; free() them */
	char why[COLL_INSIDE_LEVELS_MAX]
	        [COLL_SEARCH_WHY]; /* of package, numa and l3, also of those that are not there */
	int mixed[2]; /* two ranks of one host that see different machines, so nothing is known inside it; or -1 */
};

/* False, with the reason and the rank that is to blame (-1: this one has no memory): a digest or a info is damaged. */
bool coll_inside_find(const struct coll_inside_in *in, struct coll_inside *out, int *culprit, char *why,
                      size_t why_bytes);
void coll_inside_free(struct coll_inside *s);

/* What ranks compare of the layout that each has derived. */
struct coll_inside_fingerprint {
	uint64_t all; /* 0: there is no layout */
	uint64_t level[COLL_LEVELS];
};
struct coll_inside_fingerprint coll_inside_fingerprint_of(const struct coll_layout *layout);

/* The first rank that differs from rank 0, and the name of the outermost level at which it does; -1: none. */
int coll_inside_compare(const struct coll_inside_fingerprint *fingerprints, int ranks, const char **level);

#endif
