/*
 * A call that is made often: prepared once, started many times, in memory that
 * the ranks of a host share; and receives that are posted before their message comes.
 *
 *     collrun -n 2 example_persistent
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 4096

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "persistent: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

int main(void)
{
	coll_operation_desc desc = COLL_OPERATION_DESC_INIT;
	static int32_t plain[COUNT];
	coll_request *note, *never;
	coll_operation *sum;
	coll_message_info info;
	coll_comm *comm;
	coll_status status;
	int32_t said = 0, unused = 0, word;
	int rank, size, wrong = 0;
	void *memory;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	check(coll_mem_alloc(comm, &memory, COUNT * sizeof(int32_t)));
	check(coll_mem_register(comm, plain, sizeof(plain))); /* memory of one's own, announced */
	desc.kind = COLL_ALL_REDUCE;
	desc.in = plain;
	desc.out = memory;
	desc.count = COUNT;
	desc.type = COLL_I32;
	check(coll_operation_prepare(&sum, &desc, comm));
	for (int round = 0; round < 100; round++) {
		for (int i = 0; i < COUNT; i++)
			plain[i] = rank + round;
		check(coll_operation_start(sum, NULL)); /* does not wait */
		while ((status = coll_operation_test(sum)) == COLL_AGAIN)
			; /* here would be other work; or wait: */
		check(status);
		check(coll_operation_wait(sum, -1));
		wrong += ((int32_t *)memory)[round] != size * round + size * (size - 1) / 2;
	}
	check(coll_operation_destroy(&sum));
	check(coll_mem_deregister(comm, plain));
	check(coll_mem_free(comm, memory));

	/* To oneself, so that one rank is enough: a receive that waits for its message, and one that never gets any. */
	check(coll_irecv(&said, 1, COLL_I32, rank, 1, comm, &note));
	check(coll_irecv(&unused, 1, COLL_I32, rank, 2, comm, &never));
	wrong += coll_request_test(&note, &info) != COLL_AGAIN || coll_iprobe(rank, 3, comm, &info) != COLL_AGAIN;
	word = 10 + rank;
	check(coll_send_tag(&word, 1, COLL_I32, rank, 1, comm, NULL));
	check(coll_request_wait(&note, 60000, &info));
	check(coll_request_cancel(never)); /* taken back; it still has to be ended */
	status = coll_request_wait(&never, -1, NULL);
	printf("rank %d: %d wrong; a message of rank %d with %d; the other receive: %s\n", rank, wrong, info.source,
	       said, coll_status_string(status));
	return coll_comm_destroy(&comm) == COLL_OK && !wrong ? 0 : 1;
}
