/*
 * Counters of a rank in a file for Prometheus (COLL_METRICS_FILE): the textfile format of its node exporter, which
 * reads such files at any time. So a file is written beside it and takes its place by rename. The name of a file should
 * end in .prom, and differ from rank to rank (%r).
 */
#ifndef COLL_INSPECT_METRICS_H
#define COLL_INSPECT_METRICS_H

#include "context/context.h"

/* Write it if the time since *last_ns asks for it, and set *last_ns. The service thread. */
void coll_metrics_keep(struct coll_context *ctx, uint64_t *last_ns);

#endif
