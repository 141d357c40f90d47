/*
 * The ring of captured calls: see capture_ring.h. Owns its memory, also when graphs outlive their communicator.
 */
#include "devcall/capture_ring.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/fabric.h"
#include "devcall/capture_state.h"
#include "devcall/mapped_graphs.h"
#include "devcall/stage_ring.h"
#include "device/device.h"
#include "engine/run.h"
#include "inflight/lock.h"
#include "inflight/queue.h"

/* Rings whose graphs outlive their communicator. */
struct orphan {
	struct orphan *next;
	struct coll_stage *ring;
	struct coll_device_region region;
	coll_device_fence fence;
	struct capture_graph *graphs;
	int ordinal;
};
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;
static struct orphan *orphans;

/* The requests of a graph return to the communicator's pool. */
static void take_apart(struct coll_comm *comm, struct capture_graph *g)
{
	struct coll_capture *c = comm->capture;

	while (g->calls) {
		struct coll_captured *x = g->calls;

		g->calls = x->next;
		c->ids[x->id - 1] = NULL;
		for (int i = 0; i < x->n; i++) {
			struct coll_request *r = x->calls[i].r;

			r->device->captured = NULL;
			r->kind = r->device->host;
			r->next = comm->inflight.done;
			comm->inflight.done = r;
		}
		free(x);
	}
}

/* Free those that are gone; what they have of a communicator returns to it. One look at each: it may go between two. */
static void sweep_graphs(struct capture_graph **at, struct coll_comm *comm)
{
	while (*at) {
		struct capture_graph *g = *at;

		/* Acquire: the driver's thread has left it. */
		if (!atomic_load_explicit(&g->gone, memory_order_acquire)) {
			at = &g->next;
			continue;
		}
		*at = g->next;
		if (comm)
			take_apart(comm, g);
		free(g);
	}
}

/* With any device object of the same ordinal: its context is the one that the memory is pinned in, or that one has
 * ended, and with it the pinning. */
static void sweep_orphans(struct coll_device *d)
{
	struct orphan *list = NULL;

	pthread_mutex_lock(&orphans_lock);
	for (struct orphan **at = &orphans; *at;) {
		struct orphan *o = *at;

		sweep_graphs(&o->graphs, NULL);
		/* To free memory of the device the driver may wait for streams. */
		if (o->graphs || o->ordinal != d->ordinal || coll_device_is_held(d)) {
			at = &o->next;
			continue;
		}
		*at = o->next;
		o->next = list;
		list = o;
	}
	pthread_mutex_unlock(&orphans_lock);
	/* The driver may wait for streams, also for those of other communicators. */
	while (list) {
		struct orphan *o = list;

		list = o->next;
		o->ring->device = d;
		coll_stage_ring_close(&o->ring);
		d->table->region_destroy(d, &o->region);
		d->table->fence_destroy(d, o->fence);
		free(o);
	}
}

/* The slots of staged calls serve as the pinned memory of host buffers of direct calls. */
static struct coll_mapped_ring direct_ring(const struct coll_stage *s, struct capture_words *words)
{
	return (struct coll_mapped_ring){.words = &words->direct,
	                                 .in = s->in,
	                                 .out = s->out,
	                                 .words_at = coll_stage_address(s, &words->direct),
	                                 .in_at = coll_stage_address(s, s->in),
	                                 .out_at = coll_stage_address(s, s->out),
	                                 .guard_at = coll_stage_address(s, &s->words->guard)};
}

static coll_status open_ring(struct coll_comm *comm, struct coll_capture *c, struct coll_error_box *err)
{
	struct coll_device *d = comm->ctx->device;
	coll_status st = coll_stage_ring_open(comm, &c->ring, err);
	struct coll_mapped_ring ring;

	if (st != COLL_OK)
		return st;
	c->words = (struct capture_words *)((char *)c->ring->memory + COLL_STAGE_PAGE / 2);
	for (int i = 0; i < CAPTURE_SLOTS; i++)
		atomic_store_explicit(&c->words->go[i], CAPTURE_CLEAR, memory_order_relaxed);
	st = d->table->fence_create(d, &c->fence);
	if (st != COLL_OK) {
		coll_device_error(d, err);
		return st;
	}
	ring = direct_ring(c->ring, c->words);
	coll_mapped_graphs_open(comm, &ring);
	return COLL_OK;
}

static void free_fabrics(struct coll_comm_fabric *f)
{
	for (int i = 0; f && i < 2; i++)
		coll_comm_fabric_close(&f[i]);
	free(f);
}

