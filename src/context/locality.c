/*
 * Locality: which ranks share a host, which hosts share a machine, and whether the cores and caches
 * of a machine suffice.
 *
 * All results follow from the peer infos. They are equal on all ranks, except for those about this
 * rank's own machine.
 */
#include "context/locality.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "control/one_host.h"
#include "net/net.h"
#include "topology/cache.h"
#include "topology/topology.h"

/* A wait may spin for COLL_SPIN_US while up to this many ranks share a core. With more ranks it
 * spins longer. */
enum { RANKS_IN_TIME = 4 };

/* The number of ranks on the machine of `rank`, and the number of their cores. Hosts that are
 * containers of one machine count together. Each rank reports the cores that it may use. Ranks with
 * the same CPU set share its cores. Different sets add up (one rank pinned to each core), but to no
 * more than all CPUs of the sets. */
static uint32_t ranks_on_machine(const struct coll_context *c, int rank, uint32_t *cores_of_all)
{
	const struct coll_peer_info *info = c->peer_infos;
	uint64_t all[4] = {0};
	uint32_t ranks = 0, cores = 0, cpus = 0;

	for (int r = 0; r < c->size; r++) {
		bool known = false;

		if (!coll_one_machine(&info[r], &info[rank]))
			continue;
		ranks++;
		for (int k = 0; k < r && !known; k++)
			known = memcmp(info[k].cpus, info[r].cpus, sizeof(info[r].cpus)) == 0 &&
			        coll_one_machine(&info[k], &info[rank]);
		if (known)
			continue;
		cores += info[r].cores;
		for (int i = 0; i < 4; i++)
			all[i] |= info[r].cpus[i];
	}
	for (int i = 0; i < 4; i++)
		cpus += (uint32_t)__builtin_popcountll(all[i]);
	*cores_of_all = cores < cpus || cpus == 0 ? cores : cpus;
	if (c->settings.test_cores > 0)
		*cores_of_all = (uint32_t)c->settings.test_cores;
	return ranks;
}

/* Find the caches of the CPUs that the ranks of this machine may use. A container has only some
 * caches of its machine. */
static void find_caches(struct coll_context *c)
{
	cpu_set_t used;

	CPU_ZERO(&used);
	for (int r = 0; r < c->size; r++) {
		const struct coll_peer_info *info = &c->peer_infos[r];
		const bool here = coll_one_machine(info, &c->peer_infos[c->rank]);

		for (size_t cpu = 0; cpu < 256 && here; cpu++)
			if (info->cpus[cpu / 64] >> cpu % 64 & 1)
				CPU_SET(cpu, &used);
	}
	/* A peer info has bits for 256 CPUs, so greater CPU numbers wrap around. */
	if (sysconf(_SC_NPROCESSORS_CONF) > 256)
		sched_getaffinity(0, sizeof(used), &used);
	c->cpus = CPU_COUNT(&used);
	c->cache_bytes = coll_topology_caches("/sys/devices/system/cpu", &used, &c->caches);
}

/* Whether the ranks of a machine, with `threads` threads each, exceed its cores. */
static bool oversubscribed(const struct coll_context *c, int rank, uint32_t threads)
{
	uint32_t cores;

	return ranks_on_machine(c, rank, &cores) * threads > cores;
}

static uint32_t ranks_per_core(const struct coll_context *c)
{
	uint32_t cores;
	const uint32_t ranks = ranks_on_machine(c, c->rank, &cores);

	return cores ? (ranks + cores - 1) / cores : ranks;
}

/* The lowest rank on the host of `rank`. If that is `rank` itself, it is entered in the table. */
static int first_on_host(const struct coll_context *c, int *firsts, size_t buckets, int rank)
{
	const char *host = c->peer_infos[rank].host_id;
	size_t at = coll_hash_bytes(0, host, strnlen(host, sizeof(c->info.host_id))) % buckets;

	while (firsts[at] >= 0 && !coll_one_host(&c->peer_infos[firsts[at]], &c->peer_infos[rank]))
		at = (at + 1) % buckets;
	if (firsts[at] < 0)
		firsts[at] = rank;
	return firsts[at];
}

/* Whether a host has more ranks than cores. coll_locality_find() computes this once per machine.
 * Later hosts of the same machine get the answer of the first. */
static bool host_is_oversubscribed(const struct coll_context *c, int rank)
{
	for (int r = 0; r < rank; r++)
		if (coll_one_machine(&c->peer_infos[r], &c->peer_infos[rank]))
			return c->oversubscribed[c->host_of[r]];
	return oversubscribed(c, rank, 1);
}

