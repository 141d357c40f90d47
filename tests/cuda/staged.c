/*
 * Random scripts of calls whose buffers are in device memory on some ranks and in host memory on others. The same
 * script is first run on host buffers: every result must have the same bits. Which buffers are where, aligned or not,
 * in place or not, blocking or in a stream, each rank decides alone.
 *
 * With STAGED_WANTED=direct some calls must go direct, and with =staged none may. What goes direct is also compared
 * with what ranks without devices, and the reduction kernels of the host in rank order, give.
 *
 *  -g        each call is captured into a graph instead, which is launched several times with new data
 *  -f        a fixed script instead: every collective, and within 12 seeds with every length and type
 *  -a        all_reduce with each type and operation instead, up to 64 KiB; CALLS counts nothing then
 *  -t RANKS  the ranks are threads of this process; otherwise this is one rank of a job (collrun)
 *
 * usage: staged [-g|-f|-a] [-t RANKS] FIRST_SEED SEEDS CALLS [MAX_BYTES]
 * The device is that of COLL_DEVICE; "cuda" by default.
 */
#define PLAIN_OWN_MAIN
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/limits.h"
#include "coll/coll.h"
#include "cuda_user.h"
#include "device/kernels.h"
#include "reduce/reduce.h"
#include "tests/plain.h"

enum { RANKS_MAX = 16, STREAMS = 2, MARGIN = 64 };

enum { LAUNCHES = 3 };

static bool graphs, fixed, all_types;
static uint64_t first_seed = 1;
static int seeds = 1, calls = 40;
static size_t max_bytes = (size_t)3 * COLL_MAPPED_LONG_MIN;

enum what {
	ALL_REDUCE,
	REDUCE,
	BROADCAST,
	ALL_GATHER,
	REDUCE_SCATTER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SCAN,
	EXCLUSIVE_SCAN,
	BARRIER,
	ALL_GATHERV,
	REDUCE_SCATTERV,
	ALL_TO_ALLV,
	GATHERV,
	SCATTERV,
	SHIFT,
	PAIRS,
	PERSISTENT,
	WHATS
};
static const char *const names[] = {"all_reduce", "reduce",      "broadcast",       "all_gather",  "reduce_scatter",
                                    "all_to_all", "gather",      "scatter",         "scan",        "exclusive_scan",
                                    "barrier",    "all_gatherv", "reduce_scatterv", "all_to_allv", "gatherv",
                                    "scatterv",   "send_recv",   "group of pairs",  "persistent"};

/* A call, the same on all ranks. */
struct call {
	enum what what;
	coll_dtype type;
	coll_op op;
	int root;
	size_t count;
	size_t matrix[RANKS_MAX][RANKS_MAX]; /* lengths of v-variants: row 0, or from, to */
};

struct rank {
	coll_comm *comm, *host; /* host: of the same ranks, without devices; NULL: not wanted */
	int direct;             /* calls that went direct */
	int rank, size;
	uint64_t local; /* random numbers of this rank */
	coll_stream *streams[STREAMS];
	void *handles[STREAMS];
	/* Host buffers with the data, the results on the host, and the results on the device. */
	char *in, *want, *got, *all;
	char *device_in, *device_out;
	size_t room;
};

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state = coll_mix64(*state + 1);
	return *state % n;
}

static struct call script(uint64_t *state, int size)
{
	static const coll_dtype types[] = {COLL_F32, COLL_BF16, COLL_I8, COLL_F64, COLL_F8E4M3};
	static const coll_op ops[] = {COLL_SUM, COLL_MAX, COLL_AVG};
	struct call c = {.what = (enum what)pick(state, WHATS),
	                 .type = types[pick(state, 5)],
	                 .op = ops[pick(state, 3)],
	                 .root = (int)pick(state, (uint64_t)size)};
	const size_t elem = coll_dtype_size(c.type);
	const size_t blocks = c.what >= ALL_GATHER && c.what <= SCATTER ? (size_t)size : 1;
	const size_t most = max_bytes / elem / blocks;
	const size_t counts[] = {0,
	                         1,
	                         8 / elem + 1,
	                         pick(state, 2000),
	                         COLL_STAGE_SLOT_BYTES / elem / blocks + 1,
	                         COLL_MAPPED_LONG_MIN / elem / blocks + 1,
	                         most,
	                         pick(state, most + 1)};

