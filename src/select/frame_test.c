/*
 * The longest frames: as the transport has it on one host, shorter between hosts, shortest where ranks share cores.
 */
#include "select/frame.h"
#include "tests/plain.h"

static size_t frame(size_t best, bool streamed, bool one_host, bool oversubscribed)
{
	const struct coll_select_facts f = {.caps = {.slot_bytes_best = best, .streamed = streamed},
	                                    .one_host = one_host,
	                                    .oversubscribed = oversubscribed};

	return coll_select_frame_bytes(&f);
}

TEST(frame, only_sockets_between_hosts_are_cut)
{
	const size_t mib = 1 << 20;

	CHECK(frame(mib, true, true, true) == mib);
	CHECK(frame(mib, false, false, true) == mib);
	CHECK(frame(mib, true, false, false) == mib / 2);
	CHECK(frame(mib, true, false, true) == mib / 8);
	CHECK(frame(4096, true, false, true) == 4096, "never made longer");
	CHECK(frame(0, true, false, true) == 0, "no opinion");
}
