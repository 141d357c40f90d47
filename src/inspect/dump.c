/*
 * Dumps: see dump.h.
 */
#include "inspect/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "control/gossip.h"
#include "control/last_error.h"
#include "control/ping.h"
#include "core/comm.h"
#include "core/label.h"
#include "core/way_name.h"

enum { FORMAT = 1, TAIL = 8, MEMBERS_SHOWN = 4096 };

/* A reading of the recorders: what was found, and the clocks to read stamps by. */
struct reading {
	struct coll_context *ctx;
	struct coll_op_record *ops;
	size_t n;
	struct coll_moment now;
};

static int by_begin(const void *a, const void *b)
{
	const struct coll_op_record *x = a, *y = b;

	return x->begun != y->begun ? (x->begun < y->begun ? -1 : 1) : x->index < y->index ? -1 : x->index > y->index;
}

/* Newest last; those under way are not cut off. */
static void keep_newest(struct reading *r, size_t max)
{
	size_t n = 0, drop = r->n > max ? r->n - max : 0;

	qsort(r->ops, r->n, sizeof(*r->ops), by_begin);
	for (size_t i = 0; i < r->n; i++)
		if (i >= drop || r->ops[i].state != COLL_OP_ENDED)
			r->ops[n++] = r->ops[i];
	r->n = n;
}

/* Room for what is on record now, and for a few that begin meanwhile. */
static size_t room_for(const struct coll_recorder *r)
{
	const uint64_t begun = atomic_load_explicit(&r->next, memory_order_relaxed);

	return begun + 16 < COLL_RECORDER_ENTRIES ? (size_t)begun + 16 : COLL_RECORDER_ENTRIES;
}

/* The lock is held: communicators stay. */
static bool copy_locked(struct reading *r)
{
	const struct coll_history *a = &r->ctx->history;
	const size_t kept = a->next < COLL_RECORDER_SHOWN ? a->next : COLL_RECORDER_SHOWN;
	size_t most = kept + 1, room;

	for (struct coll_comm *c = r->ctx->comms; c; c = c->next)
		most += room_for(&c->recorder);
	r->ops = malloc(most * sizeof(*r->ops));
	if (!r->ops)
		return false;
	if (kept > 0)
		memcpy(r->ops, a->records, kept * sizeof(*r->ops));
	r->n = kept;
	for (struct coll_comm *c = r->ctx->comms; c; c = c->next) {
		room = most - r->n < COLL_RECORDER_ENTRIES ? most - r->n : COLL_RECORDER_ENTRIES;
		r->n += coll_recorder_copy(&c->recorder, c->id, r->ops + r->n, room);
	}
	return true;
}

static uint64_t when(const struct reading *r, uint64_t ticks)
{
	return coll_ticks_real_ns(&r->ctx->birth, &r->now, ticks);
}

/* ---- Lines ---- */

void coll_dump_add_context(const struct coll_context *c, enum coll_dump_reason reason, int process,
                           const struct coll_moment *now, const char *error, struct coll_text *t)
{
	static const char *const reasons[] = {"failure", "signal", "asked", "heard", "blamed"};
	const struct coll_peer_info *info = process == c->rank ? &c->info : &c->peer_infos[process];

	coll_text_add(t,
	              "{\"type\":\"context\",\"format\":%d,\"library\":\"%d.%d.%d\",\"reason\":\"%s\",\"process\":%d,"
	              "\"processes\":%d,\"pid\":%d,\"host\":",
	              FORMAT, COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH, reasons[reason], process,
	              c->size, info->process);
	coll_text_add_json(t, info->host_name);
	coll_text_add(t, ",\"job\":\"%016" PRIx64 "\",\"now_ns\":%" PRIu64 ",\"born_ns\":%" PRIu64 ",\"error\":",
	              c->peer_infos ? c->peer_infos[0].id.word[0] ^ c->peer_infos[0].id.word[1] : 0, now->real_ns,
	              c->birth.real_ns);
	coll_text_add_json(t, error);
	coll_text_add(t, "}\n");
}

