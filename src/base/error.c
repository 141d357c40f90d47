/*
 * Error box and the texts of statuses.
 */
#include "base/error.h"

#include <stdio.h>
#include <string.h>

void coll_error_clear(struct coll_error_box *box)
{
	memset(box, 0, sizeof(*box));
	box->rank = -1;
	box->step = -1;
}

coll_status coll_error_set(struct coll_error_box *box, coll_status status, const char *format, ...)
{
	va_list ap;

	if (!box || box->status != COLL_OK)
		return status;
	va_start(ap, format);
	vsnprintf(box->message, sizeof(box->message), format, ap);
	va_end(ap);
	box->status = status;
	return status;
}

const char *coll_status_string(coll_status status)
{
	switch (status) {
	case COLL_OK: return "success";
	case COLL_AGAIN: return "not finished yet";
	case COLL_ERR_ARGUMENT: return "invalid argument";
	case COLL_ERR_UNSUPPORTED: return "not supported";
	case COLL_ERR_MEMORY: return "out of memory";
	case COLL_ERR_CANCELLED: return "the receive was cancelled";
	case COLL_ERR_CONFIG: return "invalid configuration";
	case COLL_ERR_PEER_DEAD: return "peer is dead or unreachable";
	case COLL_ERR_PEER_SILENT: return "peer is silent";
	case COLL_ERR_PEER_LATE: return "peer did not enter the call in time";
	case COLL_ERR_EXCLUDED: return "the others go on without this rank";
	case COLL_ERR_MISMATCH: return "ranks made different calls";
	case COLL_ERR_CORRUPT: return "corrupt data received";
	case COLL_ERR_ABORTED: return "communicator was aborted";
	case COLL_ERR_SYSTEM: return "system call failed";
	case COLL_ERR_BOOTSTRAP: return "ranks could not find each other";
	case COLL_ERR_INTERNAL: return "internal error";
	}
	return "unknown status";
}
