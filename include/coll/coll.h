/*
 * libcoll: collective communication among processes.
 *
 * This is the whole public interface of the core. It compiles alone as C11 and
 * C++. These conventions hold for every function here:
 *
 *  - count is a number of elements, len_bytes a number of bytes, *_ms
 *    milliseconds. A rank is an index in 0 .. size-1 of one communicator.
 *  - A function returns COLL_OK (0) or a coll_status. Outputs are written only
 *    on success, unless the function says otherwise; and what ends an object
 *    (destroy, the end of a request) sets the pointer to NULL with an error,
 *    too. coll_last_error() describes the last failure.
 *  - What can be waited for can be looked at without waiting. Request and
 *    operation have _test for it, stream and event _query. COLL_AGAIN: it has
 *    not ended. Otherwise the result that _wait returns. Such a look advances
 *    the work, as coll_progress() does, and equals _wait with timeout_ms 0.
 *  - A struct that begins with struct_size may get members at its end. Any
 *    size since the first version is accepted: what a shorter struct lacks is
 *    zero. A longer one that is passed to the library must be zero beyond the
 *    library's own size, else COLL_ERR_ARGUMENT; one that is filled by the
 *    library gets zeros there. Structs without struct_size never change
 *    (coll_unique_id, coll_message_info, coll_ddp_param, coll_ddp_bucket_info:
 *    elements of arrays, or outputs as small as their calls), but for
 *    coll_error: the library owns it, and new members stand at its end.
 *  - One thread at a time may use a communicator. Different threads may use
 *    different communicators at the same time. Any thread may call
 *    coll_comm_abort() at any time.
 *  - All ranks of a communicator make the same calls in the same order.
 *  - Buffers may be unaligned. For an in-place call, pass the same pointer for
 *    in and out (all_gather: in == out + rank * count elements; reduce_scatter:
 *    out == in + rank * count elements; gather and scatter: the same for the
 *    root's own block). Any other overlap is COLL_ERR_ARGUMENT.
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

/* Errors, grouped by what can no longer be used. */
typedef enum coll_status {
	COLL_OK = 0,
	COLL_AGAIN = 1, /* not an error: not finished yet, try again */

	/* The call failed; the communicator is as it was before the call. */
	COLL_ERR_ARGUMENT = 10,
	COLL_ERR_UNSUPPORTED = 11,
	COLL_ERR_MEMORY = 12,    /* out of memory; during a call, the communicator is lost too */
	COLL_ERR_CONFIG = 13,    /* a setting is malformed, unknown or contradictory */
	COLL_ERR_CANCELLED = 14, /* a posted receive was taken back before a message came */

	/* A peer is lost, and so are the communicators it belongs to. If a member has died, messages and groups among
	 * the living go on, unless the communicator serves devices. */
	COLL_ERR_PEER_DEAD = 20,   /* it exited, was killed, or its link broke */
	COLL_ERR_PEER_SILENT = 21, /* its process exists but does not answer */
	COLL_ERR_PEER_LATE = 22,   /* it answers but did not enter the call in time */
	COLL_ERR_EXCLUDED = 23,    /* the other members go on without this rank */

	/* The communicator is lost: destroy it. */
	COLL_ERR_MISMATCH = 30, /* ranks made different calls */
	COLL_ERR_CORRUPT = 31,  /* a frame fails its checks */
	COLL_ERR_ABORTED = 32,  /* coll_comm_abort(), here or at another rank */

	/* The process or the machine is at fault. */
	COLL_ERR_SYSTEM = 40,    /* a system call failed */
	COLL_ERR_BOOTSTRAP = 41, /* the ranks could not connect to each other */
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
	/* 8-bit floats of OCP, as float8_e4m3fn and float8_e5m2 of PyTorch; arithmetic in f32, rounded once per step.
	 * Overflow gives +-448 (e4m3 has no infinity) and +-infinity. */
	COLL_F8E4M3 = 12,
	COLL_F8E5M2 = 13,
	COLL_DTYPE_COUNT = 14, /* of the types above, which are numbers */
	/* A value and an index, in the structs below. COLL_MIN and COLL_MAX are defined on them, and what the user
	   defines. */
	COLL_F32_I32 = 32,
	COLL_F64_I32 = 33,
	COLL_I32_I32 = 34,
	COLL_I64_I32 = 35
} coll_dtype;

/* The layouts of MPI_FLOAT_INT, MPI_DOUBLE_INT, MPI_2INT and, where a long has 64 bits, MPI_LONG_INT. */
typedef struct coll_f32_i32 {
	float value;
	int32_t index;
} coll_f32_i32;
typedef struct coll_f64_i32 {
	double value;
	int32_t index; /* and 4 bytes of padding */
} coll_f64_i32;
typedef struct coll_i32_i32 {
	int32_t value;
	int32_t index;
} coll_i32_i32;
typedef struct coll_i64_i32 {
	int64_t value;
	int32_t index; /* and 4 bytes of padding */
} coll_i64_i32;

