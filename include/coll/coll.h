/*
 * libcoll: collective communication among processes.
 *
 * This is the whole public interface of the core. It compiles alone as C11 and
 * C++. Conventions that hold for every function here:
 *
 *  - count is a number of elements, len_bytes a number of bytes, *_ms
 *    milliseconds. A rank is an index in 0 .. size-1 of one communicator.
 *  - A function returns COLL_OK (0) or a coll_status; outputs are written only
 *    on success. coll_last_error() tells the whole story of the last failure.
 *  - One thread at a time may use a communicator. Different communicators may
 *    be used by different threads at once; coll_comm_abort() may be called by
 *    any thread at any time.
 *  - All ranks of a communicator make the same calls in the same order.
 *  - Buffers may be unaligned. In place means: pass the same pointer for in and
 *    out (all_gather: in == out + rank * count elements; reduce_scatter:
 *    out == in + rank * count elements; gather and scatter: the root's own
 *    block likewise). Any other overlap is COLL_ERR_ARGUMENT.
 *  - Results of reductions are bitwise equal on every rank and from run to run
 *    of the same configuration.
 */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define COLL_API __attribute__((visibility("default")))
#else
#define COLL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 1
#define COLL_VERSION_PATCH 0

/* Errors, grouped by what is lost. */
typedef enum coll_status {
	COLL_OK = 0,
	COLL_AGAIN = 1, /* not an error: not finished yet, ask again */

	/* The call is lost; the communicator is as it was before the call. */
	COLL_ERR_ARGUMENT = 10,
	COLL_ERR_UNSUPPORTED = 11,
	COLL_ERR_MEMORY = 12, /* out of memory; met when a call is under way, the communicator is lost */
	COLL_ERR_CONFIG = 13, /* a setting is malformed, unknown or contradictory */

	/* A peer is lost, and with it the communicators it belongs to. */
	COLL_ERR_PEER_DEAD = 20,   /* it exited, was killed, or its link is gone */
	COLL_ERR_PEER_SILENT = 21, /* it exists but nothing in it answers */
	COLL_ERR_PEER_LATE = 22,   /* it answers but did not enter the call in time */

	/* The communicator is lost: destroy it. */
	COLL_ERR_MISMATCH = 30, /* ranks made different calls */
	COLL_ERR_CORRUPT = 31,  /* a frame fails its checks */
	COLL_ERR_ABORTED = 32,  /* coll_comm_abort(), here or at another rank */

	/* The process or machine cannot go on. */
	COLL_ERR_SYSTEM = 40,    /* a system call failed */
	COLL_ERR_BOOTSTRAP = 41, /* the ranks could not find each other */
	COLL_ERR_INTERNAL = 42   /* a defect in this library */
} coll_status;

typedef enum coll_dtype {
	COLL_I8 = 0,
	COLL_U8 = 1,
	COLL_I16 = 2,
	COLL_U16 = 3,
	COLL_I32 = 4,
	COLL_U32 = 5,
	COLL_I64 = 6,
	COLL_U64 = 7,
	COLL_F16 = 8,  /* IEEE binary16; arithmetic in f32, rounded once per step */
	COLL_BF16 = 9, /* bfloat16; arithmetic in f32, rounded once per step */
	COLL_F32 = 10,
	COLL_F64 = 11,
	COLL_DTYPE_COUNT = 12
} coll_dtype;

/*
 * Reduction operations: one of the constants, or a value made by
 * coll_op_create() / coll_op_create_premul_sum(). Integers wrap on overflow;
 * integer COLL_AVG truncates toward zero; COLL_MIN and COLL_MAX of floats are
 * IEEE 754-2019 minimum and maximum (a NaN wins, -0 < +0). Bit operations on
 * floats are COLL_ERR_ARGUMENT. Logical operations give 0 or 1.
 */
typedef uint32_t coll_op;
enum {
	COLL_SUM = 0,
	COLL_PROD = 1,
	COLL_MIN = 2,
	COLL_MAX = 3,
	COLL_AVG = 4,
	COLL_BAND = 5,
	COLL_BOR = 6,
	COLL_BXOR = 7,
	COLL_LAND = 8,
	COLL_LOR = 9,
	COLL_LXOR = 10,
	COLL_OP_COUNT = 11
};

