/*
 * Communicators of NCCL: the handle, and the list of those that exist.
 */
#ifndef COLL_COMPAT_NCCL_HANDLE_H
#define COLL_COMPAT_NCCL_HANDLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "coll/coll.h"
#include "compat/nccl/abi.h"

enum { NCCL_OPS_MAX = 64 };

/* The ranks of one unique id that this process has; their children count to it. */
struct nccl_job;

/* A premultiplied sum. Its value as ncclRedOp_t names the communicator too. */
struct nccl_op {
	bool used;
	ncclDataType_t type;
	char factor[sizeof(double)]; /* of that type */
	const void *scalar;          /* in device memory, read at each call instead; NULL: none */
};

struct nccl_stream {
	struct nccl_stream *next;
	cudaStream_t raw;
	coll_stream *stream;
};

/* A handle of ncclCommRegister(). */
struct nccl_registration {
	struct nccl_registration *next;
	void *ptr;
	bool known; /* to the library as well */
};

/* Of threads in which communicators are made, or end. */
enum { NCCL_STACK_BYTES = 1 << 20 };

struct ncclComm {
	struct ncclComm *next; /* of those that exist */
	unsigned serial;
	int users;         /* threads inside a call; the list's lock */
	int busy;          /* those of them that make calls, or wait; the list's lock */
	bool ending;       /* no thread may enter; the list's lock */
	bool ready;        /* comm exists; the list's lock */
	atomic_bool ended; /* ncclCommAbort(): a creation gives up */
	coll_comm *comm;
	struct nccl_job *job;
	int rank, size, device; /* device -1: none */
	bool finalized, suspended;
	/* By the thread that uses the communicator. */
	struct nccl_op ops[NCCL_OPS_MAX];
	coll_op premul[ncclNumTypes]; /* gets the factor of each call; 0: not made yet */
	struct nccl_stream *streams;
	struct nccl_registration *registrations;
};

/* A new handle, which this thread is inside of. NULL: no memory. */
ncclComm_t nccl_handle_new(int rank, int size, int device);
/* The creation failed: leave. True: the handle is in the list no longer, and the caller's to free; else who ends it
 * does. */
bool nccl_handle_drop(ncclComm_t h);
/* The communicator exists: others may enter. The maker leaves. */
void nccl_handle_ready(ncclComm_t h, coll_comm *comm);

/* Begin and end a call. Refuses NULL, what is no communicator or is one no longer, and one that is not ready, unless
 * any is true. */
ncclResult_t nccl_enter(ncclComm_t h, const char *function);
ncclResult_t nccl_enter_any(ncclComm_t h, const char *function);
void nccl_leave(ncclComm_t h);
/* The same for who makes calls or waits for them. An abort meanwhile is one of what is pending. */
ncclResult_t nccl_enter_busy(ncclComm_t h, const char *function);
void nccl_leave_busy(ncclComm_t h);

/* Whether the communicator exists, for who is inside. */
bool nccl_is_ready(ncclComm_t h);

/* Take it out of the list when all threads have left. */
ncclResult_t nccl_handle_end(ncclComm_t h, const char *function);
/* The same at once: what is pending fails on all ranks. Where nothing is (idle), the others are left alone, since they
 * may still be finishing the last call. */
ncclResult_t nccl_handle_abort(ncclComm_t h, bool *idle, const char *function);

/* The library's stream for a stream of CUDA; NULL where the communicator has no device. */
ncclResult_t nccl_stream_of(ncclComm_t h, cudaStream_t raw, coll_stream **stream, const char *function);
/* Work of `later` begins when the present work of `earlier` has ended, if the communicator has a device. */
ncclResult_t nccl_stream_order(ncclComm_t h, cudaStream_t earlier, cudaStream_t later, const char *function);
/* Wait for all that was enqueued. */
ncclResult_t nccl_flush(ncclComm_t h, const char *function);

/* ---- Jobs ---- */

/* The job of a key, made if the process has none; ranks are added to it. NULL: no memory. */
struct nccl_job *nccl_job_join(const void *key, size_t len_bytes, int ranks);
/* A child of one of its communicators. */
void nccl_job_retain(struct nccl_job *job);

/* Free the handle (which is in the list no longer) and destroy its communicator. With several ranks of the job in this
 * process, one thread may destroy them one after the other, and each waits for the others: so a thread of its own does
 * it, and the last one joins all. apart: a thread does it in any case, and nobody waits. */
ncclResult_t nccl_job_leave(ncclComm_t h, bool apart, const char *function);

#endif
