/*
 * Counters, and what happened when.
 */
#ifndef COLL_DDP_TRACE_H
#define COLL_DDP_TRACE_H

#include "ddp/ddp_inner.h"

/* trace.c: a round starts, has ended (when, is returned); all rounds of the step have. */
int ddp_flight_start(coll_ddp *d, int bucket, int phase);
double ddp_flight_end(coll_ddp *d, int flight, coll_event *event);
void ddp_flights_close(coll_ddp *d);
void ddp_trace_bucket(coll_ddp *d, const struct bucket *b, double waited_s);

#endif
