/*
 * Every threshold of selection, and every size that data is cut in: which call goes which way, and how long chunks,
 * tiles, units and frames are. All of them are agreed facts, since they are constants.
 *
 * The comment of each ends with its experiment: a page of docs/results/experiments/ and the section, or "layout" where
 * memory and not speed sets the figure. tests/headers/limits.py checks these references and keeps thresholds out of
 * other files. Rates, delays and counts of trials are no thresholds, and stay with their users.
 */
#ifndef COLL_BASE_LIMITS_H
#define COLL_BASE_LIMITS_H

enum {
	/* ---- Which way: the rows of src/select/ways.c ---- */

	/* A core for each rank: longer vectors or blocks go by the plan. intra.md, Limits of lines and chunks */
	COLL_EAGER_GATHER_MAX = 512,
	/* The same for all blocks of a reduce_scatter. intra.md, Limits of lines and chunks */
	COLL_EAGER_SCATTER_MAX = 2 << 10,
	/* The same for all blocks of an all_to_all. intra.md, Limits of lines and chunks */
	COLL_EAGER_ALLTOALL_MAX = 32 << 10,
	/* The longest wide-bcast, and the size of its places. intra.md, Places that change hands */
	COLL_WIDE_BYTES = 32 << 10,
	/* A core for each rank: a few do not reduce more for all. Counted, not measured. intra.md, Many ranks */
	COLL_CENTRAL_REDUCE_MAX = 1 << 10,
	/* Shorter calls take their buffers as they are. shm-large.md, Directly */
	COLL_ZERO_COPY_MIN = 8 << 10,
	/* The shortest pair-stream, and the shortest of its chunks. shm-large.md, By slots that change hands */
	COLL_PAIR_STREAM_MIN = 8 << 10,
	/* Shorter: a root that is always the same sends faster by a plan. shm-large.md, By slots, one way */
	COLL_PAIR_BCAST_MIN = 256 << 10,
	/* Longer: a plan takes as long, and the kernel may read some of it. shm-large.md, By slots, one way */
	COLL_PAIR_BCAST_MAX = 2 << 20,
	/* Shorter vectors go by the plan. shm-large.md, By tiles */
	COLL_CICO_REDUCE_MIN = 64 << 10,
	/* Shorter broadcasts are wide-bcast. shm-large.md, By tiles */
	COLL_CICO_BCAST_MIN = 32 << 10,
	/* Of blocks; the eager rows end above it. shm-large.md, By tiles */
	COLL_CICO_BLOCK_MIN = 8 << 10,
	/* From here on the trial decides. shm-large.md, By the kernel */
	COLL_CMA_MIN = 8 << 10,
	/* The largest COLL_INTRA_BYTES. layout */
	COLL_INTRA_BYTES_MAX = 1 << 20,

	/* ---- Device memory ---- */

	/* A slot of staging, so the longest tile where some rank has a device; a power of two of pages. layout */
	COLL_STAGE_SLOT_BYTES = 128 << 10,
	/* From so many tiles on, a staged call in a stream joins them: its queue holds about 1024 operations. layout */
	COLL_STAGE_JOIN_MIN = 256,
	/* So many. layout */
	COLL_STAGE_JOINED = 8,
	/* And from so many tiles on the most that the slots allow. layout */
	COLL_STAGE_JOIN_MAX_MIN = 1024,
	/* Which are so many. layout */
	COLL_STAGE_JOINED_MAX = 32,
	/* The least COLL_DEVICE_SLOT_BYTES. layout */
	COLL_MAPPED_SLOT_MIN = 64 << 10,
	/* The largest COLL_DEVICE_SLOT_BYTES. layout */
	COLL_MAPPED_SLOT_MAX = 64 << 20,
	/* From so many bytes on, ranks read each other's buffers, and reduce a part each; no figures. layout */
	COLL_MAPPED_LONG_MIN = 256 << 10,

	/* ---- How an intranode call is cut ---- */

	/* A piece of pair-swap, of wide-bcast and of a vector in chunks. intra.md, Places that change hands */
	COLL_EAGER_PIECE_MIN = 1 << 10,
	/* A piece in chunks where ranks share cores: they wait for turns, not for bytes. ways.md, Pieces */
	COLL_EAGER_SHARED_PIECE_MIN = 16 << 10,
	/* A piece of blocks in chunks. intra.md, Limits of lines and chunks */
	COLL_EAGER_BLOCK_PIECE_MIN = 2 << 10,
	/* A tile of a vector that goes cico. shm-large.md, By tiles */
	COLL_TILE_BYTES = 256 << 10,
	/* A tile of each block that goes cico. shm-large.md, By tiles */
	COLL_STRIP_BYTES = 128 << 10,
	/* Slots of both ranks lie in a second-level cache. shm-large.md, By slots that change hands */
	COLL_PAIR_SLOT_BYTES = 32 << 10,
	/* Slots of a rank: half of a vector of 25 MiB fits, which is a bucket of DDP. shm-large.md, Ahead of a peer */
	COLL_AHEAD_SLOTS = 400,
	/* A process keeps so many bytes in such slots. shm-large.md, Ahead of a peer */
	COLL_AHEAD_KEEP_BYTES = 64 << 20,
	/* Longer vectors are walked forwards. shm-large.md, By slots that change hands */
	COLL_PAIR_BACKWARDS_MAX = 8 << 20,
	/* What is sent, joined and taken moves in blocks, by turns. shm-large.md, By slots that change hands */
	COLL_PAIR_BLOCK_BYTES = 512,
	/* So far ahead slots are fetched. shm-large.md, By slots that change hands */
	COLL_PAIR_SLOT_AHEAD = 1 << 10,
	/* So far ahead the caller's memory is fetched. shm-large.md, By slots that change hands */
	COLL_PAIR_OWN_AHEAD = 16 << 10,
	/* A slot of pair-bcast. shm-large.md, By slots, one way */
	COLL_BCAST_SLOT_BYTES = 64 << 10,
	/* A rank's cell of the central buffer. intra.md, Many ranks */
	COLL_CENTRAL_CELL_MAX = 16 << 10,
	/* In such a cell, for each rank: whole elements of every type. layout */
	COLL_CENTRAL_BLOCK_MIN = 16,
	/* More ranks: a root has no links to all, which are n * n of all roots. many-ranks.md, The central buffer */
	COLL_CENTRAL_ROOTS_MAX = 256,
	/* Others' memory that zero-copy or cma touches at once: below a millisecond. shm-large.md, Directly */
	COLL_UNIT_BYTES = 1 << 20,
	/* The same where many ranks share a unit. shm-large.md, Directly */
	COLL_UNIT_MIN = 64 << 10,
	/* From here on all blocks together are tried half as often. shm-large.md, By the kernel */
	COLL_CMA_LONG_BYTES = 8 << 20,

