/*
 * The delays of the library as constants, and the sums that hold the promise of docs/design/failures.md:
 * a process that ended is an error in less than 2 s, and a host out of reach soon after COLL_UNREACHABLE_MS, wherever
 * it is noticed first.
 */
#ifndef COLL_BASE_DELAY_H
#define COLL_BASE_DELAY_H

#include <assert.h>
#include <stdint.h>

#define ROW(name, milliseconds, bound, why) COLL_DELAY_##name##_MS = (milliseconds),
enum coll_delay_ms {
#include "base/delay_rows.h"
	COLL_PROMISE_DEATH_MS = 2000,
	/* Beyond COLL_UNREACHABLE_MS. */
	COLL_PROMISE_UNREACHABLE_MS = 1000
};
#undef ROW

#define COLL_NS_PER_MS      UINT64_C(1000000)
#define COLL_DELAY_NS(name) (COLL_DELAY_##name##_MS * COLL_NS_PER_MS)

#define SUM_BELOW(sum_ms, promise_ms) static_assert((sum_ms) < (promise_ms), #sum_ms)

/* A link ends: liveness check, one more connection, settle time. */
SUM_BELOW(COLL_DELAY_LIVENESS_MS + COLL_DELAY_LIVENESS_RECONNECT_MS + COLL_DELAY_SETTLE_MS, COLL_PROMISE_DEATH_MS);
/* The probe of a liveness check ends before the check does. */
SUM_BELOW(COLL_DELAY_CONTROL_PROBE_MS + COLL_DELAY_LIVENESS_RECONNECT_MS, COLL_DELAY_LIVENESS_MS);
/* A wait whose link ended outlasts the liveness check, and both end in time. */
SUM_BELOW(COLL_DELAY_LIVENESS_MS + COLL_DELAY_LIVENESS_RECONNECT_MS + COLL_DELAY_SETTLE_MS, COLL_DELAY_CAUSE_MS);
SUM_BELOW(COLL_DELAY_CAUSE_MS + COLL_DELAY_SETTLE_MS, COLL_PROMISE_DEATH_MS);
/* A host is out of reach for COLL_UNREACHABLE_MS. Control plane: the next keepalive begins that time, then the liveness
 * check. Data plane: tcp gives up at its next look, then the wait looks for the cause. */
SUM_BELOW(COLL_DELAY_KEEPALIVE_MS + COLL_DELAY_LIVENESS_UNREACHED_MS + COLL_DELAY_SETTLE_MS,
          COLL_PROMISE_UNREACHABLE_MS);
SUM_BELOW(COLL_DELAY_PING_AFTER_MS + COLL_DELAY_LIVENESS_UNREACHED_MS + COLL_DELAY_SETTLE_MS,
          COLL_PROMISE_UNREACHABLE_MS);
SUM_BELOW(2 * COLL_DELAY_TCP_TICK_REMOTE_MS + COLL_DELAY_CAUSE_UNREACHED_MS + COLL_DELAY_SETTLE_MS,
          COLL_PROMISE_UNREACHABLE_MS);
/* One address that swallows packets does not keep others from being tried. */
SUM_BELOW(COLL_DELAY_TCP_CONNECT_MS, 2000);
/* The frames of a lost rail go on in 1.5 s. */
SUM_BELOW(COLL_DELAY_TCP_RAIL_SILENT_MS + 2 * COLL_DELAY_TCP_TICK_REMOTE_MS + COLL_DELAY_TCP_CONNECT_FIRST_MS, 1500);
/* That wait outlasts the liveness check of an unreachable host. */
SUM_BELOW(COLL_DELAY_LIVENESS_UNREACHED_MS + COLL_DELAY_SETTLE_MS, COLL_DELAY_CAUSE_UNREACHED_MS);
/* rdma: an idle link is asked, and its connection is not made again. */
SUM_BELOW(COLL_DELAY_RDMA_TICK_MS + COLL_DELAY_CAUSE_UNREACHED_MS + COLL_DELAY_SETTLE_MS, COLL_PROMISE_UNREACHABLE_MS);
SUM_BELOW(COLL_DELAY_RDMA_RAIL_SILENT_MS + 2 * COLL_DELAY_RDMA_TICK_MS + 2 * COLL_DELAY_RDMA_MEND_CONNECT_MS, 1500);
/* A deadlock is judged by a moment at which all ranks waited. */
SUM_BELOW(COLL_DELAY_DEADLOCK_FRESH_MS + COLL_DELAY_DEADLOCK_AGE_MS, COLL_DELAY_DEADLOCK_UNMOVED_MS);

#undef SUM_BELOW

static_assert(COLL_DELAY_CONTROL_IDLE_PROBE_MS % 1000 == 0, "the kernel takes seconds");

#endif
