/*
 * See host_rates.h. The rate of a host is that of the fastest of its paths to some other hosts, by the addresses of the
 * first rank of each.
 */
#include "core/host_rates.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/comm.h"
#include "core/rails.h"
#include "core/tuned.h"

/* Of how many other hosts the paths are looked at for the rate of a host's links. */
enum { HOSTS_LOOKED_AT = 8 };

/* Several rails are believed as little as the one that is believed least. */
static struct coll_host_rate rate_of_path(const struct coll_transport_path *path, int from, int to)
{
	const struct coll_transport_rail *rail = &path->rail[0];
	struct coll_host_rate rate = {.mbps = coll_rails_mbps(path)};

	for (uint32_t i = 1; i < path->rails; i++)
		if (path->rail[i].origin < rail->origin)
			rail = &path->rail[i];
	rate.origin = rate.mbps > 0 ? rail->origin : COLL_RATE_UNKNOWN;
	rate.rank = rail->teller ? to : from;
	snprintf(rate.card, sizeof(rate.card), "%s", rail->told_by);
	return rate;
}

static struct coll_host_rate rate_of_host(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                          const int *first, uint32_t h)
{
	const uint32_t hosts = comm->rank_map.hosts;
	struct coll_host_rate best = {.rank = first[h]};

	const struct coll_tuned_host *tuned = coll_tuned_host(comm->ctx, coll_comm_process(comm, first[h]));

	for (uint32_t i = 1; i < hosts && i <= HOSTS_LOOKED_AT; i++) {
		const int to = first[(h + i) % hosts];
		const struct coll_transport_path path =
		        coll_rails_path(comm->ctx, w, coll_comm_process(comm, first[h]), coll_comm_process(comm, to));
		const struct coll_host_rate rate = rate_of_path(&path, first[h], to);

		if (rate.mbps > best.mbps)
			best = rate;
	}
	if (tuned && best.origin < COLL_RATE_MEASURED)
		best = (struct coll_host_rate){.mbps = tuned->mbps, .origin = COLL_RATE_MEASURED, .rank = first[h]};
	return best;
}

static void compare(struct coll_host_rates *r)
{
	uint32_t least = UINT32_MAX, most = 0;

	r->slowest = -1;
	for (uint32_t h = 0; h < r->hosts; h++) {
		const struct coll_host_rate *rate = &r->of[h];

		least = rate->mbps < least ? rate->mbps : least;
		most = rate->mbps > most ? rate->mbps : most;
		if (rate->origin && (r->slowest < 0 || rate->mbps < r->of[r->slowest].mbps))
			r->slowest = (int)h;
	}
	r->unequal = least > 0 && least < most - most / 10;
}

struct coll_host_rates *coll_host_rates_find(const struct coll_comm *comm, const struct coll_opened_transport *w)
{
	const uint32_t hosts = comm->rank_map.hosts;
	struct coll_host_rates *r = calloc(1, sizeof(*r) + hosts * sizeof(r->of[0]));
	int *first = calloc(hosts, sizeof(*first));

	if (!r || !first) {
		free(r);
		free(first);
		return NULL;
	}
	for (int i = comm->size - 1; i >= 0; i--)
		first[comm->rank_map.host_of[i]] = i;
	r->hosts = hosts;
	for (uint32_t h = 0; h < hosts; h++)
		r->of[h] = rate_of_host(comm, w, first, h);
	compare(r);
	free(first);
	return r;
}

const struct coll_host_rate *coll_host_rates_slowest(const struct coll_host_rates *r)
{
	return r && r->slowest >= 0 ? &r->of[r->slowest] : NULL;
}

void coll_host_rates_text(const struct coll_comm *comm, char *buf, size_t len_bytes)
{
	static const char *const from[] = {"", "the system", "COLL_TUNE_FILE", "COLL_LINK_RATES"};
	const struct coll_host_rate *r = coll_host_rates_slowest(comm->host_rates);
	const char *host;

	buf[0] = '\0';
	if (!comm->host_rates)
		return;
	if (!r) {
		snprintf(buf, len_bytes, "link of unknown rate, taken for %.0f Mb/s",
		         comm->facts.caps.bytes_per_ns * 8e3);
		return;
	}
	host = coll_comm_peer_info(comm, r->rank)->host_name;
	if (r->origin == COLL_RATE_MEASURED)
		snprintf(buf, len_bytes, "link %u Mb/s (measured on host %s), from %s", r->mbps, host, from[r->origin]);
	else
		snprintf(buf, len_bytes, "link %u Mb/s (told by %s%shost %s), from %s", r->mbps, r->card,
		         r->card[0] ? " of " : "", host, from[r->origin]);
}
