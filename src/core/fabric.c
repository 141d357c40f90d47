/*
 * Fabric: the engine asks for a channel to a rank. This file opens link and channel on first use
 * and keeps the endpoint.
 */
#include "core/fabric.h"

#include <stdlib.h>
#include <string.h>

#include "base/errno_text.h"
#include "base/limits.h"
#include "core/comm.h"
#include "core/dead.h"
#include "core/rails.h"

uint32_t coll_comm_rail_of(const struct coll_comm *comm, int process, struct coll_comm_lane lane,
                           const struct coll_opened_transport *w, const struct coll_transport_path *alive)
{
	const struct coll_rails_channel c = {.from = comm->rank,
	                                     .to = coll_comm_rank_of(comm, process),
	                                     .turn = (unsigned)lane.number + lane.window,
	                                     .alone = lane.alone};

	return coll_rails_of(comm->rails && comm->rails->over == w ? comm->rails : NULL, alive, &c);
}

static coll_status open_channel(struct coll_comm *comm, int process, struct coll_comm_lane lane,
                                enum coll_direction dir, struct coll_opened_transport **opened, void **channel,
                                struct coll_error_box *box)
{
	struct coll_channel_key key = {
	        .comm = comm->id, .epoch = comm->epoch, .lane = lane.number, .window = lane.window};
	void *link;
	coll_status st = coll_context_link(comm->ctx, process, opened, &link, box);

	if (st != COLL_OK && st != COLL_AGAIN)
		return st;
	if ((*opened)->caps.cross_host) {
		const struct coll_transport_path all = coll_rails_path(comm->ctx, *opened, comm->ctx->rank, process);

		key.rail = coll_comm_rail_of(comm, process, lane, *opened, &all);
	}
	coll_errno_clear();
	st = (*opened)->table.channel_open(link, &key, dir, lane.slot_bytes, lane.slots, channel);
	/* Of a link that has just ended, a note says why. */
	if (st == COLL_ERR_MEMORY || (st == COLL_ERR_SYSTEM && coll_errno_status(COLL_OK) != COLL_OK))
		coll_error_set(box, st, "[COLL-4104] rank %d cannot open a channel to rank %d: %s", comm->rank,
		               coll_comm_rank_of(comm, process), coll_errno_take(coll_status_string(st)).text);
	return st;
}

coll_status coll_comm_channel_open(struct coll_comm *comm, int process, struct coll_comm_lane lane,
                                   enum coll_direction dir, struct coll_opened_transport **opened, void **channel)
{
	return open_channel(comm, process, lane, dir, opened, channel, &comm->box);
}

static coll_status open_endpoint(struct coll_comm_fabric *f, int peer, uint32_t lane, uint32_t window,
                                 enum coll_direction dir, struct coll_endpoint **endpoint)
{
	struct coll_comm *comm = f->comm;
	const bool special = f->special.count > 0 && f->special.lane == lane;
	const struct coll_comm_lane which = {.number = (uint16_t)(f->lane_base + lane),
	                                     .window = (uint16_t)window,
	                                     .alone = f == &comm->pairs || f == &comm->captured[1],
	                                     .slot_bytes = special ? f->special.slot_bytes : comm->slot_bytes,
	                                     .slots = special ? f->special.count : comm->slots};
	struct coll_opened_transport *opened;
	struct coll_endpoint *e = malloc(sizeof(*e));
	coll_status st;

	if (!e)
		return COLL_ERR_MEMORY;
	st = open_channel(comm, coll_comm_process(comm, peer), which, dir, &opened, &e->channel, f->box);
	if (st != COLL_OK) {
		free(e);
		return st;
	}
	e->transport = &opened->table;
	e->slot_policy = opened->caps.mapped ? &f->peers[peer]->slot_policy : NULL;
	*endpoint = e;
	return COLL_OK;
}

static coll_status channel(void *arg, int peer, uint32_t lane, uint32_t window, enum coll_direction dir,
                           struct coll_endpoint **endpoint)
{
	struct coll_comm_fabric *f = arg;
	struct coll_channels *c = f->peers[peer];
	coll_status st;

	if (!c) {
		c = f->peers[peer] = calloc(1, sizeof(*c));
		if (!c)
			return COLL_ERR_MEMORY;
		coll_slot_policy_init(&c->slot_policy, &f->slot_policy);
	}
	if (!c->at[dir][lane][window]) {
		st = open_endpoint(f, peer, lane, window, dir, &c->at[dir][lane][window]);
		if (st != COLL_OK)
			return st;
	}
	*endpoint = c->at[dir][lane][window];
	return COLL_OK;
}

