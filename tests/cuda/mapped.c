/*
 * Direct calls where scripts do not reach: one thread that drives all ranks, processes that have several ranks each,
 * calls that differ, an abort while a stream waits, groups that mix collectives and messages, children.
 *
 * usage: mapped [PART-OF-A-TEST'S-NAME]    over the driver of COLL_CUDA_LIBRARY
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "coll/coll.h"
#include "cuda_user.h"
#include "driver.h"
#include "tests/multi/meeting.h"
#include "tests/plain.h"
#include "tests/seconds.h"

enum { RANKS = 4, LONG = 3 << 20 };

struct rank {
	coll_comm *comm;
	int rank, size;
	float *in, *out; /* of the device */
	void *handle;
	coll_stream *stream;
};

/* Of each thread, until the program ends. */
enum { SCRATCHES = 256 };
static float *scratches[SCRATCHES];
static atomic_int nscratches;

static float *scratch(void)
{
	static _Thread_local float *at;

	if (!at)
		at = scratches[atomic_fetch_add(&nscratches, 1) % SCRATCHES] = malloc(LONG);
	return at;
}

static bool make_room(struct rank *r)
{
	CHECK(coll_mem_alloc_on(r->comm, (void **)&r->in, LONG, COLL_MEM_DEVICE) == COLL_OK);
	CHECK(coll_mem_alloc_on(r->comm, (void **)&r->out, LONG, COLL_MEM_DEVICE) == COLL_OK);
	CHECK(r->in && cuda_user_stream(r->in, &r->handle));
	CHECK(coll_stream_wrap_cuda(&r->stream, r->comm, r->handle) == COLL_OK);
	r->rank = coll_comm_rank(r->comm);
	r->size = coll_comm_size(r->comm);
	return r->stream != NULL;
}

static void end_stream(struct rank *r)
{
	CHECK(coll_stream_destroy(&r->stream) == COLL_OK);
	cuda_user_stream_destroy(r->handle);
}

/* in[i] = rank + 1 + i % 7, out[i] = -1 */
static void fill(const struct rank *r, size_t count)
{
	float *x = scratch();

	for (size_t i = 0; i < count; i++)
		x[i] = (float)(r->rank + 1 + (int)(i % 7));
	CHECK(cuda_user_write(r->in, x, count * sizeof(*x)));
	for (size_t i = 0; i < count; i++)
		x[i] = -1;
	CHECK(cuda_user_write(r->out, x, count * sizeof(*x)));
}

/* Elements of out that are not n * (i % 7) + base. */
static size_t wrong(const struct rank *r, size_t count, int n, int base)
{
	float *x = scratch();
	size_t bad = 0;

	CHECK(cuda_user_read(x, r->out, count * sizeof(*x)));
	for (size_t i = 0; i < count; i++)
		bad += x[i] != (float)(n * (int)(i % 7) + base);
	return bad;
}

static bool went_direct(const struct rank *r)
{
	return strcmp(coll_comm_last_way(r->comm), "device-direct") == 0;
}

/* ---- One thread, several devices ---- */

static int devices(void)
{
	int count = 0;

	CHECK(DRIVER(cuInit)(0) == CUDA_SUCCESS && DRIVER(cuDeviceGetCount)(&count) == CUDA_SUCCESS && count > 0);
	return count > 0 ? count : 1;
}

/* A device each, as far as there are some. */
static const char *several(int n)
{
	static char list[64];
	int len = snprintf(list, sizeof(list), "cuda:");

	for (int r = 0; r < n; r++)
		len += snprintf(list + len, sizeof(list) - (size_t)len, "%s%d", r ? "," : "", r % devices());
	return list;
}

static bool create_all(struct rank *ranks, int n, const char *device)
{
	coll_comm *comms[RANKS];
	coll_config cfg = COLL_CONFIG_INIT;
	bool good = true;

	memset(ranks, 0, (size_t)n * sizeof(*ranks));
	cfg.device = device;
	if (coll_comm_create_all(comms, n, &cfg) != COLL_OK) {
		CHECK(false, "%s", coll_last_error(NULL)->message);
		return false;
	}
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		good = make_room(&ranks[r]) && good;
	}
	return good;
}

static void each(struct rank *ranks, int n, void *(*work)(void *))
{
	pthread_t thread[RANKS];

	for (int r = 0; r < n; r++)
		pthread_create(&thread[r], NULL, work, &ranks[r]);
	for (int r = 0; r < n; r++)
		pthread_join(thread[r], NULL);
}