/*
 * Reduction operations: one of the constants, or a value made by
 * coll_op_create() / coll_op_create_premul_sum(). Integers wrap on overflow; COLL_MIN and COLL_MAX of floats are
 * IEEE 754-2019 minimum and maximum (a NaN wins, -0 < +0). Bit operations on
 * floats are COLL_ERR_ARGUMENT. Logical operations give 0 or 1.
 *
 * COLL_AVG of f16, bf16 and 8-bit floats: each step makes the mean of its operands in f32, weighted by how many ranks
 * they stand for, and rounds it once. It cannot overflow, and the average of equal finite values is that value. The
 * error is at most ((1 + u)^(r + 1) - 1) (M + N). u is 2^-11, 2^-8, 2^-4 (e4m3) or 2^-3 (e5m2); r is the number of
 * roundings on the way, less than the number of ranks; M is the mean of |x|, N the smallest normal number. COLL_AVG of
 * f32, f64 and integers is their sum, divided at the end: it overflows where the sum does. Of integers it truncates
 * toward zero.
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
	COLL_OP_COUNT = 11,
	/* Of pairs: the least or greatest value, and its index. Of equal values the lowest index, as in MPI; zeros of
	 * both signs are equal. A NaN wins, of several the one with the lowest index. Padding of the result is 0; where
	 * nothing was combined (one rank, rank 0 of a scan, rank 1 of an exclusive one) it is that of the input. */
	COLL_MINLOC = COLL_MIN,
	COLL_MAXLOC = COLL_MAX
};

typedef struct coll_comm coll_comm;
typedef struct coll_stream coll_stream; /* NULL: blocking, in the caller's thread */
typedef struct coll_event coll_event;
typedef struct coll_operation coll_operation;

/* ---- Library ---------------------------------------------------------- */

/* Version of the library that is linked, as major * 10000 + minor * 100 + patch. */
COLL_API int coll_version(void);
/* The same with the commit that it was built from, for logs and reports: "0.1.0 (8f3c1d2)". Constant. */
COLL_API const char *coll_version_text(void);

/* A short constant text for a status, never NULL. */
COLL_API const char *coll_status_string(coll_status status);

/* Name ("f32") and size in bytes of a type; NULL and 0 for an unknown one. */
COLL_API const char *coll_dtype_name(coll_dtype type);
COLL_API size_t coll_dtype_size(coll_dtype type);

/* Name ("sum") of an operation; NULL for an unknown one. */
COLL_API const char *coll_op_name(coll_op op);

/* Receives log lines. level: 0 error, 1 warn, 2 info, 3 debug. The default writes to
 * stderr. line has no newline and is valid during the call; errors and warnings end in an
 * id (coll-info --explain). Any thread of the library may call this function, at any time,
 * also several threads at once, and while the library holds locks. The only function of the
 * library that it may call is coll_comm_abort(), and it should not block. */
typedef void (*coll_log_fn)(void *arg, int level, const char *line);

/* ---- Creation --------------------------------------------------------- */

#define COLL_UNIQUE_ID_BYTES 128

/* Created by one process; the caller passes it to all ranks, by any means. */
typedef struct coll_unique_id {
	char bytes[COLL_UNIQUE_ID_BYTES];
} coll_unique_id;

/* An all-gather that the caller provides for creation: every rank contributes len_bytes at
 * mine and receives size * len_bytes at all, in rank order. Returns 0 on success. */
typedef int (*coll_exchange_fn)(void *arg, const void *mine, void *all, size_t len_bytes);

/*
 * How to create a communicator. Initialise it with COLL_CONFIG_INIT. A member left at
 * zero takes its value from the environment, or else the default (see coll-info).
 */
typedef struct coll_config {
	size_t struct_size;
	int rank; /* -1: from the environment */
	int size; /* 0: from the environment, or 1 if it has none */
	const coll_unique_id *id;
	coll_exchange_fn exchange;
	void *exchange_arg;
	coll_log_fn log;
	void *log_arg;
	/* Settings as an array of "COLL_NAME=value" strings ended by NULL. They
	 * override the environment. */
	const char *const *settings;
	/* NULL, or asked by every call that waits, at least every 100 ms and after a signal, in the
	 * thread that called and with no lock of the library held. Not 0 ends the call with
	 * COLL_ERR_ABORTED and aborts the communicators that it waits for, with a reason that the other
	 * ranks read: "interrupted". It must not call the library. Communicators made from this one
	 * have it too. */
	int (*interrupt)(void *arg);
	void *interrupt_arg;
	/* The device whose memory calls may be given beside host memory: "host" (none), "cuda" (the
	 * local rank modulo the number of devices), "cuda:2", or for coll_comm_create_all() a list for
	 * its ranks, "cuda:0,1,2,3". NULL: COLL_DEVICE, else host. Ranks with and without a device may share
	 * a communicator. A rank without one makes no call of a driver and takes every pointer for host memory. */
	const char *device;
	/* Not 0: ranks that may be on several hosts may meet without a secret (COLL_INSECURE=1). Whoever reaches the
	 * address of rank 0 can then join the job, and rank 0 logs a warning. */
	int insecure;
	int reserved; /* 0 */
} coll_config;

#define COLL_CONFIG_INIT                                                                               \
	{                                                                                              \
		sizeof(coll_config), -1, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 \
	}

