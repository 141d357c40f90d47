/*
 * Buffers of the tests of long messages in memory that all ranks map: off a page by any number of bytes, with bytes
 * beside them that nobody may touch; and what was counted of such messages.
 */
#ifndef COLL_TESTS_DIRECT_BUFFERS_H
#define COLL_TESTS_DIRECT_BUFFERS_H

#include <sys/uio.h>

#include "async_ranks.h"
#include "intra/zero_copy.h"

#include "core/comm.h"
#include "intra/region.h"

enum { PAGE = 4096, CANARY = 0x5a, ROOM = 3 * PAGE };

static inline struct coll_intra_stats stats(const coll_comm *comm)
{
	return comm->intra ? *coll_intra_stats(comm->intra) : (struct coll_intra_stats){0};
}

/* Containers forbid it, and emulators do not have it. */
static inline bool kernel_reads(void)
{
	char from = 1, to = 0;
	struct iovec here = {&to, 1}, there = {&from, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

struct buffer {
	char *all, *at;
	size_t bytes;
	bool plain;
};

static inline void take(coll_comm *comm, struct buffer *b, size_t bytes, size_t shift, bool plain)
{
	void *p = NULL;

	if (plain)
		p = malloc(bytes + ROOM);
	else
		OK(comm, coll_mem_alloc(comm, &p, bytes + ROOM));
	*b = (struct buffer){.all = p, .at = (char *)p + shift, .bytes = bytes, .plain = plain};
	memset(p, CANARY, bytes + ROOM);
}

static inline void drop(coll_comm *comm, struct buffer *b)
{
	size_t touched = 0;

	for (char *p = b->all; p < b->all + b->bytes + ROOM; p++)
		touched += (p < b->at || p >= b->at + b->bytes) && *p != CANARY;
	CHECK(touched == 0, "rank %d: %zu bytes beside a buffer", coll_comm_rank(comm), touched);
	if (b->plain)
		free(b->all);
	else
		OK(comm, coll_mem_free(comm, b->all));
}

#endif
