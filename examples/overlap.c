/*
 * Computing while data move: calls in a stream return at once.
 *
 *     collrun -n 2 example_overlap
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, COUNT = 100000 };

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "overlap: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

/* Runs when an event is reached, in whichever thread notices it: short, and no calls that wait. */
static void done(void *arg, coll_status status)
{
	*(int *)arg = status == COLL_OK ? 1 : -1;
}

static float *compute(int layer, int rank)
{
	static float gradient[LAYERS][COUNT];

	for (int i = 0; i < COUNT; i++)
		gradient[layer][i] = (float)(layer + rank);
	return gradient[layer];
}

int main(void)
{
	coll_event *sent[LAYERS];
	coll_stream *stream, *other;
	coll_comm *comm, *twin;
	int told = 0, wrong = 0, rank, size;
	float *g[LAYERS], largest = 0;
	double first, last;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	/* Calls of one communicator keep their order. What is independent gets a duplicate and a stream. */
	check(coll_comm_duplicate(comm, &twin));
	check(coll_stream_create(&stream, comm));
	check(coll_stream_create(&other, twin));
	for (int i = 0; i < LAYERS; i++) {
		check(coll_event_create(&sent[i], comm));
		g[i] = compute(i, rank); /* while the layers before it are on their way */
		check(coll_all_reduce(g[i], g[i], COUNT, COLL_F32, COLL_SUM, comm, stream));
		check(coll_event_record(sent[i], stream));
		coll_event_query(sent[i]); /* a look, which does not wait but moves things on */
	}
	check(coll_event_notify(sent[LAYERS - 1], done, &told));
	/* In the other stream, but behind the first layer: */
	check(coll_stream_wait_event(other, sent[0]));
	check(coll_all_reduce(g[0], &largest, 1, COLL_F32, COLL_MAX, twin, other));
	while (coll_progress(comm) == COLL_AGAIN && coll_stream_query(other) == COLL_AGAIN)
		; /* here would be other work */
	for (int i = 0; i < LAYERS; i++) {
		check(coll_event_wait(sent[i], 60000)); /* needed now; a minute at most */
		wrong += g[i][COUNT / 2] != (float)(size * i + size * (size - 1) / 2);
	}
	check(coll_stream_wait(other, -1));
	check(coll_event_time(sent[0], &first));
	check(coll_event_time(sent[LAYERS - 1], &last));
	check(coll_stream_destroy(&stream)); /* waits, so the function has run or is running */
	printf("rank %d: %d layers, %d wrong, the largest is %g, told %s, in order %s\n", rank, LAYERS, wrong,
	       (double)largest, told == 1 ? "yes" : "no", first <= last ? "yes" : "no");
	check(coll_stream_destroy(&other));
	for (int i = 0; i < LAYERS; i++)
		check(coll_event_destroy(&sent[i]));
	check(coll_comm_destroy(&twin));
	return coll_comm_destroy(&comm) == COLL_OK && !wrong ? 0 : 1;
}
