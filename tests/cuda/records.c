/*
 * Long direct calls on buffers of every origin: memory of cuMemAlloc(), mapped memory that can be exported and such
 * that cannot, memory of the library, of the host; at any place in its allocation, aligned or not. Each rank decides
 * alone. Buffers are freed and made again between calls. Every result is compared with what the elements must be, in
 * rank order, and bytes around it must stay.
 *
 *  -t RANKS  the ranks are threads of this process; otherwise this is one rank of a job (collrun)
 *  -s        instead: calls on the same buffers; once they go in place, they all do (RECORDS_WANTED=in-place), or they
 *            never do, and explain says why (RECORDS_WANTED=part of the reason)
 *  -m        instead: many buffers, each used once or twice; few of them are mapped at a time
 *  -g        the calls in groups, of several communicators and streams, with several places in one buffer
 *
 * usage: records [-t RANKS] [-s|-m|-g] FIRST_SEED SEEDS CALLS     over the driver of COLL_CUDA_LIBRARY
 */
#define PLAIN_OWN_MAIN
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "calls.h"
#include "cuda_user.h"
#include "device/kernels.h"
#include "driver.h"
#include "tests/plain.h"

enum { BUFFERS = 5, MARGIN = 64, PAGE = 2 << 20, FEW = 2 << 20, ROOM = FEW + (256 << 10) };
enum { REGIONS = 16, COMMS = 3, GROUP_MAX = 4 };

/* As REQUIRE(), in the main function of a thread. */
#define MUST(condition)                       \
	do {                                  \
		const bool met = (condition); \
		CHECK(met, #condition);       \
		if (!met)                     \
			return NULL;          \
	} while (0)

enum origin { PLAIN, EXPORTABLE, PRIVATE, LIBRARY, HOST, ORIGINS };

struct buffer {
	enum origin origin;
	char *at; /* NULL: none */
	size_t len_bytes;
	CUmemGenericAllocationHandle memory;
	CUdeviceptr kept; /* addresses of mapped memory: what is mapped next lies where other memory was */
};

struct rank {
	struct seat seat[COMMS]; /* in its communicators; but the first all with -g alone */
	uint64_t local;          /* random numbers of this rank */
	struct buffer buffers[BUFFERS];
	coll_stream *stream, *other;
	void *handle, *other_handle;
	char *data, *got;
	float *want;
};

static bool steady, many, grouped;
static uint64_t first_seed = 1;
static int seeds = 1, calls = 30, threads;
static struct rank ranks[RANKS_MAX];

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state = coll_mix64(*state + 1);
	return *state % n;
}

/* ---- Memory ---- */

static bool map_memory(struct rank *r, struct buffer *b)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                            .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdevice device = 0;

	if (!cuda_user_enter(r->data) || DRIVER(cuCtxGetDevice)(&device) != 0)
		return false;
	if (b->origin == EXPORTABLE)
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location.id = access.location.id = device;
	b->len_bytes = (b->len_bytes + PAGE - 1) / PAGE * PAGE;
	if (DRIVER(cuMemCreate)(&b->memory, b->len_bytes, &prop, 0) != 0 ||
	    (!b->kept && DRIVER(cuMemAddressReserve)(&b->kept, b->len_bytes, 0, 0, 0) != 0) ||
	    DRIVER(cuMemMap)(b->kept, b->len_bytes, 0, b->memory, 0) != 0 ||
	    DRIVER(cuMemSetAccess)(b->kept, b->len_bytes, &access, 1) != 0)
		return false;
	b->at = (char *)(uintptr_t)b->kept;
	return true;
}

static void make(struct rank *r, struct buffer *b, enum origin origin, size_t len_bytes)
{
	CUdeviceptr at = 0;

	*b = (struct buffer){.origin = origin, .len_bytes = len_bytes, .kept = b->kept};
	switch (origin) {
	case PLAIN:
		REQUIRE(cuda_user_enter(r->data) && DRIVER(cuMemAlloc_v2)(&at, len_bytes) == 0);
		b->at = (char *)(uintptr_t)at;
		break;
	case EXPORTABLE:
	case PRIVATE: REQUIRE(map_memory(r, b)); break;
	case LIBRARY:
		REQUIRE(coll_mem_alloc_on(r->seat->comm, (void **)&b->at, len_bytes, COLL_MEM_DEVICE) == COLL_OK);
		break;
	default: b->at = malloc(len_bytes); REQUIRE(b->at != NULL);
	}
}

