/*
 * Graphs with calls of a communicator: launched many times, several of them, abandoned, outliving what they were made
 * with, and when a rank fails. Each rank of a job (collrun) runs one scenario. `staged -g` captures every kind of call.
 *
 * usage: capture SCENARIO [LAUNCHES [RANK]]
 */
#define PLAIN_OWN_MAIN
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "cuda_user.h"
#include "tests/plain.h"

enum { COUNT = 3000, LONG = 200000, MARK = 0x5a5a5a5a };
/* Messages in each direction that one group of a capture may have. */
enum { FEW = 64 };

static int launches = 100, victim = -1;
static const char *how;

/* ---- One rank ---- */

static coll_comm *comm;
static int me, size;
static void *handle[2];
static coll_stream *stream[2];
static int *in[2], *out[2]; /* device memory of LONG elements */
static int host[LONG];

static void open_comm(void)
{
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.device = getenv("COLL_DEVICE") ? NULL : "cuda";
	REQUIRE(coll_comm_create(&comm, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	me = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	for (int i = 0; i < 2; i++) {
		REQUIRE(coll_mem_alloc_on(comm, (void **)&in[i], sizeof(host), COLL_MEM_DEVICE) == COLL_OK);
		REQUIRE(coll_mem_alloc_on(comm, (void **)&out[i], sizeof(host), COLL_MEM_DEVICE) == COLL_OK);
		REQUIRE(cuda_user_stream(in[i], &handle[i]));
		REQUIRE(coll_stream_wrap_cuda(&stream[i], comm, handle[i]) == COLL_OK);
	}
}

static void close_comm(void)
{
	for (int i = 0; i < 2; i++) {
		CHECK(coll_stream_destroy(&stream[i]) == COLL_OK);
		CHECK(coll_mem_free(comm, in[i]) == COLL_OK && coll_mem_free(comm, out[i]) == COLL_OK);
	}
	CHECK(coll_comm_destroy(&comm) == COLL_OK);
}

/* ---- Data of a launch ---- */

static void put(int *device, int rank, int turn, int count)
{
	for (int i = 0; i < count; i++)
		host[i] = (rank + 1) * (i + 7 * turn);
	CHECK(cuda_user_write(device, host, (size_t)count * sizeof(int)));
}

static void put_mark(int *device, int count)
{
	for (int i = 0; i < count; i++)
		host[i] = MARK;
	CHECK(cuda_user_write(device, host, (size_t)count * sizeof(int)));
}

static int wrong_sums(const int *device, int turn, int count)
{
	int wrong = 0;

	CHECK(cuda_user_read(host, device, (size_t)count * sizeof(int)));
	for (int i = 0; i < count; i++)
		wrong += host[i] != size * (size + 1) / 2 * (i + 7 * turn);
	return wrong;
}

static int wrong_marks(const int *device, int count)
{
	int wrong = 0;

	CHECK(cuda_user_read(host, device, (size_t)count * sizeof(int)));
	for (int i = 0; i < count; i++)
		wrong += host[i] != MARK;
	return wrong;
}

/* What the rank before this one has put. */
static int wrong_from_before(const int *device, int turn, int count)
{
	const int before = (me + size - 1) % size;
	int wrong = 0;

	CHECK(cuda_user_read(host, device, (size_t)count * sizeof(int)));
	for (int i = 0; i < count; i++)
		wrong += host[i] != (before + 1) * (i + 7 * turn);
	return wrong;
}

static coll_status sum(int k, int count, coll_stream *s)
{
	return coll_all_reduce(in[k], out[k], (size_t)count, COLL_I32, COLL_SUM, comm, s);
}

/* A graph that sums in[k] into out[k]. */
static void *sum_graph(int k, int count)
{
	void *exec = NULL;

	CHECK(!coll_stream_is_captured(stream[k]) && !coll_stream_is_captured(NULL));
	CHECK(cuda_user_capture(handle[k]));
	CHECK(coll_stream_is_captured(stream[k]));
	CHECK(sum(k, count, stream[k]) == COLL_OK, "%s", coll_last_error(comm)->message);
	CHECK(cuda_user_captured(handle[k], &exec, 1));
	CHECK(!coll_stream_is_captured(stream[k]));
	return exec;
}

static void sum_once(void *exec, int k, int turn, int count)
{
	int wrong;

	put(in[k], me, turn, count);
	CHECK(cuda_user_launch(exec, handle[k]) && cuda_user_synchronize(handle[k]));
	wrong = wrong_sums(out[k], turn, count);
	CHECK(wrong == 0, "launch %d: %d of %d are wrong", turn, wrong, count);
}

/* ---- Scenarios ---- */

/* A persistent operation, destroyed before the first launch; two executables of one graph take turns. */
static void persistent(void)
{
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = in[0],
	                                  .out = out[0],
	                                  .count = COUNT,
	                                  .type = COLL_I32,
	                                  .op = COLL_SUM};
	coll_operation *op = NULL;
	void *exec[2] = {NULL, NULL};

	REQUIRE(coll_operation_prepare(&op, &desc, comm) == COLL_OK, "%s", coll_last_error(comm)->message);
	CHECK(coll_operation_start(op, stream[0]) == COLL_OK && coll_operation_wait(op, -1) == COLL_OK);
	CHECK(cuda_user_capture(handle[0]));
	CHECK(coll_operation_start(op, stream[0]) == COLL_OK, "%s", coll_last_error(comm)->message);
	CHECK(coll_operation_wait(op, -1) == COLL_OK, "nothing was started");
	REQUIRE(cuda_user_captured(handle[0], exec, 2));
	/* It can still be started as before. */
	CHECK(coll_operation_start(op, stream[0]) == COLL_OK && coll_operation_wait(op, -1) == COLL_OK);
	CHECK(coll_operation_destroy(&op) == COLL_OK);
	for (int i = 0; i < launches && atomic_load(&plain_failures) == 0; i++)
		sum_once(exec[i % 2], 0, i, COUNT);
	cuda_user_exec_destroy(exec[0]);
	cuda_user_exec_destroy(exec[1]);
}

/* The neighbours' numbers, and one more sum, in one group. */
static void group(coll_stream *s, int *from, int *to)
{
	CHECK(coll_group_begin() == COLL_OK);
	CHECK(coll_send(from, COUNT, COLL_I32, (me + 1) % size, comm, s) == COLL_OK);
	CHECK(coll_recv(to, COUNT, COLL_I32, (me + size - 1) % size, comm, s) == COLL_OK);
	CHECK(sum(1, LONG, s) == COLL_OK);
	CHECK(coll_group_end() == COLL_OK, "%s", coll_last_error(comm)->message);
}

/* Many calls in one graph, in two streams: they fork and join. Ordinary calls between the launches. */
static void several(void)
{
	void *exec = NULL;

	CHECK(cuda_user_capture(handle[0]));
	CHECK(sum(0, COUNT, stream[0]) == COLL_OK, "%s", coll_last_error(comm)->message);
	CHECK(cuda_user_order(handle[0], handle[1]));
	CHECK(coll_broadcast(out[0], out[0] + COUNT, COUNT, COLL_I32, size - 1, comm, stream[1]) == COLL_OK);
	CHECK(coll_all_reduce(out[0], out[0] + 2 * COUNT, COUNT, COLL_I32, COLL_MAX, comm, stream[0]) == COLL_OK);
	CHECK(coll_barrier(comm, stream[1]) == COLL_OK);
	CHECK(coll_all_reduce(in[0], out[0], 0, COLL_I32, COLL_SUM, comm, stream[0]) == COLL_OK);
	group(stream[1], in[0], out[0] + 3 * COUNT);
	CHECK(cuda_user_order(handle[1], handle[0]));
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	for (int turn = 0; turn < launches && atomic_load(&plain_failures) == 0; turn++) {
		put(in[0], me, turn, COUNT);
		put(in[1], me, turn, LONG);
		CHECK(cuda_user_launch(exec, handle[0]));
		if (turn % 3 == 0) /* beside the launch */
			CHECK(coll_barrier(comm, stream[1]) == COLL_OK && coll_stream_wait(stream[1], -1) == COLL_OK);
		CHECK(cuda_user_synchronize(handle[0]));
		CHECK(wrong_sums(out[0], turn, COUNT) == 0 && wrong_sums(out[0] + COUNT, turn, COUNT) == 0);
		CHECK(wrong_sums(out[0] + 2 * COUNT, turn, COUNT) == 0 && wrong_sums(out[1], turn, LONG) == 0);
		CHECK(cuda_user_read(host, out[0] + 3 * COUNT, COUNT * sizeof(int)));
		CHECK(host[5] == ((me + size - 1) % size + 1) * (5 + 7 * turn), "%d", host[5]);
		if (turn % 3 == 1) {
			put(in[0], me, turn + 1, COUNT);
			CHECK(sum(0, COUNT, turn % 2 ? stream[1] : NULL) == COLL_OK &&
			      coll_stream_wait(stream[1], -1) == COLL_OK);
			CHECK(wrong_sums(out[0], turn + 1, COUNT) == 0);
		}
	}
	cuda_user_exec_destroy(exec);
}

/* Messages that follow one another to the same rank, and sums, in one group: more tiles than there are slots. */
static void crowded(void)
{
	enum { MESSAGES = 25, SUMS = 2, MANY = LONG * 11 };
	int *large_in = NULL, *large_out = NULL, *all = NULL;
	void *exec = NULL;

	REQUIRE(coll_mem_alloc_on(comm, (void **)&large_in, MANY * sizeof(int), COLL_MEM_DEVICE) == COLL_OK);
	REQUIRE(coll_mem_alloc_on(comm, (void **)&large_out, SUMS * MANY * sizeof(int), COLL_MEM_DEVICE) == COLL_OK);
	REQUIRE(coll_mem_alloc_on(comm, (void **)&all, MESSAGES * sizeof(host), COLL_MEM_DEVICE) == COLL_OK);
	CHECK(cuda_user_capture(handle[0]));
	CHECK(coll_group_begin() == COLL_OK);
	for (int i = 0; i < SUMS; i++)
		CHECK(coll_all_reduce(large_in, large_out + i * MANY, MANY, COLL_I32, COLL_SUM, comm, stream[0]) ==
		      COLL_OK);
	for (int i = 0; i < MESSAGES; i++) {
		CHECK(coll_send(in[0], LONG, COLL_I32, (me + 1) % size, comm, stream[0]) == COLL_OK);
		CHECK(coll_recv(all + i * LONG, LONG, COLL_I32, (me + size - 1) % size, comm, stream[0]) == COLL_OK);
	}
	CHECK(coll_group_end() == COLL_OK, "%s", coll_last_error(comm)->message);
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	for (int turn = 0; turn < 3 && atomic_load(&plain_failures) == 0; turn++) {
		put(in[0], me, turn, LONG);
		for (int part = 0; part < MANY; part += LONG)
			put(large_in + part, me, turn, LONG);
		for (int i = 0; i < MESSAGES; i++)
			put_mark(all + i * LONG, LONG);
		CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
		for (int i = 0; i < MESSAGES; i++)
			CHECK(wrong_from_before(all + i * LONG, turn, LONG) == 0, "turn %d, message %d", turn, i);
		for (int part = 0; part < SUMS * MANY; part += LONG)
			CHECK(wrong_sums(large_out + part, turn, LONG) == 0, "turn %d, sum at %d", turn, part);
	}
	cuda_user_exec_destroy(exec);
	CHECK(coll_mem_free(comm, large_in) == COLL_OK && coll_mem_free(comm, large_out) == COLL_OK);
	CHECK(coll_mem_free(comm, all) == COLL_OK);
}

/* Messages longer than all slots: one each way, and then a call that goes both ways. No rank receives only what another
 * sends behind what waits for that rank. */
static void both_ways(void)
{
	enum { MANY = LONG * 65 };
	const int next = (me + 1) % size, before = (me + size - 1) % size;
	int *from = NULL, *to = NULL;
	void *exec = NULL;

	REQUIRE(coll_mem_alloc_on(comm, (void **)&from, MANY * sizeof(int), COLL_MEM_DEVICE) == COLL_OK);
	REQUIRE(coll_mem_alloc_on(comm, (void **)&to, 2 * MANY * sizeof(int), COLL_MEM_DEVICE) == COLL_OK);
	CHECK(cuda_user_capture(handle[0]));
	CHECK(coll_group_begin() == COLL_OK);
	CHECK(coll_send(from, MANY, COLL_I32, next, comm, stream[0]) == COLL_OK);
	CHECK(coll_recv(to, MANY, COLL_I32, before, comm, stream[0]) == COLL_OK);
	CHECK(coll_send_recv(from, MANY, next, to + MANY, MANY, before, COLL_I32, comm, stream[0]) == COLL_OK);
	CHECK(coll_group_end() == COLL_OK, "%s", coll_last_error(comm)->message);
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	for (int turn = 0; turn < 2 && atomic_load(&plain_failures) == 0; turn++) {
		for (int part = 0; part < MANY; part += LONG)
			put(from + part, me, turn, LONG);
		for (int part = 0; part < 2 * MANY; part += LONG)
			put_mark(to + part, LONG);
		CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
		for (int part = 0; part < 2 * MANY; part += LONG)
			CHECK(wrong_from_before(to + part, turn, LONG) == 0, "turn %d, at %d", turn, part);
	}
	cuda_user_exec_destroy(exec);
	CHECK(coll_mem_free(comm, from) == COLL_OK && coll_mem_free(comm, to) == COLL_OK);
}

/* Two graphs launched in two streams at once run in the order of their launches. */
static void overlapping(void)
{
	void *exec[2] = {sum_graph(0, LONG), sum_graph(1, COUNT)};

	REQUIRE(exec[0] && exec[1]);
	for (int turn = 0; turn < launches && atomic_load(&plain_failures) == 0; turn++) {
		const int first = turn % 2;

		put(in[0], me, turn, LONG);
		put(in[1], me, turn, COUNT);
		CHECK(cuda_user_launch(exec[first], handle[first]));
		CHECK(cuda_user_launch(exec[!first], handle[!first]));
		CHECK(cuda_user_synchronize(handle[0]) && cuda_user_synchronize(handle[1]));
		CHECK(wrong_sums(out[0], turn, LONG) == 0 && wrong_sums(out[1], turn, COUNT) == 0, "turn %d", turn);
	}
	cuda_user_exec_destroy(exec[0]);
	cuda_user_exec_destroy(exec[1]);
}

/* Captures of which nothing comes, and graphs that come and go. */
static void abandoned(void)
{
	for (int turn = 0; turn < launches && atomic_load(&plain_failures) == 0; turn++) {
		void *exec;

		CHECK(cuda_user_capture(handle[0]));
		CHECK(sum(0, COUNT, stream[0]) == COLL_OK);
		if (turn % 2) {
			CHECK(cuda_user_abandon(handle[0]));
		} else { /* the driver ends it */
			CHECK(!cuda_user_synchronize(handle[0]));
			CHECK(sum(0, COUNT, stream[0]) == COLL_ERR_UNSUPPORTED);
			CHECK(strstr(coll_last_error(comm)->message, "capture has failed"));
			CHECK(!cuda_user_abandon(handle[0]));
		}
		put(in[0], me, turn, COUNT);
		CHECK(sum(0, COUNT, stream[0]) == COLL_OK && coll_stream_wait(stream[0], -1) == COLL_OK);
		CHECK(wrong_sums(out[0], turn, COUNT) == 0);
		exec = sum_graph(0, COUNT);
		REQUIRE(exec);
		sum_once(exec, 0, turn + 1, COUNT);
		cuda_user_exec_destroy(exec);
	}
}

/* n elements of in[1] to out[1] of the next rank, each as a message of its own: a group of 2n calls. */
static coll_status many_messages(int n)
{
	coll_status st = coll_group_begin(), end;

	for (int i = 0; i < n && st == COLL_OK; i++) {
		st = coll_send(in[1] + i, 1, COLL_I32, (me + 1) % size, comm, stream[0]);
		if (st == COLL_OK)
			st = coll_recv(out[1] + i, 1, COLL_I32, (me + size - 1) % size, comm, stream[0]);
	}
	end = coll_group_end();
	return st ? st : end;
}

/* What cannot be captured is refused by name, and the capture goes on. */
static void refused(void)
{
	const bool without_thread = getenv("COLL_PROGRESS") && strcmp(getenv("COLL_PROGRESS"), "off") == 0;
	coll_event *event = NULL;
	void *exec = NULL;

	CHECK(coll_event_create(&event, comm) == COLL_OK);
	CHECK(sum(1, COUNT, stream[1]) == COLL_OK && coll_event_record(event, stream[1]) == COLL_OK);
	CHECK(coll_event_wait(event, -1) == COLL_OK);
	CHECK(cuda_user_capture(handle[0]));
	if (without_thread) {
		CHECK(sum(0, COUNT, stream[0]) == COLL_ERR_UNSUPPORTED);
		CHECK(strstr(coll_last_error(comm)->message, "[COLL-1216]"), "%s", coll_last_error(comm)->message);
	} else {
		CHECK(coll_group_begin() == COLL_OK);
		CHECK(sum(0, COUNT, stream[0]) == COLL_OK && sum(1, COUNT, stream[1]) == COLL_OK);
		CHECK(coll_group_end() == COLL_ERR_UNSUPPORTED);
		CHECK(strstr(coll_last_error(comm)->message, "[COLL-1218]"), "%s", coll_last_error(comm)->message);
		CHECK(coll_send_tag(host, 1, COLL_I32, (me + 1) % size, 1, comm, stream[0]) == COLL_ERR_UNSUPPORTED);
		CHECK(strstr(coll_last_error(comm)->message, "[COLL-1217]"), "%s", coll_last_error(comm)->message);
		CHECK(many_messages(FEW) == COLL_OK, "%s", coll_last_error(comm)->message);
		CHECK(many_messages(FEW + 1) == COLL_ERR_UNSUPPORTED);
		CHECK(strstr(coll_last_error(comm)->message, ": 130 calls") &&
		              strstr(coll_last_error(comm)->message, "at most 128 [COLL-1213]"),
		      "%s", coll_last_error(comm)->message);
	}
	CHECK(coll_stream_wait_event(stream[0], event) == COLL_ERR_UNSUPPORTED);
	/* Ordinary calls go on meanwhile, blocking ones too. */
	put(in[1], me, 3, COUNT);
	CHECK(sum(1, COUNT, stream[1]) == COLL_OK && coll_stream_wait(stream[1], -1) == COLL_OK);
	CHECK(wrong_sums(out[1], 3, COUNT) == 0);
	CHECK(sum(1, COUNT, NULL) == COLL_OK);
	if (!without_thread)
		CHECK(sum(0, COUNT, stream[0]) == COLL_OK, "%s", coll_last_error(comm)->message);
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	if (!without_thread) {
		put(in[1], me, 4, COUNT);
		sum_once(exec, 0, 5, COUNT);
		CHECK(wrong_from_before(out[1], 4, FEW) == 0);
	}
	cuda_user_exec_destroy(exec);
	put(in[0], me, 9, COUNT);
	CHECK(sum(0, COUNT, stream[0]) == COLL_OK && coll_stream_wait(stream[0], -1) == COLL_OK);
	CHECK(wrong_sums(out[0], 9, COUNT) == 0);
	CHECK(coll_event_destroy(&event) == COLL_OK);
}

/* Messages to this rank itself: device to host, host to host, host to device. */
static void itself(void)
{
	static int own[LONG], copy[LONG];
	void *exec = NULL;
	int wrong = 0;

	CHECK(cuda_user_capture(handle[0]));
	CHECK(coll_send_recv(in[0], LONG, me, own, LONG, me, COLL_I32, comm, stream[0]) == COLL_OK, "%s",
	      coll_last_error(comm)->message);
	CHECK(coll_send_recv(own, LONG, me, copy, LONG, me, COLL_I32, comm, stream[0]) == COLL_OK);
	CHECK(coll_send_recv(copy, LONG, me, out[0], LONG, me, COLL_I32, comm, stream[0]) == COLL_OK);
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	for (int turn = 1; turn < launches; turn++) {
		put(in[0], me, turn, LONG);
		put_mark(out[0], LONG);
		CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
		CHECK(cuda_user_read(host, out[0], sizeof(host)));
		for (int i = 0; i < LONG; i++)
			wrong += host[i] != (me + 1) * (i + 7 * turn);
		CHECK(wrong == 0, "launch %d: %d are wrong", turn, wrong);
	}
	cuda_user_exec_destroy(exec);
}

/* A graph outlives its communicator: its launches leave the memory alone. */
static void outliving(void)
{
	for (int turn = 0; turn < 3 && atomic_load(&plain_failures) == 0; turn++) {
		coll_comm *parent = comm, *child = NULL;
		coll_stream *s = NULL;
		void *exec = NULL;

		REQUIRE(coll_comm_duplicate(parent, &child) == COLL_OK);
		CHECK(coll_stream_wrap_cuda(&s, child, handle[0]) == COLL_OK);
		CHECK(cuda_user_capture(handle[0]));
		CHECK(coll_all_reduce(in[0], out[0], COUNT, COLL_I32, COLL_SUM, child, s) == COLL_OK, "%s",
		      coll_last_error(child)->message);
		REQUIRE(cuda_user_captured(handle[0], &exec, 1));
		CHECK(coll_stream_destroy(&s) == COLL_OK);
		sum_once(exec, 0, turn, COUNT);
		CHECK(coll_comm_destroy(&child) == COLL_OK);
		put_mark(out[0], COUNT);
		for (int i = 0; i < 50; i++)
			CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
		CHECK(wrong_marks(out[0], COUNT) == 0);
		CHECK(sum(1, COUNT, stream[1]) == COLL_OK && coll_stream_wait(stream[1], -1) == COLL_OK);
		cuda_user_exec_destroy(exec);
	}
}

/* Even the last one of the process: its kernels stay. */
static void last(void)
{
	int *mine[2] = {cuda_user_alloc(in[0], sizeof(host)), cuda_user_alloc(in[0], sizeof(host))};
	void *exec = NULL;

	REQUIRE(mine[0] && mine[1]);
	CHECK(cuda_user_capture(handle[0]));
	CHECK(coll_all_reduce(mine[0], mine[1], COUNT, COLL_I32, COLL_SUM, comm, stream[0]) == COLL_OK);
	REQUIRE(cuda_user_captured(handle[0], &exec, 1));
	put(mine[0], me, 0, COUNT);
	CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
	CHECK(wrong_sums(mine[1], 0, COUNT) == 0);
	put_mark(mine[1], COUNT);
	close_comm();
	for (int i = 0; i < 3; i++)
		CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
	CHECK(wrong_marks(mine[1], COUNT) == 0);
	cuda_user_exec_destroy(exec);
	open_comm();
	CHECK(sum(0, COUNT, stream[0]) == COLL_OK && coll_stream_wait(stream[0], -1) == COLL_OK);
}

/* The progress thread still looks at the communicator when its first capture begins. */
static void warm(void)
{
	for (int turn = 0; turn < launches && atomic_load(&plain_failures) == 0; turn++) {
		coll_comm *child = NULL;
		coll_stream *s = NULL;
		void *exec = NULL;

		REQUIRE(coll_comm_duplicate(comm, &child) == COLL_OK);
		CHECK(coll_stream_wrap_cuda(&s, child, handle[0]) == COLL_OK);
		CHECK(coll_all_reduce(in[0], out[0], COUNT, COLL_I32, COLL_SUM, child, s) == COLL_OK);
		CHECK(cuda_user_synchronize(handle[0]) && cuda_user_capture(handle[0]));
		CHECK(coll_all_reduce(in[0], out[0], COUNT, COLL_I32, COLL_SUM, child, s) == COLL_OK);
		REQUIRE(cuda_user_captured(handle[0], &exec, 1));
		sum_once(exec, 0, turn, COUNT);
		cuda_user_exec_destroy(exec);
		CHECK(coll_stream_destroy(&s) == COLL_OK && coll_comm_destroy(&child) == COLL_OK);
	}
}

/* A communicator of its own, memory, a child: all of it comes and goes. */
static void *lives(void *arg)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *alone = NULL, *child = NULL;
	void *memory = NULL;

	cfg.device = "cuda";
	cfg.rank = 0;
	cfg.size = 1;
	CHECK(coll_comm_create(&alone, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	CHECK(coll_comm_duplicate(comm, &child) == COLL_OK, "%s", coll_last_error(comm)->message);
	CHECK(coll_mem_alloc_on(child, &memory, 1 << 20, COLL_MEM_DEVICE) == COLL_OK);
	CHECK(coll_mem_free(child, memory) == COLL_OK);
	CHECK(coll_comm_destroy(&child) == COLL_OK && coll_comm_destroy(&alone) == COLL_OK);
	return arg;
}

/* What is made and ended while a stream is being captured, in the same thread or another one, ends no capture. */
static void beside(void)
{
	for (int other = 0; other < 2; other++) {
		void *exec = NULL;
		pthread_t thread;

		CHECK(cuda_user_capture(handle[0]));
		if (other) {
			REQUIRE(pthread_create(&thread, NULL, lives, NULL) == 0);
			pthread_join(thread, NULL);
		} else {
			lives(NULL);
		}
		CHECK(sum(0, COUNT, stream[0]) == COLL_OK, "%s", coll_last_error(comm)->message);
		REQUIRE(cuda_user_captured(handle[0], &exec, 1), "the capture has ended, %d", other);
		sum_once(exec, 0, other, COUNT);
		cuda_user_exec_destroy(exec);
	}
}

/* Until the communicator has failed: then launches pass and write nothing, and the error names the rank. */
static void failing(void)
{
	void *exec = sum_graph(0, LONG);
	uint64_t longest = 0;
	coll_status st = COLL_OK;

	REQUIRE(exec);
	for (int turn = 0; turn < launches && st == COLL_OK; turn++) {
		uint64_t began;

		if (me == victim && turn == launches / 2) {
			if (strcmp(how, "between") == 0)
				raise(SIGKILL);
			put(in[0], me, turn, LONG);
			CHECK(cuda_user_launch(exec, handle[0]));
			if (strcmp(how, "during") == 0)
				raise(SIGKILL);
			CHECK(coll_comm_abort(comm, "as it was told") == COLL_OK);
		} else {
			put(in[0], me, turn, LONG);
			CHECK(cuda_user_launch(exec, handle[0]));
		}
		began = coll_clock_ns();
		CHECK(cuda_user_synchronize(handle[0]));
		if (coll_clock_ns() - began > longest)
			longest = coll_clock_ns() - began;
		st = coll_barrier(comm, NULL);
	}
	CHECK(st != COLL_OK, "no error");
	printf("rank %d: a stream took %.3f s to drain; %s\n", me, (double)longest * 1e-9,
	       coll_last_error(comm)->message);
	CHECK(coll_last_error(comm)->rank == victim, "it names %d", coll_last_error(comm)->rank);
	put_mark(out[0], LONG);
	for (int i = 0; i < 20; i++)
		CHECK(cuda_user_launch(exec, handle[0]) && cuda_user_synchronize(handle[0]));
	CHECK(wrong_marks(out[0], LONG) == 0);
	cuda_user_exec_destroy(exec);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} scenarios[] = {{"persistent", persistent},
	                 {"several", several},
	                 {"overlapping", overlapping},
	                 {"crowded", crowded},
	                 {"both-ways", both_ways},
	                 {"abandoned", abandoned},
	                 {"refused", refused},
	                 {"itself", itself},
	                 {"outliving", outliving},
	                 {"last", last},
	                 {"warm", warm},
	                 {"beside", beside},
	                 {"between", failing},
	                 {"during", failing},
	                 {"abort", failing}};

	how = argc > 1 ? argv[1] : "";
	if (argc > 2)
		launches = atoi(argv[2]);
	if (argc > 3)
		victim = atoi(argv[3]);
	PLAIN_RUN(open_comm);
	for (size_t i = 0; comm && i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (strcmp(how, scenarios[i].name) == 0)
			plain_run(how, how, scenarios[i].run);
	if (comm)
		PLAIN_RUN(close_comm);
	return plain_summary();
}