	c.count = counts[pick(state, 8)];
	if (c.count > most)
		c.count = most;
	if ((c.what == SCAN || c.what == EXCLUSIVE_SCAN) && c.op == COLL_AVG)
		c.op = COLL_SUM;
	for (int i = 0; i < size; i++)
		for (int j = 0; j < size; j++)
			c.matrix[i][j] = pick(state, 4) == 0 ? 0 : pick(state, most / (size_t)size + 1);
	return c;
}

/* Call k. The seed turns lengths and types: within 12 seeds each call has had all. */
static struct call fixed_call(int k, int size, uint64_t seed)
{
	static const coll_dtype types[] = {COLL_F32, COLL_BF16, COLL_I8};
	const int turn = k + k / WHATS + (int)(seed % 12);
	struct call c = {.what = (enum what)(k % WHATS),
	                 .type = types[(turn / 4 + k) % 3],
	                 .op = k % 2 ? COLL_MAX : COLL_SUM,
	                 .root = k % size};
	const size_t elem = coll_dtype_size(c.type);
	const size_t blocks = c.what >= ALL_GATHER && c.what <= SCATTER ? (size_t)size : 1;
	const size_t tile = COLL_STAGE_SLOT_BYTES / elem / blocks;
	const size_t counts[] = {0, 8 / elem, tile + 1, 3 * tile};

	c.count = counts[turn % 4];
	for (int i = 0; i < size; i++)
		for (int j = 0; j < size; j++)
			c.matrix[i][j] = (i + j) % 3 ? c.count / (size_t)size + (size_t)(i + j) : 0;
	return c;
}

/* Elements that the call reads and writes on this rank. */
static void extents(const struct call *c, const struct rank *r, size_t *in, size_t *out)
{
	const size_t n = c->count, s = (size_t)r->size;
	const bool root = r->rank == c->root;
	size_t row = 0, column = 0, all = 0;

	for (int i = 0; i < r->size; i++) {
		row += c->matrix[r->rank][i];
		column += c->matrix[i][r->rank];
		all += c->matrix[0][i];
	}
	*in = *out = n;
	switch (c->what) {
	case REDUCE: *out = root ? n : 0; break;
	case BROADCAST: *in = root ? n : 0; break;
	case EXCLUSIVE_SCAN: *out = r->rank > 0 ? n : 0; break;
	case ALL_GATHER: *out = n * s; break;
	case REDUCE_SCATTER: *in = n * s; break;
	case ALL_TO_ALL: *in = *out = n * s; break;
	case GATHER: *out = root ? n * s : 0; break;
	case SCATTER: *in = root ? n * s : 0; break;
	case BARRIER: *in = *out = 0; break;
	case ALL_GATHERV: *in = c->matrix[0][r->rank], *out = all; break;
	case REDUCE_SCATTERV: *in = all, *out = c->matrix[0][r->rank]; break;
	case ALL_TO_ALLV: *in = row, *out = column; break;
	case GATHERV: *in = c->matrix[0][r->rank], *out = root ? all : 0; break;
	case SCATTERV: *in = root ? all : 0, *out = c->matrix[0][r->rank]; break;
	case PAIRS: *in = n, *out = n * (s - 1); break;
	default: break;
	}
}

static coll_status pairs(coll_comm *m, const struct call *c, struct rank *r, const char *in, char *out,
                         coll_stream *stream)
{
	const size_t bytes = c->count * coll_dtype_size(c->type);
	coll_status st = coll_group_begin(), end;

	for (int i = 1; i < r->size && st == COLL_OK; i++) {
		st = coll_send(in, c->count, c->type, (r->rank + i) % r->size, m, stream);
		if (st == COLL_OK)
			st = coll_recv(out + (size_t)(i - 1) * bytes, c->count, c->type,
			               (r->rank + r->size - i) % r->size, m, stream);
	}
	end = coll_group_end();
	return st ? st : end;
}

