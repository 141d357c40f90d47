/*
 * Routes: every (sender, receiver, lane) over which the plans of all ranks send,
 * and how many frames each carries. What channels are to the engine, without their
 * windows and slots. Serves one operation and, if there is one, the next.
 */
#ifndef COLL_PLAN_ROUTE_H
#define COLL_PLAN_ROUTE_H

#include "plan/plan.h"

enum { COLL_ROUTE_OPS = 2 }; /* the operation and the one right after it */

struct coll_route {
	int sender;
	int receiver;
	uint32_t lane;
	uint32_t frames[COLL_ROUTE_OPS];   /* of one tile, counted at the sender */
	uint32_t receives[COLL_ROUTE_OPS]; /* the same counted at the receiver */
	uint32_t first[COLL_ROUTE_OPS];    /* of its frames, in senders[op] */
};

struct coll_routes {
	const struct coll_plan *const *plans[COLL_ROUTE_OPS]; /* by rank; NULL: no second operation */
	int size;
	struct coll_route *list;
	uint32_t count;
	uint32_t *senders[COLL_ROUTE_OPS]; /* step that sends each frame, route by route */

	uint32_t capacity;
	uint32_t *hash; /* index + 1 by (sender, receiver, lane) */
	uint32_t hash_capacity;
	uint32_t *send_index[COLL_ROUTE_OPS]; /* index + 1 by rank, lane and peer index */
	uint32_t *recv_index[COLL_ROUTE_OPS];
	size_t *peer_base[COLL_ROUTE_OPS];
};

/* COLL_ERR_INTERNAL and why when the two ends of a route count differently. On any
 * failure fini is still due. */
coll_status coll_routes_init(struct coll_routes *r, const struct coll_plan *const *plans,
                             const struct coll_plan *const *then, int size, char *why, size_t why_bytes);
void coll_routes_fini(struct coll_routes *r);

/* The route over which a step sends or receives. */
static inline uint32_t coll_route_out(const struct coll_routes *r, uint32_t op, int rank, const struct coll_step *s)
{
	return r->send_index[op][r->peer_base[op][rank] + (size_t)s->lane * r->plans[op][rank]->npeers + s->peer_send] -
	       1;
}

static inline uint32_t coll_route_in(const struct coll_routes *r, uint32_t op, int rank, const struct coll_step *s)
{
	return r->recv_index[op][r->peer_base[op][rank] + (size_t)s->lane * r->plans[op][rank]->npeers + s->peer_recv] -
	       1;
}

#endif
