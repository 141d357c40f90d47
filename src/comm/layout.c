/*
 * See layout.h. All of it follows from the peer infos, the settings that are agreed, and what the survey of the first
 * creation found.
 */
#include "comm/layout.h"

#include <stdlib.h>
#include <string.h>

#include "comm/settings.h"
#include "core/comm.h"
#include "core/host_rates.h"
#include "core/tuned.h"
#include "plan/layout.h"
#include "topology/search.h"

static struct coll_transport_path path_between(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                               int r, int s)
{
	return coll_rails_path(comm->ctx, w, coll_comm_process(comm, r), coll_comm_process(comm, s));
}

/* The paths of each rank to the first rank of another host: that of rank 0, or of its own host the next one. */
static struct coll_transport_path *paths_out(const struct coll_comm *comm, const struct coll_opened_transport *w)
{
	struct coll_transport_path *path = malloc((size_t)comm->size * sizeof(*path));
	int other = 0;

	while (comm->rank_map.host_of[other] == 0)
		other++;
	for (int r = 0; path && r < comm->size; r++)
		path[r] = path_between(comm, w, r, comm->rank_map.host_of[r] == 0 ? other : 0);
	return path;
}

coll_status coll_comm_find_rails(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                 const struct coll_layout *layout, struct coll_rails **rails)
{
	struct coll_rails_in in = {.ranks = comm->size,
	                           .hosts = (int)comm->rank_map.hosts,
	                           .host_of = comm->rank_map.host_of,
	                           .order = layout ? layout->rank_at : NULL};
	struct coll_transport_path *path;

	*rails = NULL;
	if (!w || comm->rank_map.hosts == 1)
		return COLL_OK;
	in.path = path = paths_out(comm, w);
	if (path)
		*rails = coll_rails_create(&in);
	if (*rails)
		(*rails)->over = w;
	free(path);
	return *rails ? COLL_OK : COLL_ERR_MEMORY;
}

/* Group numbers by rank, from those by process (malloc'd). */
static uint32_t *by_rank(const struct coll_comm *comm, const uint32_t *by_process)
{
	uint32_t *group_of = malloc((size_t)comm->size * sizeof(*group_of));

	for (int r = 0; group_of && r < comm->size; r++)
		group_of[r] = by_process[coll_comm_process(comm, r)];
	return group_of;
}

/* Told sites come before those that were measured. */
static bool has_sites(const struct coll_context *ctx)
{
	return ctx->sites || (ctx->tuned && ctx->tuned->sites);
}

static uint32_t *sites_of(const struct coll_comm *comm)
{
	uint32_t *site_of = malloc((size_t)comm->size * sizeof(*site_of));

	for (int r = 0; site_of && r < comm->size; r++)
		site_of[r] = comm->ctx->sites ? (uint32_t)(coll_comm_peer_info(comm, r)->site >> 16)
		                              : coll_tuned_host(comm->ctx, coll_comm_process(comm, r))->site;
	return site_of;
}

/* The rates of the uplinks of sites, to a layout whose outermost level they are. False: out of memory. */
static bool report_uplinks(const struct coll_comm *comm, struct coll_layout *layout)
{
	uint32_t *rate_of;

	if (strcmp(layout->level[0].name, coll_level_name(COLL_LEVEL_SITE)) != 0)
		return true;
	rate_of = malloc((size_t)comm->size * sizeof(*rate_of));
	for (int r = 0; rate_of && r < comm->size; r++)
		rate_of[r] = comm->ctx->sites ? coll_comm_peer_info(comm, r)->site_mbps
		                              : coll_tuned_host(comm->ctx, coll_comm_process(comm, r))->site_mbps;
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
	if (has_sites(ctx) && (!forced || forced >> COLL_LEVEL_SITE & 1)) {
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

/* By rank (malloc'd). */
static uint32_t *rates_of(const struct coll_comm *comm)
{
	uint32_t *rate_of = malloc((size_t)comm->size * sizeof(*rate_of));

	for (int r = 0; rate_of && r < comm->size; r++)
		rate_of[r] = comm->host_rates->of[comm->rank_map.host_of[r]].mbps;
	return rate_of;
}

/* Rates to a layout that has been made. Without memory for them this rank would choose otherwise than other ranks. */
static coll_status report_rates(const struct coll_comm *comm, struct coll_layout *layout, bool unequal)
{
	uint32_t *rate_of = unequal ? rates_of(comm) : NULL;
	coll_status st = COLL_OK;

	if (unequal)
		st = rate_of ? coll_layout_rate(layout, rate_of) : COLL_ERR_MEMORY;
	free(rate_of);
	return st == COLL_OK && !report_uplinks(comm, layout) ? COLL_ERR_MEMORY : st;
}

/* Where the ranks are, unless that cannot matter: sites that were told, hosts, levels inside hosts. On one host only
 * levels that are forced matter: there are better ways than plans. */
coll_status coll_comm_find_layout(const struct coll_comm *comm, struct coll_layout **layout)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const bool inside_forced = coll_settings_levels(s) >> COLL_LEVEL_PACKAGE != 0;
	const bool unequal = comm->host_rates && comm->host_rates->unequal;
	struct coll_layout_split splits[SPLITS_MAX];
	uint32_t *tables[SPLITS_MAX] = {NULL}, n;
	coll_status st = COLL_ERR_MEMORY;

	*layout = NULL;
	if (strcmp(s->layout, "flat") == 0 || (comm->rank_map.hosts == 1 && !inside_forced))
		return COLL_OK;
	if (find_splits(comm, splits, tables, &n)) {
		for (uint32_t i = 0; i < n; i++)
			splits[i].keep |=
			        (unequal || has_sites(comm->ctx)) && splits[i].group_of == comm->rank_map.host_of;
		st = coll_layout_create(comm->size, splits, n, layout);
	}
	if (st == COLL_OK && *layout)
		st = report_rates(comm, *layout, unequal);
	if (st != COLL_OK)
		coll_layout_destroy(layout);
	for (int i = 0; i < SPLITS_MAX; i++)
		free(tables[i]);
	return st;
}

/* Three hosts at least: two have no chain. */
coll_status coll_comm_find_chain(const struct coll_comm *comm, struct coll_layout **chain)
{
	const unsigned forced = coll_settings_levels(&comm->ctx->settings);
	const struct coll_layout_split hosts = {"host", true, true, comm->rank_map.host_of};

	*chain = NULL;
	if (strcmp(comm->ctx->settings.layout, "flat") == 0 || (forced && !(forced >> COLL_LEVEL_HOST & 1)))
		return COLL_OK;
	if (comm->size < 3 || comm->rank_map.hosts != (uint32_t)comm->size)
		return COLL_OK;
	return coll_layout_create(comm->size, &hosts, 1, chain);
}