/* The lock is held. */
static void add_comms(const struct reading *r, struct coll_text *t)
{
	for (const struct coll_comm *c = r->ctx->comms; c; c = c->next) {
		struct coll_record last = {0};

		coll_record_read(&c->record, &last);
		coll_text_add(t,
		              "{\"type\":\"comm\",\"comm\":\"%016" PRIx64
		              "\",\"rank\":%d,\"size\":%d,\"operations\":%" PRIu64 ",\"unrecorded\":%" PRIu64
		              ",\"sequence\":%" PRIu64 ",\"in_call\":%s,\"aborted\":%s",
		              c->id, c->rank, c->size, atomic_load_explicit(&c->recorder.next, memory_order_relaxed),
		              (uint64_t)atomic_load_explicit(&c->recorder.lost, memory_order_relaxed), last.sequence,
		              last.active ? "true" : "false",
		              atomic_load_explicit(&c->aborted, memory_order_relaxed) ? "true" : "false");
		if (coll_label_of(c)[0])
			coll_text_add(t, ",\"name\":\"%s\"", coll_label_of(c));
		if (c->rank_map.process_of && c->size <= MEMBERS_SHOWN) {
			coll_text_add(t, ",\"members\":[");
			for (int i = 0; i < c->size; i++)
				coll_text_add(t, "%s%d", i ? "," : "", coll_comm_process(c, i));
			coll_text_add(t, "]");
		}
		coll_text_add(t, "}\n");
	}
}

void coll_dump_add_call(const struct coll_op_record *o, struct coll_text *t)
{
	static const char *const states[] = {"queued", "running", "ended"};
	const char *kind = coll_record_kind_name(o->kind);
	const char *type = coll_dtype_name((coll_dtype)o->type);
	const bool pair = o->kind == COLL_KIND_SEND_RECV, tag = pair && coll_message_has_tag(o->op);

	coll_text_add(t,
	              "{\"type\":\"op\",\"comm\":\"%016" PRIx64 "\",\"index\":%" PRIu64 ",\"sequence\":%" PRIu64
	              ",\"kind\":\"%s\",\"count\":%" PRIu64 ",\"dtype\":\"%s\"",
	              o->comm, o->index, o->sequence,
	              pair   ? coll_record_message_name(o->op)
	              : kind ? kind
	                     : "unknown",
	              o->count, type ? type : "unknown");
	if (o->kind < COLL_RECORD_SPLIT && coll_plan_kind_reduces((enum coll_kind)o->kind)) {
		const char *op = coll_op_name(o->op);

		coll_text_add(t, ",\"op\":\"%s\"", op ? op : "user");
	}
	coll_text_add(t, ",\"%s\":%d", pair ? "peer" : "root", o->root);
	if (tag)
		coll_text_add(t, ",\"tag\":%d", (int32_t)o->signature);
	coll_text_add(t, ",\"signature\":\"%08x\",\"stream\":%d,\"state\":\"%s\"", tag ? 0 : o->signature,
	              o->in_stream ? (int)o->stream : -1, states[o->state]);
}

static void add_op(const struct reading *r, const struct coll_op_record *o, struct coll_text *t)
{
	coll_dump_add_call(o, t);
	coll_text_add(t, ",\"queued_ns\":%" PRIu64, when(r, o->begun));
	if (o->started)
		coll_text_add(t, ",\"begin_ns\":%" PRIu64, when(r, o->started));
	if (o->state == COLL_OP_ENDED)
		coll_text_add(t, ",\"end_ns\":%" PRIu64 ",\"status\":%d,\"result\":\"%s\"", when(r, o->finished),
		              o->status, coll_status_string((coll_status)o->status));
	if (o->way != COLL_WAY_UNKNOWN)
		coll_text_add(t, ",\"way\":\"%s\"", coll_way_name(o->way));
	if (o->fastpath)
		coll_text_add(t, ",\"quick\":true");
	if (o->waits_for >= 0)
		coll_text_add(t, ",\"waits_for\":%d,\"step\":%u,\"lane\":%u", o->waits_for, o->step, o->lane);
	coll_text_add(t, "}\n");
}

