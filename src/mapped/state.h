/*
 * What a communicator has for direct calls: region.c makes it, call.c uses it.
 */
#ifndef COLL_MAPPED_STATE_H
#define COLL_MAPPED_STATE_H

#include <assert.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "coll/transport_shared.h"
#include "mapped/region.h"

enum { MAPPED_LINE = 64, MAPPED_PAGE = 4096, MAPPED_CALLS = 256, MAPPED_PARITIES = 2 };

/* A rank's page: its words, each with one writer, on lines of their own. Peers map it. */
struct mapped_page {
	/* By rank: the last sync that it has signalled. Written by its stream. */
	struct {
		_Alignas(MAPPED_LINE) _Atomic uint32_t sync;
	} from[COLL_MAPPED_RANKS_MAX];
	/* Written by this rank's stream. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t signalled; /* the last sync that this rank has signalled */
	_Alignas(MAPPED_LINE) _Atomic uint32_t finished;  /* the last sync of the last call that has ended */
	_Alignas(MAPPED_LINE) _Atomic uint32_t reached;   /* steps of host copies that the stream has come to */
	/* Written by this rank's host. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t copied; /* steps of host copies that are done */
	_Alignas(MAPPED_LINE) _Atomic uint32_t guard;  /* not 0: kernels leave the user's memory alone */
	/* The last sync of what was put into streams, or is just being put there; and whether that has ended, and
	 * nothing more will come. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t enqueued;
	_Atomic uint32_t left;
	/* By sequence number: the low half of it above, and the signature of the call. */
	_Alignas(MAPPED_LINE) _Atomic uint64_t calls[MAPPED_CALLS];
};
static_assert(sizeof(struct mapped_page) <= MAPPED_PAGE, "one page");

/* A page within the process: it goes with its last user. */
struct mapped_shared {
	struct mapped_page *page;
	atomic_int users;
};

struct mapped_peer {
	struct mapped_page *page;
	uint64_t page_at; /* as kernels see it */
	uint64_t slots;
	struct mapped_shared *shared; /* of this process; NULL: by the link */
	bool pinned;                  /* the mapping of the page, here */
	bool here;                    /* a rank of this process */
	struct coll_device_import import;
	const struct coll_transport *transport;
	void *link;
	struct coll_offer offer;
	bool offered;
};

struct coll_mapped {
	struct coll_device *device;
	struct coll_intra_op op;
	bool on;
	char about[160]; /* why, or how */
	int rank, size;
	int peer[COLL_MAPPED_RANKS_MAX]; /* whom this rank reads, in this order */
	/* This rank's. */
	struct coll_opened_transport *opened; /* of the page; NULL: the page is of this process */
	struct coll_memory memory;
	struct mapped_shared *shared;
	struct mapped_page *page;
	uint64_t page_at;
	struct coll_device_region region;
	char *staging; /* pinned: a slot of input, and one slot of output for each rank */
	uint64_t staging_at;
	struct mapped_peer peers[COLL_MAPPED_RANKS_MAX];
	/* Numbers given out, by the communicator's thread. Drivers read them when it has failed. */
	_Atomic uint32_t sync, steps;
	uint32_t turn;
};

/* Where the slots of a parity begin: that of the input, and behind it that of partial results. */
static inline uint64_t mapped_slot(uint64_t slots, uint32_t turn, bool result)
{
	return slots + ((uint64_t)(turn % MAPPED_PARITIES) * 2 + result) * COLL_MAPPED_SLOT_BYTES;
}

static inline uint64_t mapped_word(const struct mapped_page *page, uint64_t page_at, const void *word)
{
	return page_at + (uint64_t)((const char *)word - (const char *)page);
}

#endif
