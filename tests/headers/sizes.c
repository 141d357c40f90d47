/*
 * Prints the sizes of the large structs, for ratchets.py: each has a limit that may only fall.
 */
#include "core/comm.h"
#include "devcall/device_call.h"

#include <stdio.h>

int main(void)
{
	printf("struct coll_request %zu\n", sizeof(struct coll_request));
	printf("struct coll_collective_request %zu\n", sizeof(struct coll_collective_request));
	printf("struct coll_pair_request %zu\n", sizeof(struct coll_pair_request));
	printf("struct coll_tag_request %zu\n", sizeof(struct coll_tag_request));
	printf("struct coll_device_call %zu\n", sizeof(struct coll_device_call));
	printf("struct coll_comm %zu\n", sizeof(struct coll_comm));
	printf("struct coll_context %zu\n", sizeof(struct coll_context));
	return 0;
}
