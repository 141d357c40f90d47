/*
 * Errors as NCCL reports them (error.h). A program may ask for the sentence in another thread than the one that
 * failed, such as a watchdog, so the last one of the process is kept beside that of each thread.
 */
#include "compat/nccl/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char anywhere[TEXT_BYTES]; /* under lock */
static _Thread_local char here[TEXT_BYTES];
static _Thread_local char copy[TEXT_BYTES];

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(here, sizeof(here), format, ap);
	va_end(ap);
	pthread_mutex_lock(&lock);
	memcpy(anywhere, here, sizeof(anywhere));
	pthread_mutex_unlock(&lock);
	return result;
}

ncclResult_t nccl_code(coll_status status)
{
	switch (status) {
	case COLL_OK: return ncclSuccess;
	case COLL_AGAIN: return ncclInProgress;
	case COLL_ERR_ARGUMENT: return ncclInvalidArgument;
	case COLL_ERR_UNSUPPORTED:
	case COLL_ERR_CONFIG:
	case COLL_ERR_CANCELLED:
	case COLL_ERR_MISMATCH: return ncclInvalidUsage;
	case COLL_ERR_MEMORY:
	case COLL_ERR_SYSTEM:
	case COLL_ERR_BOOTSTRAP: return ncclSystemError;
	case COLL_ERR_PEER_DEAD:
	case COLL_ERR_PEER_SILENT:
	case COLL_ERR_PEER_LATE:
	case COLL_ERR_CORRUPT:
	case COLL_ERR_ABORTED: return ncclRemoteError;
	default: return ncclInternalError;
	}
}

ncclResult_t nccl_from(coll_status status, const coll_comm *comm, const char *function)
{
	const char *text;

	if (status == COLL_OK)
		return ncclSuccess;
	text = coll_last_error(comm)->message;
	/* The driver's own errors have an id. */
	return nccl_fail(strstr(text, "COLL-4301") ? ncclUnhandledCudaError : nccl_code(status), "%s: %s", function,
	                 text);
}

void nccl_last(char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "%s", here);
}

NCCL_FUNCTION(const char *, ncclGetLastError, (ncclComm_t comm))
{
	(void)comm;
	if (here[0])
		return here;
	pthread_mutex_lock(&lock);
	memcpy(copy, anywhere, sizeof(copy));
	pthread_mutex_unlock(&lock);
	return copy;
}

NCCL_FUNCTION(const char *, ncclGetErrorString, (ncclResult_t result))
{
	switch (result) {
	case ncclSuccess: return "no error";
	case ncclUnhandledCudaError: return "a call of the CUDA driver failed";
	case ncclSystemError: return "a system call failed, or the ranks could not connect";
	case ncclInternalError: return "internal error of the library";
	case ncclInvalidArgument: return "invalid argument";
	case ncclInvalidUsage: return "invalid usage";
	case ncclRemoteError: return "another rank failed, or its connection was lost";
	case ncclInProgress: return "operation in progress";
	case ncclTimeout: return "time limit reached";
	default: return "unknown result code";
	}
}
