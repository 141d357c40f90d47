/*
 * The facts that ranks agree on, from which calls are priced and cut: see facts.h. Nothing of a rank alone enters.
 */
#include "comm/facts.h"

#include "base/limits.h"
#include "comm/devices.h"
#include "comm/layout.h"
#include "core/host_rates.h"
#include "core/tuned.h"
#include "select/frame.h"
#include "select/intra.h"

enum { SLOTS_DEFAULT = 4, WINDOWS_DEFAULT = 4 };

/* The slowest transport that some pair will use, computed from the peer infos alone: the fastest that
 * all ranks have, and that crosses hosts if `crossing`. */
const struct coll_opened_transport *coll_comm_facts_transport(const struct coll_comm *comm, bool crossing)
{
	const struct coll_context *ctx = comm->ctx;
	const struct coll_opened_transport *best = NULL;

	for (int i = 0; i < ctx->ntransports; i++) {
		const struct coll_opened_transport *w = &ctx->transports[i];
		bool everyone = true;

		for (int r = 0; r < comm->size && everyone; r++)
			everyone = coll_peer_info_has(coll_comm_peer_info(comm, r), w->position);
		if (everyone && (!crossing || w->caps.cross_host) && !best)
			best = w;
	}
	return best;
}

static size_t slot_bytes_for(const struct coll_settings *s, int size, uint32_t slots, uint32_t windows, size_t best)
{
	/* The budget covers both directions and two kinds of lanes. Slots get half of it. */
	size_t channels = (size_t)(size > 1 ? size - 1 : 1) * 2 * windows * slots * 2;
	size_t each = s->memory_budget / 2 / channels, bytes = best;

	while (bytes > each && bytes > COLL_FRAME_MIN)
		bytes /= 2;
	return bytes;
}

/* Use as many slots as the transport prefers while they can have full size. Otherwise use as few as
 * suffice for full size. */
static uint32_t slots_for(const struct coll_settings *s, int size, uint32_t depth, uint32_t windows, size_t best)
{
	if (s->slots >= 2)
		return (uint32_t)s->slots;
	while (depth > SLOTS_DEFAULT && slot_bytes_for(s, size, depth, windows, best) < best)
		depth--;
	return depth >= 2 ? depth : SLOTS_DEFAULT;
}

/* Whole turns of the streams, so that none has more windows than another. */
static uint32_t windows_for(uint32_t streams)
{
	uint32_t windows = WINDOWS_DEFAULT;

	if (streams > 1)
		windows = (windows + streams - 1) / streams * streams;
	if (windows > COLL_WINDOWS_MAX && streams < COLL_WINDOWS_MAX)
		windows = COLL_WINDOWS_MAX / streams * streams;
	return windows < COLL_WINDOWS_MAX ? windows : COLL_WINDOWS_MAX;
}

void coll_comm_facts_take_layout(struct coll_comm *comm, struct coll_layout *layout)
{
	comm->layout = layout;
	comm->facts.layout = layout;
	comm->facts.local_max = layout ? (int)layout->level[coll_layout_hosts(layout)].most : 0;
}

void coll_comm_facts_take_links(struct coll_comm *comm)
{
	const struct coll_opened_transport *w = coll_comm_facts_transport(comm, comm->rank_map.hosts > 1);
	const struct coll_host_rate *slowest = coll_host_rates_slowest(comm->host_rates);
	struct coll_select_facts *f = &comm->facts;
	/* Mb/s are 125000 bytes a second. */
	const double rate = slowest ? slowest->mbps / 8e3 : 0, hop = comm->ctx->tuned ? comm->ctx->tuned->hop_ns : 0;

	if (!w)
		return;
	f->link_mbps = slowest ? slowest->mbps : 0;
	f->caps.bytes_per_ns = slowest && rate < w->caps.bytes_per_ns ? rate : w->caps.bytes_per_ns;
	f->caps.latency_ns = w->caps.latency_ns;
	if (comm->host_rates && hop > 2 * f->caps.overhead_ns)
		f->caps.latency_ns = hop - 2 * f->caps.overhead_ns;
}

void coll_comm_facts_find(struct coll_comm *comm)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const struct coll_opened_transport *w = coll_comm_facts_transport(comm, comm->rank_map.hosts > 1);
	const struct coll_opened_transport *near = coll_comm_facts_transport(comm, false);
	struct coll_select_facts *f = &comm->facts;
	size_t best;

	*f = (struct coll_select_facts){.size = comm->size,
	                                .reduce_bytes_per_ns = 8,
	                                .copy_bytes_per_ns = 8,
	                                .oversubscribed = comm->rank_map.oversubscribed,
	                                .one_host = comm->rank_map.hosts == 1,
	                                .scratch_bytes_max = s->memory_budget / 2,
	                                .forced = s->algo};
	if (w) {
		f->caps = w->caps;
		f->caps.streams = comm->rails ? comm->rails->streams : f->caps.streams;
		coll_comm_facts_take_links(comm);
	}
	if (near)
		f->inside = near->caps;
	f->chain = comm->chain;
	f->devices = coll_comm_devices_any(comm);
	coll_comm_facts_take_layout(comm, comm->layout);
	/* The kernel gets frames by reference, and the transport's rate includes the kernel's
	 * copies. A reduction finds the data just received in cache. */
	if (f->caps.streamed) {
		f->reduce_bytes_per_ns = 20;
		f->copy_bytes_per_ns = 0;
	}
	f->windows_max = s->windows > 0 ? (uint32_t)s->windows : windows_for(f->caps.streams);
	if (f->windows_max > COLL_WINDOWS_MAX)
		f->windows_max = COLL_WINDOWS_MAX;
	best = coll_select_frame_bytes(f);
	if (best == 0)
		best = COLL_FRAME_MAX;
	comm->slots = slots_for(s, comm->size, f->caps.depth, f->windows_max, best);
	comm->slot_bytes =
	        s->slot_bytes ? s->slot_bytes : slot_bytes_for(s, comm->size, comm->slots, f->windows_max, best);
	if (f->caps.slot_bytes_max && comm->slot_bytes > f->caps.slot_bytes_max)
		comm->slot_bytes = f->caps.slot_bytes_max;
	if (comm->slot_bytes < 64)
		comm->slot_bytes = 64;
	f->slot_bytes = comm->slot_bytes;
	coll_select_intra_facts(comm, w);
}