static coll_status persistent(coll_comm *m, const struct call *c, const void *in, void *out, coll_stream *stream)
{
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = in,
	                                  .out = out,
	                                  .count = c->count,
	                                  .type = c->type,
	                                  .op = c->op};
	coll_operation *op = NULL;
	coll_status st = coll_operation_prepare(&op, &desc, m);

	/* A graph has what it needs of the operation. */
	for (int i = 0; i < (graphs && stream ? 1 : 2) && st == COLL_OK; i++) {
		st = coll_operation_start(op, stream);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
	}
	coll_operation_destroy(&op);
	return st;
}

static coll_status run_on(coll_comm *m, const struct call *c, struct rank *r, const void *in, void *out,
                          coll_stream *stream)
{
	size_t row[RANKS_MAX], column[RANKS_MAX];
	const int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;

	for (int i = 0; i < r->size; i++) {
		row[i] = c->matrix[r->rank][i];
		column[i] = c->matrix[i][r->rank];
	}
	switch (c->what) {
	case ALL_REDUCE: return coll_all_reduce(in, out, c->count, c->type, c->op, m, stream);
	case REDUCE: return coll_reduce(in, out, c->count, c->type, c->op, c->root, m, stream);
	case BROADCAST: return coll_broadcast(in, out, c->count, c->type, c->root, m, stream);
	case ALL_GATHER: return coll_all_gather(in, out, c->count, c->type, m, stream);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, c->count, c->type, c->op, m, stream);
	case ALL_TO_ALL: return coll_all_to_all(in, out, c->count, c->type, m, stream);
	case GATHER: return coll_gather(in, out, c->count, c->type, c->root, m, stream);
	case SCATTER: return coll_scatter(in, out, c->count, c->type, c->root, m, stream);
	case SCAN: return coll_scan(in, out, c->count, c->type, c->op, m, stream);
	case EXCLUSIVE_SCAN: return coll_exclusive_scan(in, out, c->count, c->type, c->op, m, stream);
	case BARRIER: return coll_barrier(m, stream);
	case ALL_GATHERV: return coll_all_gatherv(in, out, c->matrix[0], NULL, c->type, m, stream);
	case REDUCE_SCATTERV: return coll_reduce_scatterv(in, out, c->matrix[0], NULL, c->type, c->op, m, stream);
	case ALL_TO_ALLV: return coll_all_to_allv(in, row, NULL, out, column, NULL, c->type, m, stream);
	case GATHERV:
		return coll_gatherv(in, c->matrix[0][r->rank], out, c->matrix[0], NULL, c->type, c->root, m, stream);
	case SCATTERV:
		return coll_scatterv(in, c->matrix[0], NULL, out, c->matrix[0][r->rank], c->type, c->root, m, stream);
	case SHIFT: return coll_send_recv(in, c->count, next, out, c->count, previous, c->type, m, stream);
	case PAIRS: return pairs(m, c, r, in, out, stream);
	case PERSISTENT: return persistent(m, c, in, out, stream);
	default: return COLL_ERR_INTERNAL;
	}
}

static coll_status run(const struct call *c, struct rank *r, const void *in, void *out, coll_stream *stream)
{
	return run_on(r->comm, c, r, in, out, stream);
}

