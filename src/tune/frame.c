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
 * At 40 Gb/s, more than the cores carry, 2 ranks lose with 64 KiB (4 MiB 2.3 GB/s) what they gain with 256 (2.7; 1
 * MiB: 2.6; 128 KiB: 2.4); and every frame less is a wake-up less for whoever computes meanwhile.
 */
#include "tune/tune.h"

enum { LINK_BYTES = 256 * 1024, SHARED_CORES_BYTES = 128 * 1024 };

size_t coll_tune_frame_bytes(const struct coll_tune_facts *f)
{
	const size_t best = f->caps.slot_bytes_best, most = f->oversubscribed ? SHARED_CORES_BYTES : LINK_BYTES;

	return f->caps.streamed && !f->one_host && best > most ? most : best;
}