static size_t lesser(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* The rule for non-temporal stores. The inputs and results of all ranks of a host either fit its
 * last-level caches or do not. If they do not, cached stores displace data that is still to be
 * read. A virtual machine reports the size of a cache that it shares with others. So until a rank
 * has measured, it assumes no more than the part of its own cores. On servers that part is up to 4
 * MiB per core. */
static struct coll_nt_rule nt_rule(const struct coll_comm *comm)
{
	const size_t one = comm->ctx->cache_bytes ? comm->ctx->cache_bytes : (size_t)COLL_NT_CACHE_BYTES;
	const size_t ranks = comm->rank_map.local_size > 1 ? (size_t)comm->rank_map.local_size : 1;
	const size_t share = one * (size_t)(comm->ctx->caches > 1 ? comm->ctx->caches : 1) / ranks;
	const size_t part = (size_t)COLL_NT_CORE_BYTES * (size_t)(comm->ctx->cpus > 1 ? comm->ctx->cpus : 1) / ranks;
	struct coll_nt_rule rule = {.least_bytes = COLL_NT_MIN, .reported_bytes = lesser(share, one), .gain = 1.05};

	rule.assume_bytes = lesser(rule.reported_bytes, part);
	return rule;
}

/* How to fill slots that both ends map: as the setting says, or by these rates. Fills through the caches ran at 10
 * to 44 bytes per ns between cores that share a last cache and at about 4 between cores that do not; streamed ones at
 * 10 to 20 in both cases (docs/results/experiments/shm-large.md, Near and far cores). */
static struct coll_slot_policy_rule slot_policy_rule(const struct coll_comm *comm)
{
	const char *way = comm->ctx->settings.shm_copy;

	return (struct coll_slot_policy_rule){.way = strcmp(way, "cached") == 0     ? COLL_SLOT_POLICY_CACHED
	                                             : strcmp(way, "streamed") == 0 ? COLL_SLOT_POLICY_STREAMED
	                                                                            : COLL_SLOT_POLICY_AUTO,
	                                      .least_bytes = COLL_SLOT_STREAM_MIN,
	                                      .slow_bytes_per_ns = 7,
	                                      .gain = 1.25,
	                                      .probe_bytes = COLL_SLOT_PROBE_BYTES,
	                                      .fresh = comm->slots * comm->facts.windows_max};
}

coll_status coll_comm_fabric_init(struct coll_comm *comm, struct coll_comm_fabric *f, uint16_t lane_base)
{
	f->peers = calloc((size_t)comm->size, sizeof(*f->peers));
	if (!f->peers)
		return COLL_ERR_MEMORY;
	f->comm = comm;
	f->box = &comm->box;
	f->lane_base = lane_base;
	f->slot_policy = slot_policy_rule(comm);
	coll_nt_init(&f->nt, nt_rule(comm));
	f->fabric = (struct coll_fabric){
	        .arg = f,
	        .channel = channel,
	        .slot_bytes = comm->slot_bytes,
	        .nt = &f->nt,
	        .streamed = comm->facts.caps.streamed,
	        .through = comm->facts.caps.streamed,
	};
	/* A sender by reference waits until its reader is scheduled. With more ranks than cores,
	 * copies win (measured 1.5 to 2x at 16 KiB to 1 MiB). This does not apply if the kernel
	 * takes the bytes. */
	if (comm->facts.oversubscribed && !comm->facts.caps.streamed)
		f->fabric.ref_bytes = SIZE_MAX;
	return COLL_OK;
}

static void close_channels(struct coll_channels *c)
{
	for (int d = 0; d < 2; d++)
		for (int l = 0; l < COLL_LANES_MAX; l++)
			for (int w = 0; w < COLL_WINDOWS_MAX; w++)
				if (c->at[d][l][w]) {
					c->at[d][l][w]->transport->channel_close(c->at[d][l][w]->channel);
					free(c->at[d][l][w]);
				}
	free(c);
}

void coll_comm_fabric_close(struct coll_comm_fabric *f)
{
	for (int r = 0; f->peers && r < f->comm->size; r++)
		if (f->peers[r])
			close_channels(f->peers[r]);
	free(f->peers);
	f->peers = NULL;
}

void coll_comm_fabric_close_peer(struct coll_comm_fabric *f, int rank)
{
	if (f->peers && f->peers[rank])
		close_channels(f->peers[rank]);
	if (f->peers)
		f->peers[rank] = NULL;
}

enum coll_link_end coll_comm_link_end(struct coll_comm *comm, int rank)
{
	struct coll_process *p;
	coll_status st = COLL_OK;
	int down;

	if (rank < 0 || rank == comm->rank)
		return COLL_LINK_STANDS;
	p = &comm->ctx->processes[coll_comm_process(comm, rank)];
	pthread_mutex_lock(&comm->ctx->links_lock);
	if (p->link)
		st = p->opened->table.link_status(p->link);
	pthread_mutex_unlock(&comm->ctx->links_lock);
	if (st == COLL_OK || st == COLL_AGAIN)
		return COLL_LINK_STANDS;
	/* A broken link is reported here, but perhaps a moment later. Relaxed: only a hint. */
	down = atomic_load_explicit(&p->down, memory_order_relaxed);
	return down ? (enum coll_link_end)down : COLL_LINK_CLOSED;
}

int coll_comm_broken(struct coll_comm *comm, int likely)
{
	if (coll_comm_link_end(comm, likely) == COLL_LINK_STANDS)
		for (int r = 0; r < comm->size; r++)
			if (coll_comm_link_end(comm, r) != COLL_LINK_STANDS && !coll_comm_is_dead(comm, r))
				return r;
	return likely;
}