	/* ---- Frames ---- */

	/* Shorter frames are copied: that costs less than telling the peer where to look. shm-large.md, By frames */
	COLL_REF_MIN = 4 << 10,
	/* Longer results are not offered for the peer to write: they have left its caches. shm-large.md, Invitations */
	COLL_INVITE_MAX = 512 << 10,
	/* A fused step that also stores: the block stays in the first-level cache. shm-large.md, By frames */
	COLL_FORWARD_BLOCK_BYTES = 8 << 10,
	/* The same where what is sent goes past the caches. shm-large.md, Stores past the caches */
	COLL_FORWARD_STREAM_MIN = 1 << 10,
	/* The longest frame between hosts. tcp.md, Bytes */
	COLL_FRAME_LINK_BYTES = 512 << 10,
	/* The same, more ranks than cores. tcp.md, Bytes */
	COLL_FRAME_SHARED_BYTES = 128 << 10,
	/* The longest frame where the transport has no opinion. layout */
	COLL_FRAME_MAX = 64 << 10,
	/* A slot of the lanes of a group's first and last call. layout */
	COLL_GROUP_SLOT_BYTES = 64,
	/* The longest frame however small the budget. layout */
	COLL_FRAME_MIN = 4 << 10,
	/* A call of a group that is packed with others. intra.md, Calls packed in one */
	COLL_FUSE_EACH_MAX = 4 << 10,
	/* Longer tagged messages wait at their sender; slots of every pair are that long. layout */
	COLL_TAG_EAGER_MAX = 4 << 10,
	/* The pool of each source for tagged messages that no receive waits for. layout */
	COLL_TAG_POOL_BYTES = 64 << 10,
	/* All calls packed in one: below what is cut in tiles. intra.md, Calls packed in one */
	COLL_FUSE_TOTAL_MAX = 32 << 10,

	/* ---- Stores past the caches ---- */

	/* Of what a call touches. shm-large.md, Stores past the caches */
	COLL_NT_MIN = 2 << 20,
	/* A last cache of which nothing is known. shm-large.md, Stores past the caches */
	COLL_NT_CACHE_BYTES = 32 << 20,
	/* A core's part of the last cache, until that is measured. shm-large.md, Stores past the caches */
	COLL_NT_CORE_BYTES = 4 << 20,
	/* Of a slot. shm-large.md, Near and far cores */
	COLL_SLOT_STREAM_MIN = 8 << 10,
	/* Filled between two probes. shm-large.md, Near and far cores */
	COLL_SLOT_PROBE_BYTES = 32 << 20,

	/* ---- Prices of plans ---- */

	/* Longer vectors take lean rows only. algorithms.md, The price */
	COLL_PRICE_LONG_BYTES = 64 << 10,
	/* Ranks that share cores, up to so many: each pair may open a link for a short call. many-ranks.md, Links */
	COLL_PRICE_MESH_RANKS = 32,
	/* Ranks of one host, up to so many: a root may open a link to each. many-ranks.md, Links */
	COLL_PRICE_ROOT_RANKS = 64,
	/* Ranks that share cores: longer vectors leave the caches. algorithms.md, The price */
	COLL_PRICE_PIECE_BYTES = 256 << 10,
	/* Two ranks over sockets send shorter vectors whole, in one round. algorithms.md, The price */
	COLL_PRICE_EXCHANGE_MAX = 256 << 10,
	/* Between hosts of several ranks: shorter vectors go through one rank of each. levels.md, Short calls */
	COLL_LEADERS_MAX = 16 << 10,
	/* Hosts of one rank in a chain: more of them are priced for a call alone. links.md, Chains */
	COLL_CHAIN_HOSTS = 16,
	/* Tiles that a vector is cut into for each link of a chain. links.md, Chains */
	COLL_CHAIN_CUTS = 4,
	/* The shortest tile of a chain. links.md, Chains */
	COLL_CHAIN_TILE_MIN = 32 << 10,
	/* Tiles of a chain under way. links.md, Chains */
	COLL_CHAIN_TILES = 4,
	/* Ranks of a host; with fewer no level inside it has two groups of two. levels.md, Inside hosts */
	COLL_LEVELS_RANKS_MIN = 4,

	/* ---- Short calls ---- */

	/* Elements: such a call is not timed when it ends at once. intra.md, The shortest way */
	COLL_SHORT_COUNT = 64,
	/* The same on the fast path. intra.md, The shortest way */
	COLL_SHORT_BYTES = 1 << 10
};

#endif
