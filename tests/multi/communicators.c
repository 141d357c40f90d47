/*
 * Communicators of one process: several, one after the other, made by several threads, by a
 * unique id; destroyed half made; what a failed or refused call leaves. Ranks are threads.
 *
 * usage: communicators TRANSPORT [PART-OF-A-TEST'S-NAME]
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"
#include "thread_ranks.h"

/* More than the stack of a thread of the library: every case here is one of a program that has as much. */
static _Thread_local volatile char large[1 << 20];

/* ---- Several communicators ---- */

TEST(communicators, one_after_the_other)
{
	coll_comm *a[3], *b[2];

	large[0] = 1;
	if (!create(a, 3) || !create(b, 2))
		return;
	each_rank(a, 3, sums, NULL);
	each_rank(b, 2, sums, NULL);
	each_rank(a, 3, sums, AND_DESTROY);
	each_rank(b, 2, sums, AND_DESTROY);
}

static void *create_and_sum(void *arg)
{
	coll_comm *comms[3];

	for (int i = 0; i < 10; i++)
		if (create(comms, 3))
			each_rank(comms, 3, sums, AND_DESTROY);
	return NULL;
}

TEST(communicators, two_threads_create)
{
	pthread_t t[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, create_and_sum, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

/* One thread ends all ranks, one after the other: none waits until the others have come. Waits would be 3 s for the
 * first and more than one for each other. */
TEST(communicators, one_thread_destroys_all)
{
	enum { RANKS = 4 };
	coll_comm *comms[RANKS];
	struct timespec began, ended;

	if (!create(comms, RANKS))
		return;
	each_rank(comms, RANKS, sums, NULL);
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (int r = 0; r < RANKS; r++)
		CHECK(coll_comm_destroy(&comms[r]) == COLL_OK && !comms[r]);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	CHECK(ended.tv_sec - began.tv_sec < 5, "%lld s", (long long)(ended.tv_sec - began.tv_sec));
}

/* The first of the list that reaches a rank is taken. */
TEST(communicators, transports_in_order)
{
	static const char *const lists[] = {"tcp,shm", "shm,tcp"};

	for (int i = 0; i < 2; i++) {
		char list[64];
		const char *settings[] = {list, "COLL_DEBUG=error", NULL};
		coll_config cfg = COLL_CONFIG_INIT;
		coll_comm *comms[2];

		snprintf(list, sizeof(list), "COLL_TRANSPORTS=%s", lists[i]);
		cfg.settings = settings;
		REQUIRE(coll_comm_create_all(comms, 2, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
		CHECK(strncmp(coll_comm_transport(comms[0], 1), lists[i], 3) == 0, "%s: %s", lists[i],
		      coll_comm_transport(comms[0], 1));
		each_rank(comms, 2, sums, AND_DESTROY);
	}
}

struct by_id {
	coll_unique_id id;
	coll_comm *comms[3];
};

static void create_by_id(coll_comm **comm, int rank, void *arg)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	const struct by_id *b = arg;
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = rank;
	cfg.size = 3;
	cfg.id = &b->id;
	cfg.settings = settings;
	CHECK(coll_comm_create(comm, &cfg) == COLL_OK, "rank %d: %s", rank, coll_last_error(NULL)->message);
	if (*comm)
		sums(comm, rank, AND_DESTROY);
}

/* Two jobs at once: their ids keep them apart. */
static void *meet_by_id(void *arg)
{
	struct by_id b = {.comms = {NULL}};

	CHECK(coll_unique_id_create(&b.id) == COLL_OK, "%s", coll_last_error(NULL)->message);
	each_rank(b.comms, 3, create_by_id, &b);
	return NULL;
}

TEST(communicators, unique_ids)
{
	pthread_t t[2];

	CHECK(coll_unique_id_create(NULL) == COLL_ERR_ARGUMENT);
	if (strcmp(transport, "loop") == 0)
		SKIP("loop joins ranks made by one call");
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, meet_by_id, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

TEST(communicators, destroy_of_nothing)
{
	coll_comm *none = NULL;

	CHECK(coll_comm_destroy(NULL) == COLL_OK);
	CHECK(coll_comm_destroy(&none) == COLL_OK);
	CHECK(coll_comm_abort(NULL, "nothing") == COLL_ERR_ARGUMENT);
	CHECK(coll_comm_rank(NULL) == -1 && coll_comm_size(NULL) == 0 && !coll_comm_host(NULL, 0));
	CHECK(coll_barrier(NULL, NULL) == COLL_ERR_ARGUMENT);
}

TEST(communicators, nothing_to_myself)
{
	coll_comm *comms[1];

	if (!create(comms, 1))
		return;
	CHECK(coll_send_recv(NULL, 0, 0, NULL, 0, 0, COLL_F32, comms[0], NULL) == COLL_OK);
	CHECK(coll_comm_destroy(&comms[0]) == COLL_OK);
}

/* ---- After an error ---- */

static void goes_on_after_abort(coll_comm **out, int rank, void *arg)
{
	coll_comm *comm = *out;
	char message[1024], block[8] = {0};
	void *memory = arg;
	coll_status st = COLL_OK;

	CHECK(coll_mem_alloc(comm, &memory, 4096) == COLL_OK);
	if (rank == 1)
		CHECK(coll_comm_abort(comm, "enough of it") == COLL_OK);
	for (int i = 0; i < 1000000 && st == COLL_OK; i++)
		st = sum_once(comm);
	CHECK(st == COLL_ERR_ABORTED, "rank %d: status %d", rank, (int)st);
	snprintf(message, sizeof(message), "%s", coll_last_error(comm)->message);
	CHECK(strstr(message, "enough of it") && !strchr(message, '%'), "%s", message);
	for (int i = 0; i < 100; i++) {
		CHECK(coll_barrier(comm, NULL) == COLL_ERR_ABORTED);
		CHECK(coll_broadcast(block, block, 8, COLL_U8, 0, comm, NULL) == COLL_ERR_ABORTED);
		CHECK(coll_send_recv(block, 4, !rank, block + 4, 4, !rank, COLL_U8, comm, NULL) == COLL_ERR_ABORTED);
	}
	CHECK(coll_last_error(comm)->status == COLL_ERR_ABORTED);
	CHECK(strcmp(coll_last_error(comm)->message, message) == 0, "%s", coll_last_error(comm)->message);
	CHECK(coll_comm_rank(comm) == rank && coll_comm_host(comm, 0));
	CHECK(coll_mem_free(comm, memory) == COLL_OK);
	CHECK(coll_comm_destroy(out) == COLL_OK);
}

TEST(communicators, same_status_at_once)
{
	coll_comm *comms[2];

	if (create(comms, 2))
		each_rank(comms, 2, goes_on_after_abort, NULL);
}

/* A refused call has not happened: the ranks stay in step. */
static void refused_then_right(coll_comm **comm, int rank, void *arg)
{
	int x = rank;

	if (rank == 0) {
		CHECK(coll_all_reduce(&x, &x, 1, COLL_I32, 77, *comm, NULL) == COLL_ERR_ARGUMENT);
		CHECK(coll_all_reduce(NULL, &x, 1, COLL_I32, COLL_SUM, *comm, NULL) == COLL_ERR_ARGUMENT);
		CHECK(coll_last_error(*comm)->status == COLL_ERR_ARGUMENT);
	}
	sums(comm, rank, AND_DESTROY);
}

TEST(communicators, refused_calls_do_not_count)
{
	coll_comm *comms[2];

	if (create(comms, 2))
		each_rank(comms, 2, refused_then_right, NULL);
}

/* ---- Memory of a failed call ---- */

enum { LOANED = 8192 };

static void *broadcast_at_1(void *arg)
{
	static int got[LOANED];
	coll_comm *comm = arg;
	coll_status st = coll_broadcast(NULL, got, LOANED, COLL_I32, 0, comm, NULL);

	for (int i = 0; st == COLL_OK && i < LOANED; i++)
		if (got[i] != i)
			return "wrong data";
	return st == COLL_OK ? "ok" : "error";
}

/* The root lends its vector, fails because the other rank is late, and writes over the
 * vector: the late one must not take that for the root's data. */
TEST(communicators, what_was_loaned_comes_back)
{
	const char *settings[] = {transports, "COLL_DEBUG=warn", "COLL_ARRIVAL_TIMEOUT_MS=600", "COLL_SLOT_BYTES=64K",
	                          NULL};
	static int data[LOANED];
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[2];
	pthread_t other;
	void *end = NULL;

	cfg.settings = settings;
	CHECK(coll_comm_create_all(comms, 2, &cfg) == COLL_OK);
	for (int i = 0; i < LOANED; i++)
		data[i] = i;
	/* Once together: channels are open. */
	pthread_create(&other, NULL, broadcast_at_1, comms[1]);
	CHECK(coll_broadcast(data, data, LOANED, COLL_I32, 0, comms[0], NULL) == COLL_OK);
	pthread_join(other, &end);
	CHECK(end && strcmp(end, "ok") == 0, "together: %s", (char *)end);
	if (coll_broadcast(data, data, LOANED, COLL_I32, 0, comms[0], NULL) != COLL_OK) {
		memset(data, -1, sizeof(data));
		end = broadcast_at_1(comms[1]);
		CHECK(strcmp(end, "error") == 0, "after the failure: %s", (char *)end);
		CHECK(coll_last_error(comms[1])->status == COLL_ERR_PEER_LATE, "%s",
		      coll_last_error(comms[1])->message);
	}
	coll_comm_destroy(&comms[0]);
	coll_comm_destroy(&comms[1]);
}

PROGRAM(communicators, "TRANSPORT")
{
	threads_over(argc > 1 ? argv[1] : "loop");
	return 2;
}
