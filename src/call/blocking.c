/*
 * One collective call: from the shape to a bound job, run inline.
 *
 * A call of a shape seen before costs a look-up in the memo: no selection, no
 * plan, no allocation. What is chosen depends on agreed facts only.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/planted.h"
#include "call/blocking.h"
#include "call/fastpath.h"
#include "core/error.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "intra/explain.h"
#include "progress/async.h"
#include "progress/request.h"
#include "progress/wait.h"
#include "select/intra.h"

static uint8_t record_kind(const struct coll_call *c)
{
	return c->record_kind ? c->record_kind : (uint8_t)c->kind;
}

const char *coll_call_name(const struct coll_call *c)
{
	return coll_record_kind_name(record_kind(c));
}

enum { SMALL_COUNT = 64 };

/* ---- Choice, remembered ---- */

static struct coll_select_call tune_call(const struct coll_call *c, size_t elem_bytes, bool ordered)
{
	return (struct coll_select_call){.kind = c->kind,
	                                 .count = c->count,
	                                 .elem_bytes = elem_bytes,
	                                 .ordered = ordered,
	                                 .ragged = c->ragged,
	                                 .pairwise = c->pairwise};
}

/* The largest tile whose frames fit in a slot, on every rank alike: a rank's own
 * plan may hold shorter runs than another's, the algorithm's price tag has the
 * longest of all. 0: not even one element fits. */
static size_t largest_tile(const struct coll_plan *plan, const struct coll_algo *algo, size_t elem_bytes,
                           size_t slot_bytes)
{
	bool block = coll_plan_kind_is_block(plan->kind);
	struct coll_algo_cost cost;
	size_t run, each;

	algo->cost(plan->size, &cost);
	run = (size_t)(cost.frame * (block ? 1 : plan->chunks) + 0.5);
	assert(plan->max_run <= run || plan->size == 1);
	each = slot_bytes / elem_bytes / (run ? run : 1);
	return block ? each : each * plan->chunks;
}

/* Cut count in equal tiles, none above the largest the slots allow. Lengths only
 * the ends know cannot set the tile: then it is the largest. */
static void cut_tiles(struct coll_memo *m, const struct coll_call *c, size_t largest, uint32_t windows)
{
	size_t tiles = c->count / largest + (c->count % largest != 0);

	m->tile = largest;
	if (!c->pairwise && tiles > 0)
		m->tile = c->count / tiles + (c->count % tiles != 0);
	m->windows = windows;
	if (!c->pairwise && tiles < windows)
		m->windows = tiles > 0 ? (uint32_t)tiles : 1;
}

static coll_status choose(struct coll_comm *comm, const struct coll_call *c, bool ordered, bool explain,
                          struct coll_memo *m, struct coll_select_choice *choice)
{
	struct coll_select_call t = tune_call(c, m->elem_bytes, ordered);
	struct coll_shape shape = {.kind = c->kind,
	                           .rank = comm->rank,
	                           .size = comm->size,
	                           .root = c->root,
	                           .ordered = ordered,
	                           .uniform = !c->ragged && !c->pairwise,
	                           .host_of = comm->rank_map.host_of,
	                           .hosts = comm->rank_map.hosts};
	const char *name = coll_call_name(c);
	uint32_t windows;
	size_t largest;
	coll_status st;

	st = coll_select_plan(&comm->facts, &t, explain, choice);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, name, st, "[COLL-1112] no algorithm for this call%s%s: %.160s",
		                        comm->facts.forced[0] ? " with COLL_ALGO=" : "", comm->facts.forced,
		                        choice->why);
	st = coll_plan_cache_obtain(comm->plans, &shape, choice->algo->name, choice->algo->generate,
	                            comm->ctx->settings.verify, &m->plan);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, name, st, "cannot make a plan for algorithm %s: %s", choice->algo->name,
		                        coll_plan_cache_why(comm->plans));
	largest = largest_tile(m->plan, choice->algo, m->elem_bytes, comm->slot_bytes);
	if (largest == 0) {
		coll_plan_cache_release(comm->plans, m->plan);
		return coll_comm_refuse(comm, name, COLL_ERR_CONFIG,
		                        "[COLL-1108] algorithm %s needs larger slots than %zu bytes",
		                        choice->algo->name, comm->slot_bytes);
	}
	m->way = coll_way_of_algo(choice->algo);
	windows = choice->windows < 1 ? 1 : choice->windows;
	cut_tiles(m, c, largest, windows > COLL_WINDOWS_MAX ? COLL_WINDOWS_MAX : windows);
	m->scratch_bytes = coll_run_scratch_bytes(m->plan, m->tile, m->elem_bytes, m->windows);
	/* By hand where that is possible and no plan is asked for; the plan is there in case the ranks
	 * find that they cannot share memory. */
	if (choice->forced)
		return COLL_OK;
	m->intra = coll_select_intra_find(comm, c, m->elem_bytes);
	/* Of more ranks that share cores those intranode are of any length. */
	m->fastpath =
	        m->intra && !m->intra->passes && (comm->ctx->dedicated_cores || comm->size <= COLL_INTRA_SIZE_MAX);
	return st;
}