typedef struct coll_comm coll_comm;
typedef struct coll_stream coll_stream; /* NULL: blocking, in the caller's thread */
typedef struct coll_event coll_event;
typedef struct coll_operation coll_operation;

/* ---- Library ---------------------------------------------------------- */

/* Version of the library that is linked, as major * 10000 + minor * 100 + patch. */
COLL_API int coll_version(void);

/* A short constant text for a status, never NULL. */
COLL_API const char *coll_status_string(coll_status status);

/* Name ("f32") and size in bytes of a type; NULL and 0 for an unknown one. */
COLL_API const char *coll_dtype_name(coll_dtype type);
COLL_API size_t coll_dtype_size(coll_dtype type);

/* Name ("sum") of an operation; NULL for an unknown one. */
COLL_API const char *coll_op_name(coll_op op);

/* Where log lines go. level: 0 error, 1 warn, 2 info, 3 debug. The default
 * writes to stderr. line has no newline and is valid during the call; errors and
 * warnings end in an id (coll-info --explain). The callback may be called by any thread
 * of the library, at any moment, several at once, and while the library holds locks: of the
 * library it may call coll_comm_abort() and nothing else, and it should not wait. */
typedef void (*coll_log_fn)(void *arg, int level, const char *line);

/* ---- Creation --------------------------------------------------------- */

#define COLL_UNIQUE_ID_BYTES 128

/* Made by one rank, handed to all others by the caller (any channel). */
typedef struct coll_unique_id {
	char bytes[COLL_UNIQUE_ID_BYTES];
} coll_unique_id;

/* Caller's own all-gather for creation: every rank gives len_bytes at mine, all
 * receive size * len_bytes in rank order at all. Return 0 on success. */
typedef int (*coll_exchange_fn)(void *arg, const void *mine, void *all, size_t len_bytes);

/*
 * How to create a communicator. Initialise with COLL_CONFIG_INIT; every member
 * left zero means: from the environment, else the default (see coll-info).
 */
typedef struct coll_config {
	size_t struct_size;
	int rank; /* -1: from the environment */
	int size; /* 0: from the environment; alone if nothing says otherwise */
	const coll_unique_id *id;
	coll_exchange_fn exchange;
	void *exchange_arg;
	coll_log_fn log;
	void *log_arg;
	/* Settings by name, as in the environment but without it: an array of
	 * "COLL_NAME=value" strings ended by NULL; they override the environment. */
	const char *const *settings;
} coll_config;

#define COLL_CONFIG_INIT                                                       \
	{                                                                      \
		sizeof(coll_config), -1, 0, NULL, NULL, NULL, NULL, NULL, NULL \
	}

/*
 * Create the communicator of all ranks of the job. cfg NULL: everything from
 * the environment (collrun, torchrun, mpirun, COLL_*; alone if there is none).
 * Collective: every rank calls it; returns within the configured time.
 * COLL_ERR_CONFIG, COLL_ERR_BOOTSTRAP, COLL_ERR_MEMORY, COLL_ERR_SYSTEM: nothing is left
 * behind, coll_last_error(NULL) has the story. To be freed by coll_comm_destroy().
 * With more than one rank SIGUSR1 is taken over if nobody handles it: it asks for a dump of the
 * flight recorder until the last communicator goes (COLL_DUMP_SIGNAL=none: not).
 */
COLL_API coll_status coll_comm_create(coll_comm **comm, const coll_config *cfg);

/* An id for coll_config.id: opens the rendezvous in the calling process, which
 * must become one of the ranks (rank 0). */
COLL_API coll_status coll_unique_id_create(coll_unique_id *id);

/* n communicators of one job in this process: comms[0..n-1], to be used by n
 * threads, one each. */
COLL_API coll_status coll_comm_create_all(coll_comm **comms, int n, const coll_config *cfg);

/*
 * New communicators from one: collective over parent, as one of its numbered calls.
 * parent stays as it is; parent and children may be used at once by different threads
 * and are destroyed in any order. A child has its own order of calls, errors, channels
 * and operations (coll_op_create); it shares connections and threads with its parent.
 * What one rank asks for that cannot be is refused on all ranks.
 */