/* The last reported state of another process; silence is in nanoseconds. */
static void add_peer(const struct reading *r, int peer, struct coll_text *t)
{
	const struct coll_peer_info *info = &r->ctx->peer_infos[peer];
	struct coll_peer_state s;
	struct coll_note why;
	char doing[160];

	coll_control_peer(r->ctx->control, peer, 0, -1, &s);
	if (!s.life.asked_ns && !s.life.last_answer_ns && !s.life.left)
		return;
	coll_text_add(t, "{\"type\":\"peer\",\"process\":%d,\"pid\":%d,\"host\":", peer, info->process);
	coll_text_add_json(t, info->host_name);
	coll_text_add(t, ",\"left\":%s,\"unanswered\":%u", s.life.left ? "true" : "false", s.life.unanswered);
	if (s.life.left && coll_control_end_cause(r->ctx->control, peer, s.life.presumed, &why)) {
		coll_text_add(t, ",\"after\":");
		coll_text_add_json(t, why.text);
	}
	if (s.life.last_answer_ns)
		coll_text_add(t, ",\"heard_ns\":%" PRIu64, r->now.real_ns - (r->now.mono_ns - s.life.last_answer_ns));
	if (s.answered_ns) {
		coll_record_describe(&s.answer.record, doing, sizeof(doing));
		coll_text_add(t,
		              ",\"comm\":\"%016" PRIx64 "\",\"sequence\":%" PRIu64
		              ",\"in_call\":%s,\"waits_for\":%d,\"doing\":",
		              s.answer.record.comm, s.answer.record.sequence, s.answer.record.active ? "true" : "false",
		              s.answer.record.active ? s.answer.record.waits_for : -1);
		coll_text_add_json(t, doing);
	}
	coll_text_add(t, "}\n");
}

static void add_notes(const struct reading *r, struct coll_text *t)
{
	struct coll_note n;

	for (int i = 0; coll_control_note(r->ctx->control, i, &n); i++) {
		coll_text_add(t,
		              "{\"type\":\"note\",\"about\":\"%s\",\"process\":%d,\"origin\":%d,\"comm\":\"%016" PRIx64
		              "\",\"status\":%d,\"after_status\":%d,\"text\":",
		              n.kind == COLL_GOSSIP_DEATH ? "death" : "failure", n.process, n.origin, n.comm, n.status,
		              n.after_status);
		coll_text_add_json(t, n.text);
		coll_text_add(t, "}\n");
	}
}

/* Locks nothing that is held while data moves; the text is built outside of it as far
 * as possible. */
static bool take(struct reading *r, size_t max, struct coll_text *comms)
{
	bool ok;

	pthread_mutex_lock(&r->ctx->comms_lock);
	ok = copy_locked(r);
	if (comms)
		add_comms(r, comms);
	pthread_mutex_unlock(&r->ctx->comms_lock);
	coll_moment_take(&r->now, r->ctx->birth_counter);
	if (ok)
		keep_newest(r, max);
	return ok;
}

void coll_dump_build(struct coll_context *ctx, enum coll_dump_reason reason, const char *error, size_t operations,
                     struct coll_text *t)
{
	struct reading r = {.ctx = ctx};
	struct coll_text comms = {0};

	if (!take(&r, operations, &comms) || comms.failed)
		t->failed = true;
	coll_dump_add_context(ctx, reason, ctx->rank, &r.now, error, t);
	coll_text_add(t, "%s", comms.p ? comms.p : "");
	for (size_t i = 0; i < r.n; i++)
		add_op(&r, &r.ops[i], t);
	for (int p = 0; ctx->control && p < ctx->size; p++)
		if (p != ctx->rank)
			add_peer(&r, p, t);
	if (ctx->control)
		add_notes(&r, t);
	coll_text_add(t, "{\"type\":\"end\",\"ops\":%zu}\n", r.n);
	coll_text_free(&comms);
	free(r.ops);
}

/* ---- Where it goes ---- */

