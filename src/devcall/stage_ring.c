/*
 * See stage_ring.h. Owns the memory of a ring, the pieces of a tile, and the order of what is enqueued for the tiles.
 */
#include "devcall/stage_ring.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/error.h"
#include "engine/bind.h"
#include "engine/run.h"
#include "select/bind_pair.h"

enum { SLOTS = COLL_STAGE_SLOTS, SLOT_BYTES = COLL_STAGE_SLOT_BYTES, PAGE = COLL_STAGE_PAGE };
static_assert(4 * (int)COLL_STAGE_JOINED_MAX <= (int)SLOTS &&
                      2 * (int)COLL_STAGE_JOINED_MAX <= (int)COLL_DEVICE_PIECES_MAX,
              "tiles are ahead, and their words fit in one batch");

/* ---- Memory ---- */

coll_status coll_stage_ring_open(struct coll_comm *comm, struct coll_stage **ring, struct coll_error_box *err)
{
	const size_t bytes = COLL_STAGE_MEMORY_BYTES;
	struct coll_device *d = comm->ctx->device;
	struct coll_stage *s;
	coll_status st;

	s = *ring = calloc(1, sizeof(*s));
	if (s)
		s->pieces = calloc((size_t)comm->size + COLL_STAGE_PIECES, sizeof(*s->pieces));
	if (!s || !s->pieces)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for staging");
	s->device = d;
	/* Memory that no transport knows: so a call goes the way of a call with plain host buffers, and has its
	 * rounding. Shared: after a fork, pages that the parent writes must stay those that the device has. */
	s->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED) {
		s->memory = NULL;
		return coll_error_set(err, COLL_ERR_MEMORY, "no memory for %zu bytes of staging", bytes);
	}
	st = d->table->pin(d, s->memory, bytes, &s->address);
	if (st != COLL_OK) {
		coll_device_error(d, err);
		return st;
	}
	s->words = s->memory;
	s->in = (char *)s->memory + PAGE;
	s->out = s->in + (size_t)SLOTS * SLOT_BYTES;
	s->turns = (void *)(s->in + COLL_STAGE_SLOTS_BYTES);
	return COLL_OK;
}

void coll_stage_ring_close(struct coll_stage **ring)
{
	struct coll_stage *s = *ring;

	*ring = NULL;
	if (!s)
		return;
	/* A device that has failed says nothing about copies that were under way: it keeps the memory. */
	if (s->memory && (!s->address || coll_device_unpin(s->device, s->memory) == COLL_OK))
		munmap(s->memory, COLL_STAGE_MEMORY_BYTES);
	free(s->pieces);
	free(s);
}

/* ---- Pieces ---- */

size_t coll_stage_job_tiles(const struct coll_job *job)
{
	/* Without a plan nothing is staged: a direct way, of a call that moves nothing here. */
	const size_t elements = job->plan ? coll_run_span(job) : 0;

	return elements / job->tile + (elements % job->tile != 0);
}

/* One buffer of a request. */
struct side {
	const struct coll_extent *e;
	const struct coll_plan *plan;
	char *slots;
	size_t tile, elem_bytes;
	bool out;
};

static size_t block_count(const struct side *x, int b)
{
	if (!x->e->counts)
		return x->e->count;
	return x->e->counts[x->e->single ? x->plan->rank : b];
}

/* Add a piece, to the last one where it goes on from there. */
static int add(struct coll_device_piece *pieces, int n, uint64_t dst, uint64_t src, size_t len_bytes)
{
	struct coll_device_piece *last = n > 0 ? &pieces[n - 1] : NULL;

	if (last && last->dst + last->len_bytes == dst && last->src + last->len_bytes == src) {
		last->len_bytes += len_bytes;
		return n;
	}
	pieces[n] = (struct coll_device_piece){.dst = dst, .src = src, .len_bytes = len_bytes};
	return n + 1;
}

/* The pieces of tile t between a buffer and the slot, behind n others. */
static int pieces_of(struct coll_stage *s, const struct side *x, const struct coll_run_stage *stage, size_t t, int n)
{
	/* A call that moves nothing has no slots, and perhaps no plan. */
	const bool block = x->slots && coll_plan_kind_is_block(x->plan->kind);
	const int blocks = block && !x->e->single ? x->plan->size : 1;
	const uint64_t slot = x->slots ? coll_stage_address(s, coll_stage_slot(stage, x->slots, t)) : 0;
	const size_t first = t * x->tile;
	size_t at = 0;

	if (!x->slots || !x->e->base)
		return n;
	for (int b = 0; b < blocks; b++) {
		const size_t count = block_count(x, b), begin = x->e->offsets && !x->e->single ? x->e->offsets[b] : at;
		size_t len;
		uint64_t user, staged;

		at += count;
		if (count <= first)
			continue;
		len = count - first < x->tile ? count - first : x->tile;
		user = (uint64_t)(uintptr_t)x->e->base + (begin + first) * x->elem_bytes;
		staged = slot + (uint64_t)b * x->tile * x->elem_bytes;
		n = add(s->pieces, n, x->out ? user : staged, x->out ? staged : user, len * x->elem_bytes);
	}
	return n;
}

