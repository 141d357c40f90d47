/*
 * Errors, the clock, counting.
 */
#include "ddp/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

#include "ddp/ddp_inner.h"

double ddp_now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

coll_status ddp_fail(coll_ddp *d, coll_status status, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(d->error, sizeof(d->error), format, args);
	va_end(args);
	if (d->config.problem && d->config.problem_bytes)
		snprintf(d->config.problem, d->config.problem_bytes, "%s", d->error);
	return status;
}

coll_status ddp_pass(coll_ddp *d, coll_comm *comm, coll_status status)
{
	if (status == COLL_OK || status == COLL_AGAIN)
		return status;
	return ddp_fail(d, status, "%s: %s", coll_status_string(status), coll_last_error(comm)->message);
}

void ddp_count(coll_ddp *d, size_t payload_bytes, double sent_bytes)
{
	d->stats.collectives++;
	d->stats.payload_bytes += payload_bytes;
	d->stats.sent_bytes += (uint64_t)sent_bytes;
}
