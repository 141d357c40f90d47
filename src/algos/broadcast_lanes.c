/*
 * Broadcast along the chain of hosts, see pipeline.h: the root hands each rank of its host a lane,
 * lanes go from host to host, and the ranks of a host gather all lanes. Long vectors: it takes as many rounds
 * as there are hosts, but no link carries more than the vector once.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/pipeline.h"

/* The root's own host: lane by lane to who carries it. */
static void scatter(const struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b)
{
	for (uint32_t lane = 0, run; lane < c->levels.chunks; lane += run) {
		const int owner = coll_pipeline_owner(c, 0, lane);

		run = coll_pipeline_run(c, 0, 0, lane);
		coll_build_run(b, run, 0, 0, false);
		if (s->rank == s->root && owner != s->root)
			coll_build_send(b, owner, coll_in(lane));
		else if (s->rank == owner && owner != s->root)
			coll_build_recv(b, s->root, coll_out(lane));
	}
}

/* Send on the lanes from *sent on of which all of a frame lies before `end`. */
static void send_up_to(const struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b,
                       uint32_t *sent, uint32_t end)
{
	for (*sent = coll_pipeline_next(c, *sent); *sent < end; *sent = coll_pipeline_next(c, *sent)) {
		const uint32_t run = coll_pipeline_run(c, c->at, c->at + 1, *sent);

		if (*sent + run > end)
			return;
		coll_build_run(b, run, 0, 0, false);
		coll_build_send(b, coll_pipeline_owner(c, c->at + 1, *sent),
		                s->rank == s->root ? coll_in(*sent) : coll_out(*sent));
		*sent += run;
	}
}

static void pass_on(const struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b)
{
	const bool ends = c->at + 1 == c->count;
	uint32_t lane = coll_pipeline_next(c, 0), sent = 0;

	while (c->at > 0 && lane < c->levels.chunks) {
		const uint32_t run = coll_pipeline_run(c, c->at, c->at - 1, lane);

		coll_build_run(b, run, 0, 0, false);
		coll_build_recv(b, coll_pipeline_owner(c, c->at - 1, lane), coll_out(lane));
		lane += run;
		if (!ends)
			send_up_to(c, s, b, &sent, lane);
		lane = coll_pipeline_next(c, lane);
	}
	if (!ends)
		send_up_to(c, s, b, &sent, c->levels.chunks);
}

coll_status coll_algo_broadcast_lanes(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_pipeline c;
	coll_status status = coll_pipeline_init(&c, s, b);

	if (!status) {
		if (c.at == 0)
			scatter(&c, s, b);
		pass_on(&c, s, b);
		status = coll_circulant_all_gather(&c.levels, b, false, s->root);
	}
	if (!status && s->rank == s->root) {
		coll_build_run(b, c.levels.chunks, 0, 0, false);
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	}
	coll_pipeline_fini(&c);
	return status ? status : coll_build_status(b);
}

void coll_split_broadcast_lanes(const struct coll_layout *l, struct coll_algo_cost *inside,
                                struct coll_algo_cost *between, struct coll_algo_links *links)
{
	coll_pipeline_cost(l, false, inside, between, links);
}