/* The piece of tile t that the host copies. */
static int local_piece(struct coll_stage *s, const struct coll_request *r, size_t t, bool out, int n)
{
	const size_t at = t * SLOT_BYTES, left = r->device->local.len_bytes - at;
	const uint64_t user = (uint64_t)(uintptr_t)(out ? r->device->local.to : r->device->local.from) + at;
	char *slots = out ? r->device->stage[0].out : r->device->stage[0].in;
	uint64_t slot;

	if (!slots)
		return n;
	slot = coll_stage_address(s, coll_stage_slot(&r->device->stage[0], slots, t));
	return add(s->pieces, n, out ? user : slot, out ? slot : user, left < SLOT_BYTES ? left : SLOT_BYTES);
}

/* The buffer that half `half` of a request reads (out: writes). False: there is none. job: room for that of a pair. */
static bool side_of(const struct coll_request *r, int half, bool out, struct coll_job *job, struct side *x)
{
	const struct coll_pair_request *p = r->is == COLL_IS_PAIR ? coll_pair_of(r) : NULL;
	const struct coll_job *j = p ? job : &coll_collective_of(r)->job;

	if (p && (!p->plan[half] || half != (int)out))
		return false;
	if (p)
		coll_pair_job(r->comm, &p->pair, half, p->plan[half], job);
	*x = (struct side){.e = out ? &j->out : &j->in,
	                   .plan = j->plan,
	                   .slots = out ? r->device->stage[half].out : r->device->stage[half].in,
	                   .tile = j->tile,
	                   .elem_bytes = j->elem_bytes,
	                   .out = out};
	return true;
}

int coll_stage_pieces_in(struct coll_stage *s, const struct coll_request *r, size_t t, int n)
{
	struct coll_job job;
	struct side x;

	if (r->device->local.from)
		return local_piece(s, r, t, false, n);
	return side_of(r, 0, false, &job, &x) ? pieces_of(s, &x, &r->device->stage[0], t, n) : n;
}

int coll_stage_pieces_out(struct coll_stage *s, const struct coll_request *r, size_t t, int n)
{
	const int half = r->is == COLL_IS_PAIR;
	struct coll_job job;
	struct side x;

	if (r->device->local.from)
		return local_piece(s, r, t, true, n);
	if (side_of(r, half, true, &job, &x))
		return pieces_of(s, &x, &r->device->stage[half], t, n);
	if (r->is == COLL_IS_PAIR && coll_pair_self(r->comm, &coll_pair_of(r)->pair))
		return add(s->pieces, n, (uint64_t)(uintptr_t)coll_pair_of(r)->pair.recv,
		           (uint64_t)(uintptr_t)coll_pair_of(r)->pair.send,
		           coll_pair_of(r)->pair.send_count * coll_dtype_size(coll_pair_of(r)->pair.type));
	return n;
}

size_t coll_stage_join(const struct coll_request *r)
{
	const bool blocks =
	        r->is == COLL_IS_COLLECTIVE && coll_plan_kind_is_block(coll_collective_of(r)->job.plan->kind);
	size_t join = r->device->tiles >= COLL_STAGE_JOIN_MAX_MIN ? COLL_STAGE_JOINED_MAX
	              : r->device->tiles >= COLL_STAGE_JOIN_MIN   ? COLL_STAGE_JOINED
	                                                          : 1;

	/* Two pieces of a vector: slots are a ring. */
	while (join > 1 && join * (blocks ? (size_t)r->comm->size : 2) > COLL_STAGE_PIECES)
		join /= 2;
	return join;
}

size_t coll_stage_half_tiles(const struct coll_request *r, int half)
{
	struct coll_job job;

	if (r->device->local.from)
		return half == 0 ? r->device->tiles : 0;
	if (r->is == COLL_IS_COLLECTIVE)
		return half == 0 ? coll_stage_job_tiles(&coll_collective_of(r)->job) : 0;
	if (!coll_pair_of(r)->plan[half])
		return 0;
	coll_pair_job(r->comm, &coll_pair_of(r)->pair, half, coll_pair_of(r)->plan[half], &job);
	return coll_stage_job_tiles(&job);
}
