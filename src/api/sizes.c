/*
 * The layout of the public structs on 64-bit machines, which programs have compiled in. A struct with struct_size may
 * get members at its end: then its size here changes, and what stands before it stays (base/sized.h). All others
 * never change. Nothing else is in this file.
 */
#include <assert.h>
#include <stdint.h>

#include "base/sized.h"
#include "coll/ddp.h"

#if UINTPTR_MAX == UINT64_MAX
#define IS(type, bytes)         static_assert(sizeof(type) == (bytes), #type " changed its size")
#define AT(type, member, bytes) static_assert(offsetof(type, member) == (bytes), #type "." #member " moved")

/* What never changes. */
IS(coll_status, 4);
IS(coll_dtype, 4);
IS(coll_op, 4);
IS(coll_collective, 4);
IS(coll_unique_id, 128);
IS(coll_message_info, 24);
AT(coll_message_info, count, 8);
AT(coll_message_info, type, 16);
IS(coll_ddp_param, 72);
AT(coll_ddp_param, dims, 16);
AT(coll_ddp_param, weights, 48);
AT(coll_ddp_param, lookup, 64);
IS(coll_ddp_bucket_info, 48);
AT(coll_ddp_bucket_info, first_param, 16);
AT(coll_ddp_bucket_info, slice_first, 24);
AT(coll_ddp_bucket_info, slice_grads, 40);

/* What may grow: the first version, then what came later, at the end. */
IS(coll_error, 80);
AT(coll_error, kind, 24);
AT(coll_error, elapsed_s, 48);
AT(coll_error, late_count, 72);

static_assert(COLL_SIZED_FIRST(coll_config, settings) == 64, "first version of coll_config");
AT(coll_config, rank, 8);
AT(coll_config, exchange, 24);
AT(coll_config, settings, 56);
AT(coll_config, interrupt, 64);
AT(coll_config, device, 80);
AT(coll_config, insecure, 88);
IS(coll_config, 96);

static_assert(COLL_SIZED_FIRST(coll_stats, waited_s) == 48, "first version of coll_stats");
AT(coll_stats, calls, 24);
IS(coll_stats, 48);

static_assert(COLL_SIZED_FIRST(coll_operation_desc, out_offsets) == 88, "first version of coll_operation_desc");
AT(coll_operation_desc, count, 32);
AT(coll_operation_desc, ragged, 52);
AT(coll_operation_desc, out_offsets, 80);
IS(coll_operation_desc, 88);

static_assert(COLL_SIZED_FIRST(coll_ddp_config, problem_bytes) == 88, "first version of coll_ddp_config");
AT(coll_ddp_config, first_bytes, 24);
AT(coll_ddp_config, wire, 52);
AT(coll_ddp_config, problem, 72);
IS(coll_ddp_config, 88);

static_assert(COLL_SIZED_FIRST(coll_ddp_stats, bytes_per_s) == 72, "first version of coll_ddp_stats");
AT(coll_ddp_stats, sent_bytes, 32);
AT(coll_ddp_stats, latency_s, 56);
IS(coll_ddp_stats, 72);
#endif