/*
 * Create the communicator of all ranks of the job. cfg NULL: everything comes from the
 * environment (collrun, torchrun, mpirun, COLL_*); without any, the job is this process.
 * Collective: every rank calls it; it returns within the configured time. The caller frees
 * *comm with coll_comm_destroy(). COLL_ERR_CONFIG, COLL_ERR_BOOTSTRAP, COLL_ERR_MEMORY,
 * COLL_ERR_SYSTEM, COLL_ERR_ABORTED (coll_config.interrupt): nothing was created; coll_last_error(NULL) describes the
 * failure. With more than one rank, and unless the program handles SIGUSR1, that signal writes a dump of the flight
 * recorder until the last communicator is destroyed (COLL_DUMP_SIGNAL=none prevents it).
 */
COLL_API coll_status coll_comm_create(coll_comm **comm, const coll_config *cfg);

/* Create an id for coll_config.id. The calling process hosts the rendezvous, in a thread of its own, until all ranks
 * have connected. It may become any rank, several (one thread each), or none; then it must not end before. The time
 * limit is that of the ranks, from the first one that comes. An id that no rank has used costs a thread that sleeps
 * and two descriptors; a process keeps the newest 64 of them. */
COLL_API coll_status coll_unique_id_create(coll_unique_id *id);

/* Create a job of n ranks in this process. comms[0..n-1] are their communicators, for n
 * threads, one each. */
COLL_API coll_status coll_comm_create_all(coll_comm **comms, int n, const coll_config *cfg);

/*
 * New communicators from an existing one. These calls are collective over parent and
 * counted among its calls. parent does not change. Different threads may use parent and
 * children at the same time, and they may be destroyed in any order. A child has its own
 * order of calls, errors, channels and operations (coll_op_create); it shares connections
 * and threads with its parent. If the request of one rank is invalid, the call is refused
 * on all ranks.
 */

/* One child for each colour >= 0; its ranks are ordered by key, then by rank in parent.
 * A rank that passes COLL_NO_COLOUR takes part in the call; its *child is set to NULL. */
#define COLL_NO_COLOUR (-1)
COLL_API coll_status coll_comm_split(coll_comm *parent, int colour, int key, coll_comm **child);

/* A child with the same ranks, for calls that are independent of those on parent. */
COLL_API coll_status coll_comm_duplicate(coll_comm *parent, coll_comm **child);

/* ranks[0..n-1] of parent become ranks 0..n-1 of *child. All ranks in a list pass the
 * same list. Other ranks pass it too, or a list of other ranks, or n = 0. On a rank that
 * is not in its own list *child is set to NULL. */
COLL_API coll_status coll_comm_create_from_ranks(coll_comm *parent, const int *ranks, int n, coll_comm **child);

/*
 * A group: ranks[0..n-1] of parent become ranks 0..n-1 of *child, and only they make this call
 * (as MPI_Comm_create_group). It is not among the calls of parent: other ranks may call parent
 * meanwhile, and asynchronous calls of this rank on parent go on. It returns when all members
 * have come. A member that does not come is named after COLL_ARRIVAL_TIMEOUT_MS, a dead one within
 * 2 s. Such an error and COLL_ERR_MEMORY end the child on all members; parent stays as it was.
 * The living can make one of a parent of which a member has died.
 * COLL_ERR_ARGUMENT: an impossible list, or one without this rank (on this rank alone: its other
 * members wait for it); on all members, if they pass the same ranks in different orders.
 * The n-th call of a member with this set of ranks and this tag meets the n-th of the others,
 * whether the earlier ones succeeded or not; one that is refused on this rank alone does not count.
 * Groups of the same ranks that the members may make in different orders need different tags.
 * Members of overlapping groups make them in one order, else they wait for each other until the time
 * above.
 */
COLL_API coll_status coll_comm_create_group(coll_comm *parent, const int *ranks, int n, uint64_t tag,
                                            coll_comm **child);

/*
 * The members of comm that live, as a new communicator, in the order of their ranks. All that live make this call,
 * whatever they were in: comm may have failed, or the call ends it for all with COLL_ERR_ABORTED ("shrunk"). The
 * members agree who lives, so every rank that returns has the same list; each answers in its service thread, whether
 * or not it has come to the call. *lost (may be NULL; room for the size of comm) receives the ranks of comm that are
 * missing, *nlost (may be NULL) their number. Who dies after the decision is a dead member of *shrunk: shrink that.
 * comm must still be destroyed; it can be shrunk once. At most 256 ranks.
 *
 * COLL_AGAIN: no decision within the limit of coll_comm_set_timeout(), since too few members answer: make the call
 * again. More than half must, without those that have ended on a host where a member goes on: of these it is known what
 * they had agreed to. COLL_ERR_EXCLUDED: the others have decided without this rank, which did not answer them for 3 s.
 */
COLL_API coll_status coll_comm_shrink(coll_comm *comm, coll_comm **shrunk, int *lost, int *nlost);

/* Destroy a communicator. Collective; always sets *comm to NULL. Waits for a bounded time
 * for peers that still read data of this rank. Returns COLL_OK, or a failure that no call
 * on the communicator has returned yet: a member died, or another rank lost the
 * communicator; coll_last_error(NULL) describes it. NULL and *comm == NULL are accepted. */
COLL_API coll_status coll_comm_destroy(coll_comm **comm);

/* End every pending and later call on all ranks with COLL_ERR_ABORTED. Not collective.
 * Any thread may call it until coll_comm_destroy() has been called, also during a call on
 * the communicator, but a signal handler must not. Waits at most 0.1 s. The communicator
 * must still be destroyed; others, including its children, are not affected. */
