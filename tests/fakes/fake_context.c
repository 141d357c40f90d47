/*
 * The context of tests: see fake_context.h.
 */
#include "tests/fakes/fake_context.h"

#include "context/crowd.h"
#include "context/service.h"
#include "context/sleep.h"
#include "tests/fakes/fake_clock.h"

enum { PAUSE_NS = 1000 };

struct fake_context fake_context;

void fake_context_reset(void)
{
	fake_context = (struct fake_context){.spun_ns = 50000};
}

static void idle(void)
{
	if (fake_context.on_idle)
		fake_context.on_idle(fake_context.arg);
}

bool coll_crowd_look(struct coll_context *ctx, uint64_t now_ns, uint64_t idle_ns)
{
	return false;
}

bool coll_context_pause(struct coll_context *ctx, bool spin, unsigned *looks, bool *tired)
{
	++*looks;
	fake_context.pauses++;
	fake_clock.now_ns += PAUSE_NS;
	idle();
	return true;
}

bool coll_context_spun(const struct coll_context *ctx, uint64_t for_ns)
{
	return for_ns >= fake_context.spun_ns;
}

int coll_context_nap_ms(uint64_t idle_ns)
{
	return 10;
}

/* What happens comes before the look, so a sleeper that looks stays awake. */
bool coll_context_sleep(struct coll_context *ctx, int ms, bool (*look)(void *arg), void *arg)
{
	fake_context.sleeps++;
	fake_context.last_sleep_ms = ms;
	idle();
	if (!look(arg))
		fake_clock_add_ms((uint64_t)ms);
	return fake_context.signalled;
}

void coll_context_wake(struct coll_context *ctx)
{
	fake_context.wakes++;
}

int coll_context_progress(struct coll_context *ctx)
{
	fake_context.progressed++;
	return fake_context.progress;
}

void coll_context_retain(struct coll_context *ctx)
{
	fake_context.users++;
}

void coll_context_release(struct coll_context **ctx)
{
	*ctx = NULL;
	fake_context.users--;
}

bool coll_context_link_counts(struct coll_context *ctx, int process, struct coll_link_counts *counts)
{
	if (fake_context.counts[process].up)
		*counts = fake_context.counts[process].counts;
	return fake_context.counts[process].up;
}

void coll_context_forget(struct coll_context *ctx)
{
	fake_context.users--;
}

void coll_service_kick(struct coll_context *ctx)
{
	fake_context.kicks++;
}