/* All inputs of this rank's result, one after the other, by the communicator without devices; their number. */
static int inputs(const struct call *c, struct rank *r, size_t *count, coll_status *st)
{
	const size_t elem = coll_dtype_size(c->type);
	size_t row[RANKS_MAX], column[RANKS_MAX];

	*count = c->count;
	switch (c->what) {
	case ALL_REDUCE:
	case REDUCE:
	case PERSISTENT:
	case SCAN:
		*st = coll_all_gather(r->in, r->all, c->count * elem, COLL_U8, r->host, NULL);
		return c->what == SCAN ? r->rank + 1 : r->size;
	case REDUCE_SCATTER:
		*st = coll_all_to_all(r->in, r->all, c->count * elem, COLL_U8, r->host, NULL);
		return r->size;
	case REDUCE_SCATTERV:
		*count = c->matrix[0][r->rank];
		for (int i = 0; i < r->size; i++) {
			row[i] = c->matrix[0][i] * elem;
			column[i] = *count * elem;
		}
		*st = coll_all_to_allv(r->in, row, NULL, r->all, column, NULL, COLL_U8, r->host, NULL);
		return r->size;
	default: return 0;
	}
}

/* What a direct call must give: reductions are in rank order. */
static coll_status reference(const struct call *c, struct rank *r)
{
	enum { EVERY_INPUT = -2 };
	const void *from[RANKS_MAX];
	struct coll_reduction reduction;
	coll_status st = COLL_OK;
	size_t count;
	const int n = inputs(c, r, &count, &st);

	if (n == 0)
		return run_on(r->host, c, r, r->in, r->want, NULL);
	if (st == COLL_OK)
		st = coll_reduce_bind(&reduction, c->type, c->op, r->size, COLL_ISA_SCALAR);
	for (int i = 0; i < n; i++)
		from[i] = r->all + (size_t)i * count * coll_dtype_size(c->type);
	if (st == COLL_OK && count > 0 && (c->what != REDUCE || r->rank == c->root))
		coll_reduce_run(&reduction, r->want, from, n, EVERY_INPUT, true, count);
	return st;
}

static bool in_place_possible(enum what w)
{
	return w == ALL_REDUCE || w == SCAN || w == ALL_TO_ALL || w == BROADCAST;
}

/* An element: numbers of which sums in different orders differ in f32 and f64. */
static void element(char *p, coll_dtype type, int v, int rank)
{
	if (type == COLL_F32)
		memcpy(p, &(float){(float)v * 1.25f + (float)rank * 0.1f}, 4);
	else if (type == COLL_F64)
		memcpy(p, &(double){v * 1.1 + rank * 0.1}, 8);
	else if (type == COLL_BF16)
		memcpy(p, &(uint16_t){(uint16_t)(0x3f80 + (v & 31))}, 2);
	else
		memset(p, v & 0x3f, coll_dtype_size(type));
}

/* Averages of these: all ranks have the same, the smallest and the largest values of the type. */
static bool is_mean(const struct call *c)
{
	return c->op == COLL_AVG && (c->type == COLL_BF16 || c->type == COLL_F8E4M3);
}

static void edge(char *p, coll_dtype type, size_t i)
{
	static const uint16_t of_bf16[] = {0x0001, 0x7f7f, 0xff7f, 0x0080, 0x807f, 0x3fab};
	static const uint8_t of_e4m3[] = {0x01, 0x7e, 0xfe, 0x08, 0x87, 0x3b};

	memcpy(p, type == COLL_BF16 ? (const void *)&of_bf16[i % 6] : &of_e4m3[i % 6], coll_dtype_size(type));
}

/* A row of random elements of a length that divides no tile, again and again. */
static void fill(struct rank *r, const struct call *c, size_t count)
{
	enum { ROW = 1021 };
	const size_t elem = coll_dtype_size(c->type), row = ROW * elem, len = count * elem;

	for (size_t i = 0; i < count && i < ROW; i++)
		if (is_mean(c))
			edge(r->in + i * elem, c->type, i);
		else
			element(r->in + i * elem, c->type, (int)pick(&r->local, 5) - 2, r->rank);
	for (size_t at = row; at < len; at += row)
		memcpy(r->in + at, r->in, len - at < row ? len - at : row);
}

static void check_mean(const struct rank *r, const struct call *c)
{
	if (is_mean(c) && (c->what == ALL_REDUCE || c->what == PERSISTENT))
		CHECK(memcmp(r->want, r->in, c->count * coll_dtype_size(c->type)) == 0, "average of %zu", c->count);
}