COLL_API coll_status coll_comm_abort(coll_comm *comm, const char *reason);
/* The same, with the status that the job is to end with. Other ranks read it in coll_last_error()->exit_status;
 * collrun ends with it (modulo 256, and with 1 if that is 0). 0: none. This rank logs the abort as an error. */
COLL_API coll_status coll_comm_abort_with(coll_comm *comm, int exit_status, const char *reason);

/* ---- Queries ---------------------------------------------------------- */

/* This rank and the number of ranks; -1 and 0 for NULL. */
COLL_API int coll_comm_rank(const coll_comm *comm);
COLL_API int coll_comm_size(const coll_comm *comm);
/* Index of this rank among the ranks of its host, and their number; -1 and 0 for NULL. */
COLL_API int coll_comm_local_rank(const coll_comm *comm);
COLL_API int coll_comm_local_size(const coll_comm *comm);
/* Host name of a rank, and the transport used to reach it ("self" for this rank, "none" if
 * there is none). NULL if there is no such rank. Valid as long as the communicator. */
COLL_API const char *coll_comm_host(const coll_comm *comm, int rank);
COLL_API const char *coll_comm_transport(const coll_comm *comm, int rank);

/* The last failure on this communicator, valid until the next call on it. With comm NULL: the last failure of this
 * thread, of any call that returned an error, whatever its object; with the status, rank and text that the communicator
 * has. Another thread's failures do not change it, and calls that succeed neither. It is valid until this thread's next
 * failure or its end, also when the communicator no longer exists. */
typedef struct coll_error {
	coll_status status;
	int rank;            /* the rank that caused it, -1 if none did */
	const char *host;    /* its host name, "" when unknown */
	uint64_t operation;  /* sequence number of the call, 0 outside calls */
	const char *kind;    /* "all_reduce", "create" ... */
	int step;            /* step of the plan, -1 when none */
	const char *link;    /* "shm", "tcp" ... or "" */
	double elapsed_s;    /* since the call began */
	const char *message; /* all of this in one readable line */
	/* COLL_ERR_PEER_LATE: all ranks that were found late, rank among them, in ascending order.
	 * Another rank may have reported them; if they are many, that report names the first ones.
	 * Else NULL and 0. */
	const int *late;
	int late_count;
	int exit_status; /* COLL_ERR_ABORTED: of coll_comm_abort_with(); else 0 */
} coll_error;
COLL_API const coll_error *coll_last_error(const coll_comm *comm);

/*
 * Time limits of the waits of this communicator, in place of the settings COLL_TIMEOUT_MS (a peer that
 * does not answer) and COLL_ARRIVAL_TIMEOUT_MS (one that answers and does not make the call), in
 * milliseconds. -1: the setting; 0 and less than -1 are COLL_ERR_ARGUMENT. Local: ranks may differ. It
 * counts for pending calls too. Communicators made later from this one begin with its limits.
 * One thread at a time, as for calls.
 */
COLL_API coll_status coll_comm_set_timeout(coll_comm *comm, int timeout_ms, int arrival_timeout_ms);

/*
 * A name of this communicator for people: it stands in errors and log lines about it, "rank 1 of 4 (tp): ...", and in
 * dumps, coll-trace and coll-info --pid. 1 to 31 letters, digits and . _ - : / +; NULL or "": none, as at first. Local:
 * ranks may differ; children begin without one. One thread at a time, as for calls. The text of coll_comm_get_name() is
 * valid as long as the communicator; "": it has none; NULL: comm is NULL.
 */
COLL_API coll_status coll_comm_set_name(coll_comm *comm, const char *name);
COLL_API const char *coll_comm_get_name(const coll_comm *comm);

/* Write one line to buf that says how a call of this shape would run ("all_reduce ring
 * tile=... because ..."), as a C string cut to len_bytes. Local. */
COLL_API coll_status coll_comm_explain(coll_comm *comm, const char *collective, size_t count, coll_dtype type,
                                       char *buf, size_t len_bytes);

/* Name of the way in which the last completed call on this communicator was carried out: the
 * name of an algorithm such as "ring", or "zero-copy", "pair-stream" ... (docs/guide/ways.md).
 * A constant string; NULL if none is recorded. Local. */
COLL_API const char *coll_comm_last_way(const coll_comm *comm);

/*
 * Counters of the calls of a communicator that have ended since it was created: one row for each transport and way.
 * Collectives and messages count, and operations with the calls of their preparation; creating children does not.
 */
typedef struct coll_stats {
	size_t struct_size;
	/* "shm", "tcp" ...; "mixed": the ranks of the communicator are reached by several; "device": devices read each
	 * other; "self": no other rank takes part. A constant string, as `way`. */
	const char *transport;
	const char *way; /* as of coll_comm_last_way(); "unknown": the call failed before it was chosen */
	uint64_t calls;
	/* Of the count elements that were passed, or, if each rank has a block, of the blocks of all ranks. For vector
	 * variants the largest block stands for each. */
	uint64_t bytes;
	/* Sum of the times from the beginning of a call to its end; in a stream, from when its turn came. A call that
	 * ends at its first looks reads no clock and adds nothing. */
	double waited_s;
} coll_stats;

