/*
 * A rank is killed, and the others go on: messages, posted receives and groups among the living, on the communicator
 * whose member has died. What needs the dead rank fails and names it; collectives fail. Ranks are processes.
 *
 * usage: survivors shm|tcp|mixed (mixed: every other rank on another host by name)
 */
#include <signal.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "meeting.h"
#include "plain.h"
#include "starved.h"

enum { RANKS = 4, VICTIM = 1, SECOND = 3, REQUESTS = 12, LARGE = 1 << 18, GROUP_TAG = 5, PROMISED_MS = 2000 };

struct shared {
	struct meeting meeting;
	atomic_int ready, failures;
	char text[RANKS][400];
};

static const char *transport;
static struct shared *shared;

/* In a rank: a check that failed ends it. */
#define MUST(cond, ...)                                                                                     \
	do {                                                                                                \
		if (!(cond)) {                                                                              \
			snprintf(shared->text[coll_comm_rank(comm)], sizeof(shared->text[0]), __VA_ARGS__); \
			_exit(7);                                                                           \
		}                                                                                           \
	} while (0)

static void die(void)
{
	kill(getpid(), SIGKILL);
	for (;;)
		usleep(1000);
}

static void names_victim(coll_comm *comm, coll_status st, const char *what)
{
	const coll_error *e = coll_last_error(comm);

	MUST(st == COLL_ERR_PEER_DEAD && e->status == st && e->rank == VICTIM && strstr(e->message, "rank 1"),
	     "%s: status %d, rank %d: %s", what, (int)st, e->rank, e->message);
}

/* The living make a group of the communicator whose member has died, and use it; its collectives and those that make
 * communicators fail. */
static void afterwards(coll_comm *comm)
{
	const int rank = coll_comm_rank(comm), living[] = {3, 0, 2}, all[] = {0, 1, 2, 3};
	coll_comm *group = NULL;
	int one = 1, sum = 0;
	coll_status st;

	names_victim(comm, coll_all_reduce(&one, &sum, 1, COLL_I32, COLL_SUM, comm, NULL), "all_reduce");
	names_victim(comm, coll_comm_duplicate(comm, &group), "duplicate");
	names_victim(comm, coll_comm_create_group(comm, all, RANKS, 0, &group), "a group with the dead");
	for (int round = 0; round < 3; round++) {
		st = coll_comm_create_group(comm, living, 3, GROUP_TAG, &group);
		MUST(st == COLL_OK, "group: %s", coll_last_error(comm)->message);
		st = coll_all_reduce(&one, &sum, 1, COLL_I32, COLL_SUM, group, NULL);
		MUST(st == COLL_OK && sum == 3, "all_reduce of the living: %d, sum %d", (int)st, sum);
		/* And the messages of the parent, in a circle. */
		st = coll_send_recv(&rank, 1,
		                    (rank == 0   ? 2
		                     : rank == 2 ? 3
		                                 : 0),
		                    &sum, 1,
		                    (rank == 0   ? 3
		                     : rank == 2 ? 0
		                                 : 2),
		                    COLL_I32, comm, NULL);
		MUST(st == COLL_OK && sum == (rank == 0   ? 3
		                              : rank == 2 ? 0
		                                          : 2),
		     "circle: %d, %s", (int)st, coll_last_error(comm)->message);
		MUST(coll_comm_destroy(&group) == COLL_OK, "destroy of the group: %s", coll_last_error(NULL)->message);
	}
	names_victim(comm, coll_send(&one, 1, COLL_I32, VICTIM, comm, NULL), "send");
	names_victim(comm, coll_recv(&one, 1, COLL_I32, VICTIM, comm, NULL), "recv");
	names_victim(comm, coll_send_tag(&one, 1, COLL_I32, VICTIM, 9, comm, NULL), "send_tag");
	names_victim(comm, coll_recv_tag(&one, 1, COLL_I32, VICTIM, 9, comm, NULL), "recv_tag");
}

/* ---- Requests by pairs: rank 0 asks the others in turn ---- */

static void serve(coll_comm *comm)
{
	int done = 0, todo = 0, gone = 0;

	for (int w = 1; done < REQUESTS; w = w % (RANKS - 1) + 1) {
		int answer = -1;
		coll_status st;

		if (w == VICTIM && gone)
			continue;
		st = coll_send(&todo, 1, COLL_I32, w, comm, NULL);
		if (st == COLL_OK)
			st = coll_recv(&answer, 1, COLL_I32, w, comm, NULL);
		if (st != COLL_OK) {
			names_victim(comm, st, "a request");
			gone++;
			continue;
		}
		MUST(answer == todo, "answer %d to %d", answer, todo);
		done++;
		todo++;
	}
	MUST(gone == 1, "the death was told %d times", gone);
	todo = -1;
	for (int w = 2; w < RANKS; w++)
		MUST(coll_send(&todo, 1, COLL_I32, w, comm, NULL) == COLL_OK, "the last request");
}

