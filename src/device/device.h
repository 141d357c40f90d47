/*
 * Devices: memory that is not host memory, and streams that are ordered on the device.
 *
 * A context has one device or none (coll_config.device). A context without one makes no driver call and takes every
 * pointer for host memory. The kind of a buffer is a local fact. Which ranks have a device is agreed at creation.
 *
 * The table has a row for each kind of device (today: cuda). What a member enqueues never waits for another rank by
 * itself: a stream waits for a word in pinned host memory, and a host store can end that wait. Nothing is
 * allocated, loaded, mapped or created after open(), pin() and stream_create(). All members may be called by any
 * thread, and bind the device's context to it first. An error of the driver is described in the device's error box
 * (coll_device_error()). It is COLL_ERR_SYSTEM; a lack of memory is COLL_ERR_MEMORY.
 */
#ifndef COLL_DEVICE_DEVICE_H
#define COLL_DEVICE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/text.h"
#include "device/kernels/args.h"
#include "transport/transport.h"

/* Kinds of memory (struct coll_memory.kind). */
enum { COLL_DEVICE_HOST = 0, COLL_DEVICE_CUDA = 1 };

/* A stream of the driver (CUstream). NULL: the legacy default stream. */
typedef void *coll_device_stream;

/* What is known of a range of memory. */
struct coll_device_range {
	int kind;    /* COLL_DEVICE_HOST, or the device's kind */
	int ordinal; /* device that the memory belongs to; -1: host memory */
	const char
	        *fault; /* NULL, or why the range cannot be used: "managed memory", "memory of cuda:1" ...; constant */
	uintptr_t base; /* of the allocation; 0: unknown */
	size_t len_bytes; /* of the allocation */
	uint64_t id;      /* of the allocation: another one at the same address has another */
};

/* One contiguous piece of a copy. Addresses as kernels see them: device memory, or a pinned address of pin(). */
struct coll_device_piece {
	uint64_t dst, src;
	uint64_t len_bytes;
};

/* The capture of a stream into a graph. */
struct coll_device_capture {
	uint64_t id; /* unique in the process; 0: the stream is not being captured */
	void *graph; /* that is being made */
};

/* An event that graphs wait for and record. */
typedef void *coll_device_fence;

/* A word that a stream writes, or waits for. The address is as kernels see it. */
struct coll_device_word {
	uint64_t at;
	uint32_t value;
};

/*
 * A region: device memory that other ranks of the host map. Its export travels to them. A descriptor, if it has one,
 * travels beside it; else the handle serves other processes. Within the process the address is enough.
 */
enum coll_device_share { COLL_DEVICE_SHARE_NONE, COLL_DEVICE_SHARE_DESCRIPTOR, COLL_DEVICE_SHARE_HANDLE };
struct coll_device_export {
	uint64_t address, len_bytes; /* address: in the owner's process */
	uint32_t share;              /* enum coll_device_share: with other processes */
	int32_t ordinal;             /* in the owner's process */
	unsigned char handle[64];
};
struct coll_device_region {
	struct coll_device_export export;
	uint64_t len_bytes; /* 0: nothing */
	uint64_t memory;    /* of the driver, to be released */
	int fd;             /* the caller closes it, and sets -1; -1: none */
};
/* A region of another rank, mapped. */
struct coll_device_import {
	uint64_t address, len_bytes;
	uint32_t share; /* how; NONE: it is memory of this process */
};

/* Of a reduction: see struct coll_kernel_reduce_args. */
struct coll_device_places {
	uint64_t found, shift, whole_shift, whole_count, whole_out;
};

/* Whether kernels may write: if word is 0, or *word is 0 when the kernel begins. gate: 0, or see kernels/args.h. */
struct coll_device_guard {
	uint64_t word, gate;
};

struct coll_device;
struct coll_reduction;

struct coll_device_table {
	const char *name; /* "cuda" */

	/* What a thread does between enter and leave binds the context once. They nest; every enter has its leave. */
	coll_status (*enter)(struct coll_device *d);
	void (*leave)(struct coll_device *d);

	/* Memory. Device memory is not zeroed. free waits for the work of the device. identify never reads the range;
	 * false: the driver failed. */
	bool (*identify)(struct coll_device *d, const void *ptr, size_t len_bytes, struct coll_device_range *range);
	coll_status (*alloc)(struct coll_device *d, size_t len_bytes, void **ptr);
	coll_status (*free)(struct coll_device *d, void *ptr);
	/* Pin host memory (page-aligned) for the device; *address is where kernels find it. */
	coll_status (*pin)(struct coll_device *d, void *host, size_t len_bytes, uint64_t *address);
	coll_status (*unpin)(struct coll_device *d, void *host);

