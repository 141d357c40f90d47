/*
 * The ways in which calls can differ: data for mismatch.c.
 */
#include "mismatch.h"

#define F32 .type = COLL_F32
#define ALL_REDUCE(n)                                      \
	{                                                  \
		.kind = COLL_ALL_REDUCE, .count = (n), F32 \
	}
#define BROADCAST(n, r)                                                \
	{                                                              \
		.kind = COLL_BROADCAST, .count = (n), F32, .root = (r) \
	}
#define REDUCE(n, r)                                                \
	{                                                           \
		.kind = COLL_REDUCE, .count = (n), F32, .root = (r) \
	}
#define OF(k, n)                               \
	{                                      \
		.kind = (k), .count = (n), F32 \
	}
#define BARRIER()                    \
	{                            \
		.kind = COLL_BARRIER \
	}
#define PAIRS(k, ex, u, o)                                    \
	{                                                     \
		.kind = (k), F32, .ragged = true, .blocks = { \
			.by_pairs = true,                     \
			.expects = (ex),                      \
			.usual = (u),                         \
			.odd = (o)                            \
		}                                             \
	}
#define BLOCKS(k, u, o)                                                                 \
	{                                                                               \
		.kind = (k), F32, .ragged = true, .blocks = {.usual = (u), .odd = (o) } \
	}
#define MESSAGE(k, n, t, p)                                         \
	{                                                           \
		.kind = (k), .count = (n), .type = (t), .root = (p) \
	}
#define MOST(...)  .most = {__VA_ARGS__}, .nmost = (int)(sizeof((struct call[]){__VA_ARGS__}) / sizeof(struct call))
#define ODDLY(...) .odd = {__VA_ARGS__}, .nodd = (int)(sizeof((struct call[]){__VA_ARGS__}) / sizeof(struct call))
#define SAY(m, o)  .most_says = (m), .odd_says = (o)
/* All make the same call, with other lengths of blocks on the odd rank. */
#define BOTH(...) MOST(__VA_ARGS__), ODDLY(__VA_ARGS__)

enum { LARGE = 300000, TILE = 1 << 16 };

