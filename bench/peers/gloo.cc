/*
 * The driver of Gloo, over its tcp transport on the loopback interface (the only one
 * between processes that it has): see driver.h. Gloo has no reduce-scatter of equal
 * blocks that leaves the input alone.
 */
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "driver.h"

static std::shared_ptr<gloo::rendezvous::Context> context;

static const char *setting(const char *name)
{
	const char *value = getenv(name);

	return value ? value : "";
}

static int begin(int *, char ***, int *rank, int *size, char *text, size_t text_bytes)
{
	try {
		gloo::transport::tcp::attr attr;

		attr.hostname = "127.0.0.1";
		*rank = atoi(setting("COLL_BENCH_RANK"));
		*size = atoi(setting("COLL_BENCH_SIZE"));
		context = std::make_shared<gloo::rendezvous::Context>(*rank, *size);
		gloo::rendezvous::FileStore store(setting("COLL_BENCH_DIR"));
		auto device = gloo::transport::tcp::CreateDevice(attr);
		context->connectFullMesh(store, device);
	} catch (const std::exception &e) {
		snprintf(text, text_bytes, "%s", e.what());
		return 1;
	}
	snprintf(text, text_bytes, "Gloo %d.%d.%d, tcp", GLOO_VERSION_MAJOR, GLOO_VERSION_MINOR, GLOO_VERSION_PATCH);
	return 0;
}

template <typename Fn> static int guarded(Fn fn)
{
	try {
		fn();
		return 0;
	} catch (const std::exception &e) {
		fprintf(stderr, "gloo: %s\n", e.what());
		return 1;
	}
}

static int all_reduce(const bench_job *j)
{
	return guarded([j] {
		gloo::AllreduceOptions o(context);

		if (!j->in_place)
			o.setInput(j->in, j->count);
		o.setOutput(j->out, j->count);
		o.setReduceFunction(
		        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
		gloo::allreduce(o);
	});
}

static int broadcast(const bench_job *j)
{
	return guarded([j] {
		gloo::BroadcastOptions o(context);

		o.setOutput(j->out, j->count);
		o.setRoot(j->root);
		gloo::broadcast(o);
	});
}

static int all_gather(const bench_job *j)
{
	return guarded([j] {
		gloo::AllgatherOptions o(context);

		o.setInput(j->in, j->count);
		o.setOutput(j->out, j->count * (size_t)j->size);
		gloo::allgather(o);
	});
}

static int all_to_all(const bench_job *j)
{
	return guarded([j] {
		gloo::AlltoallOptions o(context);

		o.setInput(j->in, j->count * (size_t)j->size);
		o.setOutput(j->out, j->count * (size_t)j->size);
		gloo::alltoall(o);
	});
}

static int barrier(const bench_job *)
{
	return guarded([] {
		gloo::BarrierOptions o(context);

		gloo::barrier(o);
	});
}

/* Buffers of a message; the driver's stay where they are until another cell is prepared. */
static struct {
	const float *in, *out;
	std::unique_ptr<gloo::transport::UnboundBuffer> send, recv;
} message;

static void send(const bench_job *j)
{
	message.send->send(j->rank ^ 1, 0);
	message.send->waitSend();
}

static void recv(const bench_job *j)
{
	message.recv->recv(j->rank ^ 1, 0);
	message.recv->waitRecv();
}

static int send_recv(const bench_job *j)
{
	return guarded([j] {
		if (message.in != j->in || message.out != j->out) {
			message.in = j->in;
			message.out = j->out;
			message.send = context->createUnboundBuffer(j->in, j->count * sizeof(float));
			message.recv = context->createUnboundBuffer(j->out, j->count * sizeof(float));
		}
		if (j->rank % 2) {
			recv(j);
			send(j);
		} else {
			send(j);
			recv(j);
		}
	});
}

static bench_call *find(const bench_job *j)
{
	switch (j->kind) {
	case BENCH_ALL_REDUCE: return all_reduce;
	case BENCH_BROADCAST: return j->in_place ? broadcast : nullptr;
	case BENCH_ALL_GATHER: return j->in_place ? nullptr : all_gather;
	case BENCH_ALL_TO_ALL: return j->in_place ? nullptr : all_to_all;
	case BENCH_BARRIER: return barrier;
	case BENCH_SEND_RECV: message.in = nullptr; return j->in_place ? nullptr : send_recv;
	default: return nullptr;
	}
}

static void place(const bench_job *, size_t *in_at, size_t *out_at)
{
	*in_at = *out_at = 0;
}

/* Its own threads end badly when a peer has gone first. */
static void end()
{
	_exit(0);
}

static struct bench_library library()
{
	struct bench_library l = {};

	l.name = "gloo";
	l.begin = begin;
	l.find = find;
	l.place = place;
	l.end = end;
	return l;
}

extern "C" const struct bench_library bench_library = library();
