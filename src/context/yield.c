/*
 * See yield.h. A yield is free among ranks that wait for one another. It costs a time slice for each thread that
 * computes. With three such threads on a core, eight yields took 100 ms; a wake-up takes one slice.
 */
#include "context/yield.h"

#include "base/delay.h"
#include "base/ticks.h"
#include "context/context.h"
#include "context/crowd.h"
#include "net/net.h"

/* Less than a millisecond on any machine. Counters run at 0.6 GHz and more on x86, and at 19 MHz and more on Arm. */
#if defined(__aarch64__)
enum { BRIEF_TICKS = 1 << 14 };
#else
enum { BRIEF_TICKS = 1 << 19 };
#endif

uint64_t coll_context_ticks_ns(const struct coll_context *ctx, uint64_t ticks, uint64_t now_ns)
{
	const struct coll_moment *birth = &ctx->birth;
	const uint64_t now = coll_ticks(ctx->birth_counter);

	if (now <= birth->ticks || now_ns <= birth->mono_ns)
		return 0;
	return (uint64_t)((double)ticks * ((double)(now_ns - birth->mono_ns) / (double)(now - birth->ticks)));
}

static void yield(struct coll_context *ctx)
{
	const uint64_t before = atomic_load_explicit(&ctx->yields, memory_order_relaxed);

	/* A number for people: where two threads yield at once it may miss one. */
	atomic_store_explicit(&ctx->yields, before + 1, memory_order_relaxed);
	coll_net->yield();
}

/* So long, for each other rank of the core: a thread computes there. */
static bool helped(struct coll_context *ctx, uint64_t now_ns, uint64_t took_ns)
{
	if (took_ns < COLL_DELAY_NS(YIELD_SLICE) * ctx->core_sharers)
		return true;
	coll_crowd_held_up(ctx, now_ns, took_ns);
	return false;
}

bool coll_yield_by_clock(struct coll_context *ctx, uint64_t before_ns)
{
	uint64_t now;

	yield(ctx);
	now = coll_clock_ns();
	return helped(ctx, now, now - before_ns);
}

void coll_yields_begin(const struct coll_context *ctx, struct coll_yields *y)
{
	*y = (struct coll_yields){.began = coll_ticks(ctx->birth_counter)};
	y->last = y->began;
}

enum coll_yielded coll_yields_go_on(struct coll_context *ctx, struct coll_yields *y, uint64_t *now_ns)
{
	const uint64_t before = y->last;

	yield(ctx);
	y->last = coll_ticks(ctx->birth_counter);
	/* A simulated machine has another clock, and nobody else on its cores. */
	if (y->last - before <= BRIEF_TICKS || !coll_net->held_up_ns)
		return COLL_YIELDED;
	y->took_long = true;
	*now_ns = coll_clock_ns();
	return helped(ctx, *now_ns, coll_context_ticks_ns(ctx, y->last - before, *now_ns)) ? COLL_YIELDED_LONG
	                                                                                   : COLL_YIELDED_IN_VAIN;
}