#define COLL_STATS_INIT                                 \
	{                                               \
		sizeof(coll_stats), NULL, NULL, 0, 0, 0 \
	}

/* Fill rows[0 .. *count-1] and set *count to the number of rows that there are, which may be larger. rows[0] is
 * initialised; rows may be NULL with *count 0. Local; allowed after a failure. A build without guards counts nothing.
 */
COLL_API coll_status coll_comm_stats(coll_comm *comm, coll_stats *rows, int *count);

/*
 * What this rank has waited for each other rank of a communicator, and what its link there has carried. A wait that
 * ends at its first looks is not counted. Who keeps a job waiting may wait itself: coll-info --slow tells who is the
 * cause.
 */
typedef struct coll_peer_stats {
	size_t struct_size;
	int rank;
	uint64_t last;       /* calls in which that rank was the last that this one waited for */
	double waited_s;     /* calls stood still, and that rank was missing */
	uint64_t link_bytes; /* sent to the host of that rank over tcp and acknowledged, by all communicators; else 0 */
	double link_busy_s;  /* in which such bytes were on their way */
} coll_peer_stats;

#define COLL_PEER_STATS_INIT                               \
	{                                                  \
		sizeof(coll_peer_stats), 0, 0, 0.0, 0, 0.0 \
	}

/* Fill rows[0 .. *count-1], as coll_comm_stats() does: one for each rank that was waited for, or has a link that is
 * counted, in the order of ranks. Local; allowed after a failure. */
COLL_API coll_status coll_comm_peer_stats(coll_comm *comm, coll_peer_stats *rows, int *count);

/* The device of this rank (coll_config.device): "cuda:0" ..., "host" if it has none; NULL: comm is NULL. Local. */
COLL_API const char *coll_comm_device(const coll_comm *comm);

/* ---- Operations defined by the user ----------------------------------- */

/* Compute inout[i] = left[i] op inout[i] for count elements; left comes from lower ranks.
 * It runs on the host. The only function of the library that it may call is coll_comm_abort(). */
typedef void (*coll_user_fn)(void *arg, const void *left, void *inout, size_t count, coll_dtype type);

/* Create an operation. commutative 0: operands are combined in rank order. Local; but all ranks must
 * create and destroy the same operations in the same order, since the value is compared as part of a
 * call. COLL_ERR_MEMORY: more than 64 exist at once. */
COLL_API coll_status coll_op_create(coll_op *op, coll_comm *comm, coll_user_fn fn, void *arg, int commutative);
/* Sum of scale * x, each product rounded to type; each rank has its own scale. It points to one element of type (float
 * types only). */
COLL_API coll_status coll_op_create_premul_sum(coll_op *op, coll_comm *comm, const void *scale, coll_dtype type);
/* Destroy an operation and set *op to COLL_SUM. Calls made or prepared before still use it.
 * coll_comm_destroy() destroys the remaining ones. */
COLL_API coll_status coll_op_destroy(coll_op *op, coll_comm *comm);

/* ---- Memory ----------------------------------------------------------- */

/* Allocate memory that all ranks of the host can map; such buffers are the fastest. It is zeroed and
 * at least 64-byte aligned; len_bytes 0 gives NULL. coll_mem_free() frees it, or else
 * coll_comm_destroy(). Local: not collective. */
COLL_API coll_status coll_mem_alloc(coll_comm *comm, void **ptr, size_t len_bytes);
/* The same in the memory of `where`. COLL_MEM_DEVICE: of the communicator's device, at least 256-byte aligned, not
 * zeroed; COLL_ERR_ARGUMENT if it has none. */
enum { COLL_MEM_HOST = 0, COLL_MEM_DEVICE = 1 };
COLL_API coll_status coll_mem_alloc_on(coll_comm *comm, void **ptr, size_t len_bytes, int where);
/* Free memory of coll_mem_alloc() or coll_mem_alloc_on() that no call uses. NULL is accepted; any other pointer is
 * COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_mem_free(coll_comm *comm, void *ptr);
/* Announce plain memory for faster access. The range must stay valid until
 * coll_mem_deregister() of the same ptr. Local: not collective. */
COLL_API coll_status coll_mem_register(coll_comm *comm, void *ptr, size_t len_bytes);
COLL_API coll_status coll_mem_deregister(coll_comm *comm, void *ptr);

/* ---- Collectives ------------------------------------------------------ */

/*
 * stream NULL: the function returns when this rank's part is complete. Otherwise it adds
 * the call to the stream and returns at once; the library owns the buffers until the call
 * is complete. Wrong arguments are errors of the function itself. Later failures are
 * returned by waits for the stream and for events, and by coll_last_error().
 */

/* in, out: count elements; out = reduction over ranks, on every rank. */
COLL_API coll_status coll_all_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream);
/* in: count elements. out: count elements at root; elsewhere not written, may be NULL. */
COLL_API coll_status coll_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, int root,
                                 coll_comm *comm, coll_stream *stream);