static void work(coll_comm *comm)
{
	for (int count = 1;; count++) {
		int request = 0;
		coll_status st = coll_recv(&request, 1, COLL_I32, 0, comm, NULL);

		MUST(st == COLL_OK, "request: %d %s", (int)st, coll_last_error(comm)->message);
		if (request < 0)
			return;
		if (coll_comm_rank(comm) == VICTIM && count == 2)
			die();
		MUST(coll_send(&request, 1, COLL_I32, 0, comm, NULL) == COLL_OK, "answer");
	}
}

static void pairs(coll_comm *comm)
{
	if (coll_comm_rank(comm) == 0)
		serve(comm);
	else
		work(comm);
	afterwards(comm);
}

/* ---- The same by tags: answers come from any source, also long ones ---- */

/* Every request is answered but one of the victim: a long answer that nobody received would hold its sender up. Those
 * of the living may be enough before the victim has had its turn, or the death is reported. */
static void serve_any(coll_comm *comm)
{
	int *answer = calloc(LARGE, sizeof(int));
	int done = 0, told = 0, next = 1, x = 1, owed[RANKS] = {0, 1, 1, 1};
	coll_request *posted = NULL;

	/* Posted in advance, and answered at the end. */
	MUST(coll_irecv(&x, 1, COLL_I32, 3, 77, comm, &posted) == COLL_OK, "irecv");
	for (int w = 1; w < RANKS; w++)
		MUST(coll_send_tag(&next, 1, COLL_I32, w, 1, comm, NULL) == COLL_OK, "the first requests");
	while (done < REQUESTS || told == 0 || owed[2] > 0 || owed[3] > 0) {
		coll_message_info info;
		const coll_status st = coll_recv_tag(answer, LARGE, COLL_I32, COLL_ANY_SOURCE, 2, comm, &info);

		if (st != COLL_OK) {
			names_victim(comm, st, "an answer");
			told++;
			continue;
		}
		MUST(info.count == (info.source == 2 ? LARGE : 1) && answer[0] == info.source &&
		             answer[info.count - 1] == info.source,
		     "answer of %d: %zu elements, %d", info.source, info.count, answer[0]);
		done++;
		owed[info.source]--;
		if (done >= REQUESTS && info.source != VICTIM)
			continue;
		if (coll_send_tag(&next, 1, COLL_I32, info.source, 1, comm, NULL) == COLL_OK)
			owed[info.source]++;
		else
			names_victim(comm, COLL_ERR_PEER_DEAD, "a request");
	}
	MUST(told == 1, "the death was told %d times", told);
	next = -1;
	for (int w = 2; w < RANKS; w++)
		MUST(coll_send_tag(&next, 1, COLL_I32, w, 1, comm, NULL) == COLL_OK, "the last request");
	MUST(coll_request_wait(&posted, -1, NULL) == COLL_OK && x == 33, "the receive posted in advance");
}

static void work_any(coll_comm *comm)
{
	int *answer = calloc(LARGE, sizeof(int));
	const int rank = coll_comm_rank(comm), x = 33;

	for (int i = 0; i < LARGE; i++)
		answer[i] = rank;
	for (int count = 1;; count++) {
		int request = 0;
		coll_status st = coll_recv_tag(&request, 1, COLL_I32, 0, 1, comm, NULL);

		MUST(st == COLL_OK, "request: %d %s", (int)st, coll_last_error(comm)->message);
		if (request < 0)
			break;
		if (rank == VICTIM && count == 2)
			die();
		st = coll_send_tag(answer, rank == 2 ? LARGE : 1, COLL_I32, 0, 2, comm, NULL);
		MUST(st == COLL_OK, "answer: %d %s", (int)st, coll_last_error(comm)->message);
	}
	if (rank == 3)
		MUST(coll_send_tag(&x, 1, COLL_I32, 0, 77, comm, NULL) == COLL_OK, "the posted one");
}

static void tags(coll_comm *comm)
{
	if (coll_comm_rank(comm) == 0)
		serve_any(comm);
	else
		work_any(comm);
	afterwards(comm);
}

/* ---- Under way when the rank dies ---- */

/* Long messages among the living go on, in calls of a group, on streams, and as one half of a call whose other half
 * needs the dead. */