static void end(struct rank *r, struct buffer *b)
{
	const CUdeviceptr at = (CUdeviceptr)(uintptr_t)b->at;

	if (!b->at)
		return;
	switch (b->origin) {
	case PLAIN: CHECK(cuda_user_enter(r->data) && DRIVER(cuMemFree_v2)(at) == 0); break;
	case EXPORTABLE:
	case PRIVATE: CHECK(DRIVER(cuMemUnmap)(at, b->len_bytes) == 0 && DRIVER(cuMemRelease)(b->memory) == 0); break;
	case LIBRARY: CHECK(coll_mem_free(r->seat->comm, b->at) == COLL_OK); break;
	default: free(b->at);
	}
	b->at = NULL;
}

static void put(const struct buffer *b, char *at, const void *data, size_t len_bytes)
{
	if (b->origin == HOST)
		memcpy(at, data, len_bytes);
	else
		REQUIRE(cuda_user_write(at, data, len_bytes));
}

static void get(const struct buffer *b, void *data, const char *at, size_t len_bytes)
{
	if (b->origin == HOST)
		memcpy(data, at, len_bytes);
	else
		REQUIRE(cuda_user_read(data, at, len_bytes));
}

/* ---- Calls ---- */

/* Who makes a call, and where its buffers are. */
struct where {
	const struct seat *seat;
	struct buffer *in_of, *out_of;
	char *in, *out;
	size_t in_count, out_count;
	bool in_place;
};

static void prepare(const struct call *c, struct rank *r, const struct where *w)
{
	const size_t out = w->out_count * sizeof(float);

	memset(r->got, 0x5a, out + 2 * MARGIN);
	put(w->out_of, w->out - MARGIN, r->got, out + 2 * MARGIN);
	for (size_t i = 0; i < w->in_count; i++)
		r->want[i] = element(c, w->seat->rank, i);
	put(w->in_of, w->in, r->want, w->in_count * sizeof(float));
}

static void verify(const struct call *c, struct rank *r, const struct where *w, bool streamed, const char *which)
{
	const size_t in = w->in_count * sizeof(float), out = w->out_count * sizeof(float);
	size_t wrong = 0, first = 0;

	/* The input is the user's again. */
	memset(r->want, 0xff, in);
	if (!w->in_place)
		put(w->in_of, w->in, r->want, in);
	get(w->out_of, r->got, w->out - MARGIN, out + 2 * MARGIN);
	for (size_t i = w->out_count; i-- > 0;) {
		const float want = wanted(c, w->seat, i);
		uint32_t got_bits, want_bits;

		memcpy(&got_bits, r->got + MARGIN + i * sizeof(got_bits), sizeof(got_bits));
		memcpy(&want_bits, &want, sizeof(want_bits));
		wrong += got_bits != want_bits;
		first = got_bits != want_bits ? i : first;
	}
	for (int i = 0; i < MARGIN && !w->in_place; i++)
		wrong += r->got[i] != 0x5a || r->got[MARGIN + out + (size_t)i] != 0x5a;
	CHECK(wrong == 0, "%s %s count %zu root %d rank %d of %d: %zu wrong, first %zu (in %d, out %d%s%s)", which,
	      names[c->what], c->count, c->root, w->seat->rank, w->seat->size, wrong, first, w->in_of->origin,
	      w->out_of->origin, w->in_place ? ", in place" : "", streamed ? ", stream" : "");
}

static void check(const struct call *c, struct rank *r, const struct where *w, bool streamed, const char *which)
{
	coll_status st;

	prepare(c, r, w);
	st = call_run(c, w->seat, w->in, w->out, streamed ? r->stream : NULL);
	if (st == COLL_OK && streamed)
		st = coll_stream_wait(r->stream, -1);
	REQUIRE(st == COLL_OK, "%s %s: %s", which, names[c->what], coll_last_error(w->seat->comm)->message);
	verify(c, r, w, streamed, which);
}

/* ---- Random scripts ---- */

/* The vector, or all blocks of a rank, have about `most` bytes at most. */
static struct call script(uint64_t *state, int size, size_t most)
{
	struct call c = {.what = (enum what)(pick(state, 3) ? pick(state, WHATS) : ALL_REDUCE),
	                 .root = (int)pick(state, (uint64_t)size),
	                 .seed = pick(state, 1 << 20)};
	const bool blocks = c.what == ALL_GATHER || c.what == REDUCE_SCATTER || c.what == ALL_TO_ALL ||
	                    c.what == GATHER || c.what == SCATTER || c.what >= ALL_GATHERV;
	const size_t least = pick(state, 5) ? 256 << 10 : 4096, span = (most - least) / 4 / (blocks ? (size_t)size : 1);

