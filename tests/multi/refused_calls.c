/*
 * See refused.h: the series of calls.
 */
#include "refused.h"

#define TRY(comm, call)                                   \
	do {                                              \
		st = (call);                              \
		if (st != COLL_OK) {                      \
			st = refused_told(r, (comm), st); \
			goto out;                         \
		}                                         \
	} while (0)

enum { N = 30000 };

coll_status act_calls(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), one = 1;
	coll_comm *c = r->comm;
	coll_op op;
	coll_status st;

	TRY(c, coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_all_reduce(x, y, N, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_broadcast(x, y, N, COLL_I32, 0, c, NULL));
	TRY(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, NULL));
	TRY(c, coll_all_to_allv(x, counts, NULL, y, r->rank ? (size_t[]){9, 9} : (size_t[]){7, 7}, NULL, COLL_I32, c,
	                        NULL));
	TRY(c, coll_gatherv(x, counts[r->rank], y, counts, NULL, COLL_I32, 1, c, NULL));
	TRY(c, coll_send_recv(x, 5, !r->rank, y, 5, !r->rank, COLL_I32, c, NULL));
	TRY(c, coll_op_create_premul_sum(&op, c, &(float){2}, COLL_F32));
	TRY(c, coll_all_reduce(x, y, 10, COLL_F32, op, c, NULL));
	TRY(c, coll_barrier(c, NULL));
out:
	refusing_free(x);
	refusing_free(y);
	return st;
}

/* A call that was refused for want of memory, and left the communicator whole, is made again: the
 * other rank, which is in its own since, never knows. */
#define TRY_AGAIN(comm, call)                             \
	do {                                              \
		st = (call);                              \
		if (st == COLL_ERR_MEMORY && r->k > 0) {  \
			refused_disarm(r);                \
			st = (call);                      \
		}                                         \
		if (st != COLL_OK) {                      \
			st = refused_told(r, (comm), st); \
			goto out;                         \
		}                                         \
	} while (0)

coll_status act_repeats(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), one = 1 + r->rank;
	coll_comm *c = r->comm;
	coll_status st;

	for (int i = 0; i < N; i++)
		x[i] = i + r->rank;
	TRY_AGAIN(c, coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, c, NULL));
	CHECK(one == 3, "%d", one);
	TRY_AGAIN(c, coll_all_reduce(x, y, N, COLL_I32, COLL_SUM, c, NULL));
	CHECK(y[N - 1] == 2 * N - 1, "%d", y[N - 1]);
	TRY_AGAIN(c, coll_all_gather(x, y, 100, COLL_I32, c, NULL));
	CHECK(y[99] == 99 && y[100] == 1, "%d %d", y[99], y[100]);
	TRY_AGAIN(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, NULL));
	TRY_AGAIN(c, coll_all_to_allv(x, counts, NULL, y, r->rank ? (size_t[]){9, 9} : (size_t[]){7, 7}, NULL, COLL_I32,
	                              c, NULL));
	TRY_AGAIN(c, coll_send_recv(x, 5, !r->rank, y, 5, !r->rank, COLL_I32, c, NULL));
	CHECK(y[4] == 4 + !r->rank, "%d", y[4]);
	TRY_AGAIN(c, coll_barrier(c, NULL));
out:
	refusing_free(x);
	refusing_free(y);
	return st;
}

coll_status act_children(struct rank *r)
{
	enum { CHILDREN = 5 };
	coll_comm *child[CHILDREN] = {NULL};
	int x = 1;
	coll_status st;

	TRY(r->comm, coll_comm_split(r->comm, 3, -r->rank, &child[0]));
	TRY(r->comm, coll_comm_duplicate(r->comm, &child[1]));
	TRY(r->comm, coll_comm_create_from_ranks(r->comm, (int[]){1, 0}, 2, &child[2]));
	TRY(r->comm, coll_comm_create_group(r->comm, (int[]){0, 1}, 2, 7, &child[3]));
	TRY(r->comm, coll_comm_create_group(r->comm, (int[]){1, 0}, 2, 7, &child[4]));
	for (int i = 0; i < CHILDREN; i++)
		TRY(child[i], coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, child[i], NULL));
out:
	refused_disarm(r); /* ends: see below */
	for (int i = 0; i < CHILDREN; i++) {
		if (st != COLL_OK && child[i] && r->k > 0)
			coll_comm_abort(child[i], "a test");
		coll_comm_destroy(&child[i]);
	}
	return st;
}

/* An end has what it needs: nothing of it is refused, and the other rank need not wait for its
 * time to be up. */
coll_status act_ends(struct rank *r)
{
	coll_comm *child = NULL;
	coll_status st;

	refused_disarm(r);
	TRY(r->comm, coll_comm_duplicate(r->comm, &child));
	TRY(child, coll_barrier(child, NULL));
	refused_arm(r);
	CHECK(coll_comm_destroy(&child) == COLL_OK);
	refused_disarm(r);
out:
	return st;
}

