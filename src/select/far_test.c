/*
 * Where slots are filled past the caches: the figures make sense together.
 */
#include "tests/plain.h"

#include "select/far.h"

TEST(far, streaming_must_gain_and_is_probed_rarely)
{
	struct coll_select_far far = {.least_bytes = 0};

	coll_select_far(&far);
	CHECK(far.gain > 1 && far.slow_bytes_per_ns > 0);
	CHECK(far.least_bytes > 0 && far.probe_bytes >= 1000 * far.least_bytes, "a probe costs less than a thousandth");
}