/* ---- Binding ---- */

static coll_status bind_reduction(struct coll_comm *comm, const struct coll_call *c, struct coll_reduction *r,
                                  bool *ordered)
{
	const struct coll_op_entry *e = c->op >= COLL_OP_FIRST ? &comm->ops[c->op - COLL_OP_FIRST] : NULL;
	coll_status st = coll_reduce_bind(r, c->type, e ? e->code : c->op, comm->size, comm->isa);

	if (st != COLL_OK)
		return st;
	*ordered = e && !e->commutative;
	if (e) {
		r->user_fn = e->fn;
		r->user_arg = e->arg;
		r->scale = e->scale;
	}
	return COLL_OK;
}

static uint32_t signature(const struct coll_call *c, int size)
{
	uint64_t h = ((uint64_t)record_kind(c) << 56) ^ ((uint64_t)c->type << 48) ^
	             ((uint64_t)(unsigned)c->root << 16) ^ (coll_plan_kind_reduces(c->kind) ? c->op : 0);

	h = coll_mix64(h);
	if (!c->pairwise)
		h = coll_mix64(h ^ c->count);
	if (c->ragged) {
		const size_t *counts = c->out_counts ? c->out_counts : c->in_counts;

		for (int r = 0; counts && r < size; r++)
			h = coll_mix64(h ^ counts[r]);
	}
	return (uint32_t)(h ^ (h >> 32));
}

static bool fits(const struct coll_memo *m, const struct coll_call *c)
{
	return m->valid && m->count == c->count && m->kind == c->kind && m->record_kind == c->record_kind &&
	       m->type == c->type && m->op == c->op && m->root == c->root && m->ragged == c->ragged &&
	       m->pairwise == c->pairwise;
}

/* Either of two places, that of the older use where neither is its own: two calls that take turns do not chase each
 * other away, whatever was there before. The roots of one shape lie side by side: as many as there are pairs of places
 * may take turns. */
static struct coll_memo *memo_slot(struct coll_comm *comm, const struct coll_call *c)
{
	uint64_t h = (uint64_t)c->count * 0x9e3779b97f4a7c15u + (uint64_t)c->kind * 0xbf58476d1ce4e5b9u +
	             (uint64_t)c->type * 0xd6e8feb86659fd93u + c->op;
	const size_t pair = ((h ^ (h >> 32)) + (unsigned)c->root) % (COLL_MEMO_SLOTS / 2);
	struct coll_memo *both = &comm->memo[2 * pair];
	uint8_t *newer = &comm->memo_newer[pair];

	*newer = fits(&both[0], c) ? 0 : fits(&both[1], c) ? 1 : !*newer;
	return &both[*newer];
}

/* The ways of a call in the order in which they are tried, each with its condition; the plan's last. */
struct chain {
	char text[320];
};

static struct chain chain(const struct coll_comm *comm, const struct coll_call *c, const struct coll_memo *m)
{
	struct chain chain = {""};
	const char *plan = NULL;
	struct coll_job job;
	size_t n = 0;

	if (m->intra) {
		coll_call_job(comm, c, m, &job);
		coll_intra_explain(m->intra, &job, chain.text, sizeof(chain.text), &plan);
		n = strlen(chain.text);
	}
	if (plan)
		snprintf(chain.text + n, sizeof(chain.text) - n, "; else %s (%s)", coll_way_name(m->way), plan);
	else
		snprintf(chain.text, sizeof(chain.text), "%s", coll_way_name(m->way));
	return chain;
}

