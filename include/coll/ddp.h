/*
 * libcoll: data-parallel training. Gradients are averaged over the ranks while
 * the backward pass still computes.
 *
 * All gradients lie in one arena, in the order of the parameters. Give the
 * parameters in the order of the forward pass; the backward pass then finishes the
 * gradients from the end to the beginning. Buckets are contiguous slices of the
 * arena, numbered from its end, so gradients are not copied together. From the
 * first step on, a bucket is sent as soon as all of its gradients are ready and
 * the buckets before it have been sent. A step:
 *
 *	coll_ddp_begin(ddp, 1);
 *	... backward; after each gradient: coll_ddp_ready(ddp, param);
 *	coll_ddp_wait(ddp);		gradients are now averages, on every rank
 *	... update; coll_ddp_zero(ddp);
 *
 * The conventions are those of coll.h. One thread at a time may use a coll_ddp. It has its
 * own communicators, so its calls are independent of the caller's calls on the communicator
 * that it was created with. A NULL coll_ddp or a NULL output pointer is COLL_ERR_ARGUMENT;
 * functions that return no status then return 0 or NULL, or do nothing.
 */
#ifndef COLL_DDP_H
#define COLL_DDP_H

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct coll_ddp coll_ddp;

#define COLL_DDP_DIMS 4

typedef struct coll_ddp_param {
	const char *name; /* at most 79 characters are compared */
	int dim_count;
	size_t dims[COLL_DDP_DIMS]; /* row-major; a matrix is dims[0] rows */
	void *weights;              /* coll_ddp_share() and others; may be NULL without them */
	int buffer;                 /* 1: has no gradient; compared and shared only */
	/* For a table whose rows are looked up: the caller adds the gradients of the lookups
	 * here instead of to the arena, see coll_ddp_rows(). It has the shape of the table, is
	 * zero at first and owned by the caller. NULL: not such a table. */
	void *lookup;
} coll_ddp_param;

/* Format in which gradients are sent. All but PLAIN and EXACT need COLL_F32. */
typedef enum coll_ddp_wire {
	COLL_DDP_PLAIN = 0,
	COLL_DDP_BF16 = 1, /* half the bytes; sums rounded to bfloat16 */
	/* A quarter of the bytes: blocks of 256 share a scale. The rounding error is added to
	 * the gradient of the next step (error feedback, Seide et al. 2014). */
	COLL_DDP_INT8 = 2,
	/* Matrices as products of two thin ones (Vogels et al., arXiv 1905.13727), with
	 * error feedback; other parameters as PLAIN. Buckets end between parameters. */
	COLL_DDP_POWERSGD = 3,
	/* Sums, not averages, of 64-bit integers: the result does not depend on how many ranks
	 * and passes the gradients come from, bit for bit, if each pass computes the same. Every
	 * pass, with sync 0 too, adds (int64_t)(gradient * 2^50) of what is ready to this rank's
	 * sums and sets the arena to zero there. If the largest |gradient| of each pass add up to
	 * 2^13, or one is not finite, a block of 4096 elements is NaN on all ranks. Buckets and
	 * slices end at multiples of 4096 elements. Sends 8 bytes per element. */
	COLL_DDP_EXACT = 4
} coll_ddp_wire;

#define COLL_DDP_AUTO ((size_t)-1)

typedef struct coll_ddp_config {
	size_t struct_size;
	coll_dtype type; /* of weights and gradients: COLL_F32 or COLL_F64 */
	void *grads;     /* memory for the arena, owned by the caller; NULL: allocated and freed here */
	/* Size limits of the first bucket (default 1 MB, so that sending starts early), of the
	 * others (25 MB, and at most a quarter of the rest of the arena), and of the last
	 * (256 KiB, since no computation is left to overlap it). 0: the default. bucket_bytes
	 * COLL_DDP_AUTO: from measured latency and bandwidth. With POWERSGD they limit the bytes
	 * sent. */
	size_t first_bytes, bucket_bytes, last_bytes;
	int keep_whole; /* 1: buckets end between parameters; else large ones are split */
	coll_ddp_wire wire;
	int powersgd_rank; /* 0: 4 */
	int zero;      /* 1: each rank updates a slice of each bucket; 2: and keeps only those gradients; 0: neither */
	int uneven;    /* 1: ranks may run out of data, see coll_ddp_join() */
	char *problem; /* coll_ddp_create() writes the reason of a failure here; may be NULL */
	size_t problem_bytes;
} coll_ddp_config;