	c.count = least / 4 / (blocks ? (size_t)size : 1) + pick(state, span) + (blocks ? 1 : 0);
	for (int r = 0; r < size; r++)
		c.lengths[r] = pick(state, 4) ? c.count - pick(state, c.count) : 0;
	c.lengths[0] = c.count;
	return c;
}

static size_t skew(struct rank *r)
{
	switch (pick(&r->local, 4)) {
	case 0: return MARGIN;
	case 1: return MARGIN + pick(&r->local, 64) * 16;
	case 2: return MARGIN + pick(&r->local, 64) * 4;
	default: return MARGIN + pick(&r->local, 1000);
	}
}

/* The driver frees memory when all streams of the device are empty: so no rank may be in a call. */
static void renew(struct rank *r, uint64_t odds)
{
	CHECK(coll_barrier(r->seat->comm, NULL) == COLL_OK);
	for (int i = 0; i < BUFFERS; i++)
		if (!r->buffers[i].at || pick(&r->local, odds) == 0) {
			end(r, &r->buffers[i]);
			make(r, &r->buffers[i], (enum origin)pick(&r->local, ORIGINS), ROOM);
		}
	CHECK(coll_barrier(r->seat->comm, NULL) == COLL_OK);
}

/* A place of so many bytes in some buffer, behind those that are used, with MARGIN before and behind. */
static char *take(struct rank *r, size_t used[BUFFERS], size_t len_bytes, struct buffer **of)
{
	const size_t skewed = skew(r);
	int k = (int)pick(&r->local, BUFFERS);
	char *at;

	for (int tries = 0; used[k] + skewed + len_bytes + MARGIN > ROOM; tries++, k = (k + 1) % BUFFERS)
		assert(tries < BUFFERS);
	at = r->buffers[k].at + used[k] + skewed;
	used[k] = (used[k] + skewed + len_bytes + 2 * MARGIN - 1) / MARGIN * MARGIN;
	*of = &r->buffers[k];
	return at;
}

static struct where random_places(const struct call *c, struct rank *r, const struct seat *seat, size_t used[BUFFERS])
{
	size_t in_at = 0, out_at = 0, in, out;
	struct where w = {.seat = seat};

	extents(c, seat, &w.in_count, &w.out_count);
	w.in_place = pick(&r->local, 3) == 0 && in_place_at(c, seat, &in_at, &out_at);
	in = (in_at + w.in_count) * sizeof(float);
	out = (out_at + w.out_count) * sizeof(float);
	w.in = take(r, used, w.in_place && out > in ? out : in, &w.in_of);
	w.out_of = w.in_of;
	w.out = w.in_place ? w.in + out_at * sizeof(float) : take(r, used, out, &w.out_of);
	if (w.in_place)
		w.in += in_at * sizeof(float);
	return w;
}

static void random_call(const struct call *c, struct rank *r, const char *which)
{
	size_t used[BUFFERS] = {0};
	const struct where w = random_places(c, r, r->seat, used);

	check(c, r, &w, pick(&r->local, 2), which);
}

/* Another communicator of the same ranks, and one of all but rank 0 in reverse order. */
static void take_seats(struct rank *r)
{
	struct seat *s = r->seat;
	const bool out = s->rank == 0 && s->size > 2;

	s[1] = s[0];
	REQUIRE(coll_comm_duplicate(s->comm, &s[1].comm) == COLL_OK);
	s[2] = (struct seat){NULL, s->size - 1 - s->rank, s->size > 2 ? s->size - 1 : s->size};
	REQUIRE(coll_comm_split(s->comm, out ? COLL_NO_COLOUR : 0, -s->rank, &s[2].comm) == COLL_OK);
}

