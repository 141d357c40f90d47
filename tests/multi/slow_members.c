/*
 * Members that are slow, or ahead of the others: receivers and senders that take longer in all than the limit for
 * lateness, receivers that are in no call, members of a new group that send before the others know that it exists, and
 * those that never come to one. Ranks are threads of this process.
 *
 * usage: slow_members loop|shm|tcp on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"

#include <semaphore.h>

#include "match/tags.h"

enum { TAG = 7 };

/* ---- Long queues ---- */

/* In all it takes twice the limit, and no step of it a tenth. */
enum { STEPS = 60, STEP_US = 50000, LIMIT_MS = 1500 };

struct queue {
	size_t bytes;
	bool advance; /* receives are posted before */
};

static void many_at_once(coll_comm *comm, int rank, void *arg)
{
	const struct queue *q = arg;
	char *x = calloc(STEPS, q->bytes);
	coll_request *r[STEPS];

	OK(comm, coll_comm_set_timeout(comm, -1, LIMIT_MS));
	for (int i = 0; rank == 1 && i < STEPS; i++) {
		if (q->advance)
			OK(comm, coll_irecv(x + i * q->bytes, q->bytes, COLL_U8, 0, TAG, comm, &r[i]));
	}
	OK(comm, coll_group_begin());
	for (int i = 0; rank == 0 && !q->advance && i < STEPS; i++)
		OK(comm, coll_send_tag(x, q->bytes, COLL_U8, 1, TAG, comm, NULL));
	OK(comm, coll_group_end());
	for (int i = 0; rank == 0 && q->advance && i < STEPS; i++) {
		usleep(STEP_US);
		OK(comm, coll_send_tag(x, q->bytes, COLL_U8, 1, TAG, comm, NULL));
	}
	for (int i = 0; rank == 1 && !q->advance && i < STEPS; i++) {
		usleep(STEP_US);
		OK(comm, coll_recv_tag(x, q->bytes, COLL_U8, 0, TAG, comm, NULL));
	}
	/* The last is waited for from the beginning. */
	for (int i = STEPS - 1; rank == 1 && q->advance && i >= 0; i--)
		OK(comm, coll_request_wait(&r[i], -1, NULL));
	free(x);
}

TEST(slow_members, a_slow_receiver)
{
	static struct queue q[] = {{4000}, {100000}};

	for (int i = 0; i < 2; i++)
		run_ranks(2, many_at_once, &q[i]);
}

TEST(slow_members, a_slow_sender)
{
	static struct queue q[] = {{4000, true}, {100000, true}};

	for (int i = 0; i < 2; i++)
		run_ranks(2, many_at_once, &q[i]);
}

/* ---- A receiver that has taken everything and is in no call ---- */

static sem_t taken, sent;

static void outside(coll_comm *comm, int rank, void *arg)
{
	enum { BYTES = 4000 };
	const size_t share = 64 << 10;
	const int fill = (int)(share / COLL_MATCH_CELL_BYTES / coll_matcher_cells(BYTES));
	coll_stream *s;
	char x[BYTES] = {0};

	OK(comm, coll_stream_create(&s, comm));
	for (int i = 0; rank == 0 && i < fill; i++)
		OK(comm, coll_send_tag(x, BYTES, COLL_U8, 1, TAG, comm, NULL));
	OK(comm, coll_barrier(comm, NULL)); /* rank 1 takes them in: they wait there */
	for (int i = 0; rank == 1 && i < fill; i++)
		OK(comm, coll_recv_tag(x, BYTES, COLL_U8, COLL_ANY_SOURCE, TAG, comm, NULL));
	if (rank == 1) {
		sem_post(&taken);
		sem_wait(&sent);
		OK(comm, coll_recv_tag(x, BYTES, COLL_U8, 0, TAG, comm, NULL));
	} else {
		sem_wait(&taken);
		OK(comm, coll_send_tag(x, BYTES, COLL_U8, 1, TAG, comm, s));
		CHECK(coll_stream_wait(s, 10000) == COLL_OK, "its cells did not come back");
		sem_post(&sent);
	}
	OK(comm, coll_stream_destroy(&s));
}

TEST(slow_members, a_receiver_in_no_call)
{
	sem_init(&taken, 0, 0);
	sem_init(&sent, 0, 0);
	run_ranks(2, outside, NULL);
}

/* ---- Groups ---- */

/* The list is not in the order of the parent, and each member sends as soon as it has the group. */
static void at_once(coll_comm *comm, int rank, void *arg)
{
	const int n = coll_comm_size(comm);
	int list[RANKS_MAX];

	for (int i = 0; i < n; i++)
		list[i] = n - 1 - i;
	for (int round = 0; round < 100; round++) {
		coll_comm *child = NULL;
		coll_message_info info;
		int x = rank, from = -1;

		OK(comm, coll_comm_create_group(comm, list, n, 1, &child));
		for (int to = 0; child && to < n; to++)
			OK(child, coll_send_tag(&x, 1, COLL_I32, to, TAG, child, NULL));
		for (int i = 0; child && i < n; i++) {
			OK(child, coll_recv_tag(&from, 1, COLL_I32, i, TAG, child, &info));
			CHECK(info.source == i && from == list[i], "round %d: of %d, not %d", round, from, list[i]);
		}
		OK(comm, coll_comm_destroy(&child));
	}
}

TEST(slow_members, messages_in_a_new_group)
{
	further[0] = "COLL_ARRIVAL_TIMEOUT_MS=20000"; /* a message that is lost */
	run_ranks(4, at_once, NULL);
	further[0] = NULL;
}

static atomic_int told;

/* Ranks 0 and 3 of 5 do not come to a group of all but rank 2. Who is missing is said in ranks of the parent. */
static void not_all_come(coll_comm *comm, int rank, void *arg)
{
	const int list[] = {4, 3, 1, 0};
	const coll_error *e;
	coll_comm *child = NULL;
	coll_status st;

	if (rank == 1 || rank == 4) {
		st = coll_comm_create_group(comm, list, 4, 1, &child);
		e = coll_last_error(comm);
		CHECK(st == COLL_ERR_PEER_LATE && !child, "%d: %s", st, e->message);
		CHECK(e->late_count == 2 && e->late[0] == 0 && e->late[1] == 3 && (e->rank == 0 || e->rank == 3),
		      "rank %d, %d late: %s", e->rank, e->late_count, e->message);
		CHECK(strstr(e->message, "ranks 0 and 3 of the job have not called comm_create_group; rank "), "%s",
		      e->message);
		atomic_fetch_add(&told, 1);
	}
	while (atomic_load(&told) < 2)
		sched_yield();
	/* Another refusal has no such list. */
	CHECK(coll_comm_create_group(comm, list, 0, 1, &child) == COLL_ERR_ARGUMENT);
	CHECK(!coll_last_error(comm)->late && coll_last_error(comm)->late_count == 0);
	OK(comm, coll_barrier(comm, NULL));
}

TEST(slow_members, members_that_do_not_come)
{
	atomic_store(&told, 0);
	further[0] = "COLL_ARRIVAL_TIMEOUT_MS=1200";
	run_ranks(5, not_all_come, NULL);
	further[0] = NULL;
}

ASYNC_PROGRAM(slow_members)