#define COLL_DDP_CONFIG_INIT                                                                          \
	{                                                                                             \
		sizeof(coll_ddp_config), COLL_F32, NULL, 0, 0, 0, 0, COLL_DDP_PLAIN, 0, 0, 0, NULL, 0 \
	}

/*
 * Collective over comm. Compares names, shapes, types and settings of all ranks. If they
 * differ it returns COLL_ERR_MISMATCH, with the parameter and the ranks in config->problem;
 * comm stays usable. params and the strings are copied.
 */
COLL_API coll_status coll_ddp_create(coll_ddp **ddp, const coll_ddp_param *params, int count,
                                     const coll_ddp_config *config, coll_comm *comm);
/* Collective. Sets *ddp to NULL; NULL and *ddp == NULL are accepted. */
COLL_API coll_status coll_ddp_destroy(coll_ddp **ddp);

/* End every pending and later call of ddp on all ranks with COLL_ERR_ABORTED and reason. For a
 * rank that gives up while the others go on to their next call. Not collective. The
 * communicator that ddp was created with is not affected: abort it too if other ranks may wait
 * there. ddp must still be destroyed. */
COLL_API coll_status coll_ddp_abort(coll_ddp *ddp, const char *reason);

/* The last failure, in one readable line. */
COLL_API const char *coll_ddp_last_error(const coll_ddp *ddp);

/* The arena, its number of elements, and the index of the first element of a parameter's gradient. */
COLL_API void *coll_ddp_grads(const coll_ddp *ddp);
COLL_API size_t coll_ddp_count(const coll_ddp *ddp);
COLL_API size_t coll_ddp_offset(const coll_ddp *ddp, int param);
/* Set all gradients to zero. */
COLL_API void coll_ddp_zero(coll_ddp *ddp);

/* Broadcast the weights and buffers of root. */
COLL_API coll_status coll_ddp_share(coll_ddp *ddp, int root);
/* Average the weights, for ranks that made steps independently (local SGD). */
COLL_API coll_status coll_ddp_average_weights(coll_ddp *ddp);

/*
 * INT8 and POWERSGD send their errors in later steps (error feedback). A run that continues
 * from saved weights gives the same bits only if it also continues from these errors.
 * Between two steps each rank saves coll_ddp_state_bytes() bytes, the same number on all
 * ranks (0: there are no errors). It loads them into a coll_ddp with the same parameters,
 * settings and ranks. COLL_ERR_ARGUMENT: the number of bytes differs, or a step is open.
 */
COLL_API size_t coll_ddp_state_bytes(const coll_ddp *ddp);
COLL_API void coll_ddp_state_save(const coll_ddp *ddp, void *state);
COLL_API coll_status coll_ddp_state_load(coll_ddp *ddp, const void *state, size_t len_bytes);

/* ---- A step ------------------------------------------------------------- */

/* Begin a backward pass. sync 0: a micro-step whose gradients accumulate in the arena; nothing
 * is sent. (With zero 2 each micro-step is reduced, and the slice of this rank accumulates.)
 * Waits for the previous step. */
COLL_API coll_status coll_ddp_begin(coll_ddp *ddp, int sync);
/* Declare the gradient of param final. Once per pass and parameter, in any order; the reverse
 * order of the list of parameters is best. Never waits. */
