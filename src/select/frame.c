/*
 * Frame sizes.
 *
 * On one host frames are long: each one costs a change between sending and receiving, and bytes are as fast as the
 * cores that move them. Between hosts, over sockets, a frame waits in a queue for its link. While a rank
 * receives and reduces a long frame it sends nothing, its own link runs dry, and that time is lost. So frames
 * are shorter there. Ranks that share cores also wait for each other, for the time of one frame, so theirs are the
 * shortest. Share of the link rate reached (namespaces on two cores, two tiles in flight, means of 3 to
 * 6 runs, 2026-11-22):
 *
 *                             1 MiB   512 KiB   256 KiB   128 KiB   64 KiB
 *   3 ranks  5 Gb/s  16 MiB   0.89    0.94      0.92      0.99      0.99
 *   2 ranks 10 Gb/s   4 MiB   0.92    0.95      0.98      1.00      1.00
 *                    64 MiB   0.88    0.94      0.97      1.00      0.98
 *
 * With a core per rank, shorter frames would be faster still at 10 Gb/s, but a thread that computes meanwhile is woken
 * for each frame: a training step of 10 M parameters at 1 Gb/s lost 57 ms to its wire with 1 MiB and 63 with 256 KiB
 * (four runs of each, alternating).
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