	/* Regions. create: all devices of this process that can reach this one may use it. import: fd is that of the
	 * region's descriptor, or -1, and stays the caller's. reaches: whether kernels of d may use memory of the
	 * device `other` of this process, from now on. */
	coll_status (*region_create)(struct coll_device *d, size_t len_bytes, struct coll_device_region *r);
	void (*region_destroy)(struct coll_device *d, struct coll_device_region *r);
	/* Store 0 to words of 32 bits, and wait until that is done. At creation: it may wait for what the device runs.
	 */
	coll_status (*clear)(struct coll_device *d, const uint64_t *words, int nwords);
	/* What others need to map memory of the user, from base on, which identify() has said. len_bytes stays 0: it is
	 * not to be destroyed. */
	coll_status (*region_export)(struct coll_device *d, uint64_t base, uint64_t len_bytes,
	                             struct coll_device_region *r);
	/* Wait for all work of the device. */
	coll_status (*settle)(struct coll_device *d);
	coll_status (*region_import)(struct coll_device *d, const struct coll_device_export *export, int fd,
	                             struct coll_device_import *import);
	void (*region_close)(struct coll_device *d, struct coll_device_import *import);
	bool (*reaches)(struct coll_device *d, struct coll_device *other);

	/* Streams. check: the stream is usable by this device, and what captures it: ARGUMENT if it belongs to another
	 * device, UNSUPPORTED if its capture has failed, or if it is the legacy stream during a capture of others (*why
	 * says so; it is valid until the thread's next check). */
	coll_status (*stream_create)(struct coll_device *d, coll_device_stream *s);
	coll_status (*stream_destroy)(struct coll_device *d, coll_device_stream s);
	coll_status (*stream_check)(struct coll_device *d, coll_device_stream s, struct coll_device_capture *capture,
	                            const char **why);
	/* OK, or the sticky error of the context, described in the box: no work of it will run any more. Asks by a
	 * stream of the device's own, since a user's may be captured, or gone, by now. */
	coll_status (*fault)(struct coll_device *d);

	/* Enqueue. Words are 32-bit, addresses as kernels see them.
	 * gather: copy the pieces, then store value into word, visible to the host after the copied bytes. npieces
	 * may be 0. scatter: copy the pieces unless *guard is not 0 when the kernel begins, then store value into word
	 * in any case. npieces may be 0. word 0: nothing is stored. wait: later work of the stream begins when
	 * (int32_t)(*word - value) >= 0. order: later work of `later` begins when all present work of `earlier`
	 * has ended. */
	coll_status (*gather)(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
	                      int npieces, uint64_t word, uint32_t value);
	coll_status (*scatter)(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
	                       int npieces, uint64_t guard, uint64_t word, uint32_t value);
	coll_status (*wait)(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t value);
	coll_status (*order)(struct coll_device *d, coll_device_stream earlier, coll_device_stream later);
	/* listed: copy the piece that lies at `at` when the kernel begins, of at most len_max bytes, unless *guard is
	 * not 0 then; then store value into word in any case. */
	coll_status (*listed)(struct coll_device *d, coll_device_stream s, uint64_t at, size_t len_max, uint64_t guard,
	                      uint64_t word, uint32_t value);
	/* move: copy the pieces, if the guard lets the kernel write; one launch for each
	 * COLL_DEVICE_PIECES_MAX pieces. reduce: the inputs in their order, whole, to *out, guarded likewise; the
	 * operation has a kernel (can_reduce); where: NULL, or other places of kernels/args.h. exchange: write all
	 * words of `writes`, each visible after everything before it in the stream, then wait for all words of `waits`.
	 * At most COLL_DEVICE_PIECES_MAX in all. */
	coll_status (*move)(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
	                    int npieces, struct coll_device_guard guard);
	coll_status (*reduce)(struct coll_device *d, coll_device_stream s, const struct coll_reduction *r, uint64_t out,
	                      const uint64_t *in, int nin, size_t count, const struct coll_device_places *where,
	                      struct coll_device_guard guard);
	coll_status (*exchange)(struct coll_device *d, coll_device_stream s, const struct coll_device_word *writes,
	                        int nwrites, const struct coll_device_word *waits, int nwaits);