COLL_API coll_status coll_ddp_ready(coll_ddp *ddp, int param);
/* Declare that this pass added lookup gradients to rows ids[0..n-1] of a table; ids may repeat,
 * n may be 0. Call it once in every pass, also with sync 0, and before any wait. The ranks
 * exchange these rows, or the whole table if that is smaller. They add the average to the arena
 * and set the lookup gradients to zero. */
COLL_API coll_status coll_ddp_rows(coll_ddp *ddp, int param, const int32_t *ids, int n);
/* Wait until all gradients are averaged. A gradient that was never declared ready is averaged
 * as it is; coll_ddp_unused() names its parameter. */
COLL_API coll_status coll_ddp_wait(coll_ddp *ddp);
/* The same for one bucket and the buckets before it. */
COLL_API coll_status coll_ddp_wait_bucket(coll_ddp *ddp, int bucket);

/* Number of parameters that were not ready at the wait of the last step, and the name of the
 * i-th of them; NULL: there are fewer. */
COLL_API int coll_ddp_unused_count(const coll_ddp *ddp);
COLL_API const char *coll_ddp_unused(const coll_ddp *ddp, int i);

/*
 * For ranks that have no more data, with config.uneven: take part in one step of the others
 * with zero gradients. *more 1: there was a step, and its average over the ranks with data is
 * in the arena; update as they do and call again. *more 0: no rank has data any more.
 */
COLL_API coll_status coll_ddp_join(coll_ddp *ddp, int *more);

/* ---- Buckets and slices --------------------------------------------------- */

typedef struct coll_ddp_bucket_info {
	size_t first, count; /* elements of the arena */
	int first_param, last_param;
	/* The elements that this rank updates; all of them without config.zero. */
	size_t slice_first, slice_count;
	void *slice_grads; /* the gradient of slice_first */
} coll_ddp_bucket_info;

COLL_API int coll_ddp_bucket_count(const coll_ddp *ddp);
COLL_API coll_status coll_ddp_bucket(const coll_ddp *ddp, int bucket, coll_ddp_bucket_info *info);
/* With config.zero: declare the slice of bucket updated, and all-gather its weights in the
 * background. All ranks call it for all buckets in the same order. Without config.zero it does
 * nothing. */
COLL_API coll_status coll_ddp_updated(coll_ddp *ddp, int bucket);
/* Call it before reading the weights of param: waits for the all-gather that coll_ddp_updated()
 * started. -1: for all parameters. */
COLL_API coll_status coll_ddp_need(coll_ddp *ddp, int param);

/* ---- Counters and trace --------------------------------------------------- */

typedef struct coll_ddp_stats {
	size_t struct_size;
	uint64_t steps, collectives;
	uint64_t payload_bytes; /* passed to collectives */
	uint64_t sent_bytes;    /* sent by this rank, by the formulas of the algorithms */
	double wire_s;          /* time during which a bucket, or a round of one, was being sent */
	double waited_s;        /* time that this thread spent in waits */
	double latency_s;       /* as measured for COLL_DDP_AUTO; else 0 */
	double bytes_per_s;
} coll_ddp_stats;

#define COLL_DDP_STATS_INIT                                    \
	{                                                      \
		sizeof(coll_ddp_stats), 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* Counters since creation, or since the last call with reset 1. */
COLL_API coll_status coll_ddp_get_stats(coll_ddp *ddp, coll_ddp_stats *stats, int reset);
/* on 1: send nothing and complete every bucket at once, to measure a step without
 * communication. All ranks must pass the same value. */
COLL_API void coll_ddp_stub(coll_ddp *ddp, int on);
/* on 1: record from now on when every bucket, and each of its rounds, is ready, starts and ends. */
COLL_API void coll_ddp_trace(coll_ddp *ddp, int on);
/* Write the record to path as trace events in JSON (Perfetto, chrome://tracing). */
COLL_API coll_status coll_ddp_trace_write(coll_ddp *ddp, const char *path);

#ifdef __cplusplus
}
#endif

#endif