/* One child for each colour >= 0, its ranks ordered by key, then by rank in parent.
 * COLL_NO_COLOUR: takes part in the call, *child is set to NULL. */
#define COLL_NO_COLOUR (-1)
COLL_API coll_status coll_comm_split(coll_comm *parent, int colour, int key, coll_comm **child);

/* The same ranks once more: for calls that are independent of parent's. */
COLL_API coll_status coll_comm_duplicate(coll_comm *parent, coll_comm **child);

/* ranks[0..n-1], ranks of parent, become ranks 0..n-1 of *child. Those in the list all
 * pass the same one; others pass it too, or a list of other ranks, or n = 0. *child is
 * set to NULL on a rank that is not in its own list. */
COLL_API coll_status coll_comm_create_from_ranks(coll_comm *parent, const int *ranks, int n, coll_comm **child);

/* Collective and orderly end; sets *comm to NULL in any case. Waits (bounded) for peers
 * still reading this rank's data. COLL_OK, or the failure that no call on it has told yet: a
 * member died, or another rank lost the communicator; coll_last_error(NULL) tells all.
 * NULL and *comm == NULL are accepted. */
COLL_API coll_status coll_comm_destroy(coll_comm **comm);

/* End every pending and later call on all ranks with COLL_ERR_ABORTED. Not
 * collective; any thread, while the communicator exists (its destroy has not been
 * called), also during a call on it; not a signal handler. Waits 0.1 s at most. The
 * communicator must still be destroyed; others, its children too, go on. */
COLL_API coll_status coll_comm_abort(coll_comm *comm, const char *reason);

/* ---- Queries ---------------------------------------------------------- */

/* This rank and the number of ranks; -1 and 0 for NULL. */
COLL_API int coll_comm_rank(const coll_comm *comm);
COLL_API int coll_comm_size(const coll_comm *comm);
/* Position among, and number of, the ranks on this rank's host; -1 and 0 for NULL. */
COLL_API int coll_comm_local_rank(const coll_comm *comm);
COLL_API int coll_comm_local_size(const coll_comm *comm);
/* Host name of a rank, and the transport used to reach it ("self", "none" if there is none); NULL
 * if no such rank. Valid as long as the communicator. */
COLL_API const char *coll_comm_host(const coll_comm *comm, int rank);
COLL_API const char *coll_comm_transport(const coll_comm *comm, int rank);

/* What went wrong last on this communicator (or, with comm NULL, in this thread's last
 * creation or destruction that failed). Valid until the next call on the communicator. */
typedef struct coll_error {
	coll_status status;
	int rank;            /* the culprit, -1 when no rank is to blame */
	const char *host;    /* its host name, "" when unknown */
	uint64_t operation;  /* sequence number of the call, 0 outside calls */
	const char *kind;    /* "all_reduce", "create" ... */
	int step;            /* step of the plan, -1 when none */
	const char *link;    /* "shm", "tcp" ... or "" */
	double elapsed_s;    /* since the call began */
	const char *message; /* all of it in one readable line */
} coll_error;
COLL_API const coll_error *coll_last_error(const coll_comm *comm);

/* One line that says how a call of this shape would be run ("all_reduce ring
 * tile=... because ..."), written to buf as a C string, cut to len_bytes. Local. */
COLL_API coll_status coll_comm_explain(coll_comm *comm, const char *collective, size_t count, coll_dtype type,
                                       char *buf, size_t len_bytes);

/* Name of the way by which a call was made: of those on this communicator that have ended, the one
 * made last. "ring" and other algorithms' names, "zero-copy", "pair-stream" ... (docs/guide/tools.md);
 * NULL: none is on record. A constant string. Local. */
COLL_API const char *coll_comm_last_way(const coll_comm *comm);

/* ---- Operations defined by the user ----------------------------------- */

/* inout[i] = left[i] op inout[i] for count elements; left comes from lower
 * ranks. Runs on the host, must not call the library. */
typedef void (*coll_user_fn)(void *arg, const void *left, void *inout, size_t count, coll_dtype type);