/* in: count elements at root; elsewhere not read, may be NULL. out: count elements on every rank. */
COLL_API coll_status coll_broadcast(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                    coll_stream *stream);
/* in: count elements. out: size * count elements, those of rank r at r * count. */
COLL_API coll_status coll_all_gather(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                     coll_stream *stream);
/* in: size * count elements. out: count elements, block number rank of the reduction. */
COLL_API coll_status coll_reduce_scatter(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                         coll_comm *comm, coll_stream *stream);
/* in, out: size * count elements. Block d of in goes to rank d; block s of out comes from rank s. */
COLL_API coll_status coll_all_to_all(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                     coll_stream *stream);
/* in: count elements. out: size * count elements at root, those of rank r at r * count; elsewhere
 * it may be NULL. */
COLL_API coll_status coll_gather(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                 coll_stream *stream);
/* in: size * count elements at root, those for rank r at r * count; elsewhere it may be NULL.
 * out: count elements. */
COLL_API coll_status coll_scatter(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                  coll_stream *stream);
/* in, out: count elements. Inclusive: out of rank r = in of rank 0 op ... op in of rank r. COLL_AVG
 * is COLL_ERR_ARGUMENT. */
COLL_API coll_status coll_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                               coll_stream *stream);
/* The same without this rank's own: out of rank r = in of rank 0 op ... op in of rank r - 1. Rank 0 has no such
 * elements: its out is not written and may be NULL, so it keeps what the caller put there, such as 0 (as MPI_Exscan
 * does it). */
COLL_API coll_status coll_exclusive_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                         coll_comm *comm, coll_stream *stream);
/* Complete when all ranks have made the call. */
COLL_API coll_status coll_barrier(coll_comm *comm, coll_stream *stream);

/*
 * Vector variants. Rank r has counts[r] elements, at offsets[r] elements from the start
 * of the buffer (offsets NULL: packed in rank order). The arrays are read only during the
 * call, also with a stream. all_gatherv and reduce_scatterv: all ranks pass the same
 * counts. gatherv and scatterv: counts and offsets are read at root only; count is that of
 * this rank. all_to_allv: sender and receiver pass the same count. Blocks of out must not
 * overlap.
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

/* No rank: a send to it and a receive from it, tagged or not, are complete at once, without a message, and leave the
 * buffer alone. For the ranks at an edge. */
#define COLL_NO_PEER (-2)

/* Messages between two ranks arrive in order, independent of collectives. Both ranks pass
 * the same count and type. A blocking send may wait for its receive: to exchange, use
 * coll_send_recv() or a group. peer must be another rank, or COLL_NO_PEER: COLL_ERR_ARGUMENT otherwise. */
COLL_API coll_status coll_send(const void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm,
                               coll_stream *stream);
COLL_API coll_status coll_recv(void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm,
                               coll_stream *stream);
/* Send and receive at once, with the same or different peers; COLL_NO_PEER, or -1, leaves that half out. A rank may
 * exchange with itself. The buffers must not overlap. */
COLL_API coll_status coll_send_recv(const void *sendbuf, size_t send_count, int dest, void *recvbuf, size_t recv_count,
                                    int source, coll_dtype type, coll_comm *comm, coll_stream *stream);

/* ---- Tagged messages --------------------------------------------------- */

/*
 * Messages with a tag (0 .. INT_MAX, an int as in MPI and PyTorch). A receive names the source
 * and the tag, or takes any of either. These messages and those of coll_send() never meet.
 *
 * Of the messages that a receive takes, it gets the one that arrived first; of the receives that
 * take a message, the one posted first gets it. Messages of one rank are matched in the order in
 * which they were sent. A send on a stream is sent when the stream reaches it.
 *
 * A message of up to 4 KiB leaves at once and waits at its receiver, which keeps 64 KiB of
 * them for each source (less in large jobs). Longer messages, and those beyond that, stay with
 * their sender until a receive takes them. So a send may wait for its receive.
 *
 * The sender's count may be smaller than the receiver's max_count; the type must be equal. A
 * receive that gets a longer message or one of another type ends with COLL_ERR_ARGUMENT. Then
 * the message is gone, the buffer is as it was, and the communicator is as before.
 *
 * A wait for a message of a given rank, and a send, have the time limits of other calls
 * (COLL_TIMEOUT_MS, COLL_ARRIVAL_TIMEOUT_MS): late is a rank that neither sends nor receives, with any
 * tag. A wait for a message of any rank has none, even if all others have destroyed the communicator.
 * Both end when a member dies or the communicator is aborted.
 */
typedef struct coll_request coll_request;
#define COLL_ANY_SOURCE (-1)
#define COLL_ANY_TAG    (-1)

/* The message that a receive got; count elements of type. */
typedef struct coll_message_info {
	int source;
	int tag;
	size_t count;
	coll_dtype type;
} coll_message_info;

/* Send to a rank; to this rank itself too. stream NULL: returns when buf may be used again. To
 * this rank itself such a call is COLL_ERR_ARGUMENT if it would have to wait. */
COLL_API coll_status coll_send_tag(const void *buf, size_t count, coll_dtype type, int peer, int tag, coll_comm *comm,
                                   coll_stream *stream);
/* Receive, and wait. source may be COLL_ANY_SOURCE, tag may be COLL_ANY_TAG, info may be NULL. From COLL_NO_PEER: *info
 * has that source, COLL_ANY_TAG and count 0. Not inside a group. From any source: when a member has died, one receive,
 * or those that wait then, end with COLL_ERR_PEER_DEAD, and later ones serve the living. */
