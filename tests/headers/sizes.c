/*
 * Prints the sizes of the large structs, for ratchets.py: each has a limit that may only fall.
 */
#include "core/comm.h"
#include "progress/async.h"

#include <stdio.h>

int main(void)
{
	printf("struct coll_request %zu\n", sizeof(struct coll_request));
	printf("struct coll_comm %zu\n", sizeof(struct coll_comm));
	printf("struct coll_context %zu\n", sizeof(struct coll_context));
	return 0;
}