/* A shape not seen before, or whose memo was taken over by another. */
static coll_status memorise(struct coll_comm *comm, const struct coll_call *c, struct coll_memo *m)
{
	const bool user = coll_plan_kind_reduces(c->kind) && c->op >= COLL_OP_FIRST;
	const bool explain = comm->ctx->logger.level >= COLL_LOG_INFO;
	struct coll_memo fresh = {.valid = true,
	                          .kind = (uint8_t)c->kind,
	                          .record_kind = c->record_kind,
	                          .type = (uint8_t)c->type,
	                          .ragged = c->ragged,
	                          .pairwise = c->pairwise,
	                          .op = c->op,
	                          .elem_bytes = coll_dtype_size(c->type),
	                          .root = c->root,
	                          .count = c->count,
	                          .signature = signature(c, comm->size)};
	struct coll_select_choice choice;
	bool ordered = false;
	coll_status st = COLL_OK;

	comm->prepared = NULL;
	coll_fastpath_forget(comm, m);
	if (coll_plan_kind_reduces(c->kind))
		st = bind_reduction(comm, c, &fresh.reduction, &ordered);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), st, "this operation is not defined on %s",
		                        coll_dtype_name(c->type));
	if (user && fits(m, c) && m->ordered == ordered) {
		m->reduction = fresh.reduction; /* the number may name another function by now */
		return COLL_OK;
	}
	fresh.ordered = ordered;
	st = choose(comm, c, ordered, explain, &fresh, &choice);
	if (st != COLL_OK)
		return st;
	if (explain)
		coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s count=%zu bytes=%zu: %s tile=%zu windows=%u (%s)",
		         coll_call_name(c), c->count, c->count * fresh.elem_bytes, chain(comm, c, &fresh).text,
		         fresh.tile, fresh.windows, choice.why);
	if (m->valid)
		coll_plan_cache_release(comm->plans, m->plan);
	*m = fresh;
	return COLL_OK;
}

static inline coll_status remember(struct coll_comm *comm, const struct coll_call *c, struct coll_memo **memo)
{
	struct coll_memo *m = comm->prepared;

	if (!m || !fits(m, c))
		m = memo_slot(comm, c);
	*memo = m;
	if (__builtin_expect(fits(m, c) && c->op < COLL_OP_FIRST, true))
		return COLL_OK;
	return memorise(comm, c, m);
}

coll_status coll_call_remember(struct coll_comm *comm, const struct coll_call *c, struct coll_memo **memo)
{
	return remember(comm, c, memo);
}

/* Which buffers hold one block only. */
static struct coll_extent extent(const struct coll_call *c, const void *base, bool single, const size_t *counts,
                                 const size_t *offsets)
{
	return (struct coll_extent){.base = (char *)(uintptr_t)base,
	                            .single = single,
	                            .count = c->count,
	                            .counts = counts,
	                            .offsets = offsets,
	                            /* All that a communicator serves: see coll_comm_serves(). */
	                            .mem = coll_device_memory(COLL_DEVICE_HOST)};
}

static coll_status need_scratch(struct coll_comm *comm, size_t bytes)
{
	void *p;

	if (bytes <= comm->scratch_bytes)
		return COLL_OK;
	if (posix_memalign(&p, 4096, bytes))
		return COLL_ERR_MEMORY;
	free(comm->scratch);
	comm->prepared = NULL;
	comm->scratch = p;
	comm->scratch_bytes = bytes;
	return COLL_OK;
}

/* A call that a rank may end without having heard from all others, directly or through
 * others: it may not notice that they made a different one. So such a call salts the
 * signatures of all calls after it, and whatever frame is exchanged next shows the
 * difference. Decided by what is equal on all ranks when their calls are. */
static bool unsynchronised(const struct coll_call *c)
{
	switch (c->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_ALL_TO_ALL:
	case COLL_KIND_BARRIER: return c->count == 0 || c->ragged || c->pairwise;
	default: return true;
	}
}

/* A call that is not like the last one begins: returns the salt of its signature. Calls
 * in a row that are the same have the same: then it does not matter which of them took the
 * short way through prepare_again(). */
