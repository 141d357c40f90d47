/*
 * Reduce along the chain of hosts, see pipeline.h: the ranks of a host reduce-scatter the vector into
 * lanes, each lane is summed from host to host towards the root's, whose ranks hand the root the result. Commutative
 * operations. No link carries more than the vector once.
 */
#include "algos/circulant.h"
#include "algos/generators.h"
#include "algos/pipeline.h"

/* Send on the lanes from *sent on of which all of a frame lies before `end`. */
static void send_up_to(const struct coll_pipeline *c, struct coll_builder *b, uint8_t from, uint32_t *sent,
                       uint32_t end)
{
	for (*sent = coll_pipeline_next(c, *sent); *sent < end; *sent = coll_pipeline_next(c, *sent)) {
		const uint32_t run = coll_pipeline_run(c, c->at, c->at - 1, *sent);

		if (*sent + run > end)
			return;
		coll_build_run(b, run, 0, 0, false);
		coll_build_send(b, coll_pipeline_owner(c, c->at - 1, *sent), (struct coll_at){from, *sent});
		*sent += run;
	}
}

static void pass_on(const struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b, bool raw)
{
	const bool ends = c->at + 1 == c->count, last = c->at == 0;
	const uint8_t from = raw ? COLL_BUF_IN : COLL_BUF_SCRATCH;
	const uint32_t behind = ends ? 0 : coll_pipeline_behind(c);
	const uint8_t to = last && s->rank == s->root ? COLL_BUF_OUT : COLL_BUF_SCRATCH;
	uint32_t lane = coll_pipeline_next(c, 0), sent = 0;

	while (!ends && lane < c->levels.chunks) {
		const uint32_t run = coll_pipeline_run(c, c->at, c->at + 1, lane);

		coll_build_run(b, run, 0, 0, false);
		coll_build_recv_reduce(b, coll_pipeline_owner(c, c->at + 1, lane), (struct coll_at){from, lane},
		                       (struct coll_at){to, lane}, COLL_INCOMING_LEFT, behind, last);
		lane += run;
		if (!last)
			send_up_to(c, b, to, &sent, lane);
		lane = coll_pipeline_next(c, lane);
	}
	if (!last)
		send_up_to(c, b, ends ? from : to, &sent, c->levels.chunks);
}

/* The root's own host. */
static void collect(const struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b)
{
	for (uint32_t lane = 0, run; lane < c->levels.chunks; lane += run) {
		const int owner = coll_pipeline_owner(c, 0, lane);

		run = coll_pipeline_run(c, 0, 0, lane);
		coll_build_run(b, run, 0, 0, false);
		if (s->rank == owner && owner != s->root)
			coll_build_send(b, s->root, coll_scratch(0, lane));
		else if (s->rank == s->root && owner != s->root)
			coll_build_recv(b, owner, coll_out(lane));
	}
}

coll_status coll_algo_reduce_lanes(const struct coll_shape *s, struct coll_builder *b)
{
	struct coll_pipeline c;
	bool raw = true;
	coll_status status = coll_pipeline_init(&c, s, b);

	if (!status)
		status = coll_circulant_reduce_scatter(&c.levels, b, COLL_BUF_SCRATCH, false, &raw);
	if (!status) {
		pass_on(&c, s, b, raw);
		if (c.at == 0)
			collect(&c, s, b);
	}
	coll_pipeline_fini(&c);
	return status ? status : coll_build_status(b);
}

void coll_split_reduce_lanes(const struct coll_layout *l, struct coll_algo_cost *inside, struct coll_algo_cost *between,
                             struct coll_algo_links *links)
{
	coll_pipeline_cost(l, true, inside, between, links);
}