/* commutative 0: operands are combined in rank order. Local, but all ranks create and destroy the
 * same in the same order: the value is part of a call. COLL_ERR_MEMORY: more than 64 at once. */
COLL_API coll_status coll_op_create(coll_op *op, coll_comm *comm, coll_user_fn fn, void *arg, int commutative);
/* Sum of scale * x; scale points to one element of type (float types only). */
COLL_API coll_status coll_op_create_premul_sum(coll_op *op, coll_comm *comm, const void *scale, coll_dtype type);
/* Sets *op to COLL_SUM. Calls made or prepared before go on with it. The communicator's end destroys
 * what is left. */
COLL_API coll_status coll_op_destroy(coll_op *op, coll_comm *comm);

/* ---- Memory ----------------------------------------------------------- */

/* Memory that all local ranks can map: the fastest buffers. Freed by
 * coll_mem_free(), at the latest by the communicator's end; zeroed; at least 64-byte aligned;
 * len_bytes 0 gives NULL. Local: not collective. */
COLL_API coll_status coll_mem_alloc(coll_comm *comm, void **ptr, size_t len_bytes);
/* Not while a call uses it. NULL is accepted; what was not allocated there is COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_mem_free(coll_comm *comm, void *ptr);
/* Announce plain memory for faster access. The range must stay valid until
 * coll_mem_deregister() of the same ptr. Local: not collective. */
COLL_API coll_status coll_mem_register(coll_comm *comm, void *ptr, size_t len_bytes);
COLL_API coll_status coll_mem_deregister(coll_comm *comm, void *ptr);

/* ---- Collectives ------------------------------------------------------ */

/*
 * stream NULL: returns when this rank's part is complete. Otherwise the call is put in
 * the stream and returns at once; buffers are the library's until it is complete. Wrong
 * arguments are told at once; what goes wrong later is told by waits for the stream and
 * for events, and by coll_last_error().
 */

/* in, out: count elements; out = reduction over ranks, on every rank. */
COLL_API coll_status coll_all_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream);
/* in: count elements. out: count at root, not touched (may be NULL) elsewhere. */
COLL_API coll_status coll_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, int root,
                                 coll_comm *comm, coll_stream *stream);
/* in: count elements at root, not read (may be NULL) elsewhere; out: count, on every rank. */
COLL_API coll_status coll_broadcast(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                    coll_stream *stream);
/* in: count; out: size * count elements, rank r's at r * count. */
COLL_API coll_status coll_all_gather(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                     coll_stream *stream);
/* in: size * count; out: count elements, block rank of the reduction. */
COLL_API coll_status coll_reduce_scatter(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                         coll_comm *comm, coll_stream *stream);
/* in, out: size * count; block d of in goes to rank d, block s of out came from s. */
COLL_API coll_status coll_all_to_all(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                     coll_stream *stream);
/* in: count; out: size * count elements at root, rank r's at r * count; may be NULL elsewhere. */
COLL_API coll_status coll_gather(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                 coll_stream *stream);
/* in: size * count elements at root, rank r's at r * count (may be NULL elsewhere); out: count. */
COLL_API coll_status coll_scatter(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                  coll_stream *stream);
/* in, out: count elements. Inclusive: out at rank r = in of rank 0 op ... op in of rank r. No COLL_AVG. */
COLL_API coll_status coll_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                               coll_stream *stream);
/* Complete when all ranks have called it. */
COLL_API coll_status coll_barrier(coll_comm *comm, coll_stream *stream);

/*
 * Vector variants. counts[r] elements per rank, at offsets[r] elements from the
 * start of the buffer (NULL offsets: packed in rank order). The arrays are read
 * during the call only, with a stream too. all_gatherv and reduce_scatterv: counts are the same on
 * all ranks. gatherv, scatterv: counts and offsets are read at root only, and
 * count is this rank's own. all_to_allv: each pair agrees. Blocks of out must
 * not overlap.
 */
COLL_API coll_status coll_all_gatherv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                      coll_dtype type, coll_comm *comm, coll_stream *stream);
COLL_API coll_status coll_reduce_scatterv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                          coll_dtype type, coll_op op, coll_comm *comm, coll_stream *stream);
COLL_API coll_status coll_all_to_allv(const void *in, const size_t *in_counts, const size_t *in_offsets, void *out,
                                      const size_t *out_counts, const size_t *out_offsets, coll_dtype type,
                                      coll_comm *comm, coll_stream *stream);
