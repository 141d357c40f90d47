/*
 * The state of the job: see job_state.h. Those that coll-info cannot ask itself come first.
 */
#include "inspect/job_state.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/one_host.h"
#include "control/ping.h"
#include "inspect/dump.h"

void coll_job_state_begin(struct coll_job_state *s, enum coll_about about)
{
	*s = (struct coll_job_state){.begun_ns = coll_clock_ns(), .about = about};
	for (int i = 0; i < COLL_JOB_STATE_AT_ONCE; i++)
		s->asked[i].process = -1;
}

void coll_job_state_end(struct coll_job_state *s)
{
	coll_text_free(&s->heard);
	s->begun_ns = 0;
}

/* The next to be asked: in the first round those of other hosts and containers, then the others; -1: none is left. */
static int next_process(struct coll_job_state *s, const struct coll_context *ctx)
{
	while (s->next < 2 * ctx->size) {
		const int p = s->next % ctx->size;
		const struct coll_peer_info *it = &ctx->peer_infos[p];
		const bool near = coll_one_network(it, &ctx->info) && it->process_space == ctx->info.process_space;

		if ((s->next++ < ctx->size) != near && p != ctx->rank)
			return p;
	}
	return -1;
}

static void ask(const struct coll_job_state *s, struct coll_context *ctx, int process)
{
	const struct coll_mismatch_msg q = {
	        .about = s->about, .sequence = s->begun_ns, .wait = s->begun_ns, .third = -1};

	coll_control_ask(ctx->control, process, &q);
}

/* As a dump of that process has it; whom it waits for is a process, as in a communicator of all. */
static void add(const struct coll_context *ctx, int process, const struct coll_answer *a, struct coll_text *t)
{
	const struct coll_record *call = &a->call;
	const struct coll_op_record op = {.comm = call->comm,
	                                  .sequence = call->sequence,
	                                  .count = call->count,
	                                  .signature = call->signature,
	                                  .kind = call->kind,
	                                  .type = call->type,
	                                  .op = call->op,
	                                  .root = call->root,
	                                  .in_stream = a->in_stream != 0,
	                                  .stream = (uint16_t)a->in_stream,
	                                  .state = COLL_OP_RUNNING};
	struct coll_moment now;

	coll_moment_take(&now, ctx->birth_counter);
	coll_dump_add_context(ctx, COLL_DUMP_HEARD, process, &now, "", t);
	if (call->active) {
		coll_text_add(t, "{\"type\":\"comm\",\"comm\":\"%016" PRIx64 "\",\"rank\":%d,\"size\":%d}\n",
		              call->comm, process, ctx->size);
		coll_dump_add_call(&op, t);
		coll_text_add(t, ",\"begin_ns\":%" PRIu64 ",\"waits_for\":%d}\n", now.real_ns - a->wait, a->third);
	}
	coll_text_add(t, "{\"type\":\"end\",\"ops\":%d}\n", call->active ? 1 : 0);
}

/* A dump with one line more. */
static void add_slow(const struct coll_context *ctx, int process, const struct coll_slow_facts *f, struct coll_text *t)
{
	struct coll_moment now;
	const char *comma = "";

	coll_moment_take(&now, ctx->birth_counter);
	coll_dump_add_context(ctx, process == ctx->rank ? COLL_DUMP_ASKED : COLL_DUMP_HEARD, process, &now, "", t);
	coll_text_add(t, "{\"type\":\"slow\",\"window_ms\":%u,\"waited_ms\":%u,\"in_call_ms\":%u",
	              f->half_ms[0] + f->half_ms[1], f->waited_ms[0] + f->waited_ms[1],
	              f->in_call_ms[0] + f->in_call_ms[1]);
	coll_text_add(t, ",\"waits_for\":%d,\"waits_for_ms\":%u,\"behind_ms\":%u", f->waits_for, f->waits_for_ms,
	              f->behind_ms);
	coll_text_add(t, ",\"usual_kb\":%u,\"median_kb\":%u,\"slow_links\":[", f->usual_kb, f->median_kb);
	for (int i = 0; i < COLL_SLOW_LINKS; i++)
		if (f->slow[i].process >= 0 && f->slow[i].process < ctx->size) {
			coll_text_add(t, "%s%d,%u", comma, f->slow[i].process, f->slow[i].kb);
			comma = ",";
		}
	coll_text_add(t, "]}\n{\"type\":\"end\",\"ops\":0}\n");
}

void coll_job_state_add_own_slow(struct coll_context *ctx, struct coll_text *t)
{
	const struct coll_mismatch_msg q = {.about = COLL_ABOUT_SLOW, .third = -1};
	struct coll_answer a;

	ctx->hooks->answer(ctx, ctx->rank, &q, &a);
	add_slow(ctx, ctx->rank, &a.slow, t);
}

/* Whether its place is free for the next. */
static bool has_ended(struct coll_job_state *s, struct coll_context *ctx, int i, uint64_t now)
{
	const int p = s->asked[i].process;
	struct coll_peer_state state;

	if (p < 0)
		return true;
	coll_control_peer(ctx->control, p, 0, (int)s->about, &state);
	if (state.answered_ns >= s->asked[i].asked_ns && s->about == COLL_ABOUT_SLOW)
		add_slow(ctx, p, &state.answer.slow, &s->heard);
	else if (state.answered_ns >= s->asked[i].asked_ns)
		add(ctx, p, &state.answer, &s->heard);
	else if (!state.life.left && now - s->asked[i].asked_ns < COLL_DELAY_NS(JOB_STATE_ANSWER))
		return false;
	s->asked[i].process = -1;
	return true;
}

bool coll_job_state_step(struct coll_job_state *s, struct coll_context *ctx)
{
	const uint64_t now = coll_clock_ns();
	bool all = true;

	for (int i = 0; i < COLL_JOB_STATE_AT_ONCE; i++) {
		if (!has_ended(s, ctx, i, now)) {
			all = false;
			continue;
		}
		s->asked[i].process = next_process(s, ctx);
		s->asked[i].asked_ns = now;
		if (s->asked[i].process < 0)
			continue;
		ask(s, ctx, s->asked[i].process);
		all = false;
	}
	return all || now - s->begun_ns > COLL_DELAY_NS(JOB_STATE);
}
