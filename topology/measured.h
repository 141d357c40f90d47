/*
 * The table of measured links: what coll-tune writes and COLL_TUNE_FILE names. Text, a line for each host, site and the
 * path between hosts. Pure: it measures nothing, opens no file, and what it reads may be anything.
 *
 *     coll-tune 1
 *     measured 2026-11-27T19:10:00Z
 *     library 0.1.0
 *     transport tcp
 *     hop_ns 30000
 *     host a out 956 in 956 site 0
 *     host b out 478 in 478 site 1
 *     site 0 uplink 478
 *     site 1 uplink 478
 *
 * Rates are those of payload, in Mb/s. Either all hosts have a site or none has. A line that begins with # is a
 * comment.
 */
#ifndef COLL_TOPOLOGY_MEASURED_H
#define COLL_TOPOLOGY_MEASURED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { COLL_TUNE_NAME_BYTES = 64, COLL_TUNE_WORD_BYTES = 32, COLL_TUNE_HOSTS_MAX = 4096, COLL_TUNE_TEXT_MAX = 1 << 20 };

struct coll_measured_host {
	char name[COLL_TUNE_NAME_BYTES];
	uint32_t out, in;
	int site; /* -1: none */
};

struct coll_measured {
	char measured[COLL_TUNE_WORD_BYTES]; /* when */
	char library[COLL_TUNE_WORD_BYTES], transport[COLL_TUNE_WORD_BYTES];
	uint32_t hop_ns; /* 8 bytes, one way, with the work of both ends; 0: unknown */
	uint32_t hosts, sites;
	struct coll_measured_host *host;
	uint32_t *uplink; /* by site */
};

/* The text, which is malloc'd; NULL: out of memory. */
char *coll_measured_print(const struct coll_measured *tune);

/* False with the reason in why: it is no table, or contradicts itself; tune then holds nothing. Else
 * coll_measured_free() it. */
bool coll_measured_parse(const char *text, struct coll_measured *tune, char *why, size_t why_bytes);
void coll_measured_free(struct coll_measured *tune);

/* NULL: it is not in the table. */
const struct coll_measured_host *coll_measured_find(const struct coll_measured *tune, const char *name);

#endif
