/*
 * Errors as NCCL reports them (error.h). A program may ask for the sentence in another thread than the one that
 * failed, such as a watchdog, so the last one of the process is kept beside that of each thread.
 */
#include "compat/nccl/error.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compat/nccl/say.h"

enum { TEXT_BYTES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char anywhere[TEXT_BYTES]; /* under lock */

/* What a thread has said, and what it was told. A pointer: programs load this file late, when the linker has little
 * room for variables of threads. */
struct texts {
	char here[TEXT_BYTES], copy[TEXT_BYTES];
};
static _Thread_local struct texts *texts;
static pthread_key_t at_exit_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void)
{
	pthread_key_create(&at_exit_of_thread, free);
}

/* NULL: no memory, and the thread has no texts. */
static struct texts *own(void)
{
	if (texts)
		return texts;
	pthread_once(&once, make_key);
	texts = calloc(1, sizeof(*texts));
	pthread_setspecific(at_exit_of_thread, texts);
	return texts;
}

ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...)
{
	struct texts *t = own();
	char text[TEXT_BYTES];
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	if (t && strcmp(t->here, text) != 0) { /* who polls is told once */
		nccl_say(NCCL_SAY_WARN, "%s", text);
		memcpy(t->here, text, sizeof(t->here));
	}
	pthread_mutex_lock(&lock);
	memcpy(anywhere, text, sizeof(anywhere));
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
	case COLL_ERR_EXCLUDED:
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
	if (!text) /* another thread is just writing it */
		text = coll_status_string(status);
	/* The driver's own errors have an id. */
	return nccl_fail(strstr(text, "COLL-4301") ? ncclUnhandledCudaError : nccl_code(status), "%s: %s", function,
	                 text);
}

void nccl_last(char *text, size_t len_bytes)
{
	const struct texts *t = own();

	snprintf(text, len_bytes, "%s", t ? t->here : "");
}

NCCL_FUNCTION(const char *, ncclGetLastError, (ncclComm_t comm))
{
	struct texts *t = own();

	(void)comm;
	if (!t)
		return "";
	if (t->here[0])
		return t->here;
	pthread_mutex_lock(&lock);
	memcpy(t->copy, anywhere, sizeof(t->copy));
	pthread_mutex_unlock(&lock);
	return t->copy;
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