static void *destroy(void *arg)
{
	struct rank *r = arg;

	end_stream(r);
	CHECK(coll_comm_destroy(&r->comm) == COLL_OK);
	return NULL;
}

/* One after the other: none waits for the next. */
static void destroy_all(struct rank *ranks, int n)
{
	for (int r = 0; r < n; r++)
		destroy(&ranks[r]);
}

/* The communicator has failed, which is said once more. */
static void lose_all(struct rank *ranks, int n)
{
	for (int r = 0; r < n; r++) {
		coll_stream_destroy(&ranks[r].stream);
		cuda_user_stream_destroy(ranks[r].handle);
	}
	for (int r = 0; r < n; r++)
		coll_comm_destroy(&ranks[r].comm);
}

static void drive_all(const char *devices, size_t longest)
{
	const size_t counts[] = {1, 1000, 100000, longest};
	struct rank ranks[RANKS];

	if (!create_all(ranks, RANKS, devices))
		return;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		for (int r = 0; r < RANKS; r++)
			fill(&ranks[r], counts[c]);
		CHECK(coll_group_begin() == COLL_OK);
		for (int r = 0; r < RANKS; r++)
			CHECK(coll_all_reduce(ranks[r].in, ranks[r].out, counts[c], COLL_F32, COLL_SUM, ranks[r].comm,
			                      ranks[r].stream) == COLL_OK);
		CHECK(coll_group_end() == COLL_OK);
		for (int r = 0; r < RANKS; r++) {
			CHECK(coll_stream_wait(ranks[r].stream, -1) == COLL_OK, "%s",
			      coll_last_error(ranks[r].comm)->message);
			CHECK(wrong(&ranks[r], counts[c], RANKS, 10) == 0);
			CHECK(went_direct(&ranks[r]), "%s", coll_comm_last_way(ranks[r].comm));
		}
	}
	destroy_all(ranks, RANKS);
}

TEST(mapped, one_thread_drives_all)
{
	drive_all(several(RANKS), LONG / sizeof(float));
}

/* Right with one hardware queue for all of them, too: no wait is in front of what it waits for. */
TEST(mapped, one_thread_drives_ranks_of_one_device)
{
	const bool second = devices() > 1;

	drive_all(second ? "cuda:1,1,1,1" : "cuda:0,0,0,0", 150000);
}

/* ---- Threads as ranks ---- */

/* The order of messages and collectives in a group differs by rank. */
static void *mix(void *arg)
{
	struct rank *r = arg;
	const size_t count = 50000, half = LONG / sizeof(float) / 2;
	const int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;

	for (int round = 0; round < 3; round++) {
		fill(r, count);
		CHECK(coll_group_begin() == COLL_OK);
		if (r->rank % 2 == 0)
			CHECK(coll_send(r->in, count, COLL_F32, next, r->comm, r->stream) == COLL_OK);
		CHECK(coll_all_reduce(r->in, r->out, count, COLL_F32, COLL_SUM, r->comm, r->stream) == COLL_OK);
		CHECK(coll_recv(r->out + half, count, COLL_F32, previous, r->comm, r->stream) == COLL_OK);
		if (r->rank % 2)
			CHECK(coll_send(r->in, count, COLL_F32, next, r->comm, r->stream) == COLL_OK);
		CHECK(coll_barrier(r->comm, r->stream) == COLL_OK);
		CHECK(coll_all_reduce(r->in, r->out, 1, COLL_F32, COLL_MAX, r->comm, r->stream) == COLL_OK);
		CHECK(coll_group_end() == COLL_OK);
		CHECK(coll_stream_wait(r->stream, -1) == COLL_OK, "%s", coll_last_error(r->comm)->message);
		CHECK(cuda_user_write(r->out, &(float){(float)(r->size * (r->size + 1) / 2)}, sizeof(float)));
		CHECK(wrong(r, count, r->size, r->size * (r->size + 1) / 2) == 0);
		CHECK(cuda_user_read(scratch(), r->out + half, count * sizeof(float)));
		for (size_t i = 0; i < count; i++)
			if (scratch()[i] != (float)(previous + 1 + (int)(i % 7))) {
				CHECK(false, "element %zu of the message is %g", i, (double)scratch()[i]);
				break;
			}
	}
	return NULL;
}

TEST(mapped, groups_mix_collectives_and_messages)
{
	struct rank ranks[RANKS];

	if (!create_all(ranks, 3, several(3)))
		return;
	each(ranks, 3, mix);
	destroy_all(ranks, 3);
}

