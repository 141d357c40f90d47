/*
 * libcoll: data-parallel training. Gradients are averaged over the ranks while
 * the backward pass still computes.
 *
 * All gradients lie in one arena, in the order in which the parameters are
 * given: the order of the forward pass, so that backward finishes them from the
 * end to the beginning. Buckets are contiguous slices of the arena, numbered from
 * its end; nothing is copied together. A bucket is on its way as soon as the last
 * gradient in it is ready and the buckets before it are on theirs, from the first
 * step on. A step:
 *
 *	coll_ddp_begin(ddp, 1);
 *	... backward; after each gradient: coll_ddp_ready(ddp, param);
 *	coll_ddp_wait(ddp);		gradients are now averages, on every rank
 *	... update; coll_ddp_zero(ddp);
 *
 * Conventions are those of coll.h. One thread at a time may use a coll_ddp; it has
 * communicators of its own, so that the caller's calls on the communicator it
 * was made with have no order with its calls. A NULL coll_ddp, or a NULL result where one is to be
 * written, is COLL_ERR_ARGUMENT; of calls that return no status it is 0, NULL or nothing.
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
	const char *name; /* up to 79 characters count */
	int dim_count;
	size_t dims[COLL_DDP_DIMS]; /* row-major; a matrix is dims[0] rows */
	void *weights;              /* coll_ddp_share() and others; may be NULL without them */
	int buffer;                 /* 1: has no gradient; compared and shared only */
	/* A table whose rows are looked up: gradients of the lookups are added here
	 * (the shape of the table, zero at first, kept by the caller) and not to the
	 * arena, see coll_ddp_rows(). NULL: not such a table. */
	void *lookup;
} coll_ddp_param;

/* What travels. All but PLAIN and TREE want COLL_F32. */
typedef enum coll_ddp_wire {
	COLL_DDP_PLAIN = 0,
	COLL_DDP_BF16 = 1, /* half the bytes; sums rounded to bfloat16 */
	/* A quarter of the bytes: blocks of 256 share a scale; what rounding loses is
	 * added to the next step's gradient (error feedback, Seide et al. 2014). */
	COLL_DDP_INT8 = 2,
	/* Matrices as products of two thin ones (Vogels et al., arXiv 1905.13727), with
	 * error feedback; other parameters plain. Buckets end between parameters. */
	COLL_DDP_POWERSGD = 3,
	/* Sums over a tree of neighbours, halves of halves: if each rank's gradient is
	 * such a sum itself, the bits do not depend on the number of ranks, which must
	 * be a power of two. log2(ranks) times the bytes. */
	COLL_DDP_TREE = 4
} coll_ddp_wire;

#define COLL_DDP_AUTO ((size_t)-1)

typedef struct coll_ddp_config {
	size_t struct_size;
	coll_dtype type; /* of weights and gradients: COLL_F32 or COLL_F64 */
	void *grads;     /* memory for the arena, kept by the caller; NULL: made and freed here */
	/* Size limits: of the first bucket (1 MB: so that something starts early), the
	 * others (25 MB, and no more than a quarter of what is left of the arena), and the last
	 * (256 KiB: nothing is left to hide it behind). 0: these defaults. bucket_bytes
	 * COLL_DDP_AUTO: from measured latency and bandwidth. With POWERSGD of what travels. */
	size_t first_bytes, bucket_bytes, last_bytes;
	int keep_whole; /* 1: buckets end between parameters; else large ones are split */
	coll_ddp_wire wire;
	int powersgd_rank; /* 0: 4 */
	int zero;          /* 0; 1: each rank updates a slice of each bucket; 2: and keeps gradients of that only */
	int uneven;        /* 1: ranks may run out of data, see coll_ddp_join() */
	char *problem;     /* where coll_ddp_create() says what is wrong; may be NULL */
	size_t problem_bytes;
} coll_ddp_config;

#define COLL_DDP_CONFIG_INIT                                                                          \
	{                                                                                             \
		sizeof(coll_ddp_config), COLL_F32, NULL, 0, 0, 0, 0, COLL_DDP_PLAIN, 0, 0, 0, NULL, 0 \
	}

/*
 * Collective over comm. Compares names, shapes, types and settings of all ranks:
 * COLL_ERR_MISMATCH, with the parameter and the ranks in config->problem, leaves
 * comm usable. params and the strings are copied.
 */
COLL_API coll_status coll_ddp_create(coll_ddp **ddp, const coll_ddp_param *params, int count,
                                     const coll_ddp_config *config, coll_comm *comm);
/* Collective. Sets *ddp to NULL; NULL and *ddp == NULL are accepted. */
COLL_API coll_status coll_ddp_destroy(coll_ddp **ddp);

/* End every pending and later call of ddp on all ranks with COLL_ERR_ABORTED and reason: for a
 * rank that gives up between two calls that the others will make. Not collective. The
 * communicator that ddp was made with is not affected: abort it too if others may wait there.
 * ddp must still be destroyed. */
COLL_API coll_status coll_ddp_abort(coll_ddp *ddp, const char *reason);

/* What went wrong last, in one readable line. */
COLL_API const char *coll_ddp_last_error(const coll_ddp *ddp);

/* The arena, how many elements it has, and where the gradient of a parameter begins in it. */
COLL_API void *coll_ddp_grads(const coll_ddp *ddp);
COLL_API size_t coll_ddp_count(const coll_ddp *ddp);
COLL_API size_t coll_ddp_offset(const coll_ddp *ddp, int param);
/* All gradients zero. */
COLL_API void coll_ddp_zero(coll_ddp *ddp);