coll_status act_streams(struct rank *r)
{
	coll_comm *c = r->comm;
	coll_stream *s[2] = {NULL, NULL};
	coll_event *e = NULL;
	int *x = refusing_ints(N), *y = refusing_ints(2 * N), *z = refusing_ints(N), one = 1, in = 0;
	const size_t counts[2] = {7, 9};
	coll_status st;

	TRY(c, coll_stream_create(&s[0], c));
	TRY(c, coll_stream_create(&s[1], c));
	TRY(c, coll_event_create(&e, c));
	TRY(c, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, c, s[0]));
	TRY(c, coll_event_record(e, s[0]));
	TRY(NULL, coll_stream_wait_event(s[1], e));
	TRY(c, coll_all_gatherv(x, y, counts, NULL, COLL_I32, c, s[1]));
	TRY(c, coll_send_recv(&one, 1, !r->rank, &in, 1, !r->rank, COLL_I32, c, s[0]));
	TRY(c, coll_barrier(c, s[1]));
	TRY(c, coll_all_reduce(z, z, N, COLL_I32, COLL_SUM, c, NULL)); /* blocking, while others are pending */
	TRY(c, coll_event_wait(e, -1));
	TRY(c, coll_stream_wait(s[0], -1));
	TRY(c, coll_stream_wait(s[1], -1));
out:
	coll_event_destroy(&e);
	coll_stream_destroy(&s[0]);
	coll_stream_destroy(&s[1]);
	refusing_free(x);
	refusing_free(y);
	refusing_free(z);
	return st;
}

coll_status act_groups(struct rank *r)
{
	enum { CALLS = 20 };
	coll_comm *c = r->comm;
	coll_stream *s = NULL;
	int x[CALLS] = {0}, *large = refusing_ints(N), in = 0, one = 1;
	coll_status st;

	TRY(c, coll_stream_create(&s, c));
	for (int round = 0; round < 2; round++) {
		coll_stream *of = round ? s : NULL;
		coll_status end;

		coll_group_begin();
		st = COLL_OK;
		for (int i = 0; i < CALLS && st == COLL_OK; i++)
			st = coll_all_reduce(&x[i], &x[i], 1, COLL_I32, COLL_SUM, c, of);
		if (st == COLL_OK)
			st = coll_send(&one, 1, COLL_I32, !r->rank, c, of);
		if (st == COLL_OK)
			st = coll_recv(&in, 1, COLL_I32, !r->rank, c, of);
		if (st == COLL_OK)
			st = coll_all_reduce(large, large, N, COLL_I32, COLL_SUM, c, of);
		if (st != COLL_OK) { /* the calls before go their way */
			refused_told(r, c, st);
			coll_group_end();
			goto out;
		}
		end = coll_group_end();
		/* Nothing was handed in: that is no communicator's error. */
		TRY(coll_last_error(c)->status == COLL_OK ? NULL : c, end);
	}
	TRY(c, coll_stream_wait(s, -1));
out:
	coll_stream_destroy(&s);
	refusing_free(large);
	return st;
}

coll_status act_operations(struct rank *r)
{
	const size_t counts[2] = {7, 9};
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_comm *c = r->comm;
	coll_operation *op[2] = {NULL, NULL};
	coll_stream *s = NULL;
	int *x = refusing_ints(N), *y = refusing_ints(N);
	coll_status st;

	d.in = d.out = x;
	d.count = N;
	d.type = COLL_I32;
	TRY(c, coll_operation_prepare(&op[0], &d, c));
	d.kind = COLL_ALL_GATHER;
	d.ragged = 1;
	d.out = y;
	d.out_counts = counts;
	TRY(c, coll_operation_prepare(&op[1], &d, c));
	TRY(c, coll_stream_create(&s, c));
	for (int round = 0; round < 2; round++) {
		TRY(c, coll_operation_start(op[0], NULL));
		TRY(c, coll_operation_wait(op[0], -1));
		TRY(c, coll_operation_start(op[0], s));
		TRY(c, coll_operation_start(op[1], NULL));
		TRY(c, coll_operation_wait(op[1], -1));
		TRY(c, coll_operation_wait(op[0], -1));
	}
out:
	coll_operation_destroy(&op[0]);
	coll_operation_destroy(&op[1]);
	coll_stream_destroy(&s);
	refusing_free(x);
	refusing_free(y);
	return st;
}

coll_status act_memory(struct rank *r)
{
	coll_comm *c = r->comm;
	void *shared = NULL;
	int *plain = refusing_ints(N);
	coll_status st;

	TRY(c, coll_mem_alloc(c, &shared, N * sizeof(int)));
	TRY(c, coll_mem_register(c, plain, N * sizeof(int)));
	TRY(c, coll_all_reduce(plain, shared, N, COLL_I32, COLL_SUM, c, NULL));
	TRY(c, coll_mem_deregister(c, plain));
	TRY(c, coll_mem_free(c, shared));
out:
	if (st != COLL_OK)
		coll_comm_destroy(&r->comm); /* what was announced is the communicator's to the end */
	refusing_free(plain);
	return st;
}