static void sum_in_child(struct rank *r, coll_comm **child)
{
	fill(r, 1000);
	CHECK(coll_all_reduce(r->in, r->out, 1000, COLL_F32, COLL_SUM, *child, NULL) == COLL_OK, "%s",
	      coll_last_error(*child)->message);
	CHECK(strcmp(coll_comm_last_way(*child), "device-direct") == 0, "%s", coll_comm_last_way(*child));
	CHECK(wrong(r, 1000, 2, r->rank % 2 ? 6 : 4) == 0);
	CHECK(coll_comm_destroy(child) == COLL_OK);
}

/* Two halves: by the parent, and by the members alone, in another order. */
static void *use_children(void *arg)
{
	struct rank *r = arg;
	const int members[2] = {2 + r->rank % 2, r->rank % 2};
	coll_comm *child = NULL;

	CHECK(coll_comm_split(r->comm, r->rank % 2, 0, &child) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	sum_in_child(r, &child);
	CHECK(coll_comm_create_group(r->comm, members, 2, 1, &child) == COLL_OK, "%s",
	      coll_last_error(r->comm)->message);
	sum_in_child(r, &child);
	return NULL;
}

TEST(mapped, children_go_direct)
{
	struct rank ranks[RANKS];

	if (!create_all(ranks, RANKS, several(RANKS)))
		return;
	each(ranks, RANKS, use_children);
	destroy_all(ranks, RANKS);
}

/* Host memory in a stream of the host, and then device memory in one of the device. */
static void *use_host_stream(void *arg)
{
	struct rank *r = arg;
	coll_stream *host = NULL;
	float in[100], out[100];

	CHECK(coll_stream_create(&host, r->comm) == COLL_OK);
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 100; i++)
			in[i] = (float)(r->rank + i + round);
		fill(r, 1000);
		CHECK(coll_all_reduce(in, out, 100, COLL_F32, COLL_SUM, r->comm, host) == COLL_OK);
		CHECK(coll_all_reduce(r->in, r->out, 1000, COLL_F32, COLL_SUM, r->comm, r->stream) == COLL_OK);
		CHECK(coll_stream_wait(r->stream, -1) == COLL_OK, "%s", coll_last_error(r->comm)->message);
		CHECK(coll_stream_wait(host, -1) == COLL_OK, "%s", coll_last_error(r->comm)->message);
		CHECK(wrong(r, 1000, r->size, r->size * (r->size + 1) / 2) == 0);
		for (int i = 0; i < 100; i++)
			CHECK(out[i] == (float)(r->size * (i + round) + r->size * (r->size - 1) / 2));
	}
	CHECK(coll_stream_destroy(&host) == COLL_OK);
	return NULL;
}

TEST(mapped, streams_of_the_host_take_host_memory)
{
	struct rank ranks[RANKS];

	if (!create_all(ranks, 3, several(3)))
		return;
	each(ranks, 3, use_host_stream);
	destroy_all(ranks, 3);
}

/* ---- Failures ---- */

static void *differ(void *arg)
{
	struct rank *r = arg;
	const coll_status st =
	        coll_all_reduce(r->in, r->out, 1000 + (size_t)r->rank, COLL_F32, COLL_SUM, r->comm, NULL);

	CHECK(st == COLL_ERR_MISMATCH, "%d %s", (int)st, coll_last_error(r->comm)->message);
	CHECK(strstr(coll_last_error(r->comm)->message, "1001") && strstr(coll_last_error(r->comm)->message, "1000"),
	      "%s", coll_last_error(r->comm)->message);
	return NULL;
}

TEST(mapped, calls_that_differ_are_named)
{
	struct rank ranks[RANKS];

	if (!create_all(ranks, 2, several(2)))
		return;
	each(ranks, 2, differ);
	lose_all(ranks, 2);
}

/* The other rank never comes. */
TEST(mapped, an_abort_releases_a_stream)
{
	const size_t count = LONG / sizeof(float);
	struct rank ranks[RANKS];
	const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
	double since;

	if (blocking && *blocking == '1')
		SKIP("a launch that blocks does not return before the abort");
	if (!create_all(ranks, 2, several(2)))
		return;
	fill(&ranks[0], count);
	CHECK(coll_all_reduce(ranks[0].in, ranks[0].out, count, COLL_F32, COLL_SUM, ranks[0].comm, ranks[0].stream) ==
	      COLL_OK);
	CHECK(coll_stream_wait(ranks[0].stream, 50) == COLL_AGAIN);
	since = now_s();
	CHECK(coll_comm_abort(ranks[0].comm, "enough") == COLL_OK);
	CHECK(coll_stream_wait(ranks[0].stream, -1) == COLL_ERR_ABORTED);
	CHECK(now_s() - since < 5, "%g s", now_s() - since);
	/* The stream goes on, and nothing was written. */
	CHECK(cuda_user_read(scratch(), ranks[0].out, count * sizeof(float)));
	for (size_t i = 0; i < count; i++)
		if (scratch()[i] != -1) {
			CHECK(false, "element %zu was written", i);
			break;
		}
	lose_all(ranks, 2);
}

