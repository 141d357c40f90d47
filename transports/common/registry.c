/*
 * The table of transports, in order of preference. It owns nothing else: which
 * of them a pair of processes uses is the communicator's decision.
 */
#include "transports/common/registry.h"

#include <string.h>

const struct coll_transport *const coll_transports[] = {
        &coll_transport_loop, &coll_transport_shm, &coll_transport_rdma, &coll_transport_tcp, NULL,
};

const struct coll_transport *coll_transport_find(const char *name)
{
	for (size_t i = 0; coll_transports[i]; i++) {
		if (strcmp(coll_transports[i]->name, name) == 0)
			return coll_transports[i];
	}
	return NULL;
}
