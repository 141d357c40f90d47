/*
 * Outages: see outage.h. What the kernel counts of a link tells them: something was on its way all the time, and
 * nothing was acknowledged. Idle links between hosts send something now and then. Links over shared memory and RDMA
 * have no such counts; there the control plane alone tells.
 */
#include "comm/outage.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/keepalive.h"
#include "control/last_error.h"

enum { MOST_PERCENT = 90 /* of the time something was on its way: the kernel counts coarsely */ };

static bool is_silent(const struct coll_link_counts *was, const struct coll_link_counts *is, uint64_t us)
{
	return is->bytes == was->bytes && is->busy_us >= was->busy_us &&
	       (is->busy_us - was->busy_us) * 100 >= us * MOST_PERCENT;
}

static bool make(struct coll_outage *o, int size)
{
	if (!o->was)
		o->was = calloc((size_t)size, sizeof(*o->was));
	if (!o->up)
		o->up = calloc((size_t)size, sizeof(*o->up));
	return o->was && o->up;
}

/* Look at the links, if the last look is HOST_SILENT ago. Without memory it sees nothing. */
static void look_at_links(struct coll_outage *o, struct coll_context *ctx, uint64_t now)
{
	const uint64_t us = (now - o->at_ns) / 1000;

	if (now - o->at_ns < COLL_DELAY_NS(HOST_SILENT) || !make(o, ctx->size))
		return;
	o->at_ns = now;
	o->seen = false;
	for (int r = 0; r < ctx->size; r++) {
		struct coll_link_counts is;
		const bool up = coll_context_link_counts(ctx, r, &is);

		o->seen |= up && o->up[r] && is_silent(&o->was[r], &is, us);
		o->up[r] = up;
		if (up)
			o->was[r] = is;
	}
}

void coll_outage_begin(struct coll_outage *o)
{
	o->begun_ns = o->since_ns = coll_clock_ns();
}

int coll_outage_late_ms(const struct coll_context *ctx)
{
	return COLL_DELAY_DESTROY_MS + coll_settings_unreachable_ms(&ctx->settings);
}

/* Of those who do not come, some never will: other communicators of the process say so, perhaps only later. During an
 * outage nobody can come, and a process that ended would take with it what it has sent to others in calls. */
bool coll_outage_is_late(struct coll_outage *o, struct coll_context *ctx)
{
	const uint64_t now = coll_clock_ns(), waited_ns = now - o->since_ns;

	if (waited_ns > COLL_DELAY_NS(DESTROY_PARTED) && coll_control_is_parted(ctx->control))
		return true;
	if (waited_ns + 2 * COLL_DELAY_NS(HOST_SILENT) > COLL_DELAY_NS(DESTROY))
		look_at_links(o, ctx, now);
	if (waited_ns <= COLL_DELAY_NS(DESTROY))
		return false;
	if (now - o->begun_ns > (uint64_t)coll_outage_late_ms(ctx) * COLL_NS_PER_MS ||
	    !(o->seen || (ctx->control && coll_control_is_cut(ctx->control))))
		return true;
	o->since_ns = now;
	return false;
}

void coll_outage_end(struct coll_outage *o)
{
	free(o->was);
	free(o->up);
	*o = (struct coll_outage){0};
}