/* clang-format off */
const struct kase mismatch_cases[] = {
	{"kind", MOST(ALL_REDUCE(8)), ODDLY(BROADCAST(8, 0)), SAY("all_reduce(count=8", "broadcast(count=8")},
	{"type", MOST(ALL_REDUCE(8)), ODDLY({.kind = COLL_ALL_REDUCE, .count = 8, .type = COLL_I32}), SAY("f32", "i32")},
	{"op", MOST(ALL_REDUCE(8)), ODDLY({.kind = COLL_ALL_REDUCE, .count = 8, F32, .op = COLL_MAX}), SAY("sum", "max")},
	{"own_op", MOST(ALL_REDUCE(8)), ODDLY({.kind = COLL_ALL_REDUCE, .count = 8, F32, .own_op = true}), SAY("sum", "operation 64")},
	{"count", MOST(ALL_REDUCE(8)), ODDLY(ALL_REDUCE(9)), SAY("count=8,", "count=9,")},
	{"count_large", MOST(ALL_REDUCE(100000)), ODDLY(ALL_REDUCE(100001)), SAY("count=100000,", "count=100001,")},
	{"root_broadcast", MOST(BROADCAST(8, 0)), ODDLY(BROADCAST(8, 1)), SAY("root=0", "root=1")},
	{"root_reduce", MOST(REDUCE(8, 0)), ODDLY(REDUCE(8, 1)), SAY("root=0", "root=1")},
	{"order", MOST(ALL_REDUCE(8), BARRIER()), ODDLY(BARRIER(), ALL_REDUCE(8)), SAY("all_reduce(count=8", "barrier"), .turned = true},
	{"order_counts", MOST(ALL_REDUCE(8), ALL_REDUCE(9)), ODDLY(ALL_REDUCE(9), ALL_REDUCE(8)), SAY("count=", "count="), .turned = true},
	{"skipped", MOST(ALL_REDUCE(9), ALL_REDUCE(8)), ODDLY(ALL_REDUCE(8)), SAY("count=", "count=8")},
	{"late_in_a_row", MOST(ALL_REDUCE(8), ALL_REDUCE(8), BROADCAST(8, 0), ALL_REDUCE(8)),
	 ODDLY(ALL_REDUCE(8), ALL_REDUCE(8), BROADCAST(9, 0), ALL_REDUCE(8)), SAY("broadcast(count=8", "broadcast(count=9")},
	{"barrier_broadcast", MOST(BARRIER()), ODDLY(BROADCAST(8, 0)), SAY("barrier", "broadcast")},
	{"broadcast_barrier", MOST(BROADCAST(8, 0)), ODDLY(BARRIER()), SAY("broadcast", "barrier")},
	{"barrier_all_gather", MOST(BARRIER()), ODDLY(OF(COLL_ALL_GATHER, 1)), SAY("barrier", "all_gather")},
	{"none_or_some", MOST(ALL_REDUCE(8)), ODDLY(ALL_REDUCE(0)), SAY("count=8,", "count=0,")},
	{"some_or_none", MOST(ALL_REDUCE(0)), ODDLY(ALL_REDUCE(8)), SAY("count=0,", "count=8,")},
	{"none_either", MOST(ALL_REDUCE(0)), ODDLY(BROADCAST(0, 0)), SAY("all_reduce(count=0", "broadcast(count=0")},
	{"ahead", MOST(ALL_REDUCE(8)), ODDLY(BROADCAST(8, 0), BROADCAST(9, 0), BROADCAST(9, 0), BROADCAST(9, 0)),
	 SAY("all_reduce(count=8", "broadcast(count=8")},
	{"busy", MOST(ALL_REDUCE(8)), ODDLY(ALL_REDUCE(0)), SAY("count=8,", "count=0,"), .repeat = true},
	{"all_gather_all_to_all", MOST(OF(COLL_ALL_GATHER, 8)), ODDLY(OF(COLL_ALL_TO_ALL, 8)), SAY("all_gather(", "all_to_all(")},
	{"gather_scatter", MOST(OF(COLL_GATHER, 8)), ODDLY(OF(COLL_SCATTER, 8)), SAY("gather(", "scatter(")},
	{"scatter_gather", MOST(OF(COLL_SCATTER, 8)), ODDLY(OF(COLL_GATHER, 8)), SAY("scatter(", "gather(")},
	{"scan", MOST(OF(COLL_SCAN, 8)), ODDLY(ALL_REDUCE(8)), SAY("scan(", "all_reduce(")},
	{"exclusive_scan", MOST(OF(COLL_EXCLUSIVE_SCAN, 8)), ODDLY(ALL_REDUCE(8)), SAY("exclusive_scan(", "all_reduce(")},
	{"reduce_scatter", MOST(OF(COLL_REDUCE_SCATTER, 8)), ODDLY(ALL_REDUCE(8)), SAY("reduce_scatter(", "all_reduce(")},
	{"split", MOST({.kind = SPLIT}), ODDLY(ALL_REDUCE(8)), SAY("comm_split", "all_reduce(")},
	{"split_duplicate", MOST({.kind = SPLIT}), ODDLY({.kind = DUPLICATE}), SAY("comm_split", "comm_duplicate")},
	{"refused", MOST(BROADCAST(8, 0), ALL_REDUCE(8)),
	 ODDLY({.kind = COLL_BROADCAST, .count = 8, F32, .root = 99, .refused = true}, ALL_REDUCE(8)),
	 SAY("broadcast(count=8", "all_reduce(count=8")},

	{"behind", MOST(ALL_REDUCE(8)), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL), ALL_REDUCE(9)), SAY("count=8,", "count=9,"), .behind = true},

	/* Lengths of blocks that all know. */
	{"blocks", BOTH(BLOCKS(COLL_ALL_GATHER, 8, 9)), SAY("all_gatherv(", "all_gatherv(")},
	{"blocks_reduce_scatter", BOTH(BLOCKS(COLL_REDUCE_SCATTER, 8, 9)), SAY("reduce_scatterv(", "reduce_scatterv(")},
	{"blocks_large", BOTH(BLOCKS(COLL_ALL_GATHER, 2 * TILE, TILE)), SAY("all_gatherv(", "all_gatherv(")},
	{"blocks_uniform", MOST(OF(COLL_ALL_GATHER, 8)), ODDLY(BLOCKS(COLL_ALL_GATHER, 8, 9)), SAY("all_gather(", "all_gatherv(")},

	/* Lengths of blocks that pairs know. */
	{"sends_more", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 8, 9)), SAY("expects 8", "sends 9")},
	{"sends_less", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 9, 8)), SAY("expects 9", "sends 8")},
	{"sends_none", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 8, 0)), SAY("expects 8", "sends 0")},
	{"sends_unasked", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 0, 8)), SAY("expects 0", "sends 8"), .stray = true},
	{"sends_large_unasked", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 0, LARGE)), SAY("expects 0", "sends 300000")},
	{"sends_a_tile_more", BOTH(PAIRS(COLL_ALL_TO_ALL, false, TILE, 2 * TILE)), SAY("expects 65536", "sends 131072")},
	{"sends_a_tile_less", BOTH(PAIRS(COLL_ALL_TO_ALL, false, 2 * TILE, TILE)), SAY("expects 131072", "sends 65536")},
	{"expects_more", BOTH(PAIRS(COLL_ALL_TO_ALL, true, 8, 9)), SAY("sends 8", "expects 9")},
	{"expects_none", BOTH(PAIRS(COLL_ALL_TO_ALL, true, 8, 0)), SAY("sends 8", "expects 0"), .stray = true},
	{"expects_unsent", BOTH(PAIRS(COLL_ALL_TO_ALL, true, 0, 8)), SAY("sends 0", "expects 8")},
	{"expects_large_unsent", BOTH(PAIRS(COLL_ALL_TO_ALL, true, 0, LARGE)), SAY("sends 0", "expects 300000")},
	{"gatherv", BOTH(PAIRS(COLL_GATHER, false, 8, 9)), SAY(" 8", " 9")},
	{"gatherv_none", BOTH(PAIRS(COLL_GATHER, false, 8, 0)), SAY(" 8", " 0"), .stray = true},
	{"gatherv_unasked", BOTH(PAIRS(COLL_GATHER, false, 0, LARGE)), SAY(" 0", " 300000")},
	{"scatterv", BOTH(PAIRS(COLL_SCATTER, false, 8, 9)), SAY(" 8", " 9")},
	{"scatterv_none", BOTH(PAIRS(COLL_SCATTER, false, 8, 0)), SAY(" 8", " 0"), .stray = true},
	{"scatterv_unasked", BOTH(PAIRS(COLL_SCATTER, false, 0, LARGE)), SAY(" 0", " 300000")},
	{"pairs_uniform", MOST(OF(COLL_ALL_TO_ALL, 8)), ODDLY(PAIRS(COLL_ALL_TO_ALL, false, 8, 8)), SAY("all_to_all(", "all_to_allv(")},

	/* Messages: rank 0 sends, rank 1 receives. */
	{"message_count", MOST(MESSAGE(SEND, 8, COLL_F32, 1)), ODDLY(MESSAGE(RECV, 9, COLL_F32, 0)),
	 SAY("send(count=8,", "recv(count=9,"), .pair = true},
	{"message_type", MOST(MESSAGE(SEND, 8, COLL_F32, 1)), ODDLY(MESSAGE(RECV, 8, COLL_I32, 0)), SAY("f32", "i32"), .pair = true},
	{"message_long", MOST(MESSAGE(SEND, LARGE, COLL_F32, 1)), ODDLY(MESSAGE(RECV, LARGE + 1, COLL_F32, 0)),
	 SAY("send(count=300000,", "recv(count=300001,"), .pair = true},
	{"message_none_sent", MOST(MESSAGE(SEND, 0, COLL_F32, 1)), ODDLY(MESSAGE(RECV, 9, COLL_F32, 0)),
	 SAY("send(count=0,", "recv(count=9,"), .pair = true},
	{"message_none_taken", MOST(MESSAGE(SEND, LARGE, COLL_F32, 1)), ODDLY(MESSAGE(RECV, 0, COLL_F32, 0)),
	 SAY("send(count=300000,", "recv(count=0,"), .pair = true},
	{"second_message", MOST(MESSAGE(SEND, 8, COLL_F32, 1), MESSAGE(SEND, 8, COLL_F32, 1)),
	 ODDLY(MESSAGE(RECV, 8, COLL_F32, 0), MESSAGE(RECV, 9, COLL_F32, 0)),
	 SAY("send(count=8,", "recv(count=9,"), .pair = true},

	/* Calls that share no number, which wait for each other: found while all block. */
	{"recv_all_reduce", MOST(ALL_REDUCE(8)), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL)), SAY("all_reduce(", "recv("), .blocking = true},
	{"recv_large", MOST(ALL_REDUCE(100000)), ODDLY(MESSAGE(RECV, 100000, COLL_F32, USUAL)), SAY("all_reduce(", "recv("), .blocking = true},
	{"recv_barrier", MOST(BARRIER()), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL)), SAY("barrier", "recv("), .blocking = true},
	{"recv_broadcast", MOST(BROADCAST(8, ODD)), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL)), SAY("broadcast(", "recv("), .blocking = true},
	{"recv_gather", MOST(OF(COLL_GATHER, 8)), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL)), SAY("(count=", "recv("), .blocking = true},
	{"recv_split", MOST({.kind = SPLIT}), ODDLY(MESSAGE(RECV, 8, COLL_F32, USUAL)), SAY("comm_split", "recv("), .blocking = true},
	{"send_all_reduce", MOST(ALL_REDUCE(8)), ODDLY(MESSAGE(SEND, LARGE, COLL_F32, USUAL)), SAY("all_reduce(", "send("), .blocking = true},
	{"send_small", MOST(ALL_REDUCE(8)), ODDLY(MESSAGE(SEND, 8, COLL_F32, USUAL)), SAY("all_reduce(", "("), .blocking = true},
	{"recv_recv", MOST(MESSAGE(RECV, 8, COLL_F32, 1)), ODDLY(MESSAGE(RECV, 8, COLL_F32, 0)), SAY("recv(", "recv("), .pair = true, .blocking = true},
	{"send_send", MOST(MESSAGE(SEND, LARGE, COLL_F32, 1)), ODDLY(MESSAGE(SEND, LARGE, COLL_F32, 0)), SAY("send(", "send("), .pair = true, .blocking = true},
	{"recv_ring", BOTH(MESSAGE(RECV, 8, COLL_F32, BEFORE)), SAY("recv(", "recv("), .anybody = true, .blocking = true},
	{"send_ring", BOTH(MESSAGE(SEND, LARGE, COLL_F32, NEXT)), SAY("send(", "send("), .anybody = true, .blocking = true},
	{"second_recv", MOST(MESSAGE(SEND, 8, COLL_F32, 1), ALL_REDUCE(7)), ODDLY(MESSAGE(RECV, 8, COLL_F32, 0), MESSAGE(RECV, 8, COLL_F32, 0)),
	 SAY("all_reduce(", "recv("), .pair = true, .blocking = true},
};
const int mismatch_ncases = sizeof(mismatch_cases) / sizeof(mismatch_cases[0]);
/* clang-format on */