COLL_API coll_status coll_gatherv(const void *in, size_t count, void *out, const size_t *counts, const size_t *offsets,
                                  coll_dtype type, int root, coll_comm *comm, coll_stream *stream);
COLL_API coll_status coll_scatterv(const void *in, const size_t *counts, const size_t *offsets, void *out, size_t count,
                                   coll_dtype type, int root, coll_comm *comm, coll_stream *stream);

/* ---- Pairs ------------------------------------------------------------ */

/* In order per pair, independent of collectives; count and type agree on both sides.
 * A blocking send may wait for its receive: use coll_send_recv() or a group to exchange. With
 * oneself only coll_send_recv(), else COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_send(const void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm,
                               coll_stream *stream);
COLL_API coll_status coll_recv(void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm,
                               coll_stream *stream);
/* Both at once, possibly with different peers (-1: that half is left out). No in place. */
COLL_API coll_status coll_send_recv(const void *sendbuf, size_t send_count, int dest, void *recvbuf, size_t recv_count,
                                    int source, coll_dtype type, coll_comm *comm, coll_stream *stream);

/* ---- Streams and events ----------------------------------------------- */

/*
 * A stream is a queue of this process: calls on one stream run one after the other,
 * calls on different streams overlap. Of communicators it knows nothing: it may be
 * used with any communicator of the job it was made with (the one given, and what was
 * split or duplicated from it). The order of calls on one communicator must be equal on
 * all ranks whatever their streams; for independent operations duplicate it.
 *
 * Work advances in a progress thread (COLL_PROGRESS), in whatever call waits in this
 * process for the same job, and in coll_progress().
 *
 * One thread at a time may use a stream. timeout_ms < 0: no limit of its own; pending
 * operations have theirs (COLL_TIMEOUT_MS and COLL_ARRIVAL_TIMEOUT_MS). NULL, or objects of
 * different jobs, are COLL_ERR_ARGUMENT.
 */
COLL_API coll_status coll_stream_create(coll_stream **stream, coll_comm *comm);
/* Waits until the stream is complete; returns its error, if it has one. Sets *stream to
 * NULL; NULL and *stream == NULL are accepted. */
COLL_API coll_status coll_stream_destroy(coll_stream **stream);
/* COLL_AGAIN: not complete. Otherwise the first error of the stream, which sticks, or
 * COLL_OK. What was put in behind an error runs all the same. */
COLL_API coll_status coll_stream_query(coll_stream *stream);
/* The same when it is complete; COLL_AGAIN: the time limit was reached. */
COLL_API coll_status coll_stream_wait(coll_stream *stream, int timeout_ms);
/* What is put in the stream from now on waits for the event as recorded now. An error
 * of the event becomes the stream's. */
COLL_API coll_status coll_stream_wait_event(coll_stream *stream, coll_event *event);

/* A point in a stream, of the same job. Never recorded, it counts as reached. Events may
 * be used by several threads. */
COLL_API coll_status coll_event_create(coll_event **event, coll_comm *comm);
/* Does not wait. Not while a thread waits for it; a stream that does is not disturbed. Sets *event to
 * NULL; NULL and *event == NULL are accepted. */
COLL_API coll_status coll_event_destroy(coll_event **event);
/* All that has been put in the stream so far; not what a group has noted. */
COLL_API coll_status coll_event_record(coll_event *event, coll_stream *stream);
/* COLL_AGAIN: not reached. Otherwise the stream's first error up to there, or COLL_OK. */
COLL_API coll_status coll_event_query(coll_event *event);
/* The same when it is reached; COLL_AGAIN: the time limit was. */
COLL_API coll_status coll_event_wait(coll_event *event, int timeout_ms);
/* When it was reached, in seconds of CLOCK_MONOTONIC: as seen by the thread that got there, whoever
 * asks later; when it was recorded, if there was nothing left to reach. COLL_AGAIN: not
 * reached. COLL_ERR_ARGUMENT: never recorded. */
