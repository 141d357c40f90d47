/*
 * Graphs whose collectives go direct: every kind as a persistent operation, on device and host memory, launched in
 * turn; how groups may differ between ranks; what crosses host memory; ranks that launch something else, or nothing.
 * The ranks are threads (-t) or those of a job (collrun).
 *
 * usage: graphs [-t RANKS] SCENARIO [LAUNCHES]
 */
#define PLAIN_OWN_MAIN
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "coll/coll.h"
#include "cuda_user.h"
#include "tests/plain.h"

enum { RANKS_MAX = 8, KINDS = 9, COUNT = 70001 /* per block: a long call of several tiles of 128 KiB */ };

static int launches = 10, threads;
static const char *how = "";

struct rank {
	coll_comm *comm;
	int me, size;
	uint64_t local; /* random numbers of this rank */
	void *handle;
	coll_stream *stream;
	float *in, *out; /* device memory of COUNT elements for each rank */
	float *from, *to, *want;
	size_t room;
};

static uint64_t pick(uint64_t *state, uint64_t n)
{
	*state = coll_mix64(*state + 1);
	return *state % n;
}

static void open_rank(struct rank *r)
{
	r->me = coll_comm_rank(r->comm);
	r->size = coll_comm_size(r->comm);
	r->local = (uint64_t)r->me + 1;
	r->room = (size_t)COUNT * (size_t)r->size * sizeof(float);
	r->from = malloc(r->room);
	r->to = malloc(r->room);
	r->want = malloc(r->room);
	REQUIRE(coll_mem_alloc_on(r->comm, (void **)&r->in, r->room, COLL_MEM_DEVICE) == COLL_OK);
	REQUIRE(coll_mem_alloc_on(r->comm, (void **)&r->out, r->room, COLL_MEM_DEVICE) == COLL_OK);
	REQUIRE(cuda_user_stream(r->in, &r->handle));
	REQUIRE(coll_stream_wrap_cuda(&r->stream, r->comm, r->handle) == COLL_OK);
}

static void close_rank(struct rank *r)
{
	CHECK(coll_stream_destroy(&r->stream) == COLL_OK);
	CHECK(coll_mem_free(r->comm, r->in) == COLL_OK && coll_mem_free(r->comm, r->out) == COLL_OK);
	CHECK(coll_comm_destroy(&r->comm) == COLL_OK);
	free(r->from);
	free(r->to);
	free(r->want);
}

static void *end_capture(struct rank *r)
{
	void *exec = NULL;

	CHECK(cuda_user_captured(r->handle, &exec, 1));
	return exec;
}

static void launch(struct rank *r, void *exec)
{
	CHECK(cuda_user_launch(exec, r->handle) && cuda_user_synchronize(r->handle));
}

/* The sum of an element of all ranks, whose own is (rank + 1) * (i + turn). */
static void put_terms(struct rank *r, int turn)
{
	for (size_t i = 0; i < COUNT; i++)
		r->from[i] = (float)((r->me + 1) * (int)(i % 1000 + (size_t)turn));
	CHECK(cuda_user_write(r->in, r->from, COUNT * sizeof(float)));
}

static int wrong_sums(struct rank *r, const float *device, int turn)
{
	int wrong = 0;

	CHECK(cuda_user_read(r->to, device, COUNT * sizeof(float)));
	for (size_t i = 0; i < COUNT; i++)
		wrong += r->to[i] != (float)(r->size * (r->size + 1) / 2 * (int)(i % 1000 + (size_t)turn));
	return wrong;
}

static coll_status sum(struct rank *r, float *out)
{
	return coll_all_reduce(r->in, out, COUNT, COLL_F32, COLL_SUM, r->comm, r->stream);
}

/* ---- Every kind ---- */

static coll_operation_desc desc_of(int kind, const void *in, void *out, int size)
{
	return (coll_operation_desc){.struct_size = sizeof(coll_operation_desc),
	                             .kind = (coll_collective)kind,
	                             .in = in,
	                             .out = out,
	                             .count = COUNT,
	                             .type = COLL_F32,
	                             .op = COLL_SUM,
	                             .root = kind % size};
}

