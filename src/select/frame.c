/*
 * Frames worth having.
 *
 * On one host long ones: each is a turn between sending and receiving, and bytes are as fast as the
 * cores that move them. Between hosts, over sockets, a frame waits in a queue for its link, and whoever
 * takes a long one in and reduces it does nothing for his own link, which runs dry and never makes that good; so
 * shorter ones. Ranks that share cores wait for each other besides, for as long as each one's frame takes, so the
 * shortest. bench/shaped, namespaces on two cores, two tiles under way, of what the link carries, means of 3 to 6 runs,
 * 2026-11-22:
 *
 *                             1 MiB   512 KiB   256 KiB   128 KiB   64 KiB
 *   3 ranks  5 Gb/s  16 MiB   0.89    0.94      0.92      0.99      0.99
 *   2 ranks 10 Gb/s   4 MiB   0.92    0.95      0.98      1.00      1.00
 *                    64 MiB   0.88    0.94      0.97      1.00      0.98
 *
 * Where ranks have a core each shorter ones would be faster still at 10 Gb/s, but whoever computes meanwhile is woken
 * for each frame: a training step of 10 M parameters at 1 Gb/s lost 57 ms to its wire with 1 MiB and 63 with 256 KiB
 * (four runs of each, in turns).
 */
#include "select/frame.h"
#include "base/limits.h"
#include "select/select.h"

size_t coll_select_frame_bytes(const struct coll_select_facts *f)
{
	const size_t best = f->caps.slot_bytes_best,
	             most = f->oversubscribed ? COLL_FRAME_SHARED_BYTES : COLL_FRAME_LINK_BYTES;

	return f->caps.streamed && !f->one_host && best > most ? most : best;
}
