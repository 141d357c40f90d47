/*
 * Which rail carries which channel. A link has a rail for each network that its two processes share; the layout of the
 * communicator says which of them a channel uses. Pure: the paths between hosts, the places of ranks and the names of
 * the channel decide, all of them agreed, so both ends find the same rail.
 *
 * What a host sends is cut in parts, one for each of its ranks, or at most eight where hosts are uneven: what a rank
 * owns in plans that read the layout (topology/search.h). Each part has some shares, and each share a rail, such that
 * all rails carry what their rates say, and as little as possible crosses the host on its way to a card
 * (topology/spread.h). Windows take turns on the shares of what the two ends of a channel own in common.
 *
 * It opens no link, and it does not know which rails are alive: who asks gives the rails that may be used.
 */
#ifndef COLL_CORE_RAILS_H
#define COLL_CORE_RAILS_H

#include "context/context.h"

struct coll_rails {
	const struct coll_opened_transport *over; /* between hosts; other links are asked alone */
	uint32_t streams;                         /* windows that go separate ways */
	int parts;                                /* 0: ranks are not told apart, each link uses all of its rails */
	int rails, shares;
	uint32_t network[COLL_RAILS_MAX], mbps[COLL_RAILS_MAX];
	uint8_t *row; /* [part * shares + i]: a rail */
	struct coll_rails_owned {
		uint16_t first, count;
	} * owned; /* parts, by rank */
};

struct coll_rails_in {
	int ranks, hosts;
	const uint32_t *host_of; /* by rank */
	const int *order;        /* all ranks in the order of places; NULL: they are not told apart */
	/* Of each rank, itself the first end, to a rank of another host. */
	const struct coll_transport_path *path;
};

/* NULL: out of memory. */
struct coll_rails *coll_rails_create(const struct coll_rails_in *in);
void coll_rails_destroy(struct coll_rails **r); /* sets NULL; NULL inside is accepted */

struct coll_rails_channel {
	int from, to;  /* ranks, either order */
	unsigned turn; /* channels of successive turns are used side by side */
	bool alone;    /* no other link of the host need have work at the same time: all rails */
};

/* The rail of a channel, as an index into path->rail, whose rails are those that may be used. r may be NULL. */
unsigned coll_rails_of(const struct coll_rails *r, const struct coll_transport_path *path,
                       const struct coll_rails_channel *channel);

/* Of all rails of a path together, in Mb/s; 0: unknown. */
uint32_t coll_rails_mbps(const struct coll_transport_path *path);

/* Between two processes over a transport, by their peer infos. */
struct coll_transport_path coll_rails_path(const struct coll_context *ctx, const struct coll_opened_transport *w, int a,
                                           int b);

#endif
