/*
 * The table on the wire: frames whose lengths do not add up are refused, and what is left out is zero.
 */
#include <string.h>

#include "bootstrap/rendezvous.h"
#include "bootstrap/wire.h"
#include "tests/plain.h"

enum { RANKS = 2, LEN = 16 };

static unsigned char all[RANKS * LEN];

/* A frame of two entries, lengths as told, bytes as many as come. */
static bool takes(uint32_t first, uint32_t second, size_t frame_bytes)
{
	static const struct coll_rendezvous_point how = {.size = RANKS, .all = all, .len_bytes = LEN};
	unsigned char body[128];
	struct coll_wire_frame f = {.body = body, .len_bytes = (uint32_t)frame_bytes};

	memset(body, 7, sizeof(body));
	memset(all, 9, sizeof(all));
	memcpy(body, &first, 4);
	if (first < 64)
		memcpy(body + 4 + first, &second, 4);
	return unpack_table(&how, &f);
}

TEST(rendezvous_table, what_does_not_travel_is_zero)
{
	CHECK(takes(3, 16, 8 + 3 + 16));
	CHECK(all[2] == 7 && all[3] == 0 && all[LEN - 1] == 0 && all[LEN] == 7 && all[2 * LEN - 1] == 7);
	CHECK(takes(0, 0, 8) && all[0] == 0 && all[2 * LEN - 1] == 0);
}

TEST(rendezvous_table, lengths_that_do_not_add_up_are_refused)
{
	CHECK(!takes(3, 16, 8 + 3 + 15));
	CHECK(!takes(3, 16, 8 + 3 + 17));
	CHECK(!takes(17, 0, 8 + 17));
	CHECK(!takes(UINT32_MAX, 0, 64));
	CHECK(!takes(3, UINT32_MAX, 64));
	CHECK(!takes(0, 0, 7) && !takes(0, 0, 3) && !takes(0, 0, 0));
}
