/*
 * What a rank moves when all buffers are mapped: each byte of input is read once by whoever
 * needs it, and each byte of a result is written once.
 *
 *   all_reduce      slice r of the vector is rank r's: it reads that of all ranks, in rank order, and
 *                   writes it to the results of all. So in place is right: nobody else reads it.
 *   reduce_scatter, all_gather, all_to_all, broadcast
 *                   each rank reads what it wants of the others' inputs, and writes its own result.
 *                   A broadcast of two ranks is made by both: the root has nothing else to do, and writes the
 *                   last half of the other's result, if that is mapped.
 *
 * Peers write whole pages of a result only: these can be exchanged if a writer does not
 * stop (coll_intra_revoke). Where a result does not fill its first and last page, the first and
 * last page's worth of the vector are reduced to the region of one rank each, and every rank copies
 * them from there when all is done.
 */
#include "intra/zero_copy_plan.h"

#include "intra/shape.h"
#include "intra/zero_copy.h"

enum { SLICE_MIN = 64 };

size_t coll_intra_reach_bytes(const struct coll_job *job, int which)
{
	const bool blocks = which == COLL_REACH_IN && coll_intra_scatters(job);

	return coll_intra_block_bytes(job) * (blocks ? (size_t)job->plan->size : 1);
}

static const char *in_of(const struct coll_intra *n, int rank)
{
	return n->direct.reach[rank][COLL_REACH_IN].at;
}

static char *out_of(const struct coll_intra *n, int rank)
{
	return n->direct.reach[rank][COLL_REACH_OUT].at;
}

/* At the beginning and the end of a result: not written by peers. */
static size_t edge_bytes(const struct coll_intra *n)
{
	return n->direct.edges ? n->page_bytes : 0;
}

/* ---- All-reduce ---- */

/* The slice of a rank, in bytes of the vector: whole pages of it where there are many, else
 * whole lines. */
static void slice_of(const struct coll_intra *n, const struct coll_job *job, size_t *first, size_t *end)
{
	const size_t edge = edge_bytes(n), all = coll_intra_block_bytes(job) - 2 * edge;
	const size_t unit = all / (size_t)n->size >= 16 * n->page_bytes ? n->page_bytes : SLICE_MIN,
	             units = (all + unit - 1) / unit;
	const size_t lo = units * (size_t)n->rank / (size_t)n->size * unit;
	const size_t hi = units * ((size_t)n->rank + 1) / (size_t)n->size * unit;

	*first = edge + (lo < all ? lo : all);
	*end = edge + (hi < all ? hi : all);
}

/* The first edge is rank 0's to reduce, the last one the last rank's. */
static int edge_owner(const struct coll_intra *n, int which)
{
	return which == 0 ? 0 : n->size - 1;
}

static size_t edge_at(const struct coll_intra *n, const struct coll_job *job, int which)
{
	return which == 0 ? 0 : coll_intra_block_bytes(job) - n->page_bytes;
}

static bool reduce_edge(const struct coll_intra *n, const struct coll_job *job, int which, struct intra_pass *p)
{
	p->ndst = 1;
	p->dst[0] = n->mine->edge[which];
	p->nsrc = n->size;
	for (int r = 0; r < n->size; r++)
		p->src[r] = in_of(n, r) + edge_at(n, job, which);
	p->bytes = n->page_bytes;
	return true;
}

static bool reduce_slice(const struct coll_intra *n, const struct coll_job *job, struct intra_pass *p)
{
	size_t first, end;

	slice_of(n, job, &first, &end);
	p->nsrc = p->ndst = n->size;
	for (int r = 0; r < n->size; r++) {
		p->src[r] = in_of(n, r) + first;
		p->dst[r] = out_of(n, r) + first;
	}
	p->bytes = end - first;
	return true;
}

static bool all_reduce(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *p)
{
	const bool edges = edge_bytes(n) > 0;

	if (k == 0)
		return reduce_slice(n, job, p);
	for (int which = 0; edges && which < 2; which++)
		if (edge_owner(n, which) == n->rank && --k == 0)
			return reduce_edge(n, job, which, p);
	return false;
}

void coll_intra_finish_edges(const struct coll_intra *n, const struct coll_job *job)
{
	for (int which = 0; n->direct.edges && which < 2; which++) {
		const struct intra_region *region = coll_intra_region(n, edge_owner(n, which));

		memcpy(job->out.base + edge_at(n, job, which), region->edge[which], n->page_bytes);
	}
}

/* ---- What is only read ---- */

static bool copy(struct intra_pass *p, char *dst, const char *src, size_t bytes)
{
	p->ndst = p->nsrc = 1;
	p->dst[0] = dst;
	p->src[0] = src;
	p->bytes = dst == src ? 0 : bytes;
	return true;
}

/* Our own block comes first: if the caller has just written it, it is in this core's caches. */
static bool gather(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *p)
{
	const size_t bytes = coll_intra_block_bytes(job);
	const int from = (n->rank + (int)k) % n->size;

	if (k >= (uint32_t)n->size)
		return false;
	return copy(p, job->out.base + (size_t)from * bytes, in_of(n, from) + coll_intra_block_for(job, n->rank),
	            bytes);
}

static bool reduce_scatter(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *p)
{
	const size_t bytes = coll_intra_block_bytes(job);

	p->ndst = 1;
	p->dst[0] = job->out.base;
	p->nsrc = n->size;
	for (int r = 0; r < n->size; r++)
		p->src[r] = in_of(n, r) + (size_t)n->rank * bytes;
	p->bytes = bytes;
	return k == 0;
}

/* ---- Broadcast ---- */

/* What the root writes of the other's result: whole pages of it, as it lies there. Agreed. A root that copies to
 * a result of its own is at work already. */
static void pushed(const struct coll_intra *n, const struct coll_job *job, size_t *first, size_t *end)
{
	const struct coll_piece *to = &n->direct.reach[!job->plan->root][COLL_REACH_OUT].piece;
	const size_t bytes = coll_intra_block_bytes(job), page = n->page_bytes;
	const size_t begins = (size_t)to->offset % page, ends = (begins + bytes) & ~(page - 1);
	const size_t middle = (begins + bytes / 2 + page - 1) & ~(page - 1);

	*first = *end = bytes;
	if (n->size != 2 || !to->region || !n->direct.root_in_place || ends <= middle)
		return;
	*first = middle - begins;
	*end = ends - begins;
}

static bool part_copy(struct intra_pass *p, char *dst, const char *src, size_t first, size_t end)
{
	return copy(p, dst + first, src + first, end - first);
}

static bool broadcast(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *p)
{
	const int root = job->plan->root;
	size_t first, end;

	pushed(n, job, &first, &end);
	if (n->rank != root) {
		part_copy(p, job->out.base, in_of(n, root), k ? end : 0, k ? coll_intra_block_bytes(job) : first);
		return k < 2;
	}
	if (k > 0 && end > first)
		return part_copy(p, out_of(n, !root), job->in.base, first, end) && k == 1;
	return copy(p, job->out.base, job->in.base, coll_intra_block_bytes(job)) && k == 0;
}

bool coll_intra_pass(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *p)
{
	switch (job->plan->kind) {
	case COLL_KIND_ALL_REDUCE: return all_reduce(n, job, k, p);
	case COLL_KIND_REDUCE_SCATTER: return reduce_scatter(n, job, k, p);
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_ALL_TO_ALL: return gather(n, job, k, p);
	case COLL_KIND_BROADCAST: return broadcast(n, job, k, p);
	default: return false;
	}
}
