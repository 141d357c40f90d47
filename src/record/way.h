/*
 * The way a call was made: one number for each mover of data, and one name. A call that
 * could go several ways (its buffers decide, or a trial) goes one of them; whatever did the
 * work says so, and the flight recorder, dumps and coll_comm_last_way() tell it by name.
 *
 * Rows without plans come first, then one for each row of the table of algorithms.
 */
#ifndef COLL_RECORD_WAY_H
#define COLL_RECORD_WAY_H

#include <stdint.h>

struct coll_algo;

#define COLL_WAYS(ROW)                                                                         \
	ROW(UNKNOWN, "unknown")         /* not begun, or not decided yet */                    \
	ROW(EAGER_LINE, "eager-line")   /* payload in one cache line; barrier */               \
	ROW(EAGER_LINES, "eager-lines") /* payload in several lines */                         \
	ROW(EAGER_CHUNK, "eager-chunk") /* payload in cells of a rank's region */              \
	ROW(EAGER_BCAST, "eager-bcast") /* broadcast, payload in lines */                      \
	ROW(WIDE_BCAST, "wide-bcast")   /* broadcast, payload in places of up to 32 KiB */     \
	ROW(PAIR_SWAP, "pair-swap")     /* two ranks, payload in a place that changes hands */ \
	ROW(ZERO_COPY, "zero-copy")     /* in the callers' buffers, which all ranks map */     \
	ROW(PAIR_STREAM, "pair-stream") /* two ranks, plain buffers, through rings of slots */ \
	ROW(PAIR_BCAST, "pair-bcast")   /* two ranks, plain buffers, broadcast */              \
	ROW(CICO, "cico")               /* copied in and out, tile by tile */                  \
	ROW(CMA, "cma")                 /* read by the kernel from where it lies */            \
	ROW(CENTRAL, "central")         /* a buffer shared by many ranks */                    \
	ROW(SEND_RECV, "send-recv")     /* a message between two ranks */

#define COLL_WAY_NUMBER(id, name) COLL_WAY_##id,
enum coll_way {
	COLL_WAYS(COLL_WAY_NUMBER) COLL_WAY_PLAN, /* + k: by the plan of row k of coll_algos */
	COLL_WAY_MAX = 127                        /* seven bits of an entry of the flight recorder */
};
#undef COLL_WAY_NUMBER

/* Of a row of coll_algos. */
uint8_t coll_way_of_algo(const struct coll_algo *algo);
/* "zero-copy", "ring" ...; "unknown" for what is no way. */
const char *coll_way_name(uint8_t way);

#endif
