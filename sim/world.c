/*
 * See world.h. Channels are opened when the engine first asks for them and live as
 * long as the world.
 */
#include "sim/world.h"
#include "engine/run.h"
#include "transports/common/dummy.h"
#include "transports/loop/group.h"

#include <stdlib.h>
#include <string.h>

enum { PORTS_PER_PEER = COLL_LANES_MAX * SIM_WINDOWS_MAX * 2 };

static const char *no_setting(void *ctx, const char *name)
{
	return "";
}

static void no_log(void *ctx, int level, const char *format, ...)
{
}

static void no_link_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
}

static struct coll_process_id id_of(int rank)
{
	return (struct coll_process_id){{(uint64_t)rank + 1, 77}};
}

coll_status sim_world_link(struct sim_rank *r, int peer)
{
	struct sim_world *w = r->world;
	const struct coll_process_id id = id_of(peer);
	char address[512];
	size_t len_bytes;
	coll_status status;

	if (r->links[peer])
		return COLL_OK;
	status = w->transport.address(w->ranks[peer].inst, address, sizeof(address), &len_bytes);

	if (status != COLL_OK)
		return status;
	return w->transport.link_open(r->inst, &id, address, len_bytes, &r->links[peer]);
}

static coll_status open_channel(struct sim_rank *r, int peer, uint32_t lane, uint32_t window, enum coll_direction dir,
                                struct coll_endpoint **slot)
{
	struct sim_world *w = r->world;
	const struct coll_channel_key key = {.comm = 1, .lane = (uint16_t)lane, .window = (uint16_t)window};
	struct coll_endpoint *ep;
	coll_status status = sim_world_link(r, peer);

	if (status != COLL_OK)
		return status;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return COLL_ERR_MEMORY;
	ep->transport = &w->transport;
	status = w->transport.channel_open(r->links[peer], &key, dir, w->slot_bytes, w->slots, &ep->channel);
	if (status != COLL_OK) {
		free(ep);
		return status;
	}
	w->channels++;
	*slot = ep;
	return COLL_OK;
}

static coll_status find_channel(void *arg, int peer, uint32_t lane, uint32_t window, enum coll_direction dir,
                                struct coll_endpoint **endpoint)
{
	struct sim_rank *r = arg;
	struct coll_endpoint **slot =
	        &r->ports[peer * PORTS_PER_PEER + (int)((lane * SIM_WINDOWS_MAX + window) * 2 + dir)];
	coll_status status = COLL_OK;

	assert(peer >= 0 && peer < r->world->size && peer != r->rank);
	assert(lane < COLL_LANES_MAX && window < SIM_WINDOWS_MAX);
	if (!*slot)
		status = open_channel(r, peer, lane, window, dir, slot);
	if (status == COLL_OK)
		*endpoint = *slot;
	return status;
}

static coll_status make_rank(struct sim_world *w, int rank, void *group, size_t ref_bytes)
{
	struct sim_rank *r = &w->ranks[rank];
	const struct coll_transport_env env = {.size = sizeof(env),
	                                       .self = id_of(rank),
	                                       .host_id = "sim",
	                                       .group = group,
	                                       .wake_fd = -1,
	                                       .setting = no_setting,
	                                       .log = no_log,
	                                       .link_down = no_link_down};
	coll_status status;

	r->world = w;
	r->rank = rank;
	r->fabric = (struct coll_fabric){.arg = r,
	                                 .channel = find_channel,
	                                 .slot_bytes = w->slot_bytes,
	                                 .ref_bytes = ref_bytes,
	                                 .through = true};
	r->links = calloc((size_t)w->size, sizeof(*r->links));
	r->ports = calloc((size_t)w->size * PORTS_PER_PEER, sizeof(struct coll_endpoint *));
	if (!r->links || !r->ports)
		return COLL_ERR_MEMORY;
	status = w->transport.open(&env, &r->inst);
	return status != COLL_OK ? status : coll_run_create(&r->run);
}

coll_status sim_world_create(struct sim_world *w, int size, const struct coll_transport *table, void *group,
                             uint32_t slots, size_t slot_bytes, size_t ref_bytes)
{
	coll_status status = COLL_OK;

	*w = (struct sim_world){.size = size, .slots = slots, .slot_bytes = slot_bytes};
	coll_transport_complete(table ? table : &coll_transport_loop, &w->transport);
	if (!group)
		status = coll_loop_group_create(&w->group);
	w->ranks = calloc((size_t)size, sizeof(*w->ranks));
	if (!w->ranks)
		status = COLL_ERR_MEMORY;
	for (int r = 0; r < size && status == COLL_OK; r++)
		status = make_rank(w, r, group ? group : w->group, ref_bytes);
	if (status != COLL_OK)
		sim_world_destroy(w);
	return status;
}

void sim_world_close(struct sim_world *w, int rank)
{
	struct sim_rank *me = &w->ranks[rank];

	for (int i = 0; me->ports && i < w->size * PORTS_PER_PEER; i++) {
		struct coll_endpoint *ep = me->ports[i];

		if (!ep)
			continue;
		me->ports[i] = NULL;
		w->transport.channel_close(ep->channel);
		free(ep);
	}
}

void sim_world_destroy(struct sim_world *w)
{
	for (int r = 0; w->ranks && r < w->size; r++) {
		sim_world_close(w, r);
		coll_run_destroy(&w->ranks[r].run);
		free(w->ranks[r].ports);
	}
	for (int r = 0; w->ranks && r < w->size; r++)
		for (int p = 0; w->ranks[r].links && p < w->size; p++)
			if (w->ranks[r].links[p])
				w->transport.link_close(w->ranks[r].links[p]);
	for (int r = 0; w->ranks && r < w->size; r++) {
		free(w->ranks[r].links);
		w->transport.fini(w->ranks[r].inst);
	}
	free(w->ranks);
	coll_loop_group_destroy(&w->group);
	w->ranks = NULL;
}

coll_status sim_world_finish(struct sim_world *w, int *who)
{
	int left = w->size;

	while (left > 0) {
		bool any = false;

		left = 0;
		for (int r = 0; r < w->size; r++) {
			bool moved;
			coll_status status = coll_run_poll(w->ranks[r].run, &moved);

			any = any || moved;
			left += status == COLL_AGAIN;
			any = w->transport.progress(w->ranks[r].inst) > 0 || any;
			if (status == COLL_OK || status == COLL_AGAIN)
				continue;
			if (who)
				*who = r;
			return status;
		}
		if (left > 0 && !any)
			return COLL_ERR_PEER_SILENT;
	}
	return COLL_OK;
}