/* Where a call has its buffers. */
struct where {
	char *in, *out;
	bool in_device, out_device, in_place;
	size_t in_bytes, out_bytes;
};

static uint64_t differences(struct rank *r, const struct where *w)
{
	const size_t compared = w->in_place ? w->out_bytes : w->out_bytes + MARGIN;
	uint64_t wrong = 0;

	if (w->out_device)
		CHECK(cuda_user_read(r->got, w->out, w->out_bytes + MARGIN));
	if (memcmp(r->got, r->want, compared) == 0)
		return 0;
	for (size_t i = 0; i < compared; i++)
		wrong += r->got[i] != r->want[i];
	return wrong;
}

static void put_input(struct rank *r, const struct where *w)
{
	memset(r->got, 0x5a, w->out_bytes + MARGIN);
	if (w->in_place)
		memcpy(r->got, r->in, w->in_bytes);
	if (w->out_device)
		CHECK(cuda_user_write(w->out, r->got, w->out_bytes + MARGIN));
	if (w->in_device && !w->in_place)
		CHECK(cuda_user_write(w->in, r->in, w->in_bytes));
}

static bool went_direct(struct rank *r)
{
	const bool direct = strcmp(coll_comm_last_way(r->comm), "device-direct") == 0;

	r->direct += direct;
	return direct && r->host;
}

/* The call as a graph. Calls on the host come between its launches: where those go direct, so do the launches. */
static void check_graph(const struct call *c, struct rank *r, const struct where *w, int s, const char *which)
{
	void *exec = NULL;
	coll_status st;

	REQUIRE(cuda_user_capture(r->handles[s]));
	st = run(c, r, w->in, w->out, r->streams[s]);
	CHECK(st == COLL_OK, "%s %s: %s", which, names[c->what], coll_last_error(r->comm)->message);
	CHECK(cuda_user_captured(r->handles[s], &exec, 1), "%s %s is not captured", which, names[c->what]);
	for (int i = 0; i < LAUNCHES && exec && atomic_load(&plain_failures) == 0; i++) {
		fill(r, c, w->in_bytes / coll_dtype_size(c->type));
		memset(r->want, 0x5a, w->out_bytes + MARGIN);
		st = run(c, r, r->in, r->want, NULL);
		CHECK(st == COLL_OK, "%s %s on the host: %s", which, names[c->what], coll_last_error(r->comm)->message);
		if (st == COLL_OK && went_direct(r)) {
			memset(r->want, 0x5a, w->out_bytes + MARGIN);
			CHECK(reference(c, r) == COLL_OK, "%s", coll_last_error(r->host)->message);
		}
		check_mean(r, c);
		put_input(r, w);
		CHECK(cuda_user_launch(exec, r->handles[s]) && cuda_user_synchronize(r->handles[s]));
		CHECK(differences(r, w) == 0, "%s %s %s count %zu root %d rank %d launch %d: differs (in %s, out %s%s)",
		      which, names[c->what], coll_dtype_name(c->type), c->count, c->root, r->rank, i,
		      w->in_device ? "device" : "host", w->out_device ? "device" : "host",
		      w->in_place ? ", in place" : "");
	}
	if (exec)
		cuda_user_exec_destroy(exec);
}

