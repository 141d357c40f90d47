/*
 * See tile.h. Owns where the bytes of a tile lie, and which kernels move them.
 */
#include "devcall/mapped_tile.h"

#include <string.h>

/* ---- Where things lie ---- */

static bool is_root(const struct coll_mapped_tile *t)
{
	return t->d->rank == t->job->root;
}

static enum coll_kind kind_of(const struct coll_mapped_tile *t)
{
	return t->job->kind;
}

/* Whether the blocks of a buffer lie side by side in a slot, or in pinned memory. */
static bool has_blocks(const struct coll_mapped_tile *t, const struct coll_extent *e)
{
	return coll_plan_kind_is_block(kind_of(t)) && !e->single;
}

static size_t block_count(const struct coll_mapped_tile *t, const struct coll_extent *e, int b)
{
	return e->counts ? e->counts[e->single ? t->d->rank : b] : e->count;
}

static size_t block_begin(const struct coll_extent *e, int b)
{
	size_t at = 0;

	if (e->offsets)
		return e->offsets[b];
	if (!e->counts)
		return (size_t)b * e->count;
	for (int i = 0; i < b; i++)
		at += e->counts[i];
	return at;
}

/* Elements of the tile in block b of a buffer. */
static size_t len_of(const struct coll_mapped_tile *t, const struct coll_extent *e, int b)
{
	const size_t count = block_count(t, e, b);

	if (count <= t->first)
		return 0;
	return count - t->first < t->call->tile ? count - t->first : t->call->tile;
}

/* Where the tile of block b begins in the user's buffer, in bytes. */
static size_t user_at(const struct coll_mapped_tile *t, const struct coll_extent *e, int b)
{
	return ((has_blocks(t, e) ? block_begin(e, b) : 0) + t->first) * t->job->elem_bytes;
}

/* And in a slot of blocks. */
static size_t strip_at(const struct coll_mapped_tile *t, const struct coll_extent *e, int b)
{
	return has_blocks(t, e) ? (size_t)b * t->call->tile * t->job->elem_bytes : 0;
}

/* Whether the root alone has that buffer, or all ranks. */
bool coll_mapped_reads(enum coll_kind kind, bool root)
{
	return root || (kind != COLL_KIND_BROADCAST && kind != COLL_KIND_SCATTER);
}

bool coll_mapped_writes(enum coll_kind kind, bool root)
{
	return root || (kind != COLL_KIND_REDUCE && kind != COLL_KIND_GATHER);
}

static bool reads_in(const struct coll_mapped_tile *t)
{
	return coll_mapped_reads(kind_of(t), is_root(t));
}

static bool writes_out(const struct coll_mapped_tile *t)
{
	return coll_mapped_writes(kind_of(t), is_root(t));
}

/* As kernels see them. */
static uint64_t in_at(const struct coll_mapped_tile *t, int b)
{
	if (t->call->in_host)
		return t->base->in_at + strip_at(t, &t->job->in, b);
	return (uint64_t)(uintptr_t)t->job->in.base + user_at(t, &t->job->in, b);
}

static uint64_t out_at(const struct coll_mapped_tile *t, int b)
{
	if (t->call->out_host)
		return t->base->out_at + strip_at(t, &t->job->out, b);
	return (uint64_t)(uintptr_t)t->job->out.base + user_at(t, &t->job->out, b);
}

static uint64_t slot_at(const struct coll_mapped_tile *t, int rank, bool result)
{
	return t->d->peers[rank].slots + (result ? t->result : t->slot);
}

/* ---- Enqueueing ---- */

struct pieces {
	struct coll_device_piece at[COLL_MAPPED_RANKS_MAX];
	int n;
};

static void add(struct pieces *p, uint64_t dst, uint64_t src, size_t len_bytes)
{
	struct coll_device_piece *last = p->n > 0 ? &p->at[p->n - 1] : NULL;

	if (len_bytes == 0 || dst == src)
		return;
	if (last && last->dst + last->len_bytes == dst && last->src + last->len_bytes == src)
		last->len_bytes += len_bytes;
	else
		p->at[p->n++] = (struct coll_device_piece){.dst = dst, .src = src, .len_bytes = len_bytes};
}

static coll_status put_move(const struct coll_mapped_tile *t, coll_device_stream s, const struct pieces *p)
{
	return p->n ? t->d->device->table->move(t->d->device, s, p->at, p->n, t->base->guard) : COLL_OK;
}

bool coll_mapped_scales(const struct coll_job *job)
{
	return job->reduction && job->reduction->op == COLL_OP_PREMUL_SUM;
}