/* Broadcast weights and buffers of root. */
COLL_API coll_status coll_ddp_share(coll_ddp *ddp, int root);
/* Average the weights: for ranks that took steps of their own (local SGD). */
COLL_API coll_status coll_ddp_average_weights(coll_ddp *ddp);

/*
 * INT8 and POWERSGD send later what they lost (error feedback). A run that goes on from
 * saved weights has the same bits only if it goes on from what its ranks had lost, too:
 * between two steps each rank saves coll_ddp_state_bytes(), the same number on all ranks
 * (0: nothing is lost), and loads them again into a coll_ddp of the same parameters, settings and
 * ranks. COLL_ERR_ARGUMENT: as many bytes as of other settings, or in the middle of a step.
 */
COLL_API size_t coll_ddp_state_bytes(const coll_ddp *ddp);
COLL_API void coll_ddp_state_save(const coll_ddp *ddp, void *state);
COLL_API coll_status coll_ddp_state_load(coll_ddp *ddp, const void *state, size_t len_bytes);

/* ---- A step ------------------------------------------------------------- */

/* A backward pass begins. sync 0: one more micro-step, gradients pile up in the arena and
 * nothing is sent. (With zero 2 each micro-step is reduced: its own slice piles up.) Waits
 * for the step before it. */
COLL_API coll_status coll_ddp_begin(coll_ddp *ddp, int sync);
/* The gradient of param is final. Once per pass, in any order; the later in the
 * list of parameters first is best. Never waits. */
COLL_API coll_status coll_ddp_ready(coll_ddp *ddp, int param);
/* Rows ids[0..n-1] of a table's lookup gradients were added to in this pass; each id
 * once or more. Once in every pass, with sync 0 too, and before a wait; n may be 0. The ranks exchange those rows
 * (or the whole table, when that is less), add their average to the arena and set
 * the lookup gradients to zero. */
COLL_API coll_status coll_ddp_rows(coll_ddp *ddp, int param, const int32_t *ids, int n);
/* All gradients are averaged. Those that were never ready count as they are, and
 * are named by coll_ddp_unused(). */
COLL_API coll_status coll_ddp_wait(coll_ddp *ddp);
/* Is, or becomes, bucket ready? As coll_ddp_wait() for it and the buckets before it. */
COLL_API coll_status coll_ddp_wait_bucket(coll_ddp *ddp, int bucket);

/* How many parameters were not ready when the last step was waited for, and the i-th of
 * them; NULL: there are fewer. */
COLL_API int coll_ddp_unused_count(const coll_ddp *ddp);
COLL_API const char *coll_ddp_unused(const coll_ddp *ddp, int i);

/*
 * For ranks without data, with config.uneven: takes part in one step of the others with
 * gradients of zero. *more 1: there was a step, its average (over the ranks that had
 * data) is in the arena: update as they do, and call again. 0: all ranks are here.
 */
COLL_API coll_status coll_ddp_join(coll_ddp *ddp, int *more);

/* ---- Buckets and slices --------------------------------------------------- */

typedef struct coll_ddp_bucket_info {
	size_t first, count; /* elements of the arena */
	int first_param, last_param;
	/* The elements this rank updates: all of them, but for config.zero. */
	size_t slice_first, slice_count;
	void *slice_grads; /* the gradient of slice_first */
} coll_ddp_bucket_info;

COLL_API int coll_ddp_bucket_count(const coll_ddp *ddp);
COLL_API coll_status coll_ddp_bucket(const coll_ddp *ddp, int bucket, coll_ddp_bucket_info *info);
/* With config.zero: the slice of bucket is updated; all-gathers its weights in the
 * background. All ranks call it for all buckets in the same order. Otherwise nothing. */
COLL_API coll_status coll_ddp_updated(coll_ddp *ddp, int bucket);
/* Before weights of param are read: waits for what coll_ddp_updated() began. -1: all. */
COLL_API coll_status coll_ddp_need(coll_ddp *ddp, int param);

/* ---- Counters and trace --------------------------------------------------- */

typedef struct coll_ddp_stats {
	size_t struct_size;
	uint64_t steps, collectives;
	uint64_t payload_bytes; /* handed to collectives */
	uint64_t sent_bytes;    /* what the algorithms' formulas say this rank sent */
	double wire_s;          /* time in which a bucket, or a round of one, was on its way */
	double waited_s;        /* time this thread spent in waits */
	double latency_s;       /* with COLL_DDP_AUTO: as measured; else 0 */
	double bytes_per_s;
} coll_ddp_stats;

#define COLL_DDP_STATS_INIT                                    \
	{                                                      \
		sizeof(coll_ddp_stats), 0, 0, 0, 0, 0, 0, 0, 0 \
	}

/* Since creation, or the last call with reset 1. */
COLL_API coll_status coll_ddp_get_stats(coll_ddp *ddp, coll_ddp_stats *stats, int reset);
/* 1: nothing is sent and every bucket is complete at once: what a step costs without
 * communication. All ranks alike. */
COLL_API void coll_ddp_stub(coll_ddp *ddp, int on);
/* Keep ready, start and end of every bucket, and of its rounds, from now on. */
COLL_API void coll_ddp_trace(coll_ddp *ddp, int on);
/* What was kept, as trace events in JSON (Perfetto, chrome://tracing). */
COLL_API coll_status coll_ddp_trace_write(coll_ddp *ddp, const char *path);

#ifdef __cplusplus
}
#endif

#endif
