/*
 * The interrupt hook of a creation that waits in PMIx for ranks that do not come. libpmix is that of pmix_stub.c, found
 * through LD_LIBRARY_PATH: its fence never ends, and its finalize blocks.
 */
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "bootstrap/pmix.h"
#include "core/error.h"
#include "plain.h"
#include "starved.h"

static int asked;
static uint64_t word_ns;

static int third_time(void *arg)
{
	if (++asked == 3)
		word_ns = coll_clock_ns();
	return asked == 3;
}

TEST(pmix_interrupt, the_hook_ends_the_fence)
{
	struct coll_error_box err = {0};
	char text[64] = "the root's address";
	coll_status st;
	uint64_t took;

	coll_interrupt_enter(&(struct coll_interrupt){.fn = third_time});
	st = coll_pmix_share(true, text, sizeof(text), coll_clock_ns() + (uint64_t)60 * 1000000000, &err);
	took = coll_clock_ns() - word_ns;
	coll_interrupt_leave();
	CHECK(st == COLL_ERR_BOOTSTRAP && strstr(err.message, "PMIx_Fence"), "%d: %s", st, err.message);
	CHECK(asked == 3 && took < 200000000u + starved_ns(), "asked %d times, ended after %llu ns", asked,
	      (unsigned long long)took);
}

PROGRAM(pmix_interrupt, "")
{
	alarm(100); /* a call that is not interrupted blocks for ever */
	return argc;
}
