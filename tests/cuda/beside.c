/*
 * Calls of a communicator in which some ranks have a device and pass device memory, beside ranks that have none and
 * pass host memory.
 *
 * usage: beside FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"

enum { LONGEST = 100001, LIMIT_S = 60 };

/* ---- A rank, with a device or without ---- */

struct side {
	struct job_rank *r;
	bool device;
	int *in, *out, *host; /* of a block for each rank; host: host memory */
	coll_stream *stream;
	void *handle; /* of a device */
};

static void open_side(struct side *s, struct job_rank *r)
{
	const size_t all = (size_t)r->size * LONGEST;

	*s = (struct side){.r = r, .device = strcmp(coll_comm_device(r->comm), "host") != 0};
	if (s->device != (r->rank % 2 == 1))
		job_wrong(r, "its device is %s", coll_comm_device(r->comm));
	s->host = malloc(all * sizeof(int));
	if (!s->device) {
		s->in = malloc(all * sizeof(int));
		s->out = malloc(all * sizeof(int));
		job_ok(r, coll_stream_create(&s->stream, r->comm), "a stream of the host");
		return;
	}
	s->in = job_memory(r, all);
	s->out = job_memory(r, all);
	if (!cuda_user_stream(s->in, &s->handle))
		job_wrong(r, "no stream");
	job_ok(r, coll_stream_wrap_cuda(&s->stream, r->comm, s->handle), "a stream of the device");
}

static void close_side(struct side *s)
{
	job_ok(s->r, coll_stream_destroy(&s->stream), "the end of a stream");
	if (s->device)
		cuda_user_stream_destroy(s->handle);
	job_ok(s->r, coll_comm_destroy(&s->r->comm), "the end");
}

static void write_to(const struct side *s, int *to, size_t n)
{
	if (!s->device)
		memcpy(to, s->host, n * sizeof(int));
	else if (!cuda_user_write(to, s->host, n * sizeof(int)))
		job_wrong(s->r, "cannot write device memory");
}

static void read_out(const struct side *s, size_t n)
{
	if (!s->device)
		memcpy(s->host, s->out, n * sizeof(int));
	else if (!cuda_user_read(s->host, s->out, n * sizeof(int)))
		job_wrong(s->r, "cannot read device memory");
}

static int element(int rank, size_t i)
{
	return (rank + 1) * 100000 + (int)(i % 1009);
}

/* ---- Calls ---- */

enum what { ALL_REDUCE, BROADCAST_0, BROADCAST_1, ALL_GATHER, SHIFT, MESSAGES, WHATS };
static const char *const names[WHATS] = {"all_reduce", "broadcast from a host", "broadcast from a device", "all_gather",
                                         "send_recv",  "send and recv"};

static coll_status call(const struct side *s, enum what what, size_t n, coll_stream *stream)
{
	coll_comm *comm = s->r->comm;
	const int next = (s->r->rank + 1) % s->r->size, previous = (s->r->rank + s->r->size - 1) % s->r->size;
	coll_status st;

	switch (what) {
	case ALL_REDUCE: return coll_all_reduce(s->in, s->out, n, COLL_I32, COLL_SUM, comm, stream);
	case BROADCAST_0: return coll_broadcast(s->in, s->out, n, COLL_I32, 0, comm, stream);
	case BROADCAST_1: return coll_broadcast(s->in, s->out, n, COLL_I32, 1, comm, stream);
	case ALL_GATHER: return coll_all_gather(s->in, s->out, n, COLL_I32, comm, stream);
	case SHIFT: return coll_send_recv(s->in, n, next, s->out, n, previous, COLL_I32, comm, stream);
	default: break;
	}
	if (s->r->rank % 2 == 0) {
		st = coll_send(s->in, n, COLL_I32, next, comm, stream);
		return st ? st : coll_recv(s->out, n, COLL_I32, previous, comm, stream);
	}
	st = coll_recv(s->out, n, COLL_I32, previous, comm, stream);
	return st ? st : coll_send(s->in, n, COLL_I32, next, comm, stream);
}

static int wanted(const struct side *s, enum what what, size_t n, size_t i)
{
	const int size = s->r->size;
	int sum = 0;

	switch (what) {
	case ALL_REDUCE:
		for (int k = 0; k < size; k++)
			sum += element(k, i);
		return sum;
	case BROADCAST_0: return element(0, i);
	case BROADCAST_1: return element(1, i);
	case ALL_GATHER: return element((int)(i / n), i % n);
	default: return element((s->r->rank + size - 1) % size, i);
	}
}

static void check(const struct side *s, enum what what, size_t n, coll_stream *stream)
{
	const size_t all = what == ALL_GATHER ? n * (size_t)s->r->size : n;
	coll_status st;

	for (size_t i = 0; i < n; i++)
		s->host[i] = element(s->r->rank, i);
	write_to(s, s->in, n);
	memset(s->host, 0xff, all * sizeof(int));
	write_to(s, s->out, all);
	st = call(s, what, n, stream);
	if (st == COLL_OK && stream)
		st = coll_stream_wait(stream, -1);
	if (!job_ok(s->r, st, names[what]))
		return;
	read_out(s, all);
	for (size_t i = 0; i < all; i++)
		if (s->host[i] != wanted(s, what, n, i)) {
			job_wrong(s->r, "%s of %zu%s: element %zu is %d, not %d", names[what], n,
			          stream ? " in a stream" : "", i, s->host[i], wanted(s, what, n, i));
			return;
		}
}

static void every_call(struct job_rank *r)
{
	static const size_t lengths[] = {1, 1000, LONGEST};
	struct side s;

	open_side(&s, r);
	for (int what = 0; what < WHATS; what++)
		for (size_t l = 0; l < 3; l++) {
			check(&s, (enum what)what, lengths[l], NULL);
			check(&s, (enum what)what, lengths[l], s.stream);
		}
	close_side(&s);
}

TEST(beside, host_memory_and_device_memory_meet)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 4; i++) {
		const char *const environment[] = {
		        "COLL_TRANSPORTS", transports[i % 2], "COLL_DEVICE@0", "host", "COLL_DEVICE@2", "host", NULL};

		job_run(2 + i / 2, every_call, NULL, environment, LIMIT_S);
	}
}

PROGRAM(beside, "DRIVER")
{
	return job_begin(argc, argv);
}