/* Each call of the group is blocking, or in one of two streams; ranks differ in that. */
static void random_group(struct rank *r, uint64_t *state, const char *which)
{
	const int picked = 1 + (int)pick(state, GROUP_MAX);
	coll_stream *const streams[] = {r->stream, r->other, NULL};
	struct call call[GROUP_MAX];
	struct where where[GROUP_MAX];
	coll_stream *stream[GROUP_MAX];
	size_t used[BUFFERS] = {0};
	int n = 0;

	for (int k = 0; k < picked; k++) {
		const struct seat *seat = &r->seat[pick(state, COMMS)];

		call[n] = script(state, seat->size, FEW / 2);
		if (!seat->comm)
			continue;
		where[n] = random_places(&call[n], r, seat, used);
		stream[n] = streams[pick(&r->local, 3)];
		prepare(&call[n], r, &where[n]);
		n++;
	}
	REQUIRE(coll_group_begin() == COLL_OK);
	for (int k = 0; k < n; k++)
		REQUIRE(call_run(&call[k], where[k].seat, where[k].in, where[k].out, stream[k]) == COLL_OK, "%s %s: %s",
		        which, names[call[k].what], coll_last_error(where[k].seat->comm)->message);
	REQUIRE(coll_group_end() == COLL_OK, "%s: %s", which, coll_last_error(NULL)->message);
	for (int k = 0; k < n; k++)
		REQUIRE(!stream[k] || coll_stream_wait(stream[k], -1) == COLL_OK, "%s %s: %s", which,
		        names[call[k].what], coll_last_error(where[k].seat->comm)->message);
	for (int k = 0; k < n; k++)
		verify(&call[k], r, &where[k], stream[k] != NULL, which);
}

static void random_calls(struct rank *r)
{
	char which[64];

	if (grouped)
		take_seats(r);
	for (uint64_t seed = first_seed; seed < first_seed + (uint64_t)seeds; seed++) {
		uint64_t state = coll_mix64(seed);

		r->local = coll_mix64(seed * 1000 + (uint64_t)r->seat->rank);
		for (int k = 0; k < calls && atomic_load(&plain_failures) == 0; k++) {
			snprintf(which, sizeof(which), "seed %llu call %d", (unsigned long long)seed, k);
			if (k % 4 == 0)
				renew(r, 4);
			if (grouped) {
				random_group(r, &state, which);
			} else {
				const struct call c = script(&state, r->seat->size, FEW);

				random_call(&c, r, which);
			}
		}
	}
	for (int k = 1; grouped && k < COMMS; k++)
		CHECK(!r->seat[k].comm || coll_comm_destroy(&r->seat[k].comm) == COLL_OK);
}

/* ---- The same buffers ---- */

/* Buffers of long calls that were taken in place, and all. False: explain does not say. */
static bool counted(struct rank *r, unsigned long long *in_place, unsigned long long *all, char text[600])
{
	const char *at;

	if (coll_comm_explain(r->seat->comm, "all_reduce", FEW / 4, COLL_F32, text, 600) != COLL_OK)
		return false;
	at = strstr(text, "in place: ");
	return at && sscanf(at, "in place: %llu of %llu", in_place, all) == 2;
}

static void steady_calls(struct rank *r)
{
	const char *wanted_text = getenv("RECORDS_WANTED");
	const bool expected = wanted_text && strcmp(wanted_text, "in-place") == 0;
	unsigned long long in_place = 0, all = 0, before_in_place = 0, before_all = 0;
	struct call c = {.what = ALL_REDUCE, .count = FEW / 4};
	const enum origin origin = getenv("RECORDS_ORIGIN") ? (enum origin)atoi(getenv("RECORDS_ORIGIN")) : LIBRARY;
	struct where w = {.seat = r->seat, .in_count = c.count, .out_count = c.count};
	char text[600] = "";

	make(r, &r->buffers[0], origin, ROOM);
	make(r, &r->buffers[1], origin, ROOM);
	w.in_of = &r->buffers[0], w.out_of = &r->buffers[1];
	w.in = w.in_of->at + 2 * MARGIN, w.out = w.out_of->at + MARGIN;
	for (int k = 0; k < calls; k++) {
		/* Every kind has long calls: but the first all of their buffers are known. */
		c.what = k % 4 == 1 ? BROADCAST : ALL_REDUCE;
		c.seed = (uint64_t)k;
		w.in_count = c.what == BROADCAST && r->seat->rank ? 0 : c.count;
		check(&c, r, &w, k % 2, "steady");
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		REQUIRE(counted(r, &in_place, &all, text), "%s", text);
		if (k == calls / 2)
			before_in_place = in_place, before_all = all;
	}
	if (expected)
		CHECK(in_place > 0 && all - before_all == in_place - before_in_place, "%s", text);
	else
		CHECK(in_place == 0 && all > 0 && wanted_text && strstr(text, wanted_text), "%s", text);
}

/* ---- Many buffers ---- */

