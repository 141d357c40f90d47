/*
 * Tagged messages: what matches, what waits, what is refused, and what bounds memory. Ranks are threads of this
 * process.
 *
 * usage: tags loop|shm|tcp on|off|auto [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"

#include "match/tags.h"

enum { TAG = 7, LARGE = 300000 };

static void expect_info(const coll_message_info *info, int source, int tag, size_t count)
{
	CHECK(info->source == source && info->tag == tag && info->count == count && info->type == COLL_I32,
	      "source %d tag %d count %zu instead of %d %d %zu", info->source, info->tag, info->count, source, tag,
	      count);
}

static int *numbers(size_t count, int first)
{
	int *x = malloc((count + 1) * sizeof(int));

	for (size_t i = 0; i < count; i++)
		x[i] = first + (int)i;
	return x;
}

static size_t wrong_numbers(const int *x, size_t count, int first)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		wrong += x[i] != first + (int)i;
	return wrong;
}

/* ---- Matching ---- */

/* Of every length, and by a receive that is early and one that is late. */
TEST_OF_RANKS(tags, lengths, 2, 2)
{
	static const size_t counts[] = {0, 1, 30, 1000, 1024, 1025, 20000, LARGE};
	const size_t n = sizeof(counts) / sizeof(counts[0]);

	for (size_t i = 0; i < n; i++)
		for (int late = 0; late < 2; late++) {
			int *x = numbers(counts[i], rank == 0 ? 5 : 0);
			coll_message_info info = {.source = -7};
			coll_request *r = NULL;

			if (late && rank == 1)
				usleep(3000);
			if (rank == 0)
				OK(comm, coll_send_tag(x, counts[i], COLL_I32, 1, TAG, comm, NULL));
			if (rank == 1) {
				OK(comm, coll_irecv(x, counts[i] + 1, COLL_I32, i % 2 ? 0 : COLL_ANY_SOURCE,
				                    i % 3 ? TAG : COLL_ANY_TAG, comm, &r));
				OK(comm, coll_request_wait(&r, -1, &info));
				CHECK(r == NULL);
				expect_info(&info, 0, TAG, counts[i]);
				CHECK(wrong_numbers(x, counts[i], 5) == 0, "%zu elements", counts[i]);
			}
			free(x);
		}
}

