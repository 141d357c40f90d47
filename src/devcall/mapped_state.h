/*
 * What a communicator has for direct calls: region.c makes it, call.c and graphs.c use it.
 */
#ifndef COLL_MAPPED_STATE_H
#define COLL_MAPPED_STATE_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/limits.h"
#include "devcall/mapped_graphs.h"
#include "devcall/mapped_region.h"
#include "device/kernels/args.h"
#include "transport/transport_shared.h"

enum { MAPPED_LINE = 64, MAPPED_PAGE = 16384, MAPPED_CALLS = 256, MAPPED_PARITIES = 2 };
enum { MAPPED_GRAPH_CALLS = 4 }; /* ranks are one call apart at most */
enum { MAPPED_REGIONS = COLL_KERNEL_REGIONS, MAPPED_RECORDS = 64 };

/* In the answer of a rank to an announcement: it cannot map the region. */
#define MAPPED_REFUSED ((uint32_t)1 << 31)

/* What a rank says of a region of its user's memory. Odd generation: it is announced; even: it is not, and peers let it
 * go. The rest is written while no peer looks: all of them have answered the even generation. */
struct mapped_note {
	_Atomic uint32_t generation;
	int32_t fd; /* within the process */
	struct coll_device_export export;
};

/* struct coll_kernel_record, as the host writes it. */
struct mapped_record {
	_Atomic uint32_t number;
	uint32_t unused;
	_Atomic uint64_t in;
};
static_assert(sizeof(struct mapped_record) == sizeof(struct coll_kernel_record), "what kernels read");

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
	_Alignas(MAPPED_LINE) _Atomic uint32_t guard;  /* not 0: kernels write nothing, neither slots nor buffers */
	/* Written before the guard: the last sync whose kernels have run without it. Later ones are worth nothing. */
	_Atomic uint32_t sound;
	/* The last sync of what was put into streams, or is just being put there; and whether that has ended, and
	 * nothing more will come. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t enqueued;
	_Atomic uint32_t left;
	/* The user has got memory back that peers may still read: what they make of it is worth nothing. */
	_Atomic uint32_t revoked;
	/* By sequence number: the low half of it above, and the signature of the call. */
	_Alignas(MAPPED_LINE) _Atomic uint64_t calls[MAPPED_CALLS];
	/* Of captured calls: the syncs that this rank's device has come to, was let go on from, and has left; and the
	 * last calls, as above. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t graph_come;
	_Atomic uint32_t graph_given, graph_left;
	_Atomic uint64_t graph_calls[MAPPED_GRAPH_CALLS];
	/* Regions of this rank, and how often one of the notes has changed. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t announced;
	struct mapped_note notes[MAPPED_REGIONS];
	/* Written by this rank's mapper, by rank and region: the generation that it has answered; and where the region
	 * lies for the kernels of this rank, written before. */
	_Alignas(MAPPED_LINE) _Atomic uint32_t answered[COLL_MAPPED_RANKS_MAX][MAPPED_REGIONS];
	_Alignas(MAPPED_LINE) _Atomic uint64_t bases[COLL_MAPPED_RANKS_MAX][MAPPED_REGIONS];
	/* By the number of the call. */
	_Alignas(MAPPED_LINE) struct mapped_record records[MAPPED_RECORDS];
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

/* A region of this rank. Its generation is odd while it is announced. */
struct mapped_own {
	struct coll_device_region region; /* its descriptor, until all have answered */
	uintptr_t base;
	size_t len_bytes;
	uint64_t id;
	uint32_t generation;
	uint32_t last_sync; /* of the last call with it */
	uint64_t used;      /* when */
};

/* A region of a peer. */
struct mapped_their {
	uint32_t generation; /* answered */
	struct coll_device_import import;
};

/* The pinned memory and the guard of a kind of calls. */
struct mapped_base {
	char *in, *out;
	uint64_t in_at, out_at; /* as kernels see them */
	struct coll_device_guard guard;
};