static void free_capture(struct coll_capture *c)
{
	for (int i = 0; i < CAPTURE_SLOTS; i++) {
		coll_run_destroy(&c->places[i].run);
		free(c->places[i].scratch);
	}
	coll_run_destroy(&c->direct_run);
	free(c->numbers[0]);
	free(c->numbers[1]);
	free(c->ids);
	free(c);
}

static void close_ring(struct coll_capture *c)
{
	struct coll_device *d = c->ring ? c->ring->device : NULL;

	if (c->fence)
		d->table->fence_destroy(d, c->fence);
	coll_stage_ring_close(&c->ring);
}

/* The channels of captured calls. */
static struct coll_comm_fabric *make_fabrics(struct coll_comm *comm)
{
	struct coll_comm_fabric *f = calloc(2, sizeof(*f));

	if (f && coll_comm_fabric_init(comm, &f[0], COLL_LANES_GRAPHS) == COLL_OK &&
	    coll_comm_fabric_init(comm, &f[1], COLL_LANES_GRAPHS_P2P) == COLL_OK)
		return f;
	free_fabrics(f);
	return NULL;
}

static coll_status open_capture(struct coll_comm *comm, struct coll_error_box *err)
{
	struct coll_capture *c = calloc(1, sizeof(*c));
	struct coll_comm_fabric *fabrics = c ? make_fabrics(comm) : NULL;
	coll_status st = COLL_ERR_MEMORY;

	if (c)
		c->region.fd = -1;
	for (int half = 0; half < 2 && c; half++)
		c->numbers[half] = calloc((size_t)comm->size, sizeof(*c->numbers[half]));
	if (!fabrics || !c->numbers[0] || !c->numbers[1] || coll_run_create(&c->direct_run) != COLL_OK)
		coll_error_set(err, st, "out of memory for a capture");
	else
		st = open_ring(comm, c, err);
	if (st == COLL_OK) {
		/* Drivers see all of it, or nothing. */
		coll_async_lock(comm->ctx);
		comm->capture = c;
		comm->captured = fabrics;
		pthread_mutex_unlock(&comm->ctx->async->lock);
		return COLL_OK;
	}
	free_fabrics(fabrics);
	if (c) {
		close_ring(c);
		free_capture(c);
	}
	return st;
}

coll_status coll_capture_ring(struct coll_comm *comm, struct coll_stage **ring)
{
	struct coll_error_box err;
	coll_status st = COLL_OK;

	if (!atomic_load_explicit(&comm->ctx->async->running, memory_order_relaxed))
		return coll_comm_refuse(
		        comm, "stream", COLL_ERR_UNSUPPORTED,
		        "[COLL-1216] a stream that is being captured, without a progress thread: nobody "
		        "could run the call when the graph is launched (COLL_PROGRESS=%s)",
		        comm->ctx->settings.progress);
	if (!comm->capture) {
		coll_error_clear(&err);
		st = open_capture(comm, &err);
	}
	if (st != COLL_OK)
		return coll_comm_refuse(comm, "stream", st, "%s", err.message);
	*ring = comm->capture->ring;
	return COLL_OK;
}

void coll_capture_sweep(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	sweep_graphs(&c->graphs, comm);
	if (!c->graphs)
		coll_inflight_unkeep(comm, COLL_KEPT_BY_GRAPHS);
}

struct coll_device_region *coll_capture_keeps(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;

	if (!c)
		return NULL;
	for (struct capture_graph *g = c->graphs; g; g = g->next)
		take_apart(comm, g);
	sweep_graphs(&c->graphs, comm);
	return c->graphs ? &c->region : NULL;
}

void coll_capture_destroy(struct coll_comm *comm)
{
	struct coll_capture *c = comm->capture;
	struct orphan *o;

	if (!c)
		return;
	coll_capture_keeps(comm);
	sweep_orphans(c->ring->device);
	if (!c->graphs) {
		c->ring->device->table->region_destroy(c->ring->device, &c->region);
		close_ring(c);
	} else if ((o = malloc(sizeof(*o)))) {
		*o = (struct orphan){.ring = c->ring,
		                     .region = c->region,
		                     .fence = c->fence,
		                     .graphs = c->graphs,
		                     .ordinal = c->ring->device->ordinal};
		pthread_mutex_lock(&orphans_lock);
		o->next = orphans;
		orphans = o;
		pthread_mutex_unlock(&orphans_lock);
	}
	comm->capture = NULL;
	free_capture(c);
}
