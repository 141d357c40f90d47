/*
 * Hosts: which ranks share one, which of them share a machine, and whether its cores and caches are enough for them.
 * All of it follows from the peer infos, and is the same on all ranks but for what is said of this one's own machine.
 */
#include "context/locality.h"
#include "topology/cache.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "topology/topology.h"

/* A wait may look about for COLL_SPIN_US while so many ranks share a core, longer where there are more. */
enum { RANKS_IN_TIME = 4 };

/* The ranks of a rank's machine, and the cores they have; hosts that are containers of one machine count together. Each
 * rank knows the cores it may use itself: ranks with the same set of processors share them; sets that differ add up
 * (one rank pinned to each core), to no more than there are processors in all. */
static uint32_t ranks_beside(const struct coll_context *c, int rank, uint32_t *cores_of_all)
{
	const uint64_t machine = c->peer_infos[rank].machine;
	uint64_t all[4] = {0};
	uint32_t ranks = 0, cores = 0, cpus = 0;

	for (int r = 0; r < c->size; r++) {
		bool known = false;

		if (c->peer_infos[r].machine != machine)
			continue;
		ranks++;
		for (int k = 0; k < r && !known; k++)
			known = c->peer_infos[k].machine == machine &&
			        memcmp(c->peer_infos[k].cpus, c->peer_infos[r].cpus, sizeof(c->peer_infos[r].cpus)) ==
			                0;
		if (known)
			continue;
		cores += c->peer_infos[r].cores;
		for (int i = 0; i < 4; i++)
			all[i] |= c->peer_infos[r].cpus[i];
	}
	for (int i = 0; i < 4; i++)
		cpus += (uint32_t)__builtin_popcountll(all[i]);
	*cores_of_all = cores < cpus || cpus == 0 ? cores : cpus;
	if (c->settings.test_cores > 0)
		*cores_of_all = (uint32_t)c->settings.test_cores;
	return ranks;
}

/* Of the processors that all ranks of this machine may run on: a container has some of the machine's caches. */
static void learn_caches(struct coll_context *c)
{
	cpu_set_t used;

	CPU_ZERO(&used);
	for (int r = 0; r < c->size; r++)
		for (size_t cpu = 0; cpu < 256 && c->peer_infos[r].machine == c->peer_infos[c->rank].machine; cpu++)
			if (c->peer_infos[r].cpus[cpu / 64] >> cpu % 64 & 1)
				CPU_SET(cpu, &used);
	/* Cards fold greater numbers. */
	if (sysconf(_SC_NPROCESSORS_CONF) > 256)
		sched_getaffinity(0, sizeof(used), &used);
	c->cpus = CPU_COUNT(&used);
	c->cache_bytes = coll_topology_caches("/sys/devices/system/cpu", &used, &c->caches);
}

/* Whether they exceed the cores, when each runs so many threads. */
static bool crowded(const struct coll_context *c, int rank, uint32_t threads)
{
	uint32_t cores;

	return ranks_beside(c, rank, &cores) * threads > cores;
}

static uint32_t ranks_per_core(const struct coll_context *c)
{
	uint32_t cores;
	const uint32_t ranks = ranks_beside(c, c->rank, &cores);

	return cores ? (ranks + cores - 1) / cores : ranks;
}

/* The lowest rank on rank's host, entered in the table when it is rank itself. */
static int first_on_host(const struct coll_context *c, int *firsts, size_t buckets, int rank)
{
	const char *host = c->peer_infos[rank].host_id;
	size_t at = coll_hash_bytes(0, host, strnlen(host, sizeof(c->host_id))) % buckets;

	while (firsts[at] >= 0 && strncmp(c->peer_infos[firsts[at]].host_id, host, sizeof(c->host_id)) != 0)
		at = (at + 1) % buckets;
	if (firsts[at] < 0)
		firsts[at] = rank;
	return firsts[at];
}

/* What coll_locality_find() asks once for each machine: the answer for a host that shares one with an earlier host is
 * that one's. */
static bool host_is_crowded(const struct coll_context *c, int rank)
{
	for (int r = 0; r < rank; r++)
		if (c->peer_infos[r].machine == c->peer_infos[rank].machine)
			return c->crowded[c->host_of[r]];
	return crowded(c, rank, 1);
}

coll_status coll_locality_find(struct coll_context *c, struct coll_error_box *err)
{
	const size_t buckets = 2 * (size_t)c->size; /* open addressing, at most half full */
	int *firsts = malloc(buckets * sizeof(*firsts));

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
	c->crowded = calloc(c->hosts, sizeof(*c->crowded));
	if (!c->crowded)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for the host table");
	c->dedicated_cores = true;
	for (int r = 0, seen = 0; r < c->size; r++) {
		if (c->host_of[r] < (uint32_t)seen)
			continue;
		c->crowded[seen] = host_is_crowded(c, r);
		c->dedicated_cores = c->dedicated_cores && !c->crowded[seen++];
	}
	c->spare_core = !crowded(c, c->rank, 2);
	learn_caches(c);
	c->core_sharers = ranks_per_core(c) > 2 ? ranks_per_core(c) - 1 : 1;
	c->spin_scale = ranks_per_core(c) > RANKS_IN_TIME ? (ranks_per_core(c) + RANKS_IN_TIME - 1) / RANKS_IN_TIME : 1;
	return COLL_OK;
}
