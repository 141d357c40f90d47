/*
 * The wait of a rank that has found a failure: see first_finder.h. gossip.c keeps who was the first.
 */
#include "control/first_finder.h"

#include <poll.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/gossip.h"
#include "net/net.h"

bool coll_control_found_first(struct coll_control *c, uint64_t comm, int ms)
{
	const uint64_t deadline = coll_clock_ns() + (uint64_t)ms * COLL_NS_PER_MS;
	struct pollfd p = {.fd = coll_control_fd(c), .events = POLLIN};
	int first = coll_control_first(c, comm);

	while (first < 0 && coll_clock_ns() < deadline) {
		coll_net->poll(&p, 1, COLL_DELAY_CONTROL_FLUSH_LOOK_MS);
		coll_control_service(c);
		first = coll_control_first(c, comm);
	}
	return first < 0 || first == c->rank;
}
