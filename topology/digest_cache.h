/*
 * A file that keeps the digest of this host, so that only the first process reads the host. It is a hint: whatever is
 * wrong with it, the digest is made anew. In a folder that others may write to, so a file counts only if it is a
 * regular file of this user that others cannot write, and of this key.
 *
 * The digest is written to FILE.new, which is locked meanwhile, and renamed: a file is whole or not there. Who waits
 * for the lock finds the file afterwards.
 */
#ifndef COLL_TOPOLOGY_DIGEST_CACHE_H
#define COLL_TOPOLOGY_DIGEST_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "topology/digest.h"

struct coll_digest {
	size_t len_bytes; /* 0: nothing is known */
	uint64_t hash;
	uint8_t bytes[COLL_DIGEST_MAX];
};

/* False: there is no file, or none that counts. */
bool coll_digest_cache_read(const char *path, uint64_t key, struct coll_digest *d);

/* Makes the digest. True: it is worth keeping. */
typedef bool coll_digest_make_fn(void *arg, struct coll_digest *d);

/* From the file, or else from make(), and then it is written to the file if that is possible. For at most wait_ms it
 * waits for another process that makes it. True: it comes from the file. */
bool coll_digest_cache_obtain(const char *path, uint64_t key, int wait_ms, coll_digest_make_fn *make, void *arg,
                              struct coll_digest *d);

#endif
