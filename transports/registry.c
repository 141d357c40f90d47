/*
 * The table of transports, in order of preference. It owns nothing else: which
 * of them a pair of processes uses is the communicator's decision.
 */
#include "transports/registry.h"

#include <string.h>

#define ROW(name) &coll_transport_##name,
const struct coll_transport *const coll_transports[COLL_TRANSPORTS] = {COLL_TRANSPORT_ROWS(ROW)};
#undef ROW

const struct coll_transport *coll_transport_find(const char *name)
{
	for (int i = 0; i < COLL_TRANSPORTS; i++) {
		if (strcmp(coll_transports[i]->name, name) == 0)
			return coll_transports[i];
	}
	return NULL;
}