/* In short calls where is NULL. */
static coll_status put_reduce(const struct coll_mapped_tile *t, coll_device_stream s, uint64_t out, size_t at, int n,
                              size_t count, struct coll_device_places *where)
{
	const struct coll_reduction *reduction = t->job->reduction;
	struct coll_reduction sum;
	uint64_t in[COLL_MAPPED_RANKS_MAX];

	if (coll_mapped_scales(t->job)) { /* slots hold scaled inputs */
		sum = *reduction;
		sum.op = COLL_SUM;
		reduction = &sum;
	}
	for (int i = 0; i < n; i++)
		in[i] = slot_at(t, i, false) + at;
	if (where)
		where->found = mapped_found(t->d);
	if (count == 0 && (!where || where->whole_count == 0))
		return COLL_OK;
	return t->d->device->table->reduce(t->d->device, s, reduction, out, in, n, count, where, t->base->guard);
}

/* Each rank scales its own input, since no other knows its factor. */
static coll_status put_scaled(const struct coll_mapped_tile *t, coll_device_stream s, const struct pieces *p)
{
	coll_status st = COLL_OK;

	for (int i = 0; i < p->n && st == COLL_OK; i++)
		st = t->d->device->table->reduce(t->d->device, s, t->job->reduction, p->at[i].dst, &p->at[i].src, 1,
		                                 p->at[i].len_bytes / t->job->elem_bytes, NULL, t->base->guard);
	return st;
}

coll_status coll_mapped_put_fill(const struct coll_mapped_tile *t, coll_device_stream s)
{
	const struct coll_extent *e = &t->job->in;
	const int blocks = has_blocks(t, e) ? t->d->size : 1;
	const uint64_t slot = slot_at(t, t->d->rank, false);
	struct pieces p = {.n = 0};

	for (int b = 0; b < blocks && reads_in(t) && !t->call->in.word; b++)
		add(&p, slot + strip_at(t, e, b), in_at(t, b), len_of(t, e, b) * t->job->elem_bytes);
	return coll_mapped_scales(t->job) ? put_scaled(t, s, &p) : put_move(t, s, &p);
}

/* The part of a tile that rank r reduces. */
static void part_of(const struct coll_mapped_tile *t, int r, size_t *begin, size_t *len)
{
	const size_t count = len_of(t, &t->job->out, 0), n = (size_t)t->d->size;
	const size_t each = (count / n + 127) / 128 * 128, at = (size_t)r * each;

	*begin = at < count ? at : count;
	*len = r == t->d->size - 1 || count - *begin < each ? count - *begin : each;
}

coll_status coll_mapped_put_part(const struct coll_mapped_tile *t, coll_device_stream s)
{
	const size_t elem = t->job->elem_bytes;
	struct coll_device_places where = {0};
	size_t begin, len;

	part_of(t, t->d->rank, &begin, &len);
	where.shift = (t->first + begin) * elem;
	if (t->call->one_shot && t->first == 0) {
		where.whole_count = block_count(t, &t->job->out, 0);
		where.whole_out = out_at(t, 0);
	}
	return put_reduce(t, s, slot_at(t, t->d->rank, true) + begin * elem, begin * elem, t->d->size, len,
	                  t->call->long_ ? &where : NULL);
}

/* The same if each rank may have reduced all of it already. */
static coll_status fetch_parts(const struct coll_mapped_tile *t, coll_device_stream s, const struct pieces *p)
{
	struct coll_kernel_fetch f[COLL_MAPPED_RANKS_MAX];

	for (int i = 0; i < p->n; i++)
		f[i] = (struct coll_kernel_fetch){.dst = p->at[i].dst,
		                                  .src = p->at[i].src,
		                                  .len_bytes = p->at[i].len_bytes,
		                                  .rank = COLL_KERNEL_NOWHERE};
	return t->d->device->table->fetch(t->d->device, s, f, p->n, mapped_found(t->d), t->base->guard);
}

static coll_status put_parts(const struct coll_mapped_tile *t, coll_device_stream s)
{
	struct pieces p = {.n = 0};

	for (int i = 0; i < t->d->size; i++) {
		const int r = t->d->peer[i];
		size_t begin, len;

		part_of(t, r, &begin, &len);
		begin *= t->job->elem_bytes;
		add(&p, out_at(t, 0) + begin, slot_at(t, r, true) + begin, len * t->job->elem_bytes);
	}
	return t->call->one_shot ? fetch_parts(t, s, &p) : put_move(t, s, &p);
}

