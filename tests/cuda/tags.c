/*
 * Tagged messages with device memory, and messages of a rank to itself: every mixture of device and host memory, of
 * every length, blocking and in streams, early and late receives, cancelled ones, errors, and the end of the
 * communicator. Ranks are threads of this process.
 *
 * usage: tags TRANSPORT on|auto [PART-OF-A-TEST'S-NAME]    the driver is that of COLL_CUDA_LIBRARY
 */
#include "tests/multi/async_ranks.h"

#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>

#include "cuda_user.h"
#include "device/kernels.h"
#include "tests/cuda/driver.h"

/* All slots of a copy are used a second time. */
#ifdef __SANITIZE_THREAD__
enum { ROOM = 1200000 };
#else
enum { ROOM = 3 << 20 };
#endif
enum { TAG = 7, GUARD = 64, REGISTER_PORTABLE_MAPPED = 3 };

/* Lengths around the limit of eager messages, a slot, and all slots of a copy. */
static const size_t lengths[] = {0, 1, 100, 4096, 4097, 65536, 262144, 262145, ROOM / 2, ROOM};
enum { LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

/* ---- Memory of a rank ---- */

struct box {
	bool device;
	char *at;     /* on the device, or host */
	char *seen;   /* host: for checks */
	size_t shift; /* from an aligned address */
	coll_comm *comm;
	char *allocated;
};

static struct box box(coll_comm *comm, bool device, size_t shift)
{
	struct box b = {.device = device, .shift = shift, .comm = comm, .seen = malloc(ROOM + GUARD)};

