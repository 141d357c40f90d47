/*
 * A pipeline: rank 0 reads, the last rank collects, those between work. Who is
 * free asks for the next piece, so slow workers get fewer.
 *
 *     collrun -n 4 example_pipeline
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECES = 40, ASK = 1, PIECE, RESULT, END };
static coll_comm *comm;

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "pipeline: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

/* Piece i has i numbers. */
static void read_pieces(int workers)
{
	int32_t piece[PIECES] = {0}, worker;
	coll_message_info from;

	for (int i = 1; i <= PIECES + workers; i++) {
		check(coll_recv_tag(&worker, 1, COLL_I32, COLL_ANY_SOURCE, ASK, comm, &from));
		if (i <= PIECES)
			check(coll_send_tag(piece, (size_t)i, COLL_I32, from.source, PIECE, comm, NULL));
		else
			check(coll_send_tag(NULL, 0, COLL_I32, from.source, END, comm, NULL));
	}
}

static void work(int32_t me, int collector)
{
	for (;;) {
		coll_message_info next;
		int32_t *piece;

		check(coll_send_tag(&me, 1, COLL_I32, 0, ASK, comm, NULL));
		/* How long is it? A probe leaves the message where it is. */
		check(coll_probe(0, COLL_ANY_TAG, comm, &next));
		piece = malloc((next.count + 1) * sizeof(*piece));
		check(coll_recv_tag(piece, next.count, next.type, 0, next.tag, comm, NULL));
		free(piece); /* before it would come the work */
		if (next.tag == END)
			return;
		check(coll_send_tag(&next.count, 1, COLL_U64, collector, RESULT, comm, NULL));
	}
}

static void collect(void)
{
	uint64_t sum = 0, count;

	for (int i = 0; i < PIECES; i++, sum += count)
		check(coll_recv_tag(&count, 1, COLL_U64, COLL_ANY_SOURCE, RESULT, comm, NULL));
	printf("%d pieces of %llu numbers in all\n", PIECES, (unsigned long long)sum);
}

int main(void)
{
	check(coll_comm_create(&comm, NULL));
	const int rank = coll_comm_rank(comm), size = coll_comm_size(comm);

	if (size < 3)
		printf("this example needs 3 ranks or more\n");
	else if (rank == 0)
		read_pieces(size - 2);
	else if (rank == size - 1)
		collect();
	else
		work(rank, size - 1);
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