/* A shift along a line: whoever stands at an end has no peer there. */
TEST_OF_RANKS(tags, no_peer, 3, 3)
{
	const int size = coll_comm_size(comm), next = rank + 1 < size ? rank + 1 : COLL_NO_PEER,
	          last = rank > 0 ? rank - 1 : COLL_NO_PEER;
	int x = rank, y = -1, z = -1;
	coll_message_info info;
	coll_request *r = NULL;

	OK(comm, coll_send_recv(&x, 1, next, &y, 1, last, COLL_I32, comm, NULL));
	CHECK(y == (rank > 0 ? rank - 1 : -1), "%d", y);
	OK(comm, coll_irecv(&z, 1, COLL_I32, last, TAG, comm, &r));
	OK(comm, coll_send_tag(&x, 1, COLL_I32, next, TAG, comm, NULL));
	OK(comm, coll_request_wait(&r, -1, &info));
	expect_info(&info, last, rank > 0 ? TAG : COLL_ANY_TAG, rank > 0);
	CHECK(z == y, "%d", z);
	coll_group_begin();
	OK(comm, coll_send(&x, 1, COLL_I32, next, comm, NULL));
	OK(comm, coll_recv(&z, 1, COLL_I32, last, comm, NULL));
	OK(comm, coll_group_end());
	z = -1;
	OK(comm, coll_recv_tag(&z, 1, COLL_I32, COLL_NO_PEER, TAG, comm, &info));
	expect_info(&info, COLL_NO_PEER, COLL_ANY_TAG, 0);
	OK(comm, coll_recv(&z, 1, COLL_I32, COLL_NO_PEER, comm, NULL));
	CHECK(z == -1 && coll_send(&x, 1, COLL_I32, -3, comm, NULL) == COLL_ERR_ARGUMENT &&
	      coll_recv_tag(&z, 1, COLL_I32, -3, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
}

/* Rank 0 has made no call with a tag when the messages arrive: it is in a barrier. */
TEST_OF_RANKS(tags, before_a_barrier, 4, 4)
{
	int x;

	if (rank > 0)
		for (int i = 0; i < 50; i++) {
			x = 100 * rank + i;
			OK(comm, coll_send_tag(&x, 1, COLL_I32, 0, i, comm, NULL));
		}
	OK(comm, coll_barrier(comm, NULL));
	for (int i = 49; rank == 0 && i >= 0; i--)
		for (int r = 1; r < coll_comm_size(comm); r++) {
			coll_message_info info;

			OK(comm, coll_recv_tag(&x, 1, COLL_I32, r, i, comm, &info));
			CHECK(x == 100 * r + i);
			expect_info(&info, r, i, 1);
		}
	OK(comm, coll_barrier(comm, NULL));
}

/* Messages that both fit come in the order in which they were sent, long and short ones. */
TEST_OF_RANKS(tags, order, 2, 2)
{
	enum { MESSAGES = 40 };
	static const size_t counts[] = {1, 3000, 10, 50000, 0};
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	if (rank == 0) {
		int *xs[MESSAGES];

		OK(comm, coll_group_begin()); /* or else the stream would wait for each */
		for (int i = 0; i < MESSAGES; i++) {
			xs[i] = numbers(counts[i % 5] + 1, i);
			OK(comm, coll_send_tag(xs[i], counts[i % 5] + 1, COLL_I32, 1, TAG + i % 2, comm, s));
		}
		OK(comm, coll_group_end());
		OK(comm, coll_stream_wait(s, -1));
		for (int i = 0; i < MESSAGES; i++)
			free(xs[i]);
	} else {
		int *x = numbers(60000, 0);
		coll_message_info info;

		for (int i = 1; i < MESSAGES; i += 2) { /* the second tag first */
			OK(comm, coll_recv_tag(x, 60000, COLL_I32, COLL_ANY_SOURCE, TAG + 1, comm, &info));
			expect_info(&info, 0, TAG + 1, counts[i % 5] + 1);
			CHECK(wrong_numbers(x, info.count, i) == 0);
		}
		for (int i = 0; i < MESSAGES; i += 2) {
			OK(comm, coll_recv_tag(x, 60000, COLL_I32, 0, COLL_ANY_TAG, comm, &info));
			expect_info(&info, 0, TAG, counts[i % 5] + 1);
			CHECK(wrong_numbers(x, info.count, i) == 0);
		}
		free(x);
	}
	OK(comm, coll_stream_destroy(&s));
}

/* Untagged messages and collectives beside them never meet them. */
TEST_OF_RANKS(tags, apart, 2, 2)
{
	const int other = 1 - rank;
	int a = 10 + rank, b = 20 + rank, got = 0, sum = 0;
	coll_request *r = NULL;

	OK(comm, coll_irecv(&got, 1, COLL_I32, COLL_ANY_SOURCE, COLL_ANY_TAG, comm, &r));
	for (int i = 0; i < 30; i++) {
		int x = 0;

		OK(comm, coll_send_recv(&a, 1, other, &x, 1, other, COLL_I32, comm, NULL));
		CHECK(x == 10 + other);
		CHECK(coll_request_test(&r, NULL) == COLL_AGAIN);
		OK(comm, coll_all_reduce(&rank, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
		CHECK(sum == 1);
	}
	OK(comm, coll_send_tag(&b, 1, COLL_I32, other, 0, comm, NULL));
	OK(comm, coll_request_wait(&r, -1, NULL));
	CHECK(got == 20 + other);
}

/* A ring of long messages, sent by blocking calls: receives are posted before. */
TEST_OF_RANKS(tags, ring, 5, 5)
{
	const int size = coll_comm_size(comm);
	int *out = numbers(LARGE, rank), *in = numbers(LARGE, 0);
	coll_request *r = NULL;
	coll_message_info info;

	for (int i = 0; i < 5; i++) {
		OK(comm, coll_irecv(in, LARGE, COLL_I32, COLL_ANY_SOURCE, i, comm, &r));
		OK(comm, coll_send_tag(out, LARGE, COLL_I32, (rank + 1) % size, i, comm, NULL));
		OK(comm, coll_request_wait(&r, -1, &info));
		expect_info(&info, (rank + size - 1) % size, i, LARGE);
		CHECK(wrong_numbers(in, LARGE, (rank + size - 1) % size) == 0);
	}
	free(out);
	free(in);
}

static void to_itself(coll_comm *comm, int rank, void *arg)
{
	int *big = numbers(LARGE, 3), *back = numbers(LARGE, 0), x = 4, y = 0;
	coll_request *r = NULL;
	coll_message_info info;
	coll_stream *s;

	OK(comm, coll_send_tag(&x, 1, COLL_I32, rank, TAG, comm, NULL));
	OK(comm, coll_recv_tag(&y, 1, COLL_I32, COLL_ANY_SOURCE, TAG, comm, &info));
	expect_info(&info, rank, TAG, 1);
	CHECK(y == 4);
	CHECK(coll_send_tag(big, LARGE, COLL_I32, rank, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "[COLL-1205]"), "%s", coll_last_error(comm)->message);
	CHECK(coll_recv_tag(&y, 1, COLL_I32, rank, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "[COLL-1205]"), "%s", coll_last_error(comm)->message);
	OK(comm, coll_irecv(back, LARGE, COLL_I32, rank, TAG, comm, &r));
	OK(comm, coll_send_tag(big, LARGE, COLL_I32, rank, TAG, comm, NULL));
	OK(comm, coll_request_wait(&r, -1, NULL));
	CHECK(wrong_numbers(back, LARGE, 3) == 0);
	/* More than the pool holds, on a stream: the rest waits. */
	OK(comm, coll_stream_create(&s, comm));
	for (int i = 0; i < 1000; i++)
		OK(comm, coll_send_tag(big + i, 1, COLL_I32, rank, i, comm, s));
	memset(back, 0, LARGE * sizeof(int));
	OK(comm, coll_send_tag(big, LARGE, COLL_I32, rank, 1000, comm, s));
	for (int i = 0; i < 1000; i++) {
		OK(comm, coll_recv_tag(&y, 1, COLL_I32, rank, COLL_ANY_TAG, comm, &info));
		CHECK(info.tag == i && y == 3 + i, "%d %d", info.tag, y);
	}
	OK(comm, coll_recv_tag(back, LARGE, COLL_I32, rank, 1000, comm, NULL));
	CHECK(wrong_numbers(back, LARGE, 3) == 0);
	OK(comm, coll_stream_destroy(&s));
	free(big);
	free(back);
}

TEST(tags, to_itself)
{
	run_ranks(1, to_itself, NULL);
	run_ranks(3, to_itself, NULL);
}

/* Nobody can post a receive while the end of a group waits, and after destroy has begun. */
static void unreceived_by_itself(coll_comm *comm, int rank, void *arg)
{
	int *big = numbers(LARGE, 3), *back = calloc(LARGE, sizeof(int)), x = 0;
	coll_request *r = NULL;

	OK(comm, coll_group_begin());
	OK(comm, coll_send_tag(big, LARGE, COLL_I32, rank, 1, comm, NULL));
	OK(comm, coll_send_tag(big, LARGE, COLL_I32, rank, 2, comm, NULL));
	OK(comm, coll_send_tag(big, 1, COLL_I32, rank, 3, comm, NULL));
	OK(comm, coll_irecv(back, LARGE, COLL_I32, rank, 2, comm, &r));
	CHECK(coll_group_end() == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "[COLL-1205]") && strstr(coll_last_error(comm)->message, "tag 1,"),
	      "%s", coll_last_error(comm)->message);
	OK(comm, coll_request_wait(&r, -1, NULL));
	CHECK(wrong_numbers(back, LARGE, 3) == 0);
	OK(comm, coll_recv_tag(&x, 1, COLL_I32, rank, 3, comm, NULL));
	CHECK(x == 3);
	CHECK(coll_tags_pool_bytes(comm) == 0, "%zu bytes", coll_tags_pool_bytes(comm));
	free(big);
	free(back);
}

struct ended {
	coll_comm *comm;
	_Atomic coll_status sent[2];
	atomic_int numbered, told;
};

static void say(void *arg, coll_status status)
{
	struct ended *e = arg;

	atomic_store(&e->sent[atomic_fetch_add(&e->numbered, 1)], status);
	atomic_fetch_add(&e->told, 1);
}

/* The stream holds one behind another; the pool is full, too. */
static void destroy_with_messages_to_itself(coll_comm *comm, int rank, void *arg)
{
	struct ended *ended = (struct ended *)arg + rank;
	int *big = numbers(LARGE, 3);
	coll_stream *s[2];
	coll_event *e[2];

	for (int i = 0; i < 2; i++) {
		OK(comm, coll_stream_create(&s[i], comm));
		OK(comm, coll_event_create(&e[i], comm));
		OK(comm, coll_send_tag(big, LARGE, COLL_I32, rank, TAG, comm, s[i]));
		for (int k = 0; k < 300; k++)
			OK(comm, coll_send_tag(big, 500, COLL_I32, rank, TAG, comm, s[i]));
		OK(comm, coll_event_record(e[i], s[i]));
		OK(comm, coll_event_notify(e[i], say, ended));
	}
	OK(comm, coll_barrier(comm, NULL));
	CHECK(coll_comm_destroy(&ended->comm) == COLL_OK);
	while (atomic_load(&ended->told) < 2) /* by the progress thread, perhaps */
		sched_yield();
	for (int i = 0; i < 2; i++) {
		CHECK(coll_event_wait(e[i], -1) == COLL_ERR_CANCELLED);
		coll_event_destroy(&e[i]);
		CHECK(atomic_load(&ended->sent[i]) == COLL_ERR_CANCELLED);
		CHECK(coll_stream_destroy(&s[i]) == COLL_ERR_CANCELLED);
	}
	free(big);
}

TEST(tags, unreceived_by_itself)
{
	struct ended ended[RANKS_MAX] = {{NULL}};
	struct rank ranks[RANKS_MAX];
	coll_comm *comms[RANKS_MAX];

	run_ranks(2, unreceived_by_itself, NULL);
	REQUIRE(create(comms, 2));
	for (int i = 0; i < 2; i++) {
		ended[i].comm = comms[i];
		ranks[i] = (struct rank){
		        .comm = comms[i], .rank = i, .fn = destroy_with_messages_to_itself, .arg = ended, .keep = true};
		pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(ranks[i].thread, NULL);
}

/* In a group, blocking sends end with it. */
TEST_OF_RANKS(tags, in_groups, 4, 4)
{
	const int size = coll_comm_size(comm);
	int *in = numbers((size_t)size * 5000, 0), *out = numbers(5000, 1000 * rank), x = 0, sum = 0;
	coll_request *r[4] = {NULL};

	for (int p = 0; p < size; p++)
		OK(comm, coll_irecv(in + 5000 * p, 5000, COLL_I32, p, TAG, comm, &r[p]));
	OK(comm, coll_group_begin());
	for (int p = 0; p < size; p++)
		OK(comm, coll_send_tag(out, 5000, COLL_I32, p, TAG, comm, NULL));
	OK(comm, coll_all_reduce(&rank, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(coll_recv_tag(&x, 1, COLL_I32, 0, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_request_wait(&r[rank], -1, NULL) == COLL_ERR_ARGUMENT, "its sends have not begun");
	OK(comm, coll_group_end());
	CHECK(sum == triangle(size));
	for (int p = 0; p < size; p++) {
		OK(comm, coll_request_wait(&r[p], -1, NULL));
		CHECK(wrong_numbers(in + 5000 * p, 5000, 1000 * p) == 0);
	}
	free(in);
	free(out);
}

/* ---- Probes ---- */

static int *read_probed(coll_comm *comm, const coll_message_info *info)
{
	int *x = malloc((info->count + 1) * sizeof(int));
	coll_message_info got;

	OK(comm, coll_recv_tag(x, info->count, info->type, info->source, info->tag, comm, &got));
	expect_info(&got, info->source, info->tag, info->count);
	return x;
}

/* Each is seen, as often as wanted, before it is received: early and late, short and long, of a given rank and of any.
 */
TEST_OF_RANKS(tags, probe, 2, 2)
{
	static const size_t counts[] = {0, 1, 1024, 1025, LARGE};
	const size_t n = sizeof(counts) / sizeof(counts[0]);

	for (size_t i = 0; i < 4 * n; i++) {
		const size_t count = counts[i % n];
		const int source = i % 2 ? 0 : COLL_ANY_SOURCE, tag = i / n % 2 ? COLL_ANY_TAG : TAG;
		coll_message_info info = {.source = -7};
		int *x;

		if (rank == 0) {
			x = numbers(count, 5);
			usleep(i / n < 2 ? 2000 : 0);
			OK(comm, coll_send_tag(x, count, COLL_I32, 1, TAG, comm, NULL));
		} else {
			if (i / n >= 2)
				usleep(2000);
			for (int again = 0; again < 2; again++) {
				OK(comm, coll_probe(source, tag, comm, again ? &info : NULL));
				OK(comm, coll_iprobe(source, tag, comm, &info));
				expect_info(&info, 0, TAG, count);
			}
			CHECK(coll_iprobe(0, TAG + 1, comm, NULL) == COLL_AGAIN &&
			      coll_iprobe(1, tag, comm, NULL) == COLL_AGAIN);
			x = read_probed(comm, &info);
			CHECK(wrong_numbers(x, count, 5) == 0, "%zu elements", count);
			CHECK(coll_iprobe(COLL_ANY_SOURCE, COLL_ANY_TAG, comm, NULL) == COLL_AGAIN, "it is gone");
		}
		free(x);
		OK(comm, coll_barrier(comm, NULL));
	}
}

/* A posted receive gets the message, and the probe waits for the next one; the first of several is seen. */
TEST_OF_RANKS(tags, probe_behind_receives, 3, 3)
{
	coll_message_info info = {.source = -7};
	coll_request *r = NULL;
	int x = rank, y = 0;

	if (rank == 0)
		OK(comm, coll_irecv(&y, 1, COLL_I32, COLL_ANY_SOURCE, TAG, comm, &r));
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 1) {
		OK(comm, coll_send_tag(&x, 1, COLL_I32, 0, TAG, comm, NULL));
		OK(comm, coll_send_tag(&x, 0, COLL_I32, 0, TAG + 1, comm, NULL));
	}
	if (rank == 0) {
		OK(comm, coll_probe(1, COLL_ANY_TAG, comm, &info));
		expect_info(&info, 1, TAG + 1, 0);
		OK(comm, coll_request_wait(&r, -1, &info));
		expect_info(&info, 1, TAG, 1);
		OK(comm, coll_group_begin());
		OK(comm, coll_iprobe(COLL_ANY_SOURCE, TAG + 1, comm, &info));
		CHECK(coll_probe(1, TAG + 1, comm, &info) == COLL_ERR_ARGUMENT, "it might wait for the group");
		OK(comm, coll_group_end());
		expect_info(&info, 1, TAG + 1, 0);
		OK(comm, coll_recv_tag(&y, 1, COLL_I32, 1, TAG + 1, comm, NULL));
		OK(comm, coll_probe(COLL_NO_PEER, 3, comm, &info));
		CHECK(info.source == COLL_NO_PEER && info.tag == COLL_ANY_TAG && info.count == 0);
	}
	OK(comm, coll_barrier(comm, NULL));
	/* One that waits is not shown what it did not ask for. */
	if (rank > 0) {
		usleep(30000 * (unsigned)(3 - rank));
		OK(comm, coll_send_tag(&x, 1, COLL_I32, 0, TAG + 2, comm, NULL));
		usleep(rank == 1 ? 30000 : 0);
		OK(comm, coll_send_tag(&x, 0, COLL_I32, 0, TAG + 3, comm, NULL));
	} else {
		OK(comm, coll_probe(1, TAG + 3, comm, &info));
		expect_info(&info, 1, TAG + 3, 0);
		for (int i = 0; i < 4; i++)
			OK(comm, coll_recv_tag(&y, 1, COLL_I32, 1 + i % 2, TAG + 2 + i / 2, comm, NULL));
	}
	OK(comm, coll_barrier(comm, NULL));
	/* To itself: seen, then received; and nothing that could only come from this thread is waited for. */
	CHECK(coll_probe(rank, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(NULL)->message, "probe: it would wait for ever"), "%s",
	      coll_last_error(NULL)->message);
	OK(comm, coll_send_tag(&x, 1, COLL_I32, rank, TAG, comm, NULL));
	OK(comm, coll_probe(rank, COLL_ANY_TAG, comm, &info));
	expect_info(&info, rank, TAG, 1);
	OK(comm, coll_recv_tag(&y, 1, COLL_I32, rank, TAG, comm, NULL));
	CHECK(y == rank && coll_iprobe(rank, TAG, comm, NULL) == COLL_AGAIN);
}

/* ---- Messages that do not fit ---- */

TEST_OF_RANKS(tags, misfits, 2, 2)
{
	static const size_t counts[] = {20, 50000};
	coll_message_info info;

	for (int i = 0; i < 4; i++) {
		const size_t count = counts[i % 2];
		int *x = numbers(count, 1 + rank);

		if (rank == 0) {
			OK(comm, coll_send_tag(x, count, COLL_I32, 1, TAG, comm, NULL));
			OK(comm, coll_send_tag(x, count, i < 2 ? COLL_I32 : COLL_F32, 1, TAG, comm, NULL));
			OK(comm, coll_send_tag(x, 1, COLL_I32, 1, TAG, comm, NULL));
		} else {
			coll_request *r = NULL;
			coll_status st;

			if (i % 3)
				usleep(2000);
			OK(comm, coll_recv_tag(x, count, COLL_I32, 0, TAG, comm, NULL));
			CHECK(wrong_numbers(x, count, 1) == 0);
			OK(comm, coll_irecv(x, count - (i < 2), COLL_I32, COLL_ANY_SOURCE, TAG, comm, &r));
			st = coll_request_wait(&r, -1, &info);
			CHECK(st == COLL_ERR_ARGUMENT && !r, "%d", st);
			CHECK(info.source == 0 && info.tag == TAG && info.count == count);
			CHECK(strstr(coll_last_error(NULL)->message, "message of rank 0 with tag 7") &&
			              strstr(coll_last_error(NULL)->message, "[COLL-1206]"),
			      "%s", coll_last_error(NULL)->message);
			CHECK(strstr(coll_last_error(NULL)->message, i < 2 ? "has room for" : "of f32"), "%s",
			      coll_last_error(NULL)->message);
			CHECK(wrong_numbers(x, count, 1) == 0, "the buffer is as it was");
			OK(comm, coll_recv_tag(x, count, COLL_I32, 0, TAG, comm, &info));
			expect_info(&info, 0, TAG, 1);
		}
		free(x);
	}
	OK(comm, coll_barrier(comm, NULL));
}

TEST_OF_RANKS(tags, refused, 2, 2)
{
	coll_request *r = NULL;
	int x = 0;

	CHECK(coll_send_tag(&x, 1, COLL_I32, 2, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send_tag(&x, 1, COLL_I32, -1, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send_tag(&x, 1, COLL_I32, 0, -1, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "tag -1 is negative"), "%s", coll_last_error(comm)->message);
	CHECK(coll_send_tag(NULL, 1, COLL_I32, 0, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send_tag(&x, SIZE_MAX / 2, COLL_I32, 0, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send_tag(&x, 1, (coll_dtype)99, 0, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send_tag(&x, 1, COLL_I32, 0, TAG, NULL, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(&x, 1, COLL_I32, -3, TAG, comm, &r) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(&x, 1, COLL_I32, 2, TAG, comm, &r) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(&x, 1, COLL_I32, 0, -2, comm, &r) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(&x, 1, COLL_I32, 0, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(NULL, 1, COLL_I32, 0, TAG, comm, &r) == COLL_ERR_ARGUMENT);
	CHECK(coll_irecv(&x, SIZE_MAX, COLL_I32, 0, TAG, comm, &r) == COLL_ERR_ARGUMENT);
	CHECK(coll_recv_tag(&x, 1, COLL_I32, 5, TAG, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_request_wait(NULL, 0, NULL) == COLL_ERR_ARGUMENT &&
	      coll_request_wait(&r, 0, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_request_test(NULL, NULL) == COLL_ERR_ARGUMENT && coll_request_test(&r, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_request_cancel(NULL) == COLL_ERR_ARGUMENT);
	OK(comm, coll_barrier(comm, NULL));
}

/* ---- Cancelling ---- */

TEST_OF_RANKS(tags, cancelled, 2, 2)
{
	int x[3] = {0}, y = 9;
	coll_request *r[3] = {NULL};
	coll_message_info info;

	if (rank == 0) {
		for (int i = 0; i < 3; i++)
			OK(comm, coll_irecv(&x[i], 1, COLL_I32, i ? 1 : COLL_ANY_SOURCE, TAG, comm, &r[i]));
		CHECK(coll_request_wait(&r[0], 5, &info) == COLL_AGAIN && r[0]);
		OK(comm, coll_request_cancel(r[0]));
		CHECK(coll_request_cancel(r[0]) == COLL_AGAIN);
		CHECK(coll_request_wait(&r[0], -1, &info) == COLL_ERR_CANCELLED && !r[0]);
		CHECK(strstr(coll_last_error(NULL)->message, "[COLL-1004]"));
		OK(comm, coll_request_cancel(r[1]));
	}
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 1)
		OK(comm, coll_send_tag(&y, 1, COLL_I32, 0, TAG, comm, NULL));
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 0) {
		CHECK(coll_request_test(&r[1], &info) == COLL_ERR_CANCELLED);
		OK(comm, coll_request_wait(&r[2], -1, &info));
		CHECK(x[0] == 0 && x[1] == 0 && x[2] == 9);
	}
	/* Too late: it has a message. */
	if (rank == 0) {
		OK(comm, coll_irecv(&x[0], 1, COLL_I32, 1, TAG, comm, &r[0]));
		OK(comm, coll_send_tag(&y, 1, COLL_I32, 1, TAG, comm, NULL));
		while (coll_request_cancel(r[0]) == COLL_OK) { /* not before the message has come */
			coll_request_wait(&r[0], -1, NULL);
			OK(comm, coll_irecv(&x[0], 1, COLL_I32, 1, TAG, comm, &r[0]));
			coll_progress(comm);
			usleep(100);
		}
		OK(comm, coll_request_wait(&r[0], -1, NULL));
		CHECK(x[0] == 5);
	} else {
		OK(comm, coll_recv_tag(&y, 1, COLL_I32, 0, TAG, comm, NULL));
		y = 5;
		OK(comm, coll_send_tag(&y, 1, COLL_I32, 0, TAG, comm, NULL));
	}
}

static void expect_nothing(coll_comm *comm, int rank, void *arg)
{
}

/* Destroy does not wait for receives that have no message. Their handles stay good. */
TEST(tags, destroy_cancels)
{
	enum { N = 3 };
	coll_comm *comms[RANKS_MAX];
	coll_request *r[N][2] = {{NULL}};
	int x[N][2] = {{0}};
	struct rank ranks[RANKS_MAX];

	REQUIRE(create(comms, N));
	for (int i = 0; i < N; i++) {
		CHECK(coll_irecv(&x[i][0], 1, COLL_I32, COLL_ANY_SOURCE, TAG, comms[i], &r[i][0]) == COLL_OK);
		CHECK(coll_irecv(&x[i][1], 1, COLL_I32, (i + 1) % N, TAG, comms[i], &r[i][1]) == COLL_OK);
	}
	for (int i = 0; i < N; i++) {
		ranks[i] = (struct rank){.comm = comms[i], .rank = i, .fn = expect_nothing};
		pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]);
	}
	for (int i = 0; i < N; i++)
		pthread_join(ranks[i].thread, NULL);
	for (int i = 0; i < N; i++) {
		CHECK(coll_request_wait(&r[i][0], -1, NULL) == COLL_ERR_CANCELLED);
		CHECK(coll_request_test(&r[i][1], NULL) == COLL_ERR_CANCELLED);
	}
}

/* ---- Bounds ---- */

/* So many messages that nobody receives yet: the sender waits, and the pool stays within its share. */
TEST_OF_RANKS(tags, flood, 2, 2)
{
	enum { MESSAGES = 100000, BYTES_MAX = 64 << 10 };
	static atomic_int sent;
	size_t most = 0;
	int x = 0, before = -1;

	if (rank == 0)
		atomic_store(&sent, 0);
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 1)
		for (x = 0; x < MESSAGES; x++) {
			OK(comm, coll_send_tag(&x, 1, COLL_I32, 0, x % 3, comm, NULL));
			atomic_store(&sent, x + 1);
		}
	if (rank != 0)
		return;
	/* Until the sender has not moved for a while. */
	while (atomic_load(&sent) != before || before < 256) {
		before = atomic_load(&sent);
		for (int i = 0; i < 200; i++) {
			coll_progress(comm);
			most = coll_tags_pool_bytes(comm) > most ? coll_tags_pool_bytes(comm) : most;
			usleep(100);
		}
	}
	CHECK(before < MESSAGES / 10, "%d were sent", before);
	CHECK(most >= BYTES_MAX / 2 && most <= BYTES_MAX, "%zu bytes", most);
	for (int i = 0; i < MESSAGES; i++) {
		int got = -1;

		OK(comm, coll_recv_tag(&got, 1, COLL_I32, i % 2 ? COLL_ANY_SOURCE : 1, i % 5 ? i % 3 : COLL_ANY_TAG,
		                       comm, NULL));
		if (got != i) {
			CHECK(got == i, "%d instead of %d", got, i);
			return;
		}
	}
	CHECK(coll_tags_pool_bytes(comm) == 0);
}

/* Messages that nobody ever receives block nothing else. */
TEST_OF_RANKS(tags, unwanted, 2, 2)
{
	const int other = 1 - rank;
	int *out = numbers(LARGE, rank), *in = numbers(LARGE, 0), sum = 0;
	coll_comm *child = NULL;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_comm_duplicate(comm, &child));
	for (int i = 0; i < 200; i++)
		OK(child, coll_send_tag(&i, 1, COLL_I32, other, i, child, NULL));
	for (int i = 0; i < 20; i++) {
		OK(comm, coll_send_recv(out, LARGE, other, in, LARGE, other, COLL_I32, child, NULL));
		OK(comm, coll_all_reduce(&rank, &sum, 1, COLL_I32, COLL_SUM, child, NULL));
		OK(comm, coll_send_tag(out, LARGE, COLL_I32, other, i, comm, s));
		OK(comm, coll_recv_tag(in, LARGE, COLL_I32, other, i, comm, NULL));
		CHECK(wrong_numbers(in, LARGE, other) == 0);
		OK(comm, coll_stream_wait(s, -1));
	}
	OK(comm, coll_stream_destroy(&s));
	OK(comm, coll_comm_destroy(&child));
	free(in);
	free(out);
}

/* ---- Waits that end ---- */

static void late(coll_comm *comm, int rank, void *arg)
{
	const bool sends = arg != NULL;
	int *x = numbers(LARGE, 0);
	coll_status st;

	if (rank == 0) {
		st = sends ? coll_send_tag(x, LARGE, COLL_I32, 1, TAG, comm, NULL)
		           : coll_recv_tag(x, LARGE, COLL_I32, 1, TAG, comm, NULL);
		CHECK(st == COLL_ERR_PEER_LATE, "%d %s", st, coll_last_error(comm)->message);
		CHECK(coll_last_error(comm)->rank == 1 && strstr(coll_last_error(comm)->message, "[COLL-2301]") &&
		              strstr(coll_last_error(comm)->message, sends ? "send_tag(" : "recv_tag("),
		      "%s", coll_last_error(comm)->message);
	} else {
		usleep(1500000);
		st = coll_barrier(comm, NULL);
		CHECK(st == COLL_ERR_PEER_LATE, "%d %s", st, coll_last_error(comm)->message);
	}
	free(x);
}

TEST(tags, late)
{
	run_ranks_badly(2, late, NULL, "COLL_ARRIVAL_TIMEOUT_MS=700");
	run_ranks_badly(2, late, &transports, "COLL_ARRIVAL_TIMEOUT_MS=700");
}

/* A wait that its caller cuts in slices has the deadlines of a whole one. */
static void late_in_slices(coll_comm *comm, int rank, void *arg)
{
	coll_request *r = NULL;
	coll_status st = COLL_AGAIN;
	int x = 0;

	if (rank == 0) {
		OK(comm, coll_irecv(&x, 1, COLL_I32, 1, TAG, comm, &r));
		for (int i = 0; i < 400 && st == COLL_AGAIN; i++)
			st = coll_request_wait(&r, 20, NULL);
		CHECK(st == COLL_ERR_PEER_LATE, "%d %s", st, coll_last_error(comm)->message);
		CHECK(coll_last_error(comm)->rank == 1 && strstr(coll_last_error(comm)->message, "[COLL-2301]"), "%s",
		      coll_last_error(comm)->message);
		if (st == COLL_AGAIN)
			coll_comm_abort(comm, "no rank was late");
		if (r)
			coll_request_wait(&r, -1, NULL);
	} else {
		/* In no call that answers it, until rank 0 has given up. */
		OK(comm, coll_irecv(&x, 1, COLL_I32, COLL_ANY_SOURCE, TAG, comm, &r));
		st = coll_request_wait(&r, -1, NULL);
		CHECK(st == COLL_ERR_PEER_LATE, "%d %s", st, coll_last_error(comm)->message);
	}
}

TEST(tags, late_in_slices)
{
	run_ranks_badly(2, late_in_slices, &transports, "COLL_ARRIVAL_TIMEOUT_MS=700");
}

/* All wait for any rank, and a receive in advance is no wait: neither is a deadlock, nor late. Nor is a look. */
static void idle(coll_comm *comm, int rank, void *arg)
{
	int x = 0, y = 0, sum = 0;
	coll_request *any = NULL, *named = NULL;

	OK(comm, coll_irecv(&x, 1, COLL_I32, COLL_ANY_SOURCE, TAG, comm, &any));
	OK(comm, coll_irecv(&y, 1, COLL_I32, (rank + 1) % 3, TAG + 1, comm, &named));
	for (int i = 0; i < 20; i++)
		CHECK(coll_request_wait(&any, 100, NULL) == COLL_AGAIN &&
		      coll_request_wait(&named, 0, NULL) == COLL_AGAIN);
	OK(comm, coll_all_reduce(&rank, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(sum == 3);
	OK(comm, coll_request_cancel(any));
	OK(comm, coll_request_cancel(named));
	CHECK(coll_request_wait(&any, -1, NULL) == COLL_ERR_CANCELLED);
	CHECK(coll_request_wait(&named, -1, NULL) == COLL_ERR_CANCELLED);
}

TEST(tags, idle)
{
	further[0] = "COLL_ARRIVAL_TIMEOUT_MS=900";
	run_ranks(3, idle, NULL);
	further[0] = NULL;
}

TEST_OF_LOST_RANKS(tags, aborted, 3, NULL)
{
	int *x = numbers(LARGE, 0);
	coll_request *r = NULL, *any = NULL;
	coll_status st;

	if (rank == 0) {
		usleep(50000);
		OK(comm, coll_comm_abort(comm, "on purpose"));
	}
	st = coll_irecv(x, LARGE, COLL_I32, COLL_ANY_SOURCE, TAG, comm, &any);
	CHECK(st == COLL_ERR_ABORTED || (rank && st == COLL_OK)); /* this rank may be slow */
	if (rank == 1) {
		st = coll_send_tag(x, LARGE, COLL_I32, 0, TAG, comm, NULL);
		CHECK(st == COLL_ERR_ABORTED, "%d %s", st, coll_last_error(comm)->message);
	} else if (rank == 2) {
		st = coll_irecv(x, LARGE, COLL_I32, 0, TAG, comm, &r);
		if (st == COLL_OK)
			st = coll_request_wait(&r, -1, NULL);
		CHECK(st == COLL_ERR_ABORTED, "%d %s", st, coll_last_error(comm)->message);
	}
	if (any)
		CHECK(coll_request_wait(&any, -1, NULL) == COLL_ERR_ABORTED);
	free(x);
}

/* The first envelope is damaged in one byte. Without a time limit the lack of what it said would be no error. */
static void damaged(coll_comm *comm, int rank, void *arg)
{
	const bool named = arg != NULL;
	int *x = numbers(LARGE, 0);
	coll_request *r = NULL;
	coll_status st = COLL_OK;

	if (rank == 1) {
		for (int i = 0; i < 20 && st == COLL_OK; i++)
			st = coll_send_tag(x, i % 2 ? LARGE : 3, COLL_I32, 0, i, comm, NULL);
		CHECK(st != COLL_OK || !named, "%d", st);
	} else {
		for (int i = 0; i < 20 && st == COLL_OK; i++) {
			st = coll_irecv(x, LARGE, COLL_I32, 1, i, comm, &r);
			if (st == COLL_OK)
				st = coll_request_wait(&r, 3000, NULL);
		}
		if (named) {
			CHECK(st == COLL_ERR_CORRUPT, "%d %s", st, coll_last_error(comm)->message);
			CHECK(strstr(coll_last_error(comm)->message, "tagged messages of rank 1") &&
			              strstr(coll_last_error(comm)->message, "[COLL-3206]"),
			      "%s", coll_last_error(comm)->message);
		}
		if (st != COLL_OK)
			coll_comm_abort(comm, "it is damaged");
		if (r && coll_request_wait(&r, -1, NULL) == COLL_OK)
			CHECK(true);
	}
	free(x);
}

TEST(tags, damaged)
{
	char hook[80];

	run_ranks_badly(2, damaged, hook, "COLL_HOOK=flip:rank=1,frame=0,byte=0,mask=240");
	run_ranks_badly(2, damaged, hook, "COLL_HOOK=head:rank=1,frame=0");
	for (int byte = 0; byte < 32; byte++) {
		snprintf(hook, sizeof(hook), "COLL_HOOK=flip:rank=1,frame=%d,byte=%d,mask=%d", byte % 3, byte,
		         1 << byte % 8);
		run_ranks_badly(2, damaged, NULL, hook);
	}
}

/* Another thread waits for what the communicator's thread has posted. */
struct waiter {
	coll_request *request;
	coll_status status;
	coll_message_info info;
};

static void *wait_main(void *p)
{
	struct waiter *w = p;

	w->status = coll_request_wait(&w->request, -1, &w->info);
	return NULL;
}

TEST_OF_RANKS(tags, threads, 2, 2)
{
	enum { N = 8 };
	struct waiter w[N] = {{NULL}};
	pthread_t t[N];
	int x[N], sum;

	for (int i = 0; i < N; i++) {
		OK(comm, coll_irecv(&x[i], 1, COLL_I32, COLL_ANY_SOURCE, i, comm, &w[i].request));
		pthread_create(&t[i], NULL, wait_main, &w[i]);
	}
	for (int i = 0; i < 20; i++)
		OK(comm, coll_all_reduce(&rank, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
	for (int i = 0; i < N; i++)
		OK(comm, coll_send_tag(&i, 1, COLL_I32, (rank + 1) % 2, i, comm, NULL));
	for (int i = 0; i < N; i++) {
		pthread_join(t[i], NULL);
		CHECK(w[i].status == COLL_OK && x[i] == i && w[i].info.tag == i);
	}
}

ASYNC_PROGRAM(tags)