	if (device)
		OK(comm, coll_mem_alloc_on(comm, (void **)&b.allocated, ROOM + GUARD + 64, COLL_MEM_DEVICE));
	else
		b.allocated = malloc(ROOM + GUARD + 64);
	b.at = b.allocated + shift;
	return b;
}

static void drop(struct box *b)
{
	if (b->device)
		OK(b->comm, coll_mem_free(b->comm, b->allocated));
	else
		free(b->allocated);
	free(b->seen);
}

static char value(int seed, size_t i)
{
	return (char)((size_t)seed * 31 + i * 7 + i / 251);
}

static void put(struct box *b, size_t len, int seed)
{
	for (size_t i = 0; i < len; i++)
		b->seen[i] = value(seed, i);
	if (!b->device)
		memcpy(b->at, b->seen, len);
	else
		CHECK(cuda_user_write(b->at, b->seen, len));
}

static void blank(struct box *b)
{
	memset(b->seen, 0x5a, ROOM + GUARD);
	if (!b->device)
		memcpy(b->at, b->seen, ROOM + GUARD);
	else
		CHECK(cuda_user_write(b->at, b->seen, ROOM + GUARD));
}

/* len bytes of seed, then what blank() left. */
static size_t wrong(struct box *b, size_t len, int seed)
{
	size_t n = 0;

	if (!b->device)
		memcpy(b->seen, b->at, len + GUARD);
	else
		CHECK(cuda_user_read(b->seen, b->at, len + GUARD));
	for (size_t i = 0; i < len + GUARD; i++)
		n += b->seen[i] != (i < len ? value(seed, i) : 0x5a);
	return n;
}

/* ---- A stream that a test holds ---- */

struct hold {
	void *handle;
	coll_stream *stream;
	_Atomic uint32_t *word; /* of a page of registered memory */
};

static struct hold make_stream(coll_comm *comm, const void *device)
{
	struct hold h = {NULL, NULL, NULL};
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(cuda_user_stream(device, &h.handle));
	CHECK(DRIVER(cuMemHostRegister_v2)(page, 4096, REGISTER_PORTABLE_MAPPED) == 0);
	OK(comm, coll_stream_wrap_cuda(&h.stream, comm, h.handle));
	h.word = page;
	return h;
}

static void hold(const struct hold *h)
{
	CUdeviceptr p = 0;

	atomic_store(h->word, 0);
	CHECK(DRIVER(cuMemHostGetDevicePointer_v2)(&p, (void *)(uintptr_t)h->word, 0) == 0);
	CHECK(DRIVER(cuStreamWaitValue32_v2)(h->handle, p, 1, CU_STREAM_WAIT_VALUE_GEQ) == 0);
}

static void let_go(const struct hold *h)
{
	atomic_store(h->word, 1);
}

static void end_stream(coll_comm *comm, struct hold *h)
{
	CHECK(DRIVER(cuStreamSynchronize)(h->handle) == 0);
	CHECK(coll_stream_destroy(&h->stream) == COLL_OK || ends_badly);
	cuda_user_stream_destroy(h->handle);
	CHECK(DRIVER(cuMemHostUnregister)((void *)(uintptr_t)h->word) == 0);
	munmap((void *)(uintptr_t)h->word, 4096);
}

/* ---- Every mixture ---- */

enum { BLOCKING, STREAMED, GROUPED, WAYS };

static coll_status send_in(int way, const struct box *b, size_t len, coll_comm *comm, coll_stream *s)
{
	coll_status st, end;

	if (way == BLOCKING)
		return coll_send_tag(b->at, len, COLL_U8, 1, TAG, comm, NULL);
	if (way == STREAMED)
		return coll_send_tag(b->at, len, COLL_U8, 1, TAG, comm, s);
	st = coll_group_begin();
	if (st == COLL_OK)
		st = coll_send_tag(b->at, len, COLL_U8, 1, TAG, comm, len % 2 ? s : NULL);
	end = coll_group_end();
	return st ? st : end;
}

struct mixture {
	bool from, to; /* the device */
	int way;
	bool late; /* the receive */
};

static void mix(coll_comm *comm, int rank, void *arg)
{
	const struct mixture *m = arg;
	struct box b = box(comm, rank == 0 ? m->from : m->to, rank), device = box(comm, true, 0);
	struct hold h = make_stream(comm, device.at);

	for (size_t i = 0; i < LENGTHS; i++) {
		const size_t len = lengths[i];
		coll_message_info info;
		coll_request *r = NULL;
		coll_status st = COLL_AGAIN;

		blank(&b);
		if (rank == 0) {
			put(&b, len, (int)i);
			if (m->late)
				usleep(1000);
			OK(comm, send_in(m->way, &b, len, comm, h.stream));
			OK(comm, coll_stream_wait(h.stream, -1));
			continue;
		}
		if (!m->late)
			usleep(1000);
		if (i % 3 == 0) {
			OK(comm, coll_recv_tag(b.at, len, COLL_U8, 0, TAG, comm, &info));
		} else {
			OK(comm, coll_irecv(b.at, ROOM, COLL_U8, i % 2 ? 0 : COLL_ANY_SOURCE, COLL_ANY_TAG, comm, &r));
			while (i % 3 == 1 && st == COLL_AGAIN)
				st = coll_request_test(&r, &info);
			if (i % 3 == 2)
				st = coll_request_wait(&r, -1, &info);
			CHECK(st == COLL_OK && !r, "%s", coll_last_error(NULL)->message);
		}
		CHECK(info.count == len && info.source == 0 && info.tag == TAG && info.type == COLL_U8);
		CHECK(wrong(&b, len, (int)i) == 0, "%zu bytes, from %d to %d, way %d, late %d: %zu are wrong", len,
		      m->from, m->to, m->way, m->late, wrong(&b, len, (int)i));
	}
	end_stream(comm, &h);
	drop(&b);
	drop(&device);
}

TEST(cuda_tags, test_mixtures)
{
	for (int k = 1; k < 4; k++)
		for (int way = 0; way < WAYS; way++) {
			struct mixture m = {k & 1, k & 2, way, (k + way) % 2};

			run_ranks(2, mix, &m);
		}
}

/* ---- Streams ---- */

/* The message is what the stream holds in front of the send, not what the buffer has at the call. Neither the caller
 * nor another stream waits. */
static void order(coll_comm *comm, int rank, void *arg)
{
	const bool device = *(bool *)arg;
	struct box b = box(comm, device, 0), other = box(comm, true, 0);
	struct hold h = make_stream(comm, other.at);
	coll_message_info info;
	coll_request *r = NULL;
	char one = 1;

	blank(&b);
	OK(comm, coll_barrier(comm, NULL)); /* creating a stream may wait for those that are held */
	if (rank == 0) {
		put(&b, 5000, 1);
		put(&other, ROOM, 2);
		hold(&h);
		if (device)
			CHECK(DRIVER(cuMemcpyDtoDAsync_v2)((CUdeviceptr)(uintptr_t)b.at,
			                                   (CUdeviceptr)(uintptr_t)other.at, ROOM, h.handle) == 0);
		OK(comm, coll_send_tag(b.at, ROOM, COLL_U8, 1, TAG, comm, h.stream));
		/* It is behind in time, and its tag is another one. */
		OK(comm, coll_send_tag(&one, 1, COLL_U8, 1, TAG + 1, comm, NULL));
		CHECK(coll_stream_wait(h.stream, 50) == COLL_AGAIN);
		if (!device)
			put(&b, ROOM, 2);
		let_go(&h);
		OK(comm, coll_stream_wait(h.stream, -1));
	} else {
		OK(comm, coll_irecv(b.at, ROOM, COLL_U8, 0, TAG, comm, &r));
		OK(comm, coll_recv_tag(&one, 1, COLL_U8, 0, TAG + 1, comm, &info));
		OK(comm, coll_request_wait(&r, -1, &info));
		CHECK(wrong(&b, ROOM, 2) == 0);
	}
	end_stream(comm, &h);
	drop(&b);
	drop(&other);
}

TEST(cuda_tags, test_order)
{
	for (int k = 0; k < 2; k++)
		run_ranks(2, order, &(bool){k});
}

/* A send that waits for its receive does not hold up the stream behind it. */
TEST_OF_RANKS(cuda_tags, test_unreceived, 2, 2)
{
	struct box b = box(comm, true, 3);
	struct hold h = make_stream(comm, b.at);
	int x = rank, sum = 0;

	blank(&b);
	if (rank == 0) {
		put(&b, ROOM, 4);
		OK(comm, coll_send_tag(b.at, ROOM, COLL_U8, 1, TAG, comm, h.stream));
		CHECK(DRIVER(cuStreamSynchronize)(h.handle) == 0);
		put(&b, ROOM, 5); /* the buffer is free again */
	}
	OK(comm, coll_all_reduce(&x, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(sum == 1);
	if (rank == 1) {
		OK(comm, coll_recv_tag(b.at, ROOM, COLL_U8, 0, TAG, comm, NULL));
		CHECK(wrong(&b, ROOM, 4) == 0);
	}
	OK(comm, coll_stream_wait(h.stream, -1));
	end_stream(comm, &h);
	drop(&b);
}

TEST_OF_RANKS(cuda_tags, test_host_stream, 2, 2)
{
	struct box b = box(comm, true, 0);
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	if (rank == 0) {
		CHECK(coll_send_tag(b.at, 8, COLL_U8, 1, TAG, comm, s) == COLL_ERR_UNSUPPORTED);
		CHECK(strstr(coll_last_error(comm)->message, "[COLL-1212]"), "%s", coll_last_error(comm)->message);
	}
	OK(comm, coll_stream_destroy(&s));
	drop(&b);
}

/* ---- What does not come, or does not fit ---- */

TEST_OF_RANKS(cuda_tags, test_refused, 2, 2)
{
	struct box b = box(comm, true, 0);
	coll_request *r = NULL;
	coll_message_info info;

	blank(&b);
	if (rank == 0) {
		put(&b, 6000, 1);
		for (int k = 0; k < 2; k++) {
			OK(comm, coll_send_tag(b.at, k ? 6000 : 100, COLL_U8, 1, TAG, comm, NULL));
			OK(comm, coll_send_tag(b.at, k ? 1500 : 25, COLL_F32, 1, TAG, comm, NULL));
		}
	} else {
		for (int k = 0; k < 2; k++) {
			/* Too long, and of another type. */
			CHECK(coll_recv_tag(b.at, 99, COLL_U8, 0, TAG, comm, &info) == COLL_ERR_ARGUMENT);
			CHECK(info.count == (k ? 6000 : 100));
			OK(comm, coll_irecv(b.at, 6000, COLL_U8, 0, TAG, comm, &r));
			CHECK(coll_request_wait(&r, -1, &info) == COLL_ERR_ARGUMENT && info.type == COLL_F32);
			CHECK(wrong(&b, 0, 0) == 0);
		}
		OK(comm, coll_irecv(b.at, 6000, COLL_U8, 0, TAG, comm, &r));
		CHECK(coll_request_cancel(r) == COLL_OK);
		CHECK(coll_request_wait(&r, -1, &info) == COLL_ERR_CANCELLED && !r);
		CHECK(wrong(&b, 0, 0) == 0);
	}
	drop(&b);
}

/* The handle outlives the communicator: the message is in the memory when destroy returns. */
TEST_OF_RANKS(cuda_tags, test_outlived, 2, 2)
{
	coll_comm *child = NULL;
	struct box b = box(comm, true, 0);
	coll_request *r = NULL, *never = NULL;
	coll_message_info info;
	char one = 1;

	blank(&b);
	OK(comm, coll_comm_duplicate(comm, &child));
	if (rank == 0) {
		put(&b, 4000, 3);
		OK(child, coll_send_tag(b.at, 4000, COLL_U8, 1, TAG, child, NULL));
		OK(child, coll_send_tag(&one, 1, COLL_U8, 1, TAG + 1, child, NULL));
	} else {
		OK(child, coll_irecv(b.at, 4000, COLL_U8, 0, TAG, child, &r));
		OK(child, coll_irecv(b.at, 4000, COLL_U8, 0, TAG, child, &never));
		/* Messages of one rank come in order. */
		OK(child, coll_recv_tag(&one, 1, COLL_U8, 0, TAG + 1, child, NULL));
	}
	OK(comm, coll_comm_destroy(&child));
	if (rank == 1) {
		CHECK(wrong(&b, 4000, 3) == 0);
		CHECK(coll_request_wait(&r, -1, &info) == COLL_OK && info.count == 4000);
		CHECK(wrong(&b, 4000, 3) == 0);
		CHECK(coll_request_wait(&never, -1, &info) == COLL_ERR_CANCELLED);
	}
	drop(&b);
}

/* ---- To this rank itself ---- */

static void self(coll_comm *comm, int rank, void *arg)
{
	for (int k = 0; k < 8; k++) {
		const bool streamed = k & 4;
		struct box from = box(comm, k & 1, (size_t)k % 3), to = box(comm, k & 2, 1), d = box(comm, true, 0);
		struct hold h = make_stream(comm, d.at);

		for (size_t i = 0; i < LENGTHS; i++) {
			const size_t len = lengths[i];
			coll_request *r = NULL;

			put(&from, len, (int)i);
			blank(&to);
			OK(comm, coll_send_recv(from.at, len, rank, to.at, len, rank, COLL_U8, comm,
			                        streamed ? h.stream : NULL));
			if (streamed)
				OK(comm, coll_stream_wait(h.stream, -1));
			CHECK(wrong(&to, len, (int)i) == 0, "pair: %d, %zu bytes", k, len);
			blank(&to);
			OK(comm, coll_irecv(to.at, len, COLL_U8, COLL_ANY_SOURCE, TAG, comm, &r));
			OK(comm, coll_send_tag(from.at, len, COLL_U8, rank, TAG, comm, streamed ? h.stream : NULL));
			if (coll_request_wait(&r, -1, NULL) != COLL_OK)
				CHECK(false, "%s", coll_last_error(NULL)->message);
			CHECK(wrong(&to, len, (int)i) == 0, "tag: %d, %zu bytes", k, len);
		}
		OK(comm, coll_stream_wait(h.stream, -1));
		end_stream(comm, &h);
		drop(&from);
		drop(&to);
		drop(&d);
	}
}

TEST(cuda_tags, test_self)
{
	run_ranks(1, self, NULL);
	run_ranks(2, self, NULL);
}

/* In its stream: not before the stream comes to it. */
TEST_OF_RANKS(cuda_tags, test_self_order, 1, 1)
{
	struct box from = box(comm, false, 0), to = box(comm, true, 0);
	struct hold h = make_stream(comm, to.at);

	blank(&to);
	put(&from, 600000, 1);
	hold(&h);
	OK(comm, coll_send_recv(from.at, 600000, rank, to.at, 600000, rank, COLL_U8, comm, h.stream));
	put(&from, 600000, 2);
	let_go(&h);
	OK(comm, coll_stream_wait(h.stream, -1));
	CHECK(wrong(&to, 600000, 2) == 0);
	end_stream(comm, &h);
	drop(&from);
	drop(&to);
}

/* ---- Errors ---- */

/* What is in streams ends, though nobody receives and a stream never came to its send. */
TEST_OF_LOST_RANKS(cuda_tags, test_aborted, 2, NULL)
{
	struct box b = box(comm, true, 0), c = box(comm, true, 0);
	struct hold held = make_stream(comm, b.at), going = make_stream(comm, b.at);
	coll_request *r = NULL;

	blank(&b);
	blank(&c);
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 0) {
		put(&b, ROOM, 1);
		OK(comm, coll_send_tag(b.at, ROOM, COLL_U8, 1, TAG, comm, going.stream));
		hold(&held);
		OK(comm, coll_send_tag(b.at, ROOM, COLL_U8, 1, TAG, comm, held.stream));
		CHECK(DRIVER(cuStreamSynchronize)(going.handle) == 0);
		OK(comm, coll_comm_abort(comm, "on purpose"));
		CHECK(coll_stream_wait(going.stream, 20000) == COLL_ERR_ABORTED);
		/* It may be reading the buffer, so it ends when its stream has, or after a bounded time. */
		CHECK(coll_stream_wait(held.stream, 20000) == COLL_ERR_ABORTED);
		let_go(&held);
	} else {
		OK(comm, coll_irecv(c.at, ROOM, COLL_U8, 0, TAG + 1, comm, &r));
		CHECK(coll_request_wait(&r, -1, NULL) == COLL_ERR_ABORTED && !r);
		CHECK(wrong(&c, 0, 0) == 0);
	}
	end_stream(comm, &held);
	end_stream(comm, &going);
	drop(&b);
	drop(&c);
}

/* A stream that does not come to a send ends the communicator. */
static void late(coll_comm *comm, int rank, void *arg)
{
	struct box b = box(comm, true, 0);
	struct hold h = make_stream(comm, b.at);

	blank(&b);
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 0) {
		hold(&h);
		OK(comm, coll_send_tag(b.at, 100, COLL_U8, 1, TAG, comm, h.stream));
		CHECK(coll_stream_wait(h.stream, 30000) == COLL_ERR_PEER_LATE);
		CHECK(strstr(coll_last_error(comm)->message, "[COLL-2303]"), "%s", coll_last_error(comm)->message);
		let_go(&h);
	} else {
		/* The rank whose stream is late says so first. */
		OK(comm, coll_comm_set_timeout(comm, -1, 30000));
		CHECK(coll_recv_tag(b.at, 100, COLL_U8, 0, TAG, comm, NULL) == COLL_ERR_PEER_LATE, "%s",
		      coll_last_error(comm)->message);
	}
	end_stream(comm, &h);
	drop(&b);
}

TEST(cuda_tags, test_late)
{
	run_ranks_badly(2, late, NULL, "COLL_ARRIVAL_TIMEOUT_MS=1000");
}

/* ---- Many ---- */

struct sender {
	pthread_t thread;
	coll_request *r;
	coll_status st;
};

static void *wait_for_it(void *arg)
{
	struct sender *s = arg;

	s->st = coll_request_wait(&s->r, -1, NULL);
	return NULL;
}

/* Receives that several threads wait for, while their senders are all other ranks. */
TEST_OF_RANKS(cuda_tags, test_crowd, 3, 3)
{
	enum { EACH = 8, LEN = 100000 };
	const int n = coll_comm_size(comm);
	char *all = NULL, *seen = malloc(LEN);

	OK(comm, coll_mem_alloc_on(comm, (void **)&all, (size_t)LEN * EACH, COLL_MEM_DEVICE));
	for (int from = 0; from < n; from++) {
		struct sender s[EACH];

		for (int i = 0; rank == (from + 1) % n && i < EACH; i++) {
			OK(comm, coll_irecv(all + (size_t)i * LEN, LEN, COLL_U8, from, i, comm, &s[i].r));
			pthread_create(&s[i].thread, NULL, wait_for_it, &s[i]);
		}
		for (int i = EACH - 1; rank == from && i >= 0; i--) {
			memset(seen, i + 1, LEN);
			CHECK(cuda_user_write(all, seen, LEN));
			OK(comm, coll_send_tag(all, LEN - (i % 2) * 99000, COLL_U8, (from + 1) % n, i, comm, NULL));
		}
		for (int i = 0; rank == (from + 1) % n && i < EACH; i++) {
			pthread_join(s[i].thread, NULL);
			CHECK(s[i].st == COLL_OK);
			CHECK(cuda_user_read(seen, all + (size_t)i * LEN, LEN));
			CHECK(seen[0] == i + 1 && seen[999] == i + 1 && (i % 2 || seen[LEN - 1] == i + 1));
		}
		OK(comm, coll_barrier(comm, NULL));
	}
	OK(comm, coll_mem_free(comm, all));
	free(seen);
}

PROGRAM(cuda_tags, "TRANSPORT on|off|auto")
{
	const char *driver = getenv("COLL_CUDA_LIBRARY");

	if (!coll_kernels_ptx())
		return plain_skip_all("this build has no kernels");
	driver_path = driver && *driver ? driver : "libcuda.so.1";
	setenv("COLL_DEVICE", "cuda", 0);
	return ranks_begin(argc, argv);
}
