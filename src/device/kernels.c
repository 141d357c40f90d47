/*
 * Launches of the device kernels: indices, grids and arguments. See kernels.h. No state.
 */
#include "device/kernels.h"

#include <assert.h>

#include "device/kernels/ptx.h"
#include "device/kernels/table.h"

enum { WARP = 32, THREADS_MAX = 256 };

#define NAME(entry, tag)  #entry,
#define BYTES(entry, tag) sizeof(struct tag),
#define ROW(entry, tag)   ROW_##entry,
#define IN_ORDER(T, TYPE, class)                                                                \
	static_assert((int)ROW_coll_kernel_reduce_##T == (int)COLL_KERNEL_REDUCE + (int)(TYPE), \
	              "in the order of the types");

enum { COLL_KERNELS(ROW) ROWS };

static_assert((int)ROWS == (int)COLL_KERNEL_COUNT, "the indices are the rows");
static_assert((int)ROW_coll_kernel_copy == (int)COLL_KERNEL_COPY, "the indices are the rows");
static_assert((int)ROW_coll_kernel_gather == (int)COLL_KERNEL_GATHER, "the indices are the rows");
static_assert((int)ROW_coll_kernel_pieces == (int)COLL_KERNEL_PIECES, "the indices are the rows");
static_assert((int)ROW_coll_kernel_listed == (int)COLL_KERNEL_LISTED, "the indices are the rows");
static_assert((int)COLL_KERNEL_PREMUL == (int)COLL_OP_PREMUL_SUM, "one code for one operation");
COLL_KERNELS_REDUCE(IN_ORDER)

static const char *const names[] = {COLL_KERNELS(NAME)};
static const size_t bytes[] = {COLL_KERNELS(BYTES)};

const char *coll_kernels_ptx(void)
{
	return coll_ptx[0] ? coll_ptx : NULL;
}

const char *coll_kernels_name(int kernel)
{
	assert(kernel >= 0 && kernel < COLL_KERNEL_COUNT);
	return names[kernel];
}

size_t coll_kernels_args_bytes(int kernel)
{
	assert(kernel >= 0 && kernel < COLL_KERNEL_COUNT);
	return bytes[kernel];
}

int coll_kernels_find(coll_dtype type, coll_op op)
{
	if ((unsigned)type >= COLL_DTYPE_COUNT)
		return -1; /* pairs are reduced by the host */
	return op != (coll_op)COLL_OP_USER && coll_reduce_supports(type, op) ? COLL_KERNEL_REDUCE + (int)type : -1;
}

/* A unit per thread; more if the grid is full. */
static void shape(struct coll_kernel_launch *l, int kernel, uint64_t units, uint32_t blocks_max)
{
	const uint64_t blocks = (units + THREADS_MAX - 1) / THREADS_MAX;

	assert(blocks_max >= 1);
	l->kernel = kernel;
	l->threads = units >= THREADS_MAX ? THREADS_MAX
	             : units <= WARP      ? WARP
	                                  : (uint32_t)(units + WARP - 1) / WARP * WARP;
	l->blocks = blocks <= 1 ? 1 : blocks < blocks_max ? (uint32_t)blocks : blocks_max;
}

/* What a thread of a copy moves at a time: see copy.cu. */
static uint64_t copy_units(uint64_t dst, uint64_t src, uint64_t len_bytes)
{
	const uint64_t apart = (dst ^ src) | 16;

	return len_bytes / (apart & (0 - apart));
}

void coll_kernels_copy(struct coll_kernel_launch *l, uint64_t dst, uint64_t src, uint64_t len_bytes, uint64_t state,
                       uint32_t blocks_max)
{
	shape(l, COLL_KERNEL_COPY, copy_units(dst, src, len_bytes), blocks_max);
	l->args.copy = (struct coll_kernel_copy_args){.dst = dst, .src = src, .len_bytes = len_bytes, .state = state};
}

void coll_kernels_pieces(struct coll_kernel_launch *l, const struct coll_kernel_piece *pieces, int n, uint64_t state,
                         uint32_t blocks_max)
{
	struct coll_kernel_pieces_args *a = &l->args.pieces;
	uint64_t most = 0;

	assert(n >= 1 && n <= COLL_KERNEL_PLACES_MAX);
	a->state = state;
	a->gate = 0;
	a->npieces = (uint64_t)n;
	for (int i = 0; i < n; i++) {
		const uint64_t units = copy_units(pieces[i].dst, pieces[i].src, pieces[i].len_bytes);

		a->piece[i] = pieces[i];
		most = units > most ? units : most;
	}
	shape(l, COLL_KERNEL_PIECES, most, blocks_max);
}

void coll_kernels_listed(struct coll_kernel_launch *l, uint64_t at, uint64_t len_max, uint64_t state,
                         uint32_t blocks_max)
{
	shape(l, COLL_KERNEL_LISTED, copy_units(0, 0, len_max), blocks_max);
	l->args.listed = (struct coll_kernel_listed_args){.at = at, .state = state};
}