static void log_tail(struct coll_context *ctx, int level)
{
	struct reading r = {.ctx = ctx};

	if ((int)ctx->logger.level < level)
		return;
	if (take(&r, TAIL, NULL))
		for (size_t i = 0; i < r.n; i++) {
			const struct coll_op_record *o = &r.ops[i];
			struct coll_record call;
			char text[160], end[64];

			coll_op_record_call(o, &call);
			coll_record_describe(&call, text, sizeof(text));
			if (o->state == COLL_OP_ENDED)
				snprintf(end, sizeof(end), "%s after %.6f s",
				         coll_status_string((coll_status)o->status),
				         (double)(when(&r, o->finished) - when(&r, o->begun)) * 1e-9);
			else if (o->waits_for >= 0)
				snprintf(end, sizeof(end), "not ended, waits for rank %d in step %u", o->waits_for,
				         o->step);
			else
				snprintf(end, sizeof(end), "%s",
				         o->state == COLL_OP_QUEUED ? "not started" : "not ended");
			coll_log(&ctx->logger, level, "[COLL-5106] recorded %.6f s ago: %s%s%s: %s",
			         (double)(r.now.real_ns - when(&r, o->begun)) * 1e-9, text,
			         o->way == COLL_WAY_UNKNOWN ? "" : " by ",
			         o->way == COLL_WAY_UNKNOWN ? "" : coll_way_name(o->way), end);
		}
	free(r.ops);
}

static void write_file(struct coll_context *ctx, const struct coll_text *t)
{
	char path[COLL_TEXT_MAX + 32];
	size_t done = 0;
	int fd;

	coll_log_path(ctx->settings.dump_file, ctx->rank, path, sizeof(path));
	fd = coll_log_open(path);
	/* One write as a rule: dumps of several processes in one file do not mix. */
	while (fd >= 0 && done < t->len_bytes) {
		const ssize_t n = write(fd, t->p + done, t->len_bytes - done);

		if (n < 0 && errno != EINTR)
			break;
		done += n > 0 ? (size_t)n : 0;
	}
	if (fd < 0 || done < t->len_bytes)
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5104] COLL_DUMP_FILE=%s: %s", path, strerror(errno));
	else
		coll_log(&ctx->logger, COLL_LOG_INFO, "flight recorder written to %s", path);
	if (fd >= 0)
		close(fd);
}

void coll_dump_keep(struct coll_context *ctx, enum coll_dump_reason reason, const char *error)
{
	struct coll_text t = {0};

	if (!ctx->settings.dump_file[0]) {
		log_tail(ctx, reason == COLL_DUMP_SIGNALLED ? COLL_LOG_WARN : COLL_LOG_INFO);
		return;
	}
	coll_dump_build(ctx, reason, error, COLL_RECORDER_SHOWN, &t);
	if (t.failed)
		coll_log(&ctx->logger, COLL_LOG_WARN, "[COLL-5105] no memory for a dump of the flight recorder");
	else
		write_file(ctx, &t);
	coll_text_free(&t);
}

/* Over the control link, which is proved, and once: a culprit that is dead or silent has no answer. */
static void ask(struct coll_context *ctx, int culprit)
{
	const struct coll_mismatch_msg q = {.about = COLL_ABOUT_DUMP, .sequence = 1, .third = -1};

	coll_control_ask(ctx->control, culprit, &q);
	coll_control_flush(ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
}

void coll_dump_failure(struct coll_context *ctx, int culprit, const char *error)
{
	if (atomic_exchange_explicit(&ctx->dumped, true, memory_order_relaxed))
		return;
	if (ctx->control && culprit >= 0 && culprit != ctx->rank)
		ask(ctx, culprit);
	coll_dump_keep(ctx, COLL_DUMP_FAILURE, error);
}

static bool is_in_call(struct coll_context *ctx)
{
	bool active = false;

	pthread_mutex_lock(&ctx->comms_lock);
	for (const struct coll_comm *comm = ctx->comms; comm && !active; comm = comm->next) {
		struct coll_record r;

		active = coll_record_read(&comm->record, &r) && r.active;
	}
	pthread_mutex_unlock(&ctx->comms_lock);
	return active;
}

void coll_dump_blamed(struct coll_context *ctx, uint64_t *since_ns)
{
	uint64_t now;

	if (atomic_load_explicit(&ctx->dump_asked, memory_order_relaxed) != 1)
		return;
	now = coll_clock_ns();
	if (!*since_ns)
		*since_ns = now;
	if (is_in_call(ctx) && now - *since_ns < COLL_DELAY_NS(DUMP_BLAMED))
		return;
	atomic_store_explicit(&ctx->dump_asked, 2, memory_order_relaxed);
	if (!atomic_load_explicit(&ctx->dumped, memory_order_relaxed))
		coll_dump_keep(ctx, COLL_DUMP_BLAMED, "");
}
