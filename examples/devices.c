/*
 * Memory of a GPU: buffers of a call may be there, here, or one of each.
 *
 *     collrun -n 2 example_devices
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "devices: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

int main(void)
{
	coll_config cfg = COLL_CONFIG_INIT;
	float here[COUNT], back[COUNT] = {0};
	coll_stream *stream;
	coll_comm *comm;
	void *there;
	int rank, size;

	/* Before anything else: which device has this rank? "cuda": the one of its number on this host. */
	cfg.device = "cuda";
	if (coll_comm_create(&comm, &cfg) != COLL_OK) {
		printf("no device: %s\n", coll_last_error(NULL)->message);
		return 0;
	}
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	check(coll_mem_alloc_on(comm, &there, sizeof(here), COLL_MEM_DEVICE));
	for (int i = 0; i < COUNT; i++)
		here[i] = (float)(rank + i);
	/* From the host into the device, and the sum from the device back to the host, in one call. */
	check(coll_all_reduce(here, there, COUNT, COLL_F32, COLL_SUM, comm, NULL));
	check(coll_all_reduce(there, back, COUNT, COLL_F32, COLL_MAX, comm, NULL));
	printf("rank %d on %s: element 1 is %g\n", rank, coll_comm_device(comm), (double)back[1]);

	/* In a stream of the device (a cudaStream_t; NULL is the default one): the call returns at once, work that the
	 * program launched before comes first, and work that it launches later comes behind. */
	check(coll_stream_wrap_cuda(&stream, comm, NULL));
	check(coll_all_reduce(there, there, COUNT, COLL_F32, COLL_AVG, comm, stream));
	if (!coll_stream_is_captured(stream)) /* in a graph it would run at each launch instead */
		check(coll_stream_wait(stream, 60000));
	check(coll_stream_destroy(&stream));
	check(coll_broadcast(there, back, COUNT, COLL_F32, 0, comm, NULL));
	printf("rank %d: the average is %g%s\n", rank, (double)back[1],
	       back[1] == (float)(size + size * (size - 1) / 2) ? "" : ", WRONG");
	check(coll_mem_free(comm, there));
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