/* What one rank alone has: blocks or a vector. */
static coll_status put_blocks(const struct coll_mapped_tile *t, coll_device_stream s)
{
	const struct coll_extent *e = &t->job->out;
	const size_t own = (size_t)t->d->rank * t->call->tile * t->job->elem_bytes;
	const int root = t->job->root;
	struct pieces p = {.n = 0};

	switch (kind_of(t)) {
	case COLL_KIND_BROADCAST:
		if (!is_root(t) || t->job->in.base != t->job->out.base)
			add(&p, out_at(t, 0), slot_at(t, root, false), len_of(t, e, 0) * t->job->elem_bytes);
		break;
	case COLL_KIND_SCATTER:
		add(&p, out_at(t, 0), slot_at(t, root, false) + own, len_of(t, e, 0) * t->job->elem_bytes);
		break;
	default:
		for (int i = 0; i < t->d->size; i++) {
			const int b = t->d->peer[i];

			add(&p, out_at(t, b), slot_at(t, b, false) + (kind_of(t) == COLL_KIND_ALL_TO_ALL ? own : 0),
			    len_of(t, e, b) * t->job->elem_bytes);
		}
	}
	return put_move(t, s, &p);
}

/* Where this rank's block begins in inputs of others, which have no gaps. */
static size_t block_in_others(const struct coll_mapped_tile *t)
{
	struct coll_extent packed = t->job->in;

	packed.offsets = NULL;
	return block_begin(&packed, t->d->rank);
}

/* The blocks of the inputs of all ranks, or of the root's, in long calls. */
static coll_status put_fetch(const struct coll_mapped_tile *t, coll_device_stream s)
{
	const enum coll_kind kind = kind_of(t);
	const bool one = kind == COLL_KIND_BROADCAST || kind == COLL_KIND_SCATTER;
	const bool own = kind == COLL_KIND_ALL_TO_ALL || kind == COLL_KIND_SCATTER;
	const size_t elem = t->job->elem_bytes, begin = own ? block_in_others(t) : 0;
	struct coll_kernel_fetch p[COLL_MAPPED_RANKS_MAX];
	int n = 0;

	if (kind == COLL_KIND_BROADCAST && is_root(t) && t->job->in.base == t->job->out.base)
		return COLL_OK;
	for (int i = 0; i < (one ? 1 : t->d->size); i++) {
		const int b = one ? 0 : t->d->peer[i];
		const size_t len = len_of(t, &t->job->out, b), whole = block_count(t, &t->job->out, b);
		const int rank = one ? t->job->root : b;

		if (len > 0)
			p[n++] = (struct coll_kernel_fetch){
			        .dst = out_at(t, b),
			        .src = slot_at(t, rank, false) + (own ? (size_t)t->d->rank * t->call->tile * elem : 0),
			        .len_bytes = len * elem,
			        .whole_bytes = t->first == 0 ? whole * elem : 0,
			        .shift = (begin + t->first) * elem,
			        .rank = (uint64_t)rank};
	}
	return n ? t->d->device->table->fetch(t->d->device, s, p, n, mapped_found(t->d), t->base->guard) : COLL_OK;
}

static coll_status put_reduction(const struct coll_mapped_tile *t, coll_device_stream s)
{
	const bool scatter = kind_of(t) == COLL_KIND_REDUCE_SCATTER;
	const size_t own = scatter ? (size_t)t->d->rank * t->call->tile * t->job->elem_bytes : 0;
	const size_t begin = scatter && t->call->long_ ? block_in_others(t) : 0, elem = t->job->elem_bytes;
	struct coll_device_places where = {.shift = (begin + t->first) * elem,
	                                   .whole_shift = begin * elem,
	                                   .whole_count = t->first == 0 ? block_count(t, &t->job->out, 0) : 0};

	return put_reduce(t, s, out_at(t, 0), own, kind_of(t) == COLL_KIND_SCAN ? t->d->rank + 1 : t->d->size,
	                  len_of(t, &t->job->out, 0), t->call->long_ ? &where : NULL);
}

coll_status coll_mapped_put_use(const struct coll_mapped_tile *t, coll_device_stream s)
{
	if (!writes_out(t))
		return COLL_OK;
	if (t->call->syncs == 2)
		return put_parts(t, s);
	if (coll_plan_kind_reduces(kind_of(t)))
		return put_reduction(t, s);
	return t->call->long_ ? put_fetch(t, s) : put_blocks(t, s);
}

/* ---- Copies of the host ---- */

void coll_mapped_copy_host(const struct coll_mapped_tile *t, bool out)
{
	const struct coll_extent *e = out ? &t->job->out : &t->job->in;
	const int blocks = has_blocks(t, e) ? t->d->size : 1;
	char *pinned = out ? t->base->out : t->base->in;

	if (out ? !t->call->out_host || !writes_out(t) : !t->call->in_host || !reads_in(t))
		return;
	for (int b = 0; b < blocks; b++) {
		const size_t bytes = len_of(t, e, b) * t->job->elem_bytes;
		char *staged = pinned + strip_at(t, e, b);

		if (bytes == 0)
			continue;
		if (out)
			memcpy(e->base + user_at(t, e, b), staged, bytes);
		else
			memcpy(staged, e->base + user_at(t, e, b), bytes);
	}
}