/* Blocking, on host memory: in rank order too, where launches go direct. */
static void host_call(struct rank *r, int kind)
{
	const coll_operation_desc desc = desc_of(kind, r->from, r->want, r->size);
	coll_operation *op = NULL;

	CHECK(coll_operation_prepare(&op, &desc, r->comm) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	CHECK(coll_operation_start(op, NULL) == COLL_OK && coll_operation_wait(op, -1) == COLL_OK);
	CHECK(coll_operation_destroy(&op) == COLL_OK);
}

/* A graph of each kind. Where it has its buffers each rank decides alone. */
struct graph {
	void *exec;
	bool in_host, out_host;
};

static void capture_kind(struct rank *r, int kind, struct graph *g)
{
	const coll_operation_desc desc =
	        desc_of(kind, g->in_host ? r->from : r->in, g->out_host ? r->to : r->out, r->size);
	coll_operation *op = NULL;

	CHECK(coll_operation_prepare(&op, &desc, r->comm) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	CHECK(cuda_user_capture(r->handle));
	CHECK(coll_operation_start(op, r->stream) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	g->exec = end_capture(r);
	CHECK(coll_operation_destroy(&op) == COLL_OK);
}

static void check_launch(struct rank *r, int kind, const struct graph *g)
{
	const float base = (float)pick(&r->local, 1000) * 0.1f;

	for (size_t i = 0; i < r->room / sizeof(float); i++)
		r->from[i] = base + (float)(i % 777) * 1.3f;
	memset(r->want, 0, r->room);
	memset(r->to, 0, r->room);
	host_call(r, kind);
	CHECK(cuda_user_write(r->in, r->from, r->room) && cuda_user_write(r->out, r->to, r->room));
	launch(r, g->exec);
	if (!g->out_host)
		CHECK(cuda_user_read(r->to, r->out, r->room));
	CHECK(memcmp(r->to, r->want, r->room) == 0, "rank %d: a launch of kind %d differs (in %s, out %s)", r->me, kind,
	      g->in_host ? "host" : "device", g->out_host ? "host" : "device");
}

static void kinds(struct rank *r)
{
	uint64_t state = 11; /* of all ranks */
	struct graph g[KINDS];

	for (int kind = 0; kind < KINDS; kind++) {
		g[kind] = (struct graph){.in_host = pick(&r->local, 3) == 0, .out_host = pick(&r->local, 3) == 0};
		capture_kind(r, kind, &g[kind]);
	}
	CHECK(coll_barrier(r->comm, NULL) == COLL_OK); /* a thread that copies would end the captures of others */
	for (int i = 0; i < launches && atomic_load(&plain_failures) == 0; i++) {
		const int kind = (int)pick(&state, KINDS);

		check_launch(r, kind, &g[kind]);
	}
	for (int kind = 0; kind < KINDS; kind++)
		cuda_user_exec_destroy(g[kind].exec);
}

/* The user copies nothing between launches: what crosses host memory is the library's. */
static void bytes(struct rank *r)
{
	struct graph g[KINDS] = {{0}};

	for (int kind = 0; kind < KINDS; kind++)
		capture_kind(r, kind, &g[kind]);
	for (int i = 0; i < launches * KINDS; i++)
		launch(r, g[i % KINDS].exec);
	for (int kind = 0; kind < KINDS; kind++)
		cuda_user_exec_destroy(g[kind].exec);
}

/* The launches follow each other, and each works on what the one before has made: so no rank may fill a slot that
 * another one still reads. */
static void chase(struct rank *r)
{
	enum { FEW = 9973 }; /* one tile */
	unsigned *out = (unsigned *)r->to, factor = 1;
	void *exec;
	int wrong = 0;

	CHECK(cuda_user_capture(r->handle));
	CHECK(coll_all_reduce(r->in, r->in, FEW, COLL_U32, COLL_SUM, r->comm, r->stream) == COLL_OK);
	exec = end_capture(r);
	for (unsigned i = 0; i < FEW; i++)
		out[i] = (unsigned)(r->me + 1) * i;
	CHECK(cuda_user_write(r->in, out, FEW * sizeof(*out)));
	CHECK(coll_barrier(r->comm, NULL) == COLL_OK);
	for (int i = 0; i < launches; i++) {
		CHECK(cuda_user_launch(exec, r->handle));
		factor *= i ? (unsigned)r->size : 1;
	}
	CHECK(cuda_user_synchronize(r->handle) && cuda_user_read(out, r->in, FEW * sizeof(*out)));
	for (unsigned i = 0; i < FEW; i++)
		wrong += out[i] != (unsigned)(r->size * (r->size + 1) / 2) * i * factor;
	CHECK(wrong == 0, "%d are wrong", wrong);
	cuda_user_exec_destroy(exec);
}

/* Of a launch, on a communicator whose calls before had neither. */
static void way_of_launch(struct rank *r)
{
	const char *wanted = getenv("STAGED_WANTED"), *way;
	void *exec;

	CHECK(cuda_user_capture(r->handle));
	CHECK(sum(r, r->out) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	exec = end_capture(r);
	put_terms(r, 1);
	launch(r, exec);
	do {
		usleep(1000);
		way = coll_comm_last_way(r->comm);
	} while (!way || (!strstr(way, "staged") && !strstr(way, "direct")));
	CHECK(wanted && strstr(way, wanted), "%s", way);
	cuda_user_exec_destroy(exec);
}

/* ---- Order ---- */

/* A user's operation is staged. */
static void add(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	for (size_t i = 0; i < count; i++)
		((float *)inout)[i] += ((const float *)left)[i];
}

static coll_status neighbour(struct rank *r)
{
	if (r->me == 0)
		return coll_send(r->in, COUNT, COLL_F32, 1, r->comm, r->stream);
	return r->me == 1 ? coll_recv(r->out + COUNT, COUNT, COLL_F32, 0, r->comm, r->stream) : COLL_OK;
}

/* A message of two ranks, a staged collective, and direct ones: rank 0 has them in one group, the others apart. Or all
 * have them in one, and the direct ones are on host memory. */
static void groups(struct rank *r)
{
	const bool together = strcmp(how, "together") == 0;
	coll_op op = COLL_SUM;
	void *exec;

	CHECK(coll_op_create(&op, r->comm, add, NULL, 1) == COLL_OK, "%s", coll_last_error(r->comm)->message);
	CHECK(cuda_user_capture(r->handle));
	CHECK((r->me > 0 && !together) || coll_group_begin() == COLL_OK);
	CHECK(neighbour(r) == COLL_OK);
	if (together)
		CHECK(coll_all_reduce(r->from, r->want, COUNT, COLL_F32, COLL_SUM, r->comm, r->stream) == COLL_OK);
	else
		CHECK(sum(r, r->out) == COLL_OK);
	CHECK(coll_all_reduce(r->in, r->in + COUNT, 100, COLL_F32, op, r->comm, r->stream) == COLL_OK);
	CHECK((r->me > 0 && !together) || coll_group_end() == COLL_OK, "%s", coll_last_error(r->comm)->message);
	CHECK(coll_all_reduce(together ? r->want : r->out, r->out, COUNT, COLL_F32, COLL_MAX, r->comm, r->stream) ==
	      COLL_OK);
	exec = end_capture(r);
	for (int turn = 0; turn < launches && atomic_load(&plain_failures) == 0; turn++) {
		put_terms(r, turn);
		launch(r, exec);
		CHECK(wrong_sums(r, r->out, turn) == 0, "turn %d", turn);
		CHECK(cuda_user_read(r->to, r->in + COUNT, 100 * sizeof(float)));
		CHECK(r->to[7] == (float)(r->size * (r->size + 1) / 2 * (7 + turn)), "%f", (double)r->to[7]);
		CHECK(cuda_user_read(r->to, r->out + COUNT, COUNT * sizeof(float)));
		CHECK(r->me != 1 || r->to[5] == (float)(5 + turn), "%f", (double)r->to[5]);
	}
	cuda_user_exec_destroy(exec);
}

/* ---- Differences ---- */

static void failed(struct rank *r, const char *id, int named)
{
	coll_status st = COLL_OK;

	while (st == COLL_OK)
		st = coll_barrier(r->comm, NULL);
	CHECK(strstr(coll_last_error(r->comm)->message, id), "%s", coll_last_error(r->comm)->message);
	CHECK(named < 0 || coll_last_error(r->comm)->rank == named, "%s", coll_last_error(r->comm)->message);
}

/* Rank 0 launches a sum, the others another length of it. */
static void different(struct rank *r)
{
	void *exec;

	CHECK(cuda_user_capture(r->handle));
	CHECK(coll_all_reduce(r->in, r->out, r->me ? COUNT : 5, COLL_F32, COLL_SUM, r->comm, r->stream) == COLL_OK);
	exec = end_capture(r);
	CHECK(coll_barrier(r->comm, NULL) == COLL_OK); /* all have captured it */
	launch(r, exec);
	failed(r, "[COLL-3101]", -1);
	launch(r, exec);
	cuda_user_exec_destroy(exec);
}

/* The last rank launches nothing. */
static void absent(struct rank *r)
{
	void *exec;

	CHECK(cuda_user_capture(r->handle));
	CHECK(sum(r, r->out) == COLL_OK);
	exec = end_capture(r);
	CHECK(coll_barrier(r->comm, NULL) == COLL_OK);
	if (r->me < r->size - 1)
		launch(r, exec);
	failed(r, "is late", r->size - 1);
	launch(r, exec);
	cuda_user_exec_destroy(exec);
}

/* Rank 0 aborts while graphs are launched one after the other. */
static void aborted(struct rank *r)
{
	void *exec;

	r->local += (uint64_t)getpid();
	CHECK(cuda_user_capture(r->handle));
	CHECK(sum(r, r->out) == COLL_OK);
	exec = end_capture(r);
	coll_barrier(r->comm, NULL); /* all have captured it, or it is over already */
	for (int i = 0; i < launches; i++)
		CHECK(cuda_user_launch(exec, r->handle));
	if (r->me == 0) {
		usleep((useconds_t)pick(&r->local, 30000));
		CHECK(coll_comm_abort(r->comm, "enough") == COLL_OK);
	}
	CHECK(cuda_user_synchronize(r->handle));
	failed(r, "enough", 0);
	cuda_user_exec_destroy(exec);
}

/* ---- Ranks ---- */

static atomic_int stayed;

static void watch_log(void *arg, int level, const char *text)
{
	if (strstr(text, "COLL-5113"))
		atomic_fetch_add(&stayed, 1);
}

static void run_scenario(struct rank *r)
{
	static const struct {
		const char *name;
		void (*run)(struct rank *r);
	} scenarios[] = {{"kinds", kinds},         {"bytes", bytes},   {"way", way_of_launch},
	                 {"chase", chase},         {"groups", groups}, {"together", groups},
	                 {"different", different}, {"absent", absent}, {"aborted", aborted}};

	REQUIRE(cuda_user_enter(r->in));
	for (size_t i = 0; r->stream && i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (strcmp(how, scenarios[i].name) == 0)
			scenarios[i].run(r);
}

static void *run(void *arg)
{
	run_scenario(arg);
	return NULL;
}

static void all(void)
{
	coll_comm *comms[RANKS_MAX] = {NULL};
	static struct rank ranks[RANKS_MAX];
	coll_config cfg = COLL_CONFIG_INIT;
	pthread_t thread[RANKS_MAX];
	coll_status st;

	cfg.device = getenv("COLL_DEVICE") ? NULL : "cuda";
	cfg.log = strcmp(how, "aborted") == 0 ? watch_log : NULL;
	st = threads ? coll_comm_create_all(comms, threads, &cfg) : coll_comm_create(comms, &cfg);
	REQUIRE(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	/* Before any thread launches: a stream's creation waits for the device that threads share. */
	for (int i = 0; i < threads || i == 0; i++) {
		ranks[i].comm = comms[i];
		open_rank(&ranks[i]);
	}
	if (!threads)
		run(&ranks[0]);
	for (int i = 0; i < threads; i++)
		REQUIRE(pthread_create(&thread[i], NULL, run, &ranks[i]) == 0);
	for (int i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	/* One rank after the other. */
	for (int i = 0; i < threads || i == 0; i++)
		close_rank(&ranks[i]);
	CHECK(atomic_load(&stayed) == 0, "memory of %d ranks stays", atomic_load(&stayed));
}

/* Nor is a descriptor of the program closed. */
static void all_and_input(void)
{
	const int null = open("/dev/null", O_RDONLY);

	dup2(null, STDIN_FILENO);
	if (null != STDIN_FILENO)
		close(null);
	all();
	CHECK(fcntl(STDIN_FILENO, F_GETFD) != -1, "standard input is closed");
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-t") == 0) {
		cuda_user_threads();
		threads = atoi(argv[2]);
		argc -= 2, argv += 2;
	}
	how = argc > 1 ? argv[1] : "";
	if (argc > 2)
		launches = atoi(argv[2]);
	plain_run(how, how, all_and_input);
	return plain_summary();
}