/* ---- Processes of two ranks ---- */

enum { PROCESSES = 2 };
struct place {
	struct meeting *meeting;
	int rank;
	bool right;
};

/* Many buffers, some of which lie where others were before. */
static bool buffers_come_and_go(struct rank *r)
{
	enum { BUFFERS = 1000, KEPT = 16, COUNT = 50 };
	float *kept[KEPT] = {NULL}, *const in = r->in;
	bool right = true;

	for (int i = 0; i < BUFFERS && right; i++) {
		float **at = &kept[i % KEPT];

		right = !*at || coll_mem_free(r->comm, *at) == COLL_OK;
		right = right && coll_mem_alloc_on(r->comm, (void **)at, (size_t)(1 + i % 3) * sizeof(float) * COUNT,
		                                   COLL_MEM_DEVICE) == COLL_OK;
		r->in = *at;
		fill(r, COUNT);
		right = right && coll_all_reduce(r->in, r->out, COUNT, COLL_F32, COLL_SUM, r->comm, NULL) == COLL_OK &&
		        wrong(r, COUNT, RANKS, 10) == 0 && went_direct(r);
	}
	r->in = in;
	for (int i = 0; i < KEPT; i++)
		right = coll_mem_free(r->comm, kept[i]) == COLL_OK && right;
	return right;
}

static void *be_rank(void *arg)
{
	struct place *p = arg;
	struct meeting_seat seat = {p->meeting, p->rank, RANKS};
	coll_config cfg = COLL_CONFIG_INIT;
	struct rank r = {.comm = NULL};
	char device[16];

	snprintf(device, sizeof(device), "cuda:%d", devices() > 1 ? p->rank % 2 : 0);
	meeting_sit(&seat, &cfg);
	cfg.device = device;
	if (coll_comm_create(&r.comm, &cfg) != COLL_OK || !make_room(&r) || coll_barrier(r.comm, NULL) != COLL_OK) {
		fprintf(stderr, "%s\n", coll_last_error(r.comm)->message);
		return NULL;
	}
	p->right = true;
	for (size_t count = 1; count <= LONG / sizeof(float) && p->right; count *= 23) {
		fill(&r, count);
		p->right = coll_all_reduce(r.in, r.out, count, COLL_F32, COLL_SUM, r.comm, r.stream) == COLL_OK &&
		           coll_stream_wait(r.stream, -1) == COLL_OK && wrong(&r, count, RANKS, 10) == 0 &&
		           went_direct(&r);
	}
	p->right = buffers_come_and_go(&r) && p->right;
	end_stream(&r);
	p->right = coll_comm_destroy(&r.comm) == COLL_OK && p->right;
	return NULL;
}

static void processes_have_two_ranks_each(void)
{
	struct meeting *m = meeting_page(sizeof(*m));
	pid_t child[PROCESSES];

	fflush(NULL);
	for (int k = 0; k < PROCESSES; k++) {
		child[k] = fork();
		if (child[k] == 0) {
			struct place places[2] = {{m, 2 * k, false}, {m, 2 * k + 1, false}};
			pthread_t other;

			pthread_create(&other, NULL, be_rank, &places[1]);
			be_rank(&places[0]);
			pthread_join(other, NULL);
			exit(!(places[0].right && places[1].right) || atomic_load(&plain_failures) > 0);
		}
	}
	for (int k = 0; k < PROCESSES; k++) {
		int status = -1;

		waitpid(child[k], &status, 0);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: %d", k, status);
	}
	munmap(m, sizeof(*m));
}

PROGRAM(mapped, "")
{
	driver_path = getenv("COLL_CUDA_LIBRARY");
	/* Processes first: a process that was forked cannot use a device that was open. */

	setenv("SOFTCUDA_DEVICES", "4", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	unsetenv("COLL_DEVICE");
	if (argc < 2 || strstr("processes_have_two_ranks_each", argv[1]))
		PLAIN_RUN(processes_have_two_ranks_each);
	return 1;
}
