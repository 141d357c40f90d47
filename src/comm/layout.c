/*
 * See layout.h. All of it follows from the peer infos, the settings that are agreed, and what the survey of the first
 * creation found.
 */
#include "comm/layout.h"

#include <stdlib.h>
#include <string.h>

#include "comm/settings.h"
#include "core/comm.h"
#include "plan/layout.h"
#include "topology/search.h"

/* A length that came from elsewhere is not larger than its room. */
static size_t address_bytes(const struct coll_peer_info *info, int position)
{
	const uint32_t len = info->transport[position].len_bytes;

	return len < COLL_PEER_INFO_ADDRESS_BYTES ? len : COLL_PEER_INFO_ADDRESS_BYTES;
}

static struct coll_transport_path path_between(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                               int r, int s)
{
	const struct coll_peer_info *a = coll_comm_peer_info(comm, r), *b = coll_comm_peer_info(comm, s);
	struct coll_transport_path path;

	w->table.path(w->inst, a->transport[w->position].bytes, address_bytes(a, w->position),
	              b->transport[w->position].bytes, address_bytes(b, w->position), &path);
	return path;
}

uint32_t coll_comm_streams(const struct coll_comm *comm, const struct coll_opened_transport *w)
{
	uint32_t most = 0, hosts = 1; /* seen so far */

	for (int r = 1; r < comm->size; r++) {
		uint32_t streams;

		if (comm->rank_map.host_of[r] != hosts)
			continue;
		hosts++;
		streams = path_between(comm, w, 0, r).streams;
		most = streams > most ? streams : most;
	}
	return most;
}

/* Of how many other hosts the paths are looked at for the rate of a host's links. */
enum { HOSTS_LOOKED_AT = 8 };

/* The rate of the links of each rank's host, in Mb/s, 0 unknown: that of the fastest of its paths to some other hosts,
 * by the addresses of the first rank of each. Whether all are known and two differ by a tenth. */
static bool rates_of_hosts(const struct coll_comm *comm, const struct coll_opened_transport *w, int *first,
                           uint32_t *rate_of)
{
	const uint32_t hosts = comm->rank_map.hosts;
	uint32_t least = UINT32_MAX, most = 0;

	for (int r = comm->size - 1; r >= 0; r--)
		first[comm->rank_map.host_of[r]] = r;
	for (uint32_t h = 0; h < hosts; h++) {
		uint32_t *rate = &rate_of[first[h]];

		for (uint32_t i = 1; i < hosts && i <= HOSTS_LOOKED_AT; i++) {
			const uint32_t mbps = path_between(comm, w, first[h], first[(h + i) % hosts]).mbps;

			*rate = mbps > *rate ? mbps : *rate;
		}
		least = *rate < least ? *rate : least;
		most = *rate > most ? *rate : most;
	}
	for (int r = 0; r < comm->size; r++)
		rate_of[r] = rate_of[first[comm->rank_map.host_of[r]]];
	return least > 0 && least < most - most / 10;
}

/* Group numbers by rank, from those by process (malloc'd). */
static uint32_t *by_rank(const struct coll_comm *comm, const uint32_t *by_process)
{
	uint32_t *group_of = malloc((size_t)comm->size * sizeof(*group_of));

	for (int r = 0; group_of && r < comm->size; r++)
		group_of[r] = by_process[coll_comm_process(comm, r)];
	return group_of;
}

static uint32_t *sites_of(const struct coll_comm *comm)
{
	uint32_t *site_of = malloc((size_t)comm->size * sizeof(*site_of));

	for (int r = 0; site_of && r < comm->size; r++)
		site_of[r] = (uint32_t)(coll_comm_peer_info(comm, r)->site >> 16);
	return site_of;
}