COLL_API coll_status coll_event_time(coll_event *event, double *seconds);

/* Advance everything pending in the job of this communicator, without waiting: COLL_OK
 * when nothing is pending, COLL_AGAIN otherwise. */
COLL_API coll_status coll_progress(coll_comm *comm);

/* ---- Groups ------------------------------------------------------------ */

/*
 * Calls of this thread between begin and end are handed in together by the outermost
 * end: they progress together, so that sends and receives cannot wait for each other, and
 * one thread can make the calls of several ranks of its process. Those with stream NULL
 * are complete when coll_group_end() returns, with the first error of them.
 *
 * The calls of a group must not depend on each other: none may read or write what another
 * writes. Ranks make the same groups: same calls, same order; which streams they use is their
 * own affair. Small all_reduces of equal type and operation travel as one, which begins when
 * all streams of its calls have come to the group, and is complete in all of them at once.
 *
 * Until the outermost end, what a noted call needs must stay: destroying its communicator or
 * stream, and waiting for or destroying a started operation, is COLL_ERR_ARGUMENT. So is to
 * split, duplicate or prepare inside a group. A call refused in a group is not part of it.
 * Errors of end: COLL_ERR_ARGUMENT (there is no group), COLL_ERR_MEMORY (nothing was handed in), those
 * of the calls.
 */
COLL_API coll_status coll_group_begin(void);
COLL_API coll_status coll_group_end(void);

/* ---- Persistent operations --------------------------------------------- */

typedef enum coll_collective {
	COLL_ALL_REDUCE = 0,
	COLL_REDUCE = 1,
	COLL_BROADCAST = 2,
	COLL_ALL_GATHER = 3,
	COLL_REDUCE_SCATTER = 4,
	COLL_ALL_TO_ALL = 5,
	COLL_GATHER = 6,
	COLL_SCATTER = 7,
	COLL_SCAN = 8,
	COLL_BARRIER = 9
} coll_collective;

/* What to prepare: the arguments of the call of that kind. Initialise with
 * COLL_OPERATION_DESC_INIT. */
typedef struct coll_operation_desc {
	size_t struct_size;
	coll_collective kind;
	const void *in;
	void *out;
	size_t count;
	coll_dtype type;
	coll_op op;
	int root;
	/* Vector variants: ragged 1 and the arrays of the call, which are copied. all_gatherv,
	 * gatherv: out_counts, out_offsets; reduce_scatterv, scatterv: in_counts,
	 * in_offsets; all_to_allv: all four. */
	int ragged;
	const size_t *in_counts, *in_offsets;
	const size_t *out_counts, *out_offsets;
} coll_operation_desc;

#define COLL_OPERATION_DESC_INIT                                                                                   \
	{                                                                                                          \
		sizeof(coll_operation_desc), COLL_ALL_REDUCE, NULL, NULL, 0, COLL_F32, COLL_SUM, 0, 0, NULL, NULL, \
		        NULL, NULL                                                                                 \
	}

/* Collective, and a call in the order of the communicator's calls: ranks compare what
 * they prepare (COLL_ERR_MISMATCH), and all that can be allocated is. */
COLL_API coll_status coll_operation_prepare(coll_operation **operation, const coll_operation_desc *desc,
                                            coll_comm *comm);
/*
 * Start it: a call like the one described, in the order of the communicator's calls,
 * which does not wait. stream NULL: it advances in calls of this thread only (wait,
 * coll_progress(), any call that waits in the same job). Several operations may be started;
 * each is waited for before it is started again: else COLL_ERR_ARGUMENT.
 */
COLL_API coll_status coll_operation_start(coll_operation *operation, coll_stream *stream);
/* COLL_AGAIN: the time limit was reached. Not started: the last result, also when the
 * communicator is gone. */
COLL_API coll_status coll_operation_wait(coll_operation *operation, int timeout_ms);
/* Local; waits if it is started, and returns its result. Before or after its communicator. Sets
 * *operation to NULL; NULL and *operation == NULL are accepted. */
COLL_API coll_status coll_operation_destroy(coll_operation **operation);

#ifdef __cplusplus
}
#endif

#endif