static void check(const struct call *c, struct rank *r, uint64_t seed, int k)
{
	const size_t elem = coll_dtype_size(c->type);
	size_t in_count, out_count, in_bytes, out_bytes, shift;
	bool in_place, in_device, out_device;
	coll_stream *stream;
	const char *host_way;
	struct where w;
	coll_status st;
	char *in, *out, which[64];
	uint64_t wrong;

	extents(c, r, &in_count, &out_count);
	in_bytes = in_count * elem;
	out_bytes = out_count * elem;
	fill(r, c, in_count);
	memset(r->want, 0x5a, out_bytes + MARGIN);
	st = run(c, r, r->in, r->want, NULL);
	CHECK(st == COLL_OK, "seed %llu call %d %s on the host: %s", (unsigned long long)seed, k, names[c->what],
	      coll_last_error(r->comm)->message);
	if (st != COLL_OK)
		return;
	host_way = coll_comm_last_way(r->comm);
	in_device = pick(&r->local, 3) > 0;
	out_device = pick(&r->local, 3) > 0;
	in_place = in_place_possible(c->what) && pick(&r->local, 3) == 0;
	shift = (pick(&r->local, 2) ? elem : 0) + (pick(&r->local, 4) == 0 ? 16 * elem : 0);
	stream = pick(&r->local, 2) ? r->streams[pick(&r->local, STREAMS)] : NULL;
	if (in_place)
		out_device = in_device;
	/* The call's own input and output, in whichever memory. */
	out = out_device ? r->device_out + shift : r->got;
	in = in_place ? out : in_device ? r->device_in + shift : r->in;
	w = (struct where){in, out, in_device, out_device, in_place, in_bytes, out_bytes};
	if (graphs) {
		snprintf(which, sizeof(which), "seed %llu call %d", (unsigned long long)seed, k);
		check_graph(c, r, &w, (int)pick(&r->local, STREAMS), which);
		return;
	}
	put_input(r, &w);
	st = run(c, r, in, out, stream);
	if (st == COLL_OK && stream)
		st = coll_stream_wait(stream, -1);
	CHECK(st == COLL_OK, "seed %llu call %d %s: %s", (unsigned long long)seed, k, names[c->what],
	      coll_last_error(r->comm)->message);
	if (st != COLL_OK)
		return;
	wrong = differences(r, &w);
	if (wrong == 0 && went_direct(r)) {
		memset(r->want, 0x5a, out_bytes + MARGIN);
		CHECK(reference(c, r) == COLL_OK, "%s", coll_last_error(r->host)->message);
		wrong = differences(r, &w);
	}
	check_mean(r, c);
	CHECK(wrong == 0,
	      "seed %llu call %d %s %s count %zu root %d rank %d: %llu of %zu bytes differ (in %s, out %s%s, shift "
	      "%zu%s); %s, on the "
	      "host %s",
	      (unsigned long long)seed, k, names[c->what], coll_dtype_name(c->type), c->count, c->root, r->rank,
	      (unsigned long long)wrong, out_bytes, in_device ? "device" : "host", out_device ? "device" : "host",
	      in_place ? ", in place" : "", shift, stream ? ", stream" : "", coll_comm_last_way(r->comm), host_way);
}

static void allocate(struct rank *r)
{
	r->rank = coll_comm_rank(r->comm);
	r->size = coll_comm_size(r->comm);
	r->room = max_bytes * (size_t)r->size + 1024;
	r->in = malloc(r->room);
	r->want = malloc(r->room);
	r->got = malloc(r->room);
	r->all = malloc(r->room);
	REQUIRE(coll_mem_alloc_on(r->comm, (void **)&r->device_in, r->room, COLL_MEM_DEVICE) == COLL_OK, "%s",
	        coll_last_error(r->comm)->message);
	REQUIRE(coll_mem_alloc_on(r->comm, (void **)&r->device_out, r->room, COLL_MEM_DEVICE) == COLL_OK);
	for (int i = 0; i < STREAMS; i++) {
		REQUIRE(cuda_user_stream(r->device_in, &r->handles[i]));
		REQUIRE(coll_stream_wrap_cuda(&r->streams[i], r->comm, r->handles[i]) == COLL_OK, "%s",
		        coll_last_error(r->comm)->message);
	}
}

static void release(struct rank *r)
{
	for (int i = 0; i < STREAMS; i++) {
		CHECK(coll_stream_destroy(&r->streams[i]) == COLL_OK);
		cuda_user_stream_destroy(r->handles[i]);
	}
	CHECK(coll_mem_free(r->comm, r->device_in) == COLL_OK);
	CHECK(coll_mem_free(r->comm, r->device_out) == COLL_OK);
	free(r->in);
	free(r->want);
	free(r->got);
	free(r->all);
	CHECK(coll_comm_destroy(&r->comm) == COLL_OK);
	CHECK(coll_comm_destroy(&r->host) == COLL_OK);
}

