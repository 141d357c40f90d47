/*
 * The digest of this host: read by one process per host and boot, then kept in a file (digest_cache.h) of /dev/shm or
 * XDG_RUNTIME_DIR. What a process may see belongs to the key of the file: user, network namespace, cgroup. A user has a
 * few files at most, and of two keys that share one the later replaces the earlier. Nothing is kept where variables of
 * hwloc (HWLOC_XMLFILE ...) say what the host is.
 */
#ifndef COLL_TOPOLOGY_HOST_DIGEST_H
#define COLL_TOPOLOGY_HOST_DIGEST_H

#include "topology/digest_cache.h"

struct coll_host_digest {
	struct coll_digest digest; /* empty: no memory */
	bool cached;               /* it comes from the file */
	double load_ms;            /* all of it, waiting included */
	char note[160];            /* what could not be read, and why; "" */
};

/* This host as it is: hwloc, and rates of the kernel. Without hwloc only NICs, and note says so. NULL: out of memory.
 * free() it. */
struct coll_graph *coll_host_graph(char *note, size_t note_bytes);

/* Never fails: what cannot be read is not in the digest. */
void coll_host_digest_obtain(struct coll_host_digest *d);

/* Name and key of the file; false: there is none to be used. */
bool coll_host_digest_path(char *path, size_t path_bytes, uint64_t *key);

#endif