struct coll_mapped {
	struct coll_device_facts facts; /* first: see coll_mapped_of() */
	struct coll_device *device;
	uint64_t id;     /* of the communicator */
	bool one_device; /* all ranks have the same one */
	uint32_t epoch;
	int rank, size;
	int peer[COLL_MAPPED_RANKS_MAX]; /* whom this rank reads, in this order */
	/* This rank's. */
	struct coll_opened_transport *opened; /* of the page; NULL: the page is of this process */
	struct coll_memory memory;
	struct mapped_shared *shared;
	struct mapped_page *page;
	uint64_t page_at;
	struct coll_device_region region;
	char *staging; /* pinned: a slot of input, and one of output */
	uint64_t staging_at;
	struct mapped_base base;
	struct mapped_peer peers[COLL_MAPPED_RANKS_MAX];
	/* Numbers given out, by the communicator's thread. Drivers read them when it has failed. */
	_Atomic uint32_t sync, steps;
	uint32_t turn;
	size_t slot_bytes;
	/* Peers may use the user's memory: in some call so far; and when the communicator failed. The first is written
	 * by the communicator's thread, the second by drivers. */
	atomic_bool lends, loaned;
	/* Records: see records.c. These belong to the communicator's thread. */
	struct mapped_own own[MAPPED_REGIONS];
	uint32_t record;                      /* number of the next call with records */
	uint32_t record_sync[MAPPED_RECORDS]; /* last sync of the call that has the record */
	uint64_t uses, in_place, by_copy;     /* of regions; buffers of long calls */
	int asked;                            /* the region that was last asked for */
	const char *copied_for;               /* why the last buffer was copied; NULL: none was */
	/* Captured calls: see graphs.c. Drivers. */
	struct mapped_graphs {
		struct coll_intra_op op;
		struct coll_mapped_words *words; /* NULL: nothing was captured */
		uint64_t words_at;
		struct mapped_base base;
		_Atomic uint32_t ready; /* 1: the device has come to what is started */
		uint32_t sync;          /* syncs of the calls before */
		/* Of the call that runs: syncs that this rank's device has come to, was let go on from, has left,
		 * and that all have left. */
		uint32_t come, given, left, clear;
		bool copied; /* the input of the sync that the device comes to next */
	} graphs;
	/* The mapper: see mapper.c. */
	struct mapped_mapper {
		pthread_t thread;
		pthread_mutex_t lock;
		pthread_cond_t wanted;
		bool made, started;
		bool called, stopping; /* lock */
		_Atomic uint32_t seen; /* sum of the peers' counts of announcements at the last call */
		struct mapped_their theirs[COLL_MAPPED_RANKS_MAX][MAPPED_REGIONS];
	} mapper;
};

/*
 * The region of a rank: for each parity the slot of the input and that of partial results, then the slots of captured
 * calls, then where this rank's kernels keep what they have found in the records of a call, and their gates.
 */
static inline uint64_t mapped_slot(const struct coll_mapped *d, uint32_t turn, bool result)
{
	return ((uint64_t)(turn % MAPPED_PARITIES) * 2 + result) * d->slot_bytes;
}

/* One fits in the staging memory of captured calls. */
static inline size_t mapped_graph_slot_bytes(const struct coll_mapped *d)
{
	const size_t most = (size_t)COLL_STAGE_SLOTS * COLL_STAGE_SLOT_BYTES;

	return d->slot_bytes < most ? d->slot_bytes : most;
}

static inline uint64_t mapped_graph_slot(const struct coll_mapped *d, uint32_t sync)
{
	return 2 * MAPPED_PARITIES * (uint64_t)d->slot_bytes +
	       (uint64_t)(sync % COLL_MAPPED_GRAPH_SLOTS) * mapped_graph_slot_bytes(d);
}

static inline uint64_t mapped_found_at(const struct coll_mapped *d)
{
	return 2 * MAPPED_PARITIES * (uint64_t)d->slot_bytes +
	       COLL_MAPPED_GRAPH_SLOTS * (uint64_t)mapped_graph_slot_bytes(d);
}

static inline uint64_t mapped_found(const struct coll_mapped *d)
{
	return d->peers[d->rank].slots + mapped_found_at(d);
}

/* Behind them the gates of this rank's kernels: of ordinary calls, of which one runs at a time, and of captured ones.
 */
enum { MAPPED_FOUND_BYTES = 128, MAPPED_GATES_BYTES = 2 * MAPPED_LINE };
static_assert(sizeof(struct coll_kernel_found) <= MAPPED_FOUND_BYTES, "room for it");

static inline uint64_t mapped_gate(const struct coll_mapped *d, bool captured)
{
	return d->region.export.address + mapped_found_at(d) + MAPPED_FOUND_BYTES + (captured ? MAPPED_LINE : 0);
}

/* Acquire: what was stored before the number is seen. */
static inline bool mapped_is_past(const _Atomic uint32_t *word, uint32_t number)
{
	return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - number) >= 0;
}

static inline uint64_t mapped_word(const struct mapped_page *page, uint64_t page_at, const void *word)
{
	return page_at + (uint64_t)((const char *)word - (const char *)page);
}

#endif