uint32_t coll_call_salt(struct coll_comm *comm, const struct coll_call *c, const struct coll_record *record)
{
	struct coll_salt *k = &comm->salt;
	const unsigned n = atomic_load_explicit(&comm->call_runs, memory_order_relaxed);

	if (n > 0 && record->signature == k->last)
		return k->now;
	coll_record_publish(&comm->call_run[n % COLL_CALL_RUNS], record);
	/* Release: who sees the number sees the record, or a newer one in its place. */
	atomic_store_explicit(&comm->call_runs, n + 1, memory_order_release);
	k->last = record->signature;
	k->now = k->next;
	if (unsynchronised(c))
		k->next = (uint32_t)coll_mix64(coll_mix64(record->sequence) ^ (uint64_t)k->now << 32 ^ k->last);
	return k->now;
}

/* A frame that nobody expects, of a call whose lengths only the two ends know, is found where
 * the next one is expected on its channel. What is run intranode expects none: so the first
 * call after such a one in which all hear from all is made by its plan. Calls like the last
 * one need not ask: after such a one nothing is prepared. */
bool coll_call_by_plan(struct coll_comm *comm, const struct coll_call *c)
{
	const bool by_plan = comm->salt.by_plan;

	if (c->pairwise)
		comm->salt.by_plan = true;
	else if (!unsynchronised(c))
		comm->salt.by_plan = false;
	return by_plan;
}

void coll_call_job(const struct coll_comm *comm, const struct coll_call *c, const struct coll_memo *memo,
                   struct coll_job *job)
{
	*job = (struct coll_job){.plan = memo->plan,
	                         .intra = memo->intra,
	                         .in = extent(c, c->in, c->kind == COLL_KIND_ALL_GATHER || c->kind == COLL_KIND_GATHER,
	                                      c->in_counts, c->in_offsets),
	                         .out = extent(c, c->out,
	                                       c->kind == COLL_KIND_REDUCE_SCATTER || c->kind == COLL_KIND_SCATTER,
	                                       c->out_counts, c->out_offsets),
	                         .elem_bytes = memo->elem_bytes,
	                         .tile = memo->tile,
	                         .windows = memo->windows,
	                         .signature = c->ragged ? signature(c, comm->size) : memo->signature,
	                         .way = memo->way,
	                         .signal = c->kind == COLL_KIND_BARRIER,
	                         .pairwise = c->pairwise};
}

void coll_call_record(const struct coll_comm *comm, const struct coll_call *c, const struct coll_job *job,
                      struct coll_record *record)
{
	*record = (struct coll_record){.comm = comm->id,
	                               .sequence = job->sequence,
	                               .count = c->count,
	                               .signature = job->signature,
	                               .active = 1,
	                               .kind = record_kind(c),
	                               .type = (uint8_t)c->type,
	                               .op = (uint8_t)c->op,
	                               .flags = c->pairwise ? COLL_RECORD_PAIRWISE
	                                        : c->ragged ? COLL_RECORD_RAGGED
	                                                    : 0,
	                               .root = c->root,
	                               .waits_for = -1};
}

/* Bind run and record to a call. */
static coll_status prepare(struct coll_comm *comm, const struct coll_call *c, struct coll_memo *memo)
{
	const bool by_plan = coll_call_by_plan(comm, c);
	struct coll_job job;
	coll_status st;

	coll_call_job(comm, c, memo, &job);
	if (by_plan)
		job.intra = NULL;
	job.reduction = coll_plan_kind_reduces(c->kind) ? &memo->reduction : NULL;
	job.scratch = comm->scratch;
	job.sequence = comm->sequence;
	coll_call_record(comm, c, &job, &comm->call);
	job.signature ^= coll_call_salt(comm, c, &comm->call);
	if (c->pairwise)
		coll_pair_counts_note(&comm->pair_counts, c, comm->sequence, comm->rank, comm->size);
	coll_record_publish(&comm->record, &comm->call);
	comm->prepared = NULL;
	st = coll_run_start(comm->run, &comm->collective.fabric, &job);
	if (st != COLL_OK) {
		coll_record_retire(&comm->record, &comm->call);
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	}
	/* Counts are the caller's memory: not to be used again. */
	if (!c->ragged && !c->pairwise && job.intra == memo->intra)
		comm->prepared = memo;
	coll_fastpath_prepare(comm, c, memo, &job);
	return COLL_OK;
}