static void under_way(coll_comm *comm)
{
	int *out = calloc(LARGE, sizeof(int)), *in = calloc(LARGE, sizeof(int)), *more = calloc(LARGE, sizeof(int));
	const int rank = coll_comm_rank(comm),
	          to = rank == 0   ? 2
	               : rank == 2 ? 3
	                           : 0,
	          from = rank == 0   ? 3
	                 : rank == 2 ? 0
	                             : 2;
	coll_stream *stream;
	coll_status st;

	for (int i = 0; i < LARGE; i++)
		out[i] = rank * LARGE + i;
	MUST(coll_stream_create(&stream, comm) == COLL_OK, "stream");
	if (rank == VICTIM) {
		usleep(20000);
		die();
	}
	/* Posted for a message that the rank never sends. */
	MUST(coll_recv(more, LARGE, COLL_I32, VICTIM, comm, stream) == COLL_OK, "recv on a stream");
	for (int round = 0; round < 40; round++) {
		memset(in, 0, LARGE * sizeof(*in));
		coll_group_begin();
		coll_send(out, LARGE, COLL_I32, to, comm, NULL);
		coll_recv(in, LARGE, COLL_I32, from, comm, NULL);
		st = coll_group_end();
		MUST(st == COLL_OK, "group of messages in round %d: %d %s", round, (int)st,
		     coll_last_error(comm)->message);
		for (int i = 0; i < LARGE; i++)
			MUST(in[i] == from * LARGE + i, "round %d: element %d is %d", round, i, in[i]);
		usleep(2000);
	}
	st = coll_stream_wait(stream, -1);
	MUST(st == COLL_ERR_PEER_DEAD, "the stream: %d", (int)st);
	coll_stream_destroy(&stream);
	/* Rank 0 sends to the dead and receives from 3: the half with the living is done. */
	if (rank == 0)
		names_victim(comm, coll_send_recv(out, LARGE, VICTIM, in, LARGE, 3, COLL_I32, comm, NULL),
		             "half a call");
	if (rank == 3)
		MUST(coll_send(out, LARGE, COLL_I32, 0, comm, NULL) == COLL_OK, "to rank 0");
	for (int i = 0; i < LARGE && rank == 0; i++)
		MUST(in[i] == 3 * LARGE + i, "half a call: element %d is %d", i, in[i]);
	afterwards(comm);
}

/* An abort ends what has gone on. */
static void aborted(coll_comm *comm)
{
	int x = 0;
	coll_status st;

	if (coll_comm_rank(comm) == VICTIM)
		die();
	names_victim(comm, coll_recv_tag(&x, 1, COLL_I32, COLL_ANY_SOURCE, 1, comm, NULL), "any source");
	atomic_fetch_add(&shared->ready, 1);
	if (coll_comm_rank(comm) == 2) {
		while (atomic_load(&shared->ready) < RANKS - 1)
			usleep(1000);
		usleep(100000); /* they wait again */
		coll_comm_abort(comm, "enough");
	}
	st = coll_recv_tag(&x, 1, COLL_I32, COLL_ANY_SOURCE, 1, comm, NULL);
	MUST(st == COLL_ERR_ABORTED && strstr(coll_last_error(comm)->message, "enough"), "abort: %d %s", (int)st,
	     coll_last_error(comm)->message);
}

/* Another dies while the rest is in destroy, where they stay for those who may still want their messages. */
static void second(coll_comm *comm)
{
	const int rank = coll_comm_rank(comm);
	const uint64_t since_ns = coll_clock_ns();
	int x = 0;

	if (rank == VICTIM)
		die();
	names_victim(comm, coll_recv_tag(&x, 1, COLL_I32, VICTIM, 1, comm, NULL), "a message of the dead");
	if (rank == SECOND) {
		for (int r = 0; r < RANKS; r += 2)
			MUST(coll_recv(&x, 1, COLL_I32, r, comm, NULL) == COLL_OK, "a message of %d", r);
		usleep(100000);
		die();
	}
	MUST(coll_send(&rank, 1, COLL_I32, SECOND, comm, NULL) == COLL_OK, "to the second");
	MUST(coll_comm_destroy(&comm) == COLL_OK, "destroy");
	if (coll_clock_ns() - since_ns < PROMISED_MS * UINT64_C(1000000) + starved_ns())
		_exit(0);
	snprintf(shared->text[rank], sizeof(shared->text[0]), "destroy: %.3f s",
	         (double)(coll_clock_ns() - since_ns) * 1e-9);
	_exit(7);
}

struct plan {
	void (*act)(coll_comm *comm);
};

static void body(const void *arg, int rank)
{
	const struct plan *plan = arg;
	char transports[64], host[64];
	const char *settings[] = {transports, host, "COLL_DEBUG=error", NULL};
	const bool mixed = strcmp(transport, "mixed") == 0;
	coll_comm *comm;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", mixed ? "shm,tcp" : transport);
	snprintf(host, sizeof(host), "COLL_HOST_ID=survivors-%d", mixed ? rank % 2 : 0);
	comm = meeting_world(&shared->meeting, rank, RANKS, settings);
	alarm(60);
	plan->act(comm);
	MUST(coll_comm_destroy(&comm) == COLL_OK, "destroy");
	_exit(0);
}

static void run(void (*act)(coll_comm *comm))
{
	const struct plan plan = {act};
	pid_t pids[RANKS];

	meeting_start(pids, RANKS, shared, sizeof(*shared), body, &plan);
	for (int r = 0; r < RANKS; r++) {
		int status = 0;

		waitpid(pids[r], &status, 0);
		if (r != VICTIM && !(act == second && r == SECOND))
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d: %x %s", r, (unsigned)status,
			      shared->text[r]);
	}
}

TEST(survivors, test_pairs)
{
	run(pairs);
}

TEST(survivors, test_tags)
{
	run(tags);
}

TEST(survivors, test_under_way)
{
	run(under_way);
}

TEST(survivors, test_aborted)
{
	run(aborted);
}

TEST(survivors, test_second)
{
	run(second);
}

PROGRAM(survivors, "shm|tcp|mixed")
{
	if (argc < 2)
		return -1;
	transport = argv[1];
	shared = meeting_page(sizeof(*shared));
	return argc;
}
