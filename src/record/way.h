/*
 * The way a call was made: one number for each mover of data. A call that could go several ways (its buffers decide, or
 * a trial) goes one of them; whatever did the work says so, and the flight recorder, dumps and coll_comm_last_way()
 * show it by name (src/core/way_name.h). Which call goes which way: src/select/ways.c.
 *
 * Rows without plans come first, then one for each row of the table of algorithms.
 */
#ifndef COLL_RECORD_WAY_H
#define COLL_RECORD_WAY_H

#include <stdint.h>

/* clang-format off */
#define COLL_WAYS(ROW) \
	ROW(UNKNOWN, "unknown", "not begun, or not decided yet") \
	ROW(EAGER_LINE, "eager-line", "the payload travels in one cache line; barriers, too") \
	ROW(EAGER_LINES, "eager-lines", "the payload travels in several cache lines") \
	ROW(EAGER_CHUNK, "eager-chunk", "in chunks of memory that each rank owns and all map") \
	ROW(EAGER_BCAST, "eager-bcast", "broadcast in cache lines") \
	ROW(WIDE_BCAST, "wide-bcast", "broadcast in places of up to 32 KiB") \
	ROW(PAIR_SWAP, "pair-swap", "in a place that the two ranks write by turns") \
	ROW(ZERO_COPY, "zero-copy", "ranks read and write each other's buffers") \
	ROW(PAIR_STREAM, "pair-stream", "through two rings of slots") \
	ROW(PAIR_BCAST, "pair-bcast", "broadcast through a ring of slots") \
	ROW(CICO, "cico", "copy in, copy out: tile by tile through shared memory") \
	ROW(CMA, "cma", "the kernel copies from the other process (`process_vm_readv`)") \
	ROW(CENTRAL, "central", "through one buffer that all ranks share") \
	ROW(DEVICE_DIRECT, "device-direct", "devices of one host read each other's memory") \
	ROW(SEND_RECV, "send-recv", "a message between two ranks") \
	ROW(GROUP_BARRIER, "group-barrier", "the first and the last call of a group, over small slots of their own")
/* clang-format on */

#define COLL_WAY_NUMBER(id, name, text) COLL_WAY_##id,
enum coll_way {
	COLL_WAYS(COLL_WAY_NUMBER) COLL_WAY_PLAN, /* + k: by the plan of row k of coll_algos */
	COLL_WAY_STAGED = 64,                     /* added: the call was staged, see engine/stage.h */
	COLL_WAY_MAX = 127                        /* seven bits of an entry of the flight recorder */
};
#undef COLL_WAY_NUMBER

#endif
