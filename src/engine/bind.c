/*
 * Binding: a run's tables, sized and filled for the plan it is going to run.
 *
 * Everything that depends on the plan's size is allocated here, before the first step, and only
 * when it is larger than all before. The table of channels outlives the operation: it depends
 * on the list of peers, the number of lanes and the fabric alone, so starting the same shape
 * again looks nothing up.
 */
#include "engine/bind.h"

#include <stdlib.h>
#include <string.h>

#include "engine/lane.h"
#include "engine/port.h"
#include "engine/range.h"

/* Make *array hold n elements; what was in it need not survive. */
static coll_status grow(void **array, size_t *cap, size_t n, size_t elem_bytes)
{
	void *p;

	if (n <= *cap)
		return COLL_OK;
	p = calloc(n, elem_bytes);
	if (!p)
		return COLL_ERR_MEMORY;
	free(*array);
	*array = p;
	*cap = n;
	return COLL_OK;
}

#define GROW(run, array, n) grow((void **)&(run)->array, &(run)->array##_cap, n, sizeof(*(run)->array))

static void link_flights(struct coll_run *run)
{
	run->free_flights = NULL;
	for (size_t i = run->flights_cap; i-- > 0;) {
		run->flights[i].next = run->free_flights;
		run->free_flights = &run->flights[i];
	}
}

/* ---- Channels --------------------------------------------------------- */

static struct port *port_at(const struct coll_run *run, uint32_t window, uint32_t lane, uint32_t peer,
                            enum coll_direction dir)
{
	return &run->ports[(((size_t)window * run->bound_lanes + lane) * run->bound_peers + peer) * 2 + dir];
}

static bool bound(const struct coll_run *run, const struct coll_fabric *fabric, const struct coll_plan *plan,
                  uint32_t windows)
{
	if (run->bound_fabric != fabric || run->bound_lanes != plan->nlanes || run->bound_peers != plan->npeers ||
	    run->bound_windows < windows)
		return false;
	/* Not by the plan's address: a new plan may live where an old one was. */
	if (plan->npeers == 1)
		return run->peers[0] == plan->peers[0];
	return !plan->npeers || memcmp(run->peers, plan->peers, plan->npeers * sizeof(*plan->peers)) == 0;
}

coll_status coll_run_bind(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_plan *plan,
                          uint32_t windows)
{
	const size_t nports = (size_t)windows * plan->nlanes * plan->npeers * 2;
	coll_status status;

	if (bound(run, fabric, plan, windows))
		return COLL_OK;
	run->bound_fabric = NULL;
	status = GROW(run, peers, plan->npeers);
	if (status == COLL_OK)
		status = GROW(run, ports, nports);
	if (status == COLL_OK)
		status = GROW(run, instances, windows);
	if (status != COLL_OK)
		return status;
	if (plan->npeers)
		memcpy(run->peers, plan->peers, plan->npeers * sizeof(*plan->peers));
	if (nports)
		memset(run->ports, 0, nports * sizeof(*run->ports));
	run->bound_fabric = fabric;
	run->bound_lanes = plan->nlanes;
	run->bound_peers = plan->npeers;
	run->bound_windows = windows;
	run->unopened = nports / 2;
	for (uint32_t w = 0; w < windows; w++) {
		run->instances[w].window = w;
		for (uint32_t l = 0; l < plan->nlanes; l++)
			run->instances[w].lanes[l].ports = plan->npeers ? port_at(run, w, l, 0, COLL_DIR_SEND) : NULL;
	}
	link_flights(run);
	return COLL_OK;
}

/*
 * Open every channel that this plan receives on, before its first step: opening
 * is what grants the peer its slots, and fused steps are free of deadlock only
 * with those (a peer may need two slots of a channel that this rank would first
 * look at much later). AGAIN: some links are still connecting.
 */
coll_status coll_run_open_receivers(struct coll_run *run)
{
	const struct coll_plan *plan = run->job.plan;
	coll_status result = COLL_OK;

	for (uint32_t w = 0; w < run->windows; w++) {
		for (const struct coll_step *s = plan->steps; s < plan->steps + coll_plan_nsteps(plan); s++) {
			struct port *port;
			coll_status status;

			if (!receives(s))
				continue;
			port = port_at(run, w, s->lane, s->peer_recv, COLL_DIR_RECV);
			if (port->channel)
				continue;
			status = coll_run_open_port(run, port, s->peer_recv, s->lane, w, COLL_DIR_RECV);
			if (status == COLL_AGAIN)
				result = COLL_AGAIN;
			else if (status != COLL_OK)
				return status;
		}
	}
	return result;
}

/* ---- Blocks and scratch ----------------------------------------------- */

static size_t longest(const struct coll_extent *e, const struct coll_plan *plan)
{
	size_t most = 0;

	if (!e->counts)
		return e->count;
	if (e->single) /* buffers of one block hold this rank's own */
		return e->counts[plan->rank];
	for (int b = 0; b < plan->size; b++)
		if (e->counts[b] > most)
			most = e->counts[b];
	return most;
}