void coll_kernels_gather(struct coll_kernel_launch *l, uint64_t dst, uint64_t src, uint64_t len_bytes, uint64_t counter,
                         uint64_t flag, uint32_t value, uint32_t blocks_max)
{
	assert(flag != 0);
	shape(l, COLL_KERNEL_GATHER, copy_units(dst, src, len_bytes), counter ? blocks_max : 1);
	l->args.gather = (struct coll_kernel_gather_args){
	        .dst = dst, .src = src, .len_bytes = len_bytes, .counter = counter, .flag = flag, .value = value};
}

void coll_kernels_reduce(struct coll_kernel_launch *l, const struct coll_reduction *r, const uint64_t *out, int nout,
                         const uint64_t *in, int nin, int raw, bool last, uint64_t count, uint64_t state,
                         uint32_t blocks_max)
{
	struct coll_kernel_reduce_args *a = &l->args.reduce;
	const int kernel = coll_kernels_find(r->type, r->op);
	uint64_t apart = 0;

	assert(kernel >= 0);
	assert(!r->share);
	assert(nin >= 1 && nin <= COLL_KERNEL_PLACES_MAX);
	assert(nout >= 1 && nout <= COLL_KERNEL_PLACES_MAX);
	*a = (struct coll_kernel_reduce_args){.count = count,
	                                      .state = state,
	                                      .divisor = r->divisor,
	                                      .scale = r->scale,
	                                      .nin = nin,
	                                      .nout = nout,
	                                      .raw = raw,
	                                      .last = last,
	                                      .op = (int32_t)r->op,
	                                      .share = 1 / (float)nin};
	for (int i = 0; i < nin; i++) {
		a->in[i] = in[i];
		apart |= in[i] ^ out[0];
	}
	for (int i = 0; i < nout; i++) {
		a->out[i] = out[i];
		apart |= out[i] ^ out[0];
	}
	shape(l, kernel, (apart & 15) == 0 && out[0] % r->elem_bytes == 0 ? count * r->elem_bytes / 16 : count,
	      blocks_max);
}

void coll_kernels_reduce_found(struct coll_kernel_launch *l, const struct coll_device_places *where, size_t elem_bytes,
                               uint32_t blocks_max)
{
	struct coll_kernel_reduce_args *a = &l->args.reduce;
	const uint64_t most = where->whole_count > a->count ? where->whole_count : a->count;

	a->found = where->found;
	a->shift = where->shift;
	a->whole_shift = where->whole_shift;
	a->whole_count = where->whole_count;
	a->whole_out = where->whole_out;
	/* As if everything had the same alignment, which only the kernel knows. */
	shape(l, l->kernel, most * elem_bytes / 16, blocks_max);
}

void coll_kernels_look(struct coll_kernel_launch *l, const struct coll_kernel_look_args *args)
{
	assert(args->nranks <= COLL_KERNEL_RANKS_MAX);
	shape(l, COLL_KERNEL_LOOK, 1, 1);
	l->args.look = *args;
}

void coll_kernels_fetch(struct coll_kernel_launch *l, const struct coll_kernel_fetch *pieces, int n, uint64_t found,
                        uint64_t state, uint32_t blocks_max)
{
	struct coll_kernel_fetch_args *a = &l->args.fetch;
	uint64_t most = 0;

	assert(n >= 1 && n <= COLL_KERNEL_RANKS_MAX);
	a->state = state;
	a->gate = 0;
	a->found = found;
	a->npieces = (uint64_t)n;
	for (int i = 0; i < n; i++) {
		a->piece[i] = pieces[i];
		most = pieces[i].len_bytes > most ? pieces[i].len_bytes : most;
		most = pieces[i].whole_bytes > most ? pieces[i].whole_bytes : most;
	}
	shape(l, COLL_KERNEL_FETCH, most / 16, blocks_max);
}

void coll_kernels_signal(struct coll_kernel_launch *l, const struct coll_kernel_signal_args *args)
{
	assert(args->nwords <= COLL_KERNEL_RANKS_MAX + 1);
	shape(l, COLL_KERNEL_SIGNAL, 1, 1);
	l->args.signal = *args;
}

void coll_kernels_gate(struct coll_kernel_launch *l, uint64_t gate)
{
	gate = l->blocks <= COLL_KERNEL_GATE_BLOCKS ? gate : 0;
	if (l->kernel == COLL_KERNEL_PIECES)
		l->args.pieces.gate = gate;
	else if (l->kernel == COLL_KERNEL_FETCH)
		l->args.fetch.gate = gate;
	else if (l->kernel >= COLL_KERNEL_REDUCE)
		l->args.reduce.gate = gate;
}

void coll_kernels_few_blocks(struct coll_kernel_launch *l)
{
	enum { BLOCKS = 8, THREADS = 2 * THREADS_MAX };

	if (l->blocks <= BLOCKS)
		return;
	l->threads = THREADS;
	l->blocks = l->blocks < 2 * BLOCKS ? (l->blocks + 1) / 2 : BLOCKS;
}

void coll_kernels_nothing(struct coll_kernel_launch *l, int kernel)
{
	*l = (struct coll_kernel_launch){.kernel = kernel, .blocks = 1, .threads = WARP};
}
