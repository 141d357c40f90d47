/*
 * See rails_text.h. It asks the function that opens channels (fabric.h), so it says what that does.
 */
#include "core/rails_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/fabric.h"
#include "core/rails.h"
#include "device/device.h"

/* By the rails of the first path, and the cards of others that differ. */
struct shares {
	int count;
	struct coll_transport_rail rail[2 * COLL_RAILS_MAX];
	uint64_t sent[2 * COLL_RAILS_MAX], all;
	const char *transport;
};

static void take(struct shares *s, const struct coll_transport_rail *rail, uint64_t sent)
{
	int k = 0;

	while (k < s->count && strcmp(s->rail[k].card, rail->card) != 0)
		k++;
	if (k == 2 * COLL_RAILS_MAX)
		return;
	if (k == s->count)
		s->rail[s->count++] = *rail;
	s->sent[k] += sent;
	s->all += sent;
}

static void take_step(struct shares *s, const struct coll_comm *comm, const struct coll_plan *plan,
                      const struct coll_step *step, uint32_t windows)
{
	const int peer = plan->peers[step->peer_send], process = coll_comm_process(comm, peer);
	const struct coll_opened_transport *w;
	struct coll_transport_path path;

	if (comm->rank_map.host_of[peer] == comm->rank_map.host_of[comm->rank])
		return;
	w = coll_context_choose(comm->ctx, process, NULL, 0);
	if (!w || !w->caps.cross_host)
		return;
	path = coll_rails_path(comm->ctx, w, comm->ctx->rank, process);
	s->transport = w->table.name;
	for (uint32_t i = 0; i < path.rails; i++)
		take(s, &path.rail[i], 0);
	for (uint32_t window = 0; window < windows; window++) {
		const struct coll_comm_lane lane = {.number = step->lane, .window = (uint16_t)window};

		take(s, &path.rail[coll_comm_rail_of(comm, process, lane, w, &path)], step->run);
	}
}

static bool sends(uint8_t op)
{
	return op == COLL_STEP_SEND || op >= COLL_STEP_RECV_COPY_SEND;
}

static __attribute__((format(printf, 4, 5))) size_t add(char *buf, size_t len_bytes, size_t at, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = at < len_bytes ? vsnprintf(buf + at, len_bytes - at, format, args) : 0;
	va_end(args);
	return at + (size_t)(n > 0 ? n : 0);
}

void coll_rails_explain(const struct coll_comm *comm, const struct coll_plan *plan, uint32_t windows, char *buf,
                        size_t len_bytes)
{
	static const char *const how_far[] = {"near", "another NUMA node", "another package"};
	struct shares s = {.count = 0};
	size_t at;

	buf[0] = '\0';
	for (uint32_t i = 0; plan && comm->rank_map.hosts > 1 && i < coll_plan_nsteps(plan); i++)
		if (sends(plan->steps[i].op))
			take_step(&s, comm, plan, &plan->steps[i], windows);
	if (s.all == 0)
		return;
	at = add(buf, len_bytes, 0, "; to other hosts by %s, as far as from its %s:", s.transport,
	         comm->ctx->device ? "device" : "CPUs");
	for (int k = 0; k < s.count; k++) {
		const struct coll_transport_rail *r = &s.rail[k];

		at = add(buf, len_bytes, at, "%s %s", k > 0 ? "," : "", r->card[0] ? r->card : "the system's route");
		if (r->mbps > 0)
			at = add(buf, len_bytes, at, " %u Mb/s", r->mbps);
		if (s.count > 1 && r->distance[0] < 3)
			at = add(buf, len_bytes, at, " %s", how_far[r->distance[0]]);
		at = add(buf, len_bytes, at, " %.0f %%", 100.0 * (double)s.sent[k] / (double)s.all);
	}
}