/* Every type and operation. */
static void check_types(struct rank *r, uint64_t seed)
{
	static const size_t lengths[] = {0,   1,    7,     49,
	                                 343, 2401, 16807, 65536}; /* at least an element, but for the first */

	for (int type = 0; type < COLL_DTYPE_COUNT; type++)
		for (int op = 0; op < COLL_OP_COUNT; op++)
			for (int i = 0; i < 8 && coll_reduce_supports((coll_dtype)type, (coll_op)op); i++) {
				const size_t count = lengths[i] / coll_dtype_size((coll_dtype)type);
				const struct call c = {.what = ALL_REDUCE,
				                       .type = (coll_dtype)type,
				                       .op = (coll_op)op,
				                       .count = count == 0 && i > 0 ? 1 : count};

				if (atomic_load(&plain_failures) == 0)
					check(&c, r, seed, i);
			}
}

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	if (!cuda_user_enter(r->device_in))
		return NULL;
	for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)seeds; seed++) {
		uint64_t state = coll_mix64(seed);

		r->local = coll_mix64(seed * 1000 + (uint64_t)r->rank);
		if (all_types)
			check_types(r, seed);
		for (int k = 0; !all_types && k < calls && atomic_load(&plain_failures) == 0; k++) {
			const struct call c = fixed ? fixed_call(k, r->size, seed) : script(&state, r->size);

			check(&c, r, seed, k);
		}
	}
	release(r);
	return NULL;
}

static int threads;
static struct rank ranks[RANKS_MAX];

static const char *wanted; /* direct, staged, or NULL: any */

static bool create(coll_comm **comms, const char *device)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.device = device;
	st = threads ? coll_comm_create_all(comms, threads, &cfg) : coll_comm_create(comms, &cfg);
	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static void scripts(void)
{
	coll_comm *comms[RANKS_MAX] = {NULL}, *hosts[RANKS_MAX] = {NULL};
	const int n = threads ? threads : 1;
	pthread_t thread[RANKS_MAX];
	int direct = 0;

	REQUIRE(create(comms, getenv("COLL_DEVICE") ? NULL : "cuda"));
	REQUIRE(!wanted || create(hosts, "host"));
	if (getenv("STAGED_BEGUN")) { /* whoever kills a rank waits for this */
		puts("begun");
		fflush(stdout);
	}
	for (int i = 0; i < n; i++) {
		ranks[i].comm = comms[i];
		ranks[i].host = hosts[i];
	}
	for (int i = 0; i < n; i++) { /* before any call: a new stream may wait for all that the device has to do */
		allocate(&ranks[i]);
		if (!ranks[i].streams[STREAMS - 1])
			return;
	}
	if (!threads)
		rank_main(&ranks[0]);
	for (int i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, rank_main, &ranks[i]);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < n; i++)
		direct += ranks[i].direct;
	if (wanted)
		CHECK((strcmp(wanted, "direct") == 0) == (direct > 0), "%d calls went direct, wanted: %s", direct,
		      wanted);
}

int main(int argc, char **argv)
{
	wanted = getenv("STAGED_WANTED");
	for (; argc > 1 && argv[1][0] == '-' && argv[1][1] != 't'; argc--, argv++) {
		graphs |= argv[1][1] == 'g';
		fixed |= argv[1][1] == 'f';
		all_types |= argv[1][1] == 'a';
	}
	if (argc > 2 && strcmp(argv[1], "-t") == 0) {
		cuda_user_threads();
		threads = atoi(argv[2]);
		argc -= 2, argv += 2;
	}
	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		seeds = atoi(argv[2]);
	if (argc > 3)
		calls = atoi(argv[3]);
	if (argc > 4)
		max_bytes = strtoull(argv[4], NULL, 10);
	if (coll_kernels_ptx())
		PLAIN_RUN(scripts);
	else
		plain_skip_all("this build has no kernels");
	return plain_summary();
}