/* The same call as the last, with other buffers perhaps. */
static inline void prepare_again(struct coll_comm *comm, const struct coll_call *c)
{
	comm->call.sequence = comm->sequence;
	comm->call.active = 1;
	coll_record_again(&comm->record, &comm->call);
	coll_run_restart(comm->run, c->in, c->out, comm->sequence);
}

static inline coll_status begin(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_memo *memo;
	coll_status st;

	if (comm->failed)
		return comm->failed;
	st = remember(comm, c, &memo);
	if (st != COLL_OK)
		return st;
	st = need_scratch(comm, memo->scratch_bytes);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), st, "no memory for %zu bytes of scratch",
		                        memo->scratch_bytes);
	comm->sequence++;
	comm->box.status = COLL_OK;
	if (comm->prepared == memo)
		prepare_again(comm, c);
	else
		st = prepare(comm, c, memo);
	return st;
}

coll_status coll_comm_begin(struct coll_comm *comm, const struct coll_call *c)
{
	return begin(comm, c);
}

static inline struct coll_entry *write_down(struct coll_comm *comm, const struct coll_call *c)
{
	return coll_recorder_begin(
	        &comm->recorder, comm->sequence,
	        coll_entry_what(comm->call.signature, record_kind(c), c->type, c->op, coll_run_way(comm->run), false),
	        c->count, c->root, 0);
}

/* Not alone, or not now. */
static coll_status hand_in(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_request *r;
	coll_status st;

	if (coll_group.capture)
		return coll_request_bind(coll_group.capture, c);
	st = coll_request_call(comm, c, &r);
	return st == COLL_OK ? coll_request_dispatch(r, c->stream) : st;
}

coll_status coll_comm_call(struct coll_comm *comm, const struct coll_call *c)
{
	struct coll_wait wait = {.runs = {comm->run}, .nruns = 1, .record = &comm->call};
	uint64_t began_ns;
	coll_status st;

	if (__builtin_expect(c->stream || coll_comm_busy(comm), false))
		return hand_in(comm, c);
	st = begin(comm, c);
	if (st != COLL_OK)
		return st;
	/* A small call is written down while its first frames travel, which costs nothing then,
	 * and is not timed when it ends at once: two looks at a clock would be a tenth of it. */
	if (comm->ctx->dedicated_cores && c->count <= SMALL_COUNT) {
		st = coll_run_poll(comm->run, NULL);
		wait.entries[0] = write_down(comm, c);
		if (st == COLL_AGAIN)
			st = coll_comm_wait_eagerly(comm, &wait);
		if (__builtin_expect(st == COLL_OK, true)) {
			coll_record_retire(&comm->record, &comm->call);
			coll_recorder_way(wait.entries[0], coll_run_way(comm->run));
			coll_recorder_end_quick(wait.entries[0]);
			return COLL_OK;
		}
	} else {
		wait.entries[0] = write_down(comm, c);
	}
	began_ns = planted(WRONG_BYTE) ? coll_clock_ns() : 0;
	st = coll_comm_wait(comm, &wait); /* an error is sticky: met again there */
	if (planted(WRONG_BYTE) && coll_clock_ns() - began_ns > 40000000 && c->out && c->count > 0)
		((char *)c->out)[c->count * coll_dtype_size(c->type) - 1] ^= 1;
	coll_record_retire(&comm->record, &comm->call);
	coll_recorder_way(wait.entries[0], coll_run_way(comm->run));
	coll_recorder_end(&comm->recorder, wait.entries[0], st);
	return st;
}

coll_status coll_comm_explain_call(struct coll_comm *comm, enum coll_kind kind, size_t count, coll_dtype type,
                                   char *buf, size_t len_bytes)
{
	struct coll_call c = {.kind = kind, .count = count, .type = type};
	struct coll_memo m = {.elem_bytes = coll_dtype_size(type)};
	struct coll_select_choice choice;
	coll_status st = choose(comm, &c, false, true, &m, &choice);

	if (st != COLL_OK)
		return st;
	snprintf(buf, len_bytes, "%s %s tile=%zu windows=%u transport=%s because %s", coll_plan_kind_name(kind),
	         chain(comm, &c, &m).text, m.tile, m.windows,
	         comm->size > 1 ? coll_comm_transport(comm, !comm->rank) : "none", choice.why);
	coll_plan_cache_release(comm->plans, m.plan);
	return COLL_OK;
}