/* Elements that the tiles must cover: those of the vector, or of the longest block whose length this
 * rank has. A rank that has only short blocks stops early: it has no
 * bytes to move in later tiles. */
size_t coll_run_span(const struct coll_job *job)
{
	const size_t in = longest(&job->in, job->plan), out = longest(&job->out, job->plan);

	return in > out ? in : out;
}

static coll_status pack_offsets(const struct coll_extent *e, int size, size_t **offsets, size_t *cap)
{
	size_t at = 0;
	coll_status status;

	if (!e->counts || e->offsets || e->single)
		return COLL_OK;
	status = grow((void **)offsets, cap, (size_t)size, sizeof(**offsets));
	if (status != COLL_OK)
		return status;
	for (int b = 0; b < size; b++) {
		(*offsets)[b] = at;
		at += e->counts[b];
	}
	return COLL_OK;
}

/*
 * Whether the plan's scratch buffer only ever holds what lies in `in` at the same place, and is
 * only ever sent. Such copies are made because in place the result overwrites `in`, which the
 * peer might not have read; where `out` is elsewhere nothing does, and they can be left out.
 */
static bool only_mirrors(const struct coll_plan *plan)
{
	if (plan->nscratch != 1 || plan->kind != COLL_KIND_ALL_REDUCE)
		return false;
	for (const struct coll_step *s = plan->steps; s < plan->steps + coll_plan_nsteps(plan); s++) {
		const bool reads = s->op != COLL_STEP_RECV && s->op != COLL_STEP_RECV_COPY_SEND &&
		                   s->op != COLL_STEP_WAIT && s->src >= COLL_BUF_SCRATCH;
		const bool writes = s->op != COLL_STEP_SEND && s->op != COLL_STEP_WAIT && s->dst >= COLL_BUF_SCRATCH;

		if (reads && s->op != COLL_STEP_SEND)
			return false;
		if (writes && (s->op != COLL_STEP_COPY || s->src != COLL_BUF_IN || s->src_chunk != s->dst_chunk))
			return false;
	}
	return true;
}

/*
 * Whether two ranks exchange whole vectors: the peer's is received into scratch and reduced with ours. Where `out`
 * is not `in` it may come to `out`, where the result overwrites it element by element: one buffer less passes through
 * the caches.
 */
static bool only_lands(const struct coll_plan *plan)
{
	if (plan->size != 2 || plan->chunks != 1 || plan->nscratch != 1 || plan->kind != COLL_KIND_ALL_REDUCE)
		return false;
	for (const struct coll_step *s = plan->steps; s < plan->steps + coll_plan_nsteps(plan); s++) {
		const bool sends = s->op == COLL_STEP_SEND && s->src == COLL_BUF_IN;
		const bool receives = s->op == COLL_STEP_RECV && s->dst == COLL_BUF_SCRATCH;
		const bool reduces = s->op == COLL_STEP_REDUCE && s->src == COLL_BUF_SCRATCH &&
		                     s->dst == COLL_BUF_OUT && s->stride == 1;

		if (!sends && !receives && !reduces && s->op != COLL_STEP_WAIT)
			return false;
	}
	return true;
}

static coll_status prepare_blocks(struct coll_run *run, const struct coll_job *job)
{
	coll_status status = pack_offsets(&job->in, job->plan->size, &run->in_offsets, &run->in_offsets_cap);

	if (status == COLL_OK)
		status = pack_offsets(&job->out, job->plan->size, &run->out_offsets, &run->out_offsets_cap);
	run->layout_counts = job->in.counts ? job->in.counts : job->out.counts;
	run->layout_count = job->in.count > job->out.count ? job->in.count : job->out.count;
	return status;
}

/* What only some plans need: several windows' scratch, flights, block layouts. */
coll_status coll_run_prepare(struct coll_run *run, const struct coll_job *job)
{
	const struct coll_plan *plan = job->plan;
	/* Planted defects shall be found by what they do, not by this bound. */
	const size_t nflights = (size_t)job->windows * (MUTANTS_PLANTED ? coll_plan_nsteps(plan) : plan->max_in_flight);
	coll_status status = COLL_OK;

	if (nflights > run->flights_cap) {
		status = GROW(run, flights, nflights);
		if (status != COLL_OK)
			return status;
		link_flights(run);
	}
	if (plan->nscratch) {
		size_t slice;

		status = GROW(run, scratch_at, plan->nscratch);
		if (status != COLL_OK)
			return status;
		slice = coll_run_slice(plan, job->tile, job->elem_bytes, run->scratch_at);
		for (uint32_t w = 0; w < job->windows; w++)
			run->instances[w].scratch = job->scratch + (mutant(MUTANT_SHARE_SCRATCH) ? 0 : w * slice);
	}
	run->mirrors = only_mirrors(plan);
	run->lands = only_lands(plan);
	run->block = coll_plan_kind_is_block(plan->kind);
	run->couple = plan->kind == COLL_KIND_ALL_REDUCE && plan->size == 2;
	run->whole = plan->chunks == 1 && !run->block;
	return run->block ? prepare_blocks(run, job) : COLL_OK;
}
