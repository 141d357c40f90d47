/*
 * See rails.h.
 */
#include "core/rails.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "context/transports.h"
#include "topology/spread.h"

/* ---- Paths -------------------------------------------------------------- */

struct coll_transport_path coll_rails_path(const struct coll_context *ctx, const struct coll_opened_transport *w, int a,
                                           int b)
{
	const struct coll_peer_info *x = &ctx->peer_infos[a], *y = &ctx->peer_infos[b];
	struct coll_transport_path path;
	size_t x_bytes, y_bytes;
	const uint8_t *from = coll_peer_info_part(x, x->transport[w->position], &x_bytes);
	const uint8_t *to = coll_peer_info_part(y, y->transport[w->position], &y_bytes);

	path = (struct coll_transport_path){.round_trip_us = coll_context_round_trip_us(ctx, a, b)};
	w->table.path(w->inst, from, x_bytes, to, y_bytes, &path);
	return path;
}

/* The networks of a path, each once. */
struct networks {
	int count;
	uint32_t network[COLL_RAILS_MAX], mbps[COLL_RAILS_MAX];
	unsigned distance[COLL_RAILS_MAX]; /* of both ends */
};

static int find(const uint32_t *network, int count, uint32_t wanted)
{
	int k = 0;

	while (k < count && network[k] != wanted)
		k++;
	return k;
}

static struct networks networks_of(const struct coll_transport_path *path)
{
	struct networks n = {.count = 0};

	for (uint32_t i = 0; i < path->rails; i++) {
		const struct coll_transport_rail *r = &path->rail[i];

		if (find(n.network, n.count, r->network) < n.count)
			continue;
		n.network[n.count] = r->network;
		n.mbps[n.count] = r->mbps;
		n.distance[n.count++] = (unsigned)r->distance[0] + r->distance[1];
	}
	return n;
}

uint32_t coll_rails_mbps(const struct coll_transport_path *path)
{
	const struct networks n = networks_of(path);
	uint32_t sum = 0;

	for (int k = 0; k < n.count; k++) {
		if (n.mbps[k] == 0)
			return 0;
		sum += n.mbps[k];
	}
	return sum;
}

/* ---- A link alone ------------------------------------------------------- */

/* How many windows its rails take to carry what they can together, one after the other. */
static int shares_alone(const struct networks *n, uint8_t row[COLL_SHARES_MAX])
{
	uint32_t weight[COLL_RAILS_MAX];
	int capacity[COLL_RAILS_MAX], given[COLL_RAILS_MAX] = {0}, shares;

	coll_spread_weights(n->mbps, n->count, weight);
	shares = coll_spread_shares(weight, n->count, 1, capacity);
	for (int i = 0; i < shares; i++) {
		const int k = coll_spread_next(weight, given, n->count);
		int at = i;

		given[k]++;
		/* The nearest first. */
		for (; at > 0 && n->distance[row[at - 1]] > n->distance[k]; at--)
			row[at] = row[at - 1];
		row[at] = (uint8_t)k;
	}
	return shares;
}

static uint64_t hash_pair(int a, int b)
{
	return coll_hash_combine((uint64_t)(a < b ? a : b), (uint64_t)(a < b ? b : a));
}

/* All links of a host begin with window 0, so each begins with a rail of its own, unless some are nearer. */
static uint32_t network_alone(const struct networks *n, const struct coll_rails_channel *c, int *shares)
{
	uint8_t row[COLL_SHARES_MAX];
	unsigned first = 0;
	bool alike = true;

	*shares = shares_alone(n, row);
	for (int k = 1; k < n->count; k++)
		alike = alike && n->distance[k] == n->distance[0];
	if (alike)
		first = (unsigned)(hash_pair(c->from, c->to) % (unsigned)*shares);
	return n->network[row[(c->turn + first) % (unsigned)*shares]];
}

/* ---- Of a channel ------------------------------------------------------- */

/* What the two ends own in common; else what the lower rank does, which balances what a host sends and receives. */
static struct coll_rails_owned common_parts(const struct coll_rails *r, int a, int b)
{
	const struct coll_rails_owned x = r->owned[a < b ? a : b], y = r->owned[a < b ? b : a];
	const unsigned first = x.first > y.first ? x.first : y.first;
	const unsigned x_end = (unsigned)x.first + x.count, y_end = (unsigned)y.first + y.count;
	const unsigned end = x_end < y_end ? x_end : y_end;

	return first < end ? (struct coll_rails_owned){(uint16_t)first, (uint16_t)(end - first)} : x;
}

/* Shares of all these parts are taken evenly, whatever the number of windows. False: the ends own everything. */
static bool network_of_parts(const struct coll_rails *r, const struct coll_rails_channel *c, uint32_t *network)
{
	const struct coll_rails_owned o = common_parts(r, c->from, c->to);
	const unsigned shares = (unsigned)r->shares;

	if (o.count == 0 || o.count == r->parts)
		return false;
	*network = r->network[r->row[o.first * shares +
	                             (c->turn % shares * o.count + c->turn / shares % o.count) % (o.count * shares)]];
	return true;
}

unsigned coll_rails_of(const struct coll_rails *r, const struct coll_transport_path *path,
                       const struct coll_rails_channel *channel)
{
	const struct networks n = networks_of(path);
	uint32_t network = n.network[0];
	int shares = r ? r->shares : 1;
	unsigned same = 0, at;

	if (path->rails <= 1)
		return 0;
	if (!r || r->parts == 0 || channel->alone || !network_of_parts(r, channel, &network) ||
	    find(n.network, n.count, network) == n.count)
		network = network_alone(&n, channel, &shares);
	for (uint32_t i = 0; i < path->rails; i++)
		same += path->rail[i].network == network;
	/* Several connections in one network take turns as well. */
	at = (channel->turn / (unsigned)shares + channel->turn % (unsigned)shares) % same;
	for (unsigned i = 0;; i++)
		if (path->rail[i].network == network && at-- == 0)
			return i;
}