COLL_API coll_status coll_recv_tag(void *buf, size_t max_count, coll_dtype type, int source, int tag, coll_comm *comm,
                                   coll_message_info *info);
/* Post a receive and return at once, also inside a group. The library owns buf until *req has
 * ended. The caller ends *req with coll_request_wait() or coll_request_test(), even after the end
 * of the communicator: coll_comm_destroy() cancels receives that have no message yet. */
COLL_API coll_status coll_irecv(void *buf, size_t max_count, coll_dtype type, int source, int tag, coll_comm *comm,
                                coll_request **req);
/* Wait until the receive has ended. COLL_AGAIN: the time limit was reached (< 0: none), and *req
 * stays. Otherwise the result: *req is freed and set to NULL. *info (or NULL) is written with
 * COLL_OK and with COLL_ERR_ARGUMENT, which coll_last_error(NULL) describes in this thread.
 * COLL_ERR_CANCELLED: it was cancelled. Any one thread may wait for, test or cancel a request.
 * A wait within a second of the last one goes on with its time limits for peers; with a time
 * limit of 0 it is a test, and has none.
 * Inside a group only for one that has ended: COLL_ERR_ARGUMENT otherwise. */
COLL_API coll_status coll_request_wait(coll_request **req, int timeout_ms, coll_message_info *info);
/* The same without waiting. COLL_AGAIN: it has not ended. */
COLL_API coll_status coll_request_test(coll_request **req, coll_message_info *info);
/* Wait for a message, and leave it where it is: *info (or NULL) says what the next receive of this source and tag gets.
 * source may be COLL_ANY_SOURCE, tag may be COLL_ANY_TAG. A message that a posted receive takes is seen by no probe.
 * Time limits, deaths and COLL_NO_PEER as for coll_recv_tag(); not inside a group. */
COLL_API coll_status coll_probe(int source, int tag, coll_comm *comm, coll_message_info *info);
/* The same without waiting, also inside a group. COLL_AGAIN: there is no such message. */
COLL_API coll_status coll_iprobe(int source, int tag, coll_comm *comm, coll_message_info *info);
/* Take back a receive. COLL_OK: it has ended with COLL_ERR_CANCELLED. COLL_AGAIN: it is too late,
 * since it has a message or has ended. Wait for it in either case. */
COLL_API coll_status coll_request_cancel(coll_request *req);

/* ---- Streams and events ----------------------------------------------- */

/*
 * A stream is a queue of this process: calls on one stream run one after the other,
 * calls on different streams overlap. It may be used with any communicator of its job: the
 * one it was created with, and all that were split or duplicated from it. All ranks make
 * the calls on one communicator in the same order, whichever streams they use; for
 * independent operations duplicate the communicator.
 *
 * Work advances in the progress thread (COLL_PROGRESS), in every call of this process that
 * waits in the same job, and in coll_progress().
 *
 * One thread at a time may use a stream. timeout_ms < 0: the wait itself has no time limit;
 * pending operations have theirs (COLL_TIMEOUT_MS and COLL_ARRIVAL_TIMEOUT_MS). NULL and
 * objects of different jobs are COLL_ERR_ARGUMENT.
 */
COLL_API coll_status coll_stream_create(coll_stream **stream, coll_comm *comm);
/* The same for a stream of the device of this job's rank (coll_config.device): a CUstream, which is a cudaStream_t.
 * Calls on it are enqueued there and return. They begin when the device has done the work that is in the stream now,
 * and later work of the stream begins when they have ended. Buffers may be device or host memory. Two coll_streams of
 * one CUstream are possible. The caller keeps the CUstream until this stream is destroyed, which does not destroy it.
 * COLL_ERR_UNSUPPORTED: the rank has no device. COLL_ERR_ARGUMENT: the stream belongs to another device. */
COLL_API coll_status coll_stream_wrap_cuda(coll_stream **stream, coll_comm *comm, void *cuda_stream);
/* 1: the stream is being captured into a graph, so that a call on it runs at each launch. 0: it is not, or is one of
 * the host. */
COLL_API int coll_stream_is_captured(const coll_stream *stream);
/* Wait until the stream is complete, destroy it and return its error, if it has one. Sets
 * *stream to NULL; NULL and *stream == NULL are accepted. */
COLL_API coll_status coll_stream_destroy(coll_stream **stream);
/* COLL_AGAIN: not complete. Otherwise COLL_OK or the first error of the stream, which stays.
 * Calls added after one that failed still run. */
COLL_API coll_status coll_stream_query(coll_stream *stream);
/* Wait until the stream is complete and return the same; COLL_AGAIN: the time limit was reached. */
COLL_API coll_status coll_stream_wait(coll_stream *stream, int timeout_ms);
/* Calls added to the stream from now on wait for the event as it is recorded now. An error
 * of the event becomes an error of the stream. */
COLL_API coll_status coll_stream_wait_event(coll_stream *stream, coll_event *event);

/* An event marks a point in a stream of the same job. One that was never recorded counts as
 * reached. Several threads may use an event. */
COLL_API coll_status coll_event_create(coll_event **event, coll_comm *comm);
/* Destroy an event that no thread waits for; streams may wait for it and still do. Does not wait.
 * Sets *event to NULL; NULL and *event == NULL are accepted. */