/* All processes tell a site or none does, and those of a host the same. */
static coll_status check_sites(struct coll_context *c, struct coll_error_box *err)
{
	int *first = calloc(c->hosts, sizeof(*first));
	coll_status st = first ? COLL_OK : coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the host table");

	c->sites = c->peer_infos[0].site != 0;
	for (uint32_t h = 0; first && h < c->hosts; h++)
		first[h] = -1;
	for (int r = 0; st == COLL_OK && r < c->size; r++) {
		int *f = &first[c->host_of[r]];

		if ((c->peer_infos[r].site != 0) != c->sites)
			st = coll_error_set(err, COLL_ERR_CONFIG,
			                    "[COLL-1106] COLL_SITE: rank %d has one, rank %d has none",
			                    c->sites ? 0 : r, c->sites ? r : 0);
		else if (*f >= 0 && c->peer_infos[*f].site != c->peer_infos[r].site)
			st = coll_error_set(err, COLL_ERR_CONFIG,
			                    "[COLL-1106] COLL_SITE: ranks %d and %d share host %s, but not the site",
			                    *f, r, c->peer_infos[r].host_name);
		else if (*f < 0)
			*f = r;
	}
	free(first);
	return st;
}

/* The ranks of a site tell the same rate, or none. */
static coll_status check_site_rates(const struct coll_context *c, struct coll_error_box *err)
{
	const size_t buckets = 2 * (size_t)c->size; /* open addressing, at most half full */
	int *firsts;
	coll_status st = COLL_OK;

	if (!c->sites)
		return COLL_OK;
	firsts = malloc(buckets * sizeof(*firsts));
	if (!firsts)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the table of sites");
	memset(firsts, -1, buckets * sizeof(*firsts));
	for (int r = 0; st == COLL_OK && r < c->size; r++) {
		const struct coll_peer_info *mine = &c->peer_infos[r], *first;
		size_t at = mine->site % buckets;

		while (firsts[at] >= 0 && c->peer_infos[firsts[at]].site != mine->site)
			at = (at + 1) % buckets;
		if (firsts[at] < 0)
			firsts[at] = r;
		first = &c->peer_infos[firsts[at]];
		if (first->site_mbps != mine->site_mbps)
			st = coll_error_set(
			        err, COLL_ERR_CONFIG,
			        "[COLL-1106] COLL_SITE_RATE: ranks %d and %d share a site, but it is %u on rank %d "
			        "and %u on rank %d",
			        firsts[at], r, first->site_mbps, firsts[at], mine->site_mbps, r);
	}
	free(firsts);
	return st;
}

coll_status coll_locality_find(struct coll_context *c, struct coll_error_box *err)
{
	const size_t buckets = 2 * (size_t)c->size; /* open addressing, at most half full */
	int *firsts = malloc(buckets * sizeof(*firsts));
	coll_status st;

	c->host_of = calloc((size_t)c->size, sizeof(*c->host_of));
	if (!c->host_of || !firsts) {
		free(firsts);
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the host table");
	}
	memset(firsts, -1, buckets * sizeof(*firsts));
	for (int r = 0; r < c->size; r++) {
		const int first = first_on_host(c, firsts, buckets, r);

		c->host_of[r] = first == r ? c->hosts++ : c->host_of[first];
	}
	free(firsts);
	st = check_sites(c, err);
	if (st == COLL_OK)
		st = check_site_rates(c, err);
	if (st != COLL_OK)
		return st;
	c->oversubscribed = calloc(c->hosts, sizeof(*c->oversubscribed));
	if (!c->oversubscribed)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the host table");
	c->dedicated_cores = true;
	for (int r = 0, seen = 0; r < c->size; r++) {
		if (c->host_of[r] < (uint32_t)seen)
			continue;
		c->oversubscribed[seen] = host_is_oversubscribed(c, r);
		c->dedicated_cores = c->dedicated_cores && !c->oversubscribed[seen++];
	}
	c->spare_core = !oversubscribed(c, c->rank, 2);
	find_caches(c);
	c->core_sharers = ranks_per_core(c) > 2 ? ranks_per_core(c) - 1 : 1;
	c->spins = c->dedicated_cores && coll_net->held_up_ns; /* see net.h */
	c->spin_scale = ranks_per_core(c) > RANKS_IN_TIME ? (ranks_per_core(c) + RANKS_IN_TIME - 1) / RANKS_IN_TIME : 1;
	return COLL_OK;
}