/* ---- Of a communicator -------------------------------------------------- */

struct work {
	const struct coll_rails_in *in;
	int *count, *seen; /* ranks of each host; those that have come */
	int *owner;        /* [host * parts + part] */
};

static bool begin(struct work *w)
{
	const size_t hosts = (size_t)w->in->hosts;

	w->count = calloc(2 * hosts, sizeof(*w->count));
	w->seen = w->count ? w->count + hosts : NULL;
	for (int r = 0; w->count && r < w->in->ranks; r++)
		w->count[w->in->host_of[r]]++;
	return w->count != NULL;
}

/* The networks of all hosts, the fastest first; each as fast as the slowest link in it. */
static void find_networks(const struct coll_rails_in *in, struct coll_rails *out)
{
	for (int r = 0; r < in->ranks; r++)
		for (uint32_t i = 0; i < in->path[r].rails; i++) {
			const struct coll_transport_rail *rail = &in->path[r].rail[i];
			const int k = find(out->network, out->rails, rail->network);

			if (rail->network == 0)
				continue;
			if (k == out->rails && k < COLL_RAILS_MAX) {
				out->network[out->rails] = rail->network;
				out->mbps[out->rails++] = rail->mbps;
			} else if (k < out->rails && rail->mbps < out->mbps[k]) {
				out->mbps[k] = rail->mbps;
			}
		}
	for (int i = 1; i < out->rails; i++)
		for (int k = i; k > 0 && (out->mbps[k] > out->mbps[k - 1] ||
		                          (out->mbps[k] == out->mbps[k - 1] && out->network[k] < out->network[k - 1]));
		     k--) {
			const uint32_t network = out->network[k], mbps = out->mbps[k];

			out->network[k] = out->network[k - 1];
			out->mbps[k] = out->mbps[k - 1];
			out->network[k - 1] = network;
			out->mbps[k - 1] = mbps;
		}
}

/* Rank i of a host of c owns the parts l with floor(l c / parts) = i. */
static bool find_owners(struct work *w, struct coll_rails *out)
{
	const struct coll_rails_in *in = w->in;

	out->owned = calloc((size_t)in->ranks, sizeof(*out->owned));
	w->owner = malloc((size_t)in->hosts * (size_t)out->parts * sizeof(*w->owner));
	if (!out->owned || !w->owner)
		return false;
	for (int k = 0; k < in->ranks; k++) {
		const int r = in->order[k], host = (int)in->host_of[r], c = w->count[host], i = w->seen[host]++;
		const int first = (i * out->parts + c - 1) / c, end = ((i + 1) * out->parts + c - 1) / c;

		out->owned[r] = (struct coll_rails_owned){(uint16_t)first, (uint16_t)(end - first)};
		for (int part = first; part < end; part++)
			w->owner[host * out->parts + part] = r;
	}
	return true;
}

static bool spread(const struct work *w, struct coll_rails *out)
{
	long *cost = calloc((size_t)out->parts * (size_t)out->rails, sizeof(*cost));
	bool ok = cost != NULL;

	for (int i = 0; ok && i < w->in->hosts * out->parts; i++) {
		const struct coll_transport_path *p = &w->in->path[w->owner[i]];

		for (uint32_t k = 0; k < p->rails; k++) {
			const int rail = find(out->network, out->rails, p->rail[k].network);

			if (rail < out->rails)
				cost[i % out->parts * out->rails + rail] += p->rail[k].distance[0];
		}
	}
	ok = ok &&
	     coll_spread(&(struct coll_spread_in){out->parts, out->rails, out->mbps, cost}, &out->shares, &out->row);
	free(cost);
	return ok;
}

/* The most of the links of one rank of each host. */
static uint32_t streams_of(const struct coll_rails_in *in, const struct coll_rails *r)
{
	uint32_t most = 1;

	for (int i = 0; i < in->ranks; i++) {
		const struct networks n = networks_of(&in->path[i]);
		uint8_t row[COLL_SHARES_MAX];
		uint32_t streams = (uint32_t)r->shares;

		if (r->parts == 0 && n.count > 1)
			streams = (uint32_t)shares_alone(&n, row);
		if (in->path[i].rails > (uint32_t)n.count && in->path[i].rails > streams)
			streams = in->path[i].rails;
		most = streams > most ? streams : most;
	}
	return most;
}

struct coll_rails *coll_rails_create(const struct coll_rails_in *in)
{
	struct coll_rails *r = calloc(1, sizeof(*r));
	struct work w = {.in = in};
	bool ok = r && begin(&w);

	if (ok) {
		r->shares = 1;
		find_networks(in, r);
		if (in->order && r->rails > 1)
			r->parts = coll_spread_parts(w.count, in->hosts);
		if (r->parts == 1)
			r->parts = 0;
		if (r->parts > 0)
			ok = find_owners(&w, r) && spread(&w, r);
	}
	if (ok)
		r->streams = streams_of(in, r);
	else
		coll_rails_destroy(&r);
	free(w.count);
	free(w.owner);
	return r;
}

void coll_rails_destroy(struct coll_rails **r)
{
	if (*r) {
		free((*r)->row);
		free((*r)->owned);
	}
	free(*r);
	*r = NULL;
}
