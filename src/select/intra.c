/*
 * intranode operations (src/intra), as the communicator uses them: over which links, in which memory. Which calls are
 * made so says the table of ways.
 */
#include "select/intra.h"

#include <string.h>

#include "core/comm.h"
#include "intra/region.h"
#include "select/ways.h"

static coll_status link_to(void *arg, int peer, const struct coll_transport **t, void **link)
{
	struct coll_comm *comm = arg;
	struct coll_opened_transport *opened;
	void *found;
	const coll_status st = coll_context_link(comm->ctx, coll_comm_process(comm, peer), &opened, &found, &comm->box);

	/* Both or neither: there may be a link that is broken. */
	if (st == COLL_OK || st == COLL_AGAIN) {
		*t = &opened->table;
		*link = found;
	}
	return st;
}

/* Transports have room for a number of regions that peers may get to map, and each is a descriptor: most of them are
 * left for coll_mem_alloc(). Only regions that are being formed count. A rank that has none is followed by all others.
 */
enum { REGIONS_MAX = 128 };

static coll_status alloc(void *arg, size_t len_bytes, struct coll_memory *mem)
{
	struct coll_comm *comm = arg;
	const struct coll_opened_transport *opened = comm->intra_transport;
	coll_status st = COLL_ERR_UNSUPPORTED;

	/* Relaxed: a count, nothing else hangs on it. */
	if (atomic_fetch_add_explicit(&comm->ctx->intra_regions, 1, memory_order_relaxed) < REGIONS_MAX)
		st = opened->table.mem_alloc(opened->inst, len_bytes, mem);
	comm->intra_forming = st == COLL_OK;
	if (st != COLL_OK)
		atomic_fetch_sub_explicit(&comm->ctx->intra_regions, 1, memory_order_relaxed);
	return st;
}

static void formed(struct coll_comm *comm)
{
	if (comm->intra_forming)
		atomic_fetch_sub_explicit(&comm->ctx->intra_regions, 1, memory_order_relaxed);
	comm->intra_forming = false;
}

static void settle(void *arg, const struct coll_memory *mem)
{
	struct coll_comm *comm = arg;
	const struct coll_opened_transport *opened = comm->intra_transport;

	opened->table.shared->settle(opened->inst, mem);
	formed(comm);
}

static void give_free(void *arg, struct coll_memory *mem)
{
	struct coll_comm *comm = arg;
	const struct coll_opened_transport *opened = comm->intra_transport;

	opened->table.mem_free(opened->inst, mem);
	formed(comm);
}

void coll_select_intra_facts(struct coll_comm *comm, const struct coll_opened_transport *common)
{
	const struct coll_settings *s = &comm->ctx->settings;
	const size_t bytes = s->intra_bytes < COLL_INTRA_BYTES_MAX ? s->intra_bytes : COLL_INTRA_BYTES_MAX;

	if (!s->intra || !common || !common->caps.offers || comm->rank_map.hosts != 1 || !coll_ways_share(comm->size))
		return;
	comm->intra_bytes = bytes & ~(size_t)63;
	comm->intra_transport = common;
}

static enum coll_intra_copy copy_way(const char *word)
{
	if (strcmp(word, "cma") == 0)
		return COLL_INTRA_CMAED;
	if (strcmp(word, "streamed") == 0)
		return COLL_INTRA_STREAMED;
	return strcmp(word, "cached") == 0 ? COLL_INTRA_CACHED : COLL_INTRA_AUTO;
}

/* The communicator's own regions, apart from all channels' keys. At creation, where a rank that has no
 * memory is heard of by all; the regions come within the first call that uses them, and there
 * one that has none is followed by all others. */
coll_status coll_select_intra_prepare(struct coll_comm *comm)
{
	const struct coll_intra_fabric fabric = {.arg = comm,
	                                         .link = link_to,
	                                         .alloc = alloc,
	                                         .settle = settle,
	                                         .free = give_free,
	                                         .nt = &comm->collective.nt,
	                                         .crowded = &comm->ctx->crowd.now,
	                                         .shared_cores = comm->facts.oversubscribed,
	                                         .way = copy_way(comm->ctx->settings.shm_copy)};
	const struct coll_channel_key key = {
	        .comm = comm->id, .epoch = comm->epoch, .lane = UINT16_MAX, .window = UINT16_MAX};

	coll_status st;

	if (comm->intra_bytes == 0)
		return COLL_OK;
	st = coll_intra_create(&comm->intra, &fabric, &key, comm->rank, comm->size, comm->intra_bytes,
	                       comm->ctx->dedicated_cores);
	if (st == COLL_OK)
		coll_ways_bind(comm->intra);
	return st;
}