static long mappings(void)
{
	return driver_calls("cuMemMap") - driver_calls("cuMemUnmap");
}

static void many_buffers(struct rank *r)
{
	const struct call c = {.what = ALL_REDUCE, .count = (256 << 10) / 4};
	struct buffer *b = r->buffers;
	long most = 0, begun = mappings();
	unsigned long long in_place = 0, all = 0;
	char text[600];

	for (int k = 0; k < calls && atomic_load(&plain_failures) == 0; k++) {
		struct where w = {r->seat, &b[k % 2], &b[2], NULL, NULL, c.count, c.count, false};

		end(r, w.in_of);
		make(r, w.in_of, LIBRARY, 2 * (256 << 10));
		if (k == 0)
			make(r, w.out_of, LIBRARY, 2 * (256 << 10));
		w.in = w.in_of->at + MARGIN, w.out = w.out_of->at + MARGIN;
		check(&c, r, &w, false, "many");
		check(&c, r, &w, false, "many, again");
		most = mappings() - begun > most ? mappings() - begun : most;
	}
	/* Its own buffers, and those of each peer that are announced, or are just being let go. */
	CHECK(most <= BUFFERS + (long)(r->seat->size - 1) * REGIONS, "%ld mappings", most);
	REQUIRE(counted(r, &in_place, &all, text));
	CHECK(in_place > 0, "%s", text);
}

/* ---- Ranks ---- */

static void *rank_main(void *arg)
{
	struct rank *r = arg;

	r->seat->rank = coll_comm_rank(r->seat->comm);
	r->seat->size = coll_comm_size(r->seat->comm);
	/* It tells the device, too. */
	MUST(coll_mem_alloc_on(r->seat->comm, (void **)&r->data, 4096, COLL_MEM_DEVICE) == COLL_OK);
	r->got = malloc(ROOM + 4096);
	r->want = malloc(ROOM + 4096);
	MUST(cuda_user_stream(r->data, &r->handle) && cuda_user_stream(r->data, &r->other_handle));
	MUST(coll_stream_wrap_cuda(&r->stream, r->seat->comm, r->handle) == COLL_OK);
	MUST(coll_stream_wrap_cuda(&r->other, r->seat->comm, r->other_handle) == COLL_OK);
	if (steady)
		steady_calls(r);
	else if (many)
		many_buffers(r);
	else
		random_calls(r);
	CHECK(coll_stream_destroy(&r->stream) == COLL_OK && coll_stream_destroy(&r->other) == COLL_OK);
	cuda_user_stream_destroy(r->handle);
	cuda_user_stream_destroy(r->other_handle);
	for (int i = 0; i < BUFFERS; i++)
		end(r, &r->buffers[i]);
	CHECK(coll_mem_free(r->seat->comm, r->data) == COLL_OK);
	free(r->got);
	free(r->want);
	CHECK(coll_comm_destroy(&r->seat->comm) == COLL_OK);
	return NULL;
}

static void records(void)
{
	coll_comm *comms[RANKS_MAX] = {NULL};
	const int n = threads ? threads : 1;
	coll_config cfg = COLL_CONFIG_INIT;
	pthread_t thread[RANKS_MAX];
	coll_status st;

	cfg.device = getenv("COLL_DEVICE") ? NULL : "cuda";
	st = threads ? coll_comm_create_all(comms, threads, &cfg) : coll_comm_create(comms, &cfg);
	REQUIRE(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int i = 0; i < n; i++)
		ranks[i].seat->comm = comms[i];
	for (int i = 1; i < n; i++)
		pthread_create(&thread[i], NULL, rank_main, &ranks[i]);
	rank_main(&ranks[0]);
	for (int i = 1; i < n; i++)
		pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
	driver_path = getenv("COLL_CUDA_LIBRARY");
	if (argc > 2 && strcmp(argv[1], "-t") == 0) {
		cuda_user_threads();
		threads = atoi(argv[2]);
		argc -= 2, argv += 2;
	}
	for (; argc > 1 && argv[1][0] == '-'; argc--, argv++) {
		steady |= argv[1][1] == 's';
		many |= argv[1][1] == 'm';
		grouped |= argv[1][1] == 'g';
	}
	if (argc > 1)
		first_seed = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		seeds = atoi(argv[2]);
	if (argc > 3)
		calls = atoi(argv[3]);
	if (coll_kernels_ptx())
		PLAIN_RUN(records);
	else
		plain_skip_all("this build has no kernels");
	return plain_summary();
}
