/*
 * How long TCP waits between tries to send again. The kernel doubles that time from try to try, so that after an outage
 * of five seconds the next try may come when COLL_UNREACHABLE_MS is over. A tenth of that is the most here, on kernels
 * that have the option (Linux 6.15); others refuse it, and nothing else changes. The number of tries (15) is enough for
 * COLL_UNREACHABLE_MS at any value.
 */
#ifndef COLL_BASE_RETRANSMIT_H
#define COLL_BASE_RETRANSMIT_H

#include "base/delay.h"

enum { COLL_TCP_RTO_MAX = 44 }; /* TCP_RTO_MAX_MS of linux/tcp.h */

static inline int coll_retransmit_ms(int unreachable_ms)
{
	const int ms = unreachable_ms / 10;

	return ms < COLL_DELAY_RETRANSMIT_LEAST_MS  ? COLL_DELAY_RETRANSMIT_LEAST_MS
	       : ms > COLL_DELAY_RETRANSMIT_MOST_MS ? COLL_DELAY_RETRANSMIT_MOST_MS
	                                            : ms;
}

#endif