COLL_API coll_status coll_event_destroy(coll_event **event);
/* Record the event after all calls added to the stream so far, without those of an open group. */
COLL_API coll_status coll_event_record(coll_event *event, coll_stream *stream);
/* COLL_AGAIN: not reached. Otherwise COLL_OK or the first error of the stream up to that point. */
COLL_API coll_status coll_event_query(coll_event *event);
/* Wait until it is reached and return the same; COLL_AGAIN: the time limit was reached. */
COLL_API coll_status coll_event_wait(coll_event *event, int timeout_ms);
/* The time at which the event was reached, in seconds of CLOCK_MONOTONIC, taken by the thread that
 * reached it; the time of recording if the stream was complete by then. COLL_AGAIN: not reached.
 * COLL_ERR_ARGUMENT: never recorded. */
COLL_API coll_status coll_event_time(coll_event *event, double *seconds);

/*
 * Run fn(arg, status) once, when the event is reached as it is recorded now; a later recording does
 * not change that. status is that of coll_event_query(); an error or an abort reaches the event too.
 * If the event is destroyed before it is reached, status is COLL_AGAIN: the calls before it go on,
 * and their buffers stay in use. Each call adds one function; fn runs unless this call returns an
 * error (COLL_ERR_ARGUMENT, COLL_ERR_MEMORY).
 *
 * fn runs in the calling thread if the event is reached already; else in whichever thread advances
 * the work (see above), so without a progress thread some thread must call in. No lock of the
 * library is held. Functions that are due at once run in the order in which they were added. In
 * another thread one may begin after a wait for the same event has returned, and after event, stream
 * and communicator have been destroyed: what it uses must last until it has run.
 *
 * fn should be short: it keeps up the thread that runs it. It may call coll_event_notify(),
 * coll_event_query(), coll_event_time(), coll_stream_query(), coll_comm_abort() and the queries of a
 * communicator, and nothing else of the library. Calls that wait, communicate or destroy are refused with
 * COLL_ERR_ARGUMENT. A function that is added inside fn runs when fn has returned.
 */
COLL_API coll_status coll_event_notify(coll_event *event, void (*fn)(void *arg, coll_status status), void *arg);

/* Advance all pending work in the job of this communicator, without waiting. COLL_OK:
 * nothing is pending; COLL_AGAIN: something is. */
COLL_API coll_status coll_progress(coll_comm *comm);

/* ---- Groups ------------------------------------------------------------ */

/*
 * The outermost end starts all calls that this thread made between begin and end. They
 * progress together: sends and receives cannot wait for each other, and one thread can make
 * the calls of several ranks of its process. Calls with stream NULL are complete when
 * coll_group_end() returns; it returns the first of their errors.
 *
 * The calls of a group must not depend on each other: none may read or write memory that
 * another one writes. All ranks make the same groups, with the same calls in the same order;
 * the streams may differ. Small all_reduces of equal type and operation are merged into one.
 * It starts when all streams of its calls have reached the group, and completes in all of
 * them at once.
 *
 * Until the outermost end, a group needs the objects of its calls. It is COLL_ERR_ARGUMENT to
 * destroy a communicator or stream of them, to wait for or destroy a started operation, and to
 * split, duplicate or prepare inside a group. A call that is refused is not part of the group.
 * Errors of end: COLL_ERR_ARGUMENT (no group is open), COLL_ERR_MEMORY (no call was started),
 * and those of the calls.
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
	COLL_BARRIER = 9,
	COLL_EXCLUSIVE_SCAN = 10
} coll_collective;

/* The call to prepare: its kind and arguments. Initialise it with
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
	/* Vector variants: set ragged to 1 and pass the arrays of the call, which are copied.
	 * all_gatherv, gatherv: out_counts, out_offsets; reduce_scatterv, scatterv: in_counts,
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

/* Prepare an operation. Collective, and one of the ordered calls of the communicator. Ranks
 * compare what they prepare (COLL_ERR_MISMATCH). Memory is allocated here as far as possible. */
COLL_API coll_status coll_operation_prepare(coll_operation **operation, const coll_operation_desc *desc,
                                            coll_comm *comm);
/*
 * Start the operation. This is one of the ordered calls of the communicator, and it does not
 * wait. stream NULL: it advances only in calls of this thread (wait, coll_progress(), any
 * call that waits in the same job). Several operations may be started at once. Wait for an
 * operation before starting it again: COLL_ERR_ARGUMENT otherwise.
 */
COLL_API coll_status coll_operation_start(coll_operation *operation, coll_stream *stream);
/* Wait for a started operation. COLL_AGAIN: the time limit was reached. If it is not started,
 * returns the last result, also when the communicator no longer exists. */
COLL_API coll_status coll_operation_wait(coll_operation *operation, int timeout_ms);
/* The same without waiting. COLL_AGAIN: it has not ended. */
COLL_API coll_status coll_operation_test(coll_operation *operation);
/* Destroy an operation. Local. If it is started, waits for it and returns its result. Allowed before
 * and after the end of its communicator. Sets *operation to NULL; NULL and *operation == NULL are
 * accepted. */
COLL_API coll_status coll_operation_destroy(coll_operation **operation);

#ifdef __cplusplus
}
#endif

#endif