/* The rates of the uplinks of sites, to a layout whose outermost level they are. False: out of memory. */
static bool tell_uplinks(const struct coll_comm *comm, struct coll_layout *layout)
{
	uint32_t *rate_of;

	if (strcmp(layout->level[0].name, coll_level_name(COLL_LEVEL_SITE)) != 0)
		return true;
	rate_of = malloc((size_t)comm->size * sizeof(*rate_of));
	for (int r = 0; rate_of && r < comm->size; r++)
		rate_of[r] = coll_comm_peer_info(comm, r)->site_mbps;
	if (rate_of)
		coll_layout_tell_uplinks(layout, rate_of);
	free(rate_of);
	return rate_of != NULL;
}

enum { SPLITS_MAX = 2 + COLL_INSIDE_LEVELS_MAX };

/* The levels of a communicator, and tables to be freed (by split; NULL: nothing to free). False: out of memory. */
static bool find_splits(const struct coll_comm *comm, struct coll_layout_split *splits, uint32_t **tables, uint32_t *n)
{
	const struct coll_context *ctx = comm->ctx;
	const unsigned forced = coll_settings_levels(&ctx->settings);
	bool links = true; /* a level crosses hosts unless it lies within another that is them */

	*n = 0;
	if (ctx->sites && (!forced || forced >> COLL_LEVEL_SITE & 1)) {
		tables[*n] = sites_of(comm);
		splits[*n] = (struct coll_layout_split){coll_level_name(COLL_LEVEL_SITE), true, true, tables[*n]};
		if (!tables[(*n)++])
			return false;
	}
	if (!forced || forced >> COLL_LEVEL_HOST & 1) {
		splits[(*n)++] = (struct coll_layout_split){"host", true, false, comm->rank_map.host_of};
		links = false;
	}
	for (int i = 0; i < ctx->ninside; i++) {
		tables[*n] = by_rank(comm, ctx->inside[i].group_of);
		splits[*n] = (struct coll_layout_split){ctx->inside[i].name, links && comm->rank_map.hosts > 1, false,
		                                        tables[*n]};
		if (!tables[(*n)++])
			return false;
		links = false;
	}
	return true;
}

/* *rate_of: NULL on one host. False: out of memory. */
static bool find_rates(const struct coll_comm *comm, const struct coll_opened_transport *w, uint32_t **rate_of,
                       bool *unequal)
{
	int *first;

	if (!w || comm->rank_map.hosts == 1)
		return true;
	*rate_of = calloc((size_t)comm->size, sizeof(**rate_of));
	first = calloc(comm->rank_map.hosts, sizeof(*first));
	if (*rate_of && first)
		*unequal = rates_of_hosts(comm, w, first, *rate_of);
	free(first);
	return *rate_of && first;
}

/* Where the ranks are, unless that cannot matter: sites that were told, hosts, levels inside hosts. On one host only
 * levels that are forced matter: there are better ways than plans. */
coll_status coll_comm_find_layout(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                  struct coll_layout **layout)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const bool inside_forced = coll_settings_levels(s) >> COLL_LEVEL_PACKAGE != 0;
	struct coll_layout_split splits[SPLITS_MAX];
	uint32_t *tables[SPLITS_MAX] = {NULL}, n;
	uint32_t *rate_of = NULL;
	coll_status st = COLL_ERR_MEMORY;
	bool unequal = false;

	*layout = NULL;
	if (strcmp(s->layout, "flat") == 0 || (comm->rank_map.hosts == 1 && !inside_forced))
		return COLL_OK;
	if (find_splits(comm, splits, tables, &n) && find_rates(comm, w, &rate_of, &unequal)) {
		for (uint32_t i = 0; i < n; i++)
			splits[i].keep |= (unequal || comm->ctx->sites) && splits[i].group_of == comm->rank_map.host_of;
		st = coll_layout_create(comm->size, splits, n, layout);
	}
	/* Without memory for shares or rates this rank would choose otherwise than other ranks. */
	if (st == COLL_OK && unequal && *layout)
		st = coll_layout_rate(*layout, rate_of);
	if (st == COLL_OK && *layout && !tell_uplinks(comm, *layout))
		st = COLL_ERR_MEMORY;
	if (st != COLL_OK)
		coll_layout_destroy(layout);
	free(rate_of);
	for (int i = 0; i < SPLITS_MAX; i++)
		free(tables[i]);
	return st;
}