	/* The kernels of kernels/args.h. */
	coll_status (*look)(struct coll_device *d, coll_device_stream s, const struct coll_kernel_look_args *look);
	coll_status (*fetch)(struct coll_device *d, coll_device_stream s, const struct coll_kernel_fetch *pieces,
	                     int npieces, uint64_t found, struct coll_device_guard guard);
	coll_status (*signal)(struct coll_device *d, coll_device_stream s,
	                      const struct coll_kernel_signal_args *signal);

	/* Captures. What is enqueued in a stream that is being captured is done at each launch of the graph, with the
	 * same arguments. wait_bit: later work begins when (*word & mask) != 0. fence_wait and fence_record, in such
	 * streams only: at each launch, later work begins when the graphs launched before have passed their
	 * fence_record. graph_own: gone(arg) is called once, in any thread, when neither the graph, nor an executable,
	 * nor a launch of it exists any more; it may not call the driver. After an error as well. */
	coll_status (*wait_bit)(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t mask);
	coll_status (*fence_create)(struct coll_device *d, coll_device_fence *f);
	coll_status (*fence_destroy)(struct coll_device *d, coll_device_fence f);
	coll_status (*fence_wait)(struct coll_device *d, coll_device_stream s, coll_device_fence f);
	coll_status (*fence_record)(struct coll_device *d, coll_device_stream s, coll_device_fence f);
	coll_status (*graph_own)(struct coll_device *d, void *graph, void (*gone)(void *arg), void *arg);
};
enum { COLL_DEVICE_PIECES_MAX = 64 };

/* A row's object begins with this. */
struct coll_device {
	const struct coll_device_table *table;
	int ordinal;
	char name[32];  /* "cuda:0" */
	char pci[24];   /* "0000:34:00.0": where it is; "": the driver does not say */
	char about[96]; /* "NVIDIA H100 80GB HBM3, driver 13.0" */
	char lacks[96]; /* abilities that are off, by name: "dmabuf batch"; "" */
	pthread_mutex_t err_lock;
	struct coll_error_box err; /* the last error; err_lock */
};

/*
 * Work that nobody waits for any longer, and that may never end. Until it has, that is until the word (which stays for
 * good) has come to the value, whatever waits for the whole device would wait for it. So nothing of the device is given
 * back to the driver then. Counts for all objects of the same device in this process.
 */
void coll_device_hold(struct coll_device *d, const _Atomic uint32_t *word, uint32_t value);
bool coll_device_is_held(const struct coll_device *d);
/* unpin(), if that does not wait for such work. Not OK: the memory stays pinned, and must stay. */
coll_status coll_device_unpin(struct coll_device *d, void *host);

/* A copy of the last error. */
void coll_device_error(struct coll_device *d, struct coll_error_box *box);

/*
 * What a text of coll_config.device or COLL_DEVICE asks for: "host", "cuda" (the local rank modulo the number of
 * devices), "cuda:2", or a list for the ranks of coll_comm_create_all: "cuda:0,1,2,3". COLL_ERR_CONFIG: anything else.
 */
struct coll_device_choice {
	bool wanted; /* false: host */
	int ordinal; /* -1: by local rank */
	int n;       /* entries of the list; 0 or 1: no list */
	int list[64];
};
coll_status coll_device_parse(const char *text, struct coll_device_choice *choice, struct coll_error_box *err);

/* Whether a device can be opened, before anything is: the driver is found and has devices, this build has kernels.
 * library: the file to load, "" for the usual ones. CONFIG: it cannot, err names the file that was tried, or the
 * device that does not exist. */
coll_status coll_device_probe(const struct coll_device_choice *choice, const char *library, struct coll_error_box *err);

/* Open the device of a rank: rank r of create_all takes list[r]; else ordinal, else local_rank modulo the number of
 * devices. Loads and launches every kernel once. The same ordinal may be opened several times. */
coll_status coll_device_open(const struct coll_device_choice *choice, const char *library, int rank, int local_rank,
                             struct coll_device **device, struct coll_error_box *err);
/* Where the device of a rank is on the PCI bus, before it is opened; "": it has none, the driver does not say, or the
 * device follows from a local rank that is unknown (-1). */
void coll_device_locate(const struct coll_device_choice *choice, const char *library, int rank, int local_rank,
                        char pci[24]);
void coll_device_close(struct coll_device **device);

/* Lines for people: the driver, its devices, and abilities that are off; or "none" and why. Opens no device. */
void coll_device_describe(const char *library, struct coll_text *text);

/* Whether devices have a kernel for the operation: not for those of users. */
bool coll_device_can_reduce(coll_dtype type, coll_op op);

/* What the engine and the transports are told about memory of a kind of which nothing else is
 * known. Valid for good. */
const struct coll_memory *coll_device_memory(int kind);

#endif
