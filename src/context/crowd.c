/*
 * See crowd.h. A look costs three system calls, once a millisecond at most, and only in a wait that was in vain.
 *
 * A crowd that comes back soon lasts twice as long each time: while waits sleep nothing shows whether others still want
 * the core, and each attempt to spin costs a time slice of each of them.
 */
#include "context/crowd.h"

#include <pthread.h>

#include "base/delay.h"
#include "context/context.h"
#include "net/net.h"

/* Parts of COLL_DELAY_CROWD_LOOK_MS: a wait is in vain after so long, and being held up so long counts; and a part of
 * the time since the last look. */
enum { LOOK_AFTER = 125, HELD_UP = 10, HELD_UP_PART = 8, TIMES = 4 };

static uint64_t get(const _Atomic uint64_t *number)
{
	return atomic_load_explicit(number, memory_order_relaxed);
}

static void set(_Atomic uint64_t *number, uint64_t value)
{
	atomic_store_explicit(number, value, memory_order_relaxed);
}

void coll_crowd_held_up(struct coll_context *ctx, uint64_t now_ns, uint64_t held_up_ns)
{
	struct coll_crowd *c = &ctx->crowd;
	const uint64_t before = get(&c->lasts_ns);
	uint64_t ns = TIMES * held_up_ns;

	if (!coll_net->held_up_ns) /* nobody else is on these cores */
		return;
	if (before > 0 && now_ns < get(&c->until_ns) + 2 * before && ns < 2 * before)
		ns = 2 * before;
	ns = ns < COLL_DELAY_NS(CROWD_MIN) ? COLL_DELAY_NS(CROWD_MIN) : ns;
	ns = ns > COLL_DELAY_NS(CROWD_MAX) ? COLL_DELAY_NS(CROWD_MAX) : ns;
	set(&c->lasts_ns, ns);
	set(&c->until_ns, now_ns + ns);
	atomic_store_explicit(&c->now, true, memory_order_relaxed);
}

bool coll_crowd_look(struct coll_context *ctx, uint64_t now_ns, uint64_t idle_ns)
{
	const uintptr_t thread = (uintptr_t)pthread_self();
	const int which = idle_ns == UINT64_MAX ? 0 : 1;
	const uint64_t since_ns = now_ns - get(&ctx->crowd.look[which].at_ns);
	uint64_t total, lately;

	if (idle_ns < COLL_DELAY_NS(CROWD_LOOK) / LOOK_AFTER || since_ns < COLL_DELAY_NS(CROWD_LOOK) ||
	    !coll_context_spins(ctx) || !coll_net->held_up_ns)
		return false;
	total = coll_net->held_up_ns();
	lately = total - get(&ctx->crowd.look[which].held_up_ns);
	if (atomic_exchange_explicit(&ctx->crowd.look[which].thread, thread, memory_order_relaxed) != thread)
		lately = 0; /* nothing is known of this one yet */
	set(&ctx->crowd.look[which].at_ns, now_ns);
	set(&ctx->crowd.look[which].held_up_ns, total);
	if (lately < COLL_DELAY_NS(CROWD_LOOK) / HELD_UP || lately < since_ns / HELD_UP_PART)
		return false;
	coll_crowd_held_up(ctx, now_ns, lately);
	return true;
}

bool coll_crowd_is_over(struct coll_context *ctx, uint64_t now_ns)
{
	if (now_ns < get(&ctx->crowd.until_ns))
		return false;
	atomic_store_explicit(&ctx->crowd.now, false, memory_order_relaxed);
	/* Ranks that sleep share a core, and hold each other up: the next look begins anew. */
	for (int i = 0; i < 2; i++)
		atomic_store_explicit(&ctx->crowd.look[i].thread, 0, memory_order_relaxed);
	return true;
}
