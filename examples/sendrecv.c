/*
 * Messages between pairs of ranks.
 *
 *     collrun -n 3 example_sendrecv
 *
 * First a token travels around the ring of ranks with coll_send and coll_recv;
 * then all ranks pass an array to their right neighbour at the same time, for
 * which coll_send_recv is made.
 */
#include <coll/coll.h>
#include <stdint.h>
#include <stdio.h>

#define COUNT 1000

/* Rank 0 starts the token at 0; each rank adds its number and passes it on. A
 * send may wait until its receiver is ready, so somebody must receive first:
 * here everybody but rank 0. */
static coll_status pass_token(coll_comm *comm, int rank, int size, int64_t *token)
{
	const int right = (rank + 1) % size, left = (rank + size - 1) % size;
	coll_status status;

	*token = 0;
	if (rank == 0) {
		status = coll_send(token, 1, COLL_I64, right, comm, NULL);
		return status ? status : coll_recv(token, 1, COLL_I64, left, comm, NULL);
	}
	status = coll_recv(token, 1, COLL_I64, left, comm, NULL);
	*token += rank;
	return status ? status : coll_send(token, 1, COLL_I64, right, comm, NULL);
}

/* If all ranks called coll_send first, all might wait for ever for somebody to
 * receive. coll_send_recv does both at once. */
static coll_status shift(coll_comm *comm, int rank, int size, int *wrong)
{
	const int right = (rank + 1) % size, left = (rank + size - 1) % size;
	int32_t out[COUNT], in[COUNT];
	coll_status status;

	for (int i = 0; i < COUNT; i++)
		out[i] = rank * COUNT + i;
	status = coll_send_recv(out, COUNT, right, in, COUNT, left, COLL_I32, comm, NULL);
	*wrong = 0;
	for (int i = 0; status == COLL_OK && i < COUNT; i++)
		*wrong += in[i] != left * COUNT + i;
	return status;
}

int main(void)
{
	coll_comm *comm = NULL;
	int64_t token = 0;
	int rank, size, wrong = 0;
	coll_status status;

	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "sendrecv: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	if (size < 2) {
		printf("sendrecv: this example needs 2 ranks or more; try: collrun -n 2 example_sendrecv\n");
		return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
	}
	status = pass_token(comm, rank, size, &token);
	if (status == COLL_OK)
		status = shift(comm, rank, size, &wrong);
	if (status != COLL_OK)
		fprintf(stderr, "sendrecv: %s\n", coll_last_error(comm)->message);
	else if (rank == 0)
		printf("the token came back as %lld, expected %lld\n", (long long)token,
		       (long long)size * (size - 1) / 2);
	if (status == COLL_OK)
		printf("rank %d: %d numbers arrived, %d wrong\n", rank, COUNT, wrong);
	if (coll_comm_destroy(&comm) != COLL_OK)
		return 1;
	return status == COLL_OK && wrong == 0 && (rank || token == (int64_t)size * (size - 1) / 2) ? 0 : 1;
}
