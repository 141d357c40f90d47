/*
 * The fast path: a small intranode call that repeats an earlier one while nothing else is pending.
 *
 * Every instruction counts, so all of the fast path is in this file. It leaves the same state
 * behind as blocking.c: record, recorder entry, sequence numbers, epoch and salt. A call that does
 * not end at once continues on the path of blocking.c.
 *
 * Calls of one kind, count, type, operation and root share a place in comm->fastpath[]. A call that
 * repeats the one before it needs no look-up. If the call before it was a different one, change()
 * updates the state.
 *
 * Until go_on() takes over, the record shows the call as ended. For the other ranks it has ended as
 * soon as its words are written.
 */
#include "call/fastpath.h"

#include "base/limits.h"
#include "call/begin.h"
#include "call/blocking.h"
#include "call/wait.h"
#include "context/yield.h"
#include "core/error.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "intra/fastpath.h"
#include "select/bind.h"

/* In a crowd the peer may be on another core at this moment, and answers as fast as ever. Or it is not, and each look
 * takes away from what this rank gets of its core. */
enum { LOOKS = 400, LOOKS_IN_CROWD = 24, YIELDS = 4 };
_Static_assert((int)COLL_FASTPATH_ROOTS >= (int)COLL_INTRA_SIZE_MAX, "roots in turn have a place each");

/* Sums of one or two elements. Inline code does the work of the kernel and saves the kernel call,
 * which takes a third of the instructions of an 8-byte all-reduce. */
enum { NOT_SIMPLE, TWO_F32, ONE_F32, ONE_F64, TWO_I32, ONE_I32, ONE_I64 };

static int simple(const struct coll_memo *m)
{
	if (m->kind != COLL_KIND_ALL_REDUCE || m->op != COLL_SUM || m->count > 2)
		return NOT_SIMPLE;
	switch (m->type) {
	case COLL_F32: return m->count == 2 ? TWO_F32 : ONE_F32;
	case COLL_I32:
	case COLL_U32: return m->count == 2 ? TWO_I32 : ONE_I32;
	case COLL_F64: return m->count == 1 ? ONE_F64 : NOT_SIMPLE;
	case COLL_I64:
	case COLL_U64: return m->count == 1 ? ONE_I64 : NOT_SIMPLE;
	default: return NOT_SIMPLE;
	}
}

/* Load four bytes. An 8-byte load would span two recent 4-byte stores. Such a load cannot be
 * forwarded: it waits until both stores have left the core. */
static inline uint32_t load_4(const char *from)
{
	uint32_t x;

	memcpy(&x, from, sizeof(x));
	__asm__("" : "+r"(x)); /* keeps the compiler from joining two loads */
	return x;
}

static inline void copy_payload(char *to, const char *from, uint32_t bytes)
{
	if (bytes == 8) {
		const uint32_t a = load_4(from), b = load_4(from + 4);

		memcpy(to, &a, sizeof(a));
		memcpy(to + 4, &b, sizeof(b));
		return;
	}
	coll_intra_copy_part(to, from, bytes);
}

/* False: the sum is a NaN. There are many NaNs, and the kernel decides for all ranks which one
 * results. */
static inline bool add_f32(char *out, const char *a, const char *b)
{
	float x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x += y;
	if (likely(x == x))
		memcpy(out, &x, sizeof(x));
	return x == x;
}

/* Adds two elements at once with a GNU C vector. This takes a third of the instructions of two
 * scalar additions. */
typedef float two_f32 __attribute__((vector_size(8)));

static inline bool add_two_f32(char *out, const char *a, const char *b)
{
	two_f32 x, y;
	bool fine;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x += y;
	fine = x[0] == x[0] && x[1] == x[1];
	if (likely(fine))
		memcpy(out, &x, sizeof(x));
	return fine;
}

static inline bool add_f64(char *out, const char *a, const char *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x += y;
	if (likely(x == x))
		memcpy(out, &x, sizeof(x));
	return x == x;
}

static inline bool add_i32(char *out, const char *a, const char *b, int count)
{
	for (int i = 0; i < count; i++) {
		uint32_t x, y;

		memcpy(&x, a + 4 * i, sizeof(x));
		memcpy(&y, b + 4 * i, sizeof(y));
		x += y;
		memcpy(out + 4 * i, &x, sizeof(x));
	}
	return true;
}

static inline bool add_i64(char *out, const char *a, const char *b)
{
	uint64_t x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x += y;
	memcpy(out, &x, sizeof(x));
	return true;
}

static __attribute__((noinline)) void reduce_any(const struct coll_comm *comm, const struct coll_fastpath *q,
                                                 const void *in, void *out, const void *theirs)
{
	const void *src[2];

	src[comm->rank] = in;
	src[!comm->rank] = theirs;
	coll_reduce_run(&q->memo->reduction, out, src, 2, -1, true, q->count);
}

/* The order of the operands does not matter, except for a NaN. */
static inline void reduce(const struct coll_comm *comm, const struct coll_fastpath *q, const void *in, void *out,
                          const void *theirs)
{
	bool done = false;

	switch (q->simple) {
	case TWO_F32: done = add_two_f32(out, in, theirs); break;
	case ONE_F32: done = add_f32(out, in, theirs); break;
	case ONE_F64: done = add_f64(out, in, theirs); break;
	case TWO_I32: done = add_i32(out, in, theirs, 2); break;
	case ONE_I32: done = add_i32(out, in, theirs, 1); break;
	case ONE_I64: done = add_i64(out, in, theirs); break;
	default: break;
	}
	if (unlikely(!done))
		reduce_any(comm, q, in, out, theirs);
}

/* ---- Calls that do not end at once ---- */

/* Continue as an ordinary intranode call. */
static __attribute__((noinline, cold)) coll_status go_on(struct coll_comm *comm, struct coll_fastpath *q,
                                                         const void *in, void *out,
                                                         const struct coll_intra_state *state, struct coll_entry *entry)
{
	const struct coll_wait wait = {.runs = {comm->run}, .nruns = 1, .record = &comm->call, .entries = {entry}};
	coll_status st = COLL_OK;

	comm->call.sequence = comm->sequence;
	comm->call.active = 1;
	coll_record_again(&comm->record, &comm->call);
	coll_recorder_resume(entry);
	if (comm->prepared_for == q->memo) {
		coll_run_restart(comm->run, in, out, comm->sequence);
	} else {
		struct coll_job job = q->job;

		job.in.base = (char *)(uintptr_t)in;
		job.out.base = out;
		job.sequence = comm->sequence;
		job.scratch = comm->scratch;
		st = coll_run_start(comm->run, &comm->collective.fabric, &job);
		if (st == COLL_OK) {
			comm->prepared_for = comm->prepared_memo = q->memo;
			q->prepared_as = q->memo;
		}
	}
	if (st == COLL_OK) {
		coll_run_begun(comm->run, state);
		return coll_finish_inline(comm, &wait, &comm->call, false);
	}
	st = coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	coll_record_retire(&comm->record, &comm->call);
	coll_recorder_end(&comm->recorder, entry, st);
	return coll_comm_keep(comm, st);
}

static __attribute__((noinline, cold)) coll_status long_way(struct coll_comm *comm, const struct coll_fastpath *q,
                                                            const void *in, void *out)
{
	const struct coll_memo *m = q->memo;
	const bool reads = m->kind != COLL_KIND_BROADCAST || m->root == comm->rank;

	return coll_comm_call(comm, &(struct coll_call){.kind = (enum coll_kind)m->kind,
	                                                .in = reads ? in : NULL,
	                                                .out = out,
	                                                .count = m->count,
	                                                .type = (coll_dtype)m->type,
	                                                .op = m->op,
	                                                .root = m->root});
}

/* The call before was a different one: update what a different call changes. This runs after the
 * words of this call are written, because no peer waits for it. */
static __attribute__((noinline)) void change(struct coll_comm *comm, struct coll_fastpath *q)
{
	const struct coll_call call = {.kind = (enum coll_kind)q->memo->kind, .count = q->count};

	comm->call = q->record;
	comm->call.sequence = comm->sequence;
	coll_begin_salt(comm, &call, &comm->call);
	q->prepared_as = q;
	comm->prepared_for = q;
	comm->call.active = 0;
	coll_record_publish(&comm->record, &comm->call);
}

/* Compute the signature for the words of this call, with the salt that change() will use. False:
 * this call cannot take the fast path. */
static inline bool salt(struct coll_comm *comm, struct coll_fastpath *q)
{
	const struct coll_salt *k = &comm->salt;

	q->signature = q->memo->signature ^ (k->last == q->record.signature ? k->now : k->next);
	q->job.signature = q->signature;
	return !k->by_plan;
}

/* Count the call as begun. One word of the record changes. Readers see either its old or its new
 * value. */
static inline void count_call(struct coll_comm *comm, struct coll_fastpath *q, uint64_t sequence)
{
	comm->sequence = sequence;
	comm->box.status = COLL_OK;
	if (unlikely(comm->prepared_for != q->prepared_as))
		change(comm, q);
	else if (COLL_GUARDS)
		atomic_store_explicit(&comm->record.word[COLL_RECORD_SEQUENCE], sequence, memory_order_relaxed);
}

/* ---- Two ranks: one line in each direction, or none ---- */

static coll_status one_line(struct coll_comm *comm, struct coll_fastpath *q, const void *in, void *out)
{
	struct coll_intra *n = comm->intra;
	const uint64_t sequence = comm->sequence + 1;
	const struct intra_line *theirs;
	struct coll_intra_state state;
	struct coll_entry *entry;
	struct intra_line *mine;
	uint64_t word;
	uint32_t epoch;
	int looks = LOOKS;

	mine = coll_intra_fastpath_line(n, &epoch);
	if (unlikely(!mine) || (unlikely(comm->prepared_for != q->prepared_as) && !salt(comm, q)))
		return long_way(comm, q, in, out);
	copy_payload(mine->payload, in, q->bytes);
	word = coll_intra_word(epoch, q->signature);
	coll_intra_fastpath_send(n, mine, sequence, word);
	/* While the lines travel, this rank does the rest of the call's begin and end work. */
	entry = coll_recorder_fastpath(&comm->recorder, sequence, q->what, q->count, 0);
	count_call(comm, q, sequence);
	theirs = coll_intra_fastpath_theirs(n, epoch);
	/* Pause between two loads: see coll_intra_await(). */
	while (atomic_load_explicit(&theirs->word, memory_order_acquire) != word) {
		if (unlikely(--looks == 0) || unlikely(coll_async_needs_callers(comm->ctx->async)) ||
		    (unlikely(looks == LOOKS - LOOKS_IN_CROWD) && !coll_context_spins(comm->ctx)))
			goto later;
		coll_cpu_relax();
	}
	if (unlikely(theirs->sequence != sequence))
		goto later; /* the ordinary path reports the mismatch */
	if (q->bytes > 0)
		reduce(comm, q, in, out, theirs->payload);
	coll_intra_fastpath_end(n, epoch);
	return COLL_OK;
later:
	state = coll_intra_fastpath_state(epoch);
	return go_on(comm, q, in, out, &state, entry);
}

/* ---- Any intranode operation ---- */

/* This call has read the clock, for a yield took long: it counts, for who is waited for now. */
static __attribute__((noinline, cold)) void begin_count(struct coll_comm *comm, const struct coll_fastpath *q,
                                                        const struct coll_intra_state *state,
                                                        const struct coll_yields *y, uint64_t now_ns)
{
	const uint64_t ns = coll_context_ticks_ns(comm->ctx, y->last - y->began, now_ns);
	struct coll_run_where where = {.peer = -1};

	q->job.intra->where(q->job.intra->arg, &q->job, state, &where);
	coll_waits_look(comm->waits, true, false, now_ns - ns, where.peer == comm->rank ? -1 : where.peer);
}

/* Where ranks share cores: yield, because the awaited rank may need this core. Yield only a few times: if all ranks of
 * one core wait for a rank of another core, yields only pass that core around. The engine's polls are slower. */
static coll_status yield_on(struct coll_comm *comm, struct coll_fastpath *q, struct coll_intra_state *state)
{
	struct coll_context *ctx = comm->ctx;
	coll_status st = COLL_AGAIN;
	struct coll_yields y;
	uint64_t now_ns;

	coll_yields_begin(ctx, &y);
	for (int left = YIELDS; left > 0 && st == COLL_AGAIN; left--) {
		enum coll_yielded yielded;

		if (coll_async_needs_callers(ctx->async) || atomic_load_explicit(&ctx->crowd.now, memory_order_relaxed))
			break;
		yielded = coll_yields_go_on(ctx, &y, &now_ns);
		if (unlikely(yielded == COLL_YIELDED_IN_VAIN))
			break;
		if (unlikely(yielded == COLL_YIELDED_LONG))
			begin_count(comm, q, state, &y, now_ns);
		st = q->job.intra->poll(q->job.intra->arg, &q->job, state);
	}
	if (unlikely(y.took_long) && st != COLL_AGAIN)
		coll_waits_end(comm->waits, true);
	return st;
}

/* The message is about to arrive. Poll if each rank has a core of its own. */
static inline coll_status look_on(struct coll_comm *comm, struct coll_fastpath *q, struct coll_intra_state *state)
{
	const bool crowded =
	        comm->ctx->dedicated_cores && atomic_load_explicit(&comm->ctx->crowd.now, memory_order_relaxed);
	coll_status st = COLL_AGAIN;

	if (!crowded && !coll_context_spins(comm->ctx))
		return yield_on(comm, q, state);
	for (int left = crowded ? LOOKS_IN_CROWD : LOOKS; left > 0 && st == COLL_AGAIN; left--) {
		if (coll_async_needs_callers(comm->ctx->async))
			break;
		coll_cpu_relax();
		st = q->job.intra->poll(q->job.intra->arg, &q->job, state);
	}
	return st;
}

static coll_status intranode(struct coll_comm *comm, struct coll_fastpath *q, const void *in, void *out)
{
	const uint64_t sequence = comm->sequence + 1;
	const struct coll_intra_op *intra = q->job.intra;
	struct coll_intra_state state = {0};
	struct coll_entry *entry;
	coll_status st;

	if (unlikely(!coll_intra_is_formed(comm->intra)) ||
	    (unlikely(comm->prepared_for != q->prepared_as) && !salt(comm, q)))
		return long_way(comm, q, in, out);
	q->job.in.base = (char *)(uintptr_t)in;
	q->job.out.base = out;
	q->job.sequence = sequence;
	st = intra->poll(intra->arg, &q->job, &state);
	entry = coll_recorder_fastpath(&comm->recorder, sequence, q->what, q->count, q->root);
	count_call(comm, q, sequence);
	if (st == COLL_AGAIN && state.phase != INTRA_NEW)
		st = look_on(comm, q, &state);
	if (unlikely(st != COLL_OK))
		return go_on(comm, q, in, out, &state, entry); /* the ordinary path returns the error again */
	if (q->bytes > COLL_SHORT_BYTES)
		coll_recorder_end(&comm->recorder, entry, COLL_OK);
	return COLL_OK;
}

/* ---- Which calls may take the fast path ---- */

/* Record which buffer positions the checks in api/ accept. */
static void place(const struct coll_comm *comm, struct coll_fastpath *q, const struct coll_memo *m)
{
	const size_t block = m->count * m->elem_bytes, all = block * (size_t)comm->size;
	size_t in = block, out = block;

	q->alias = 0;
	if (m->kind == COLL_KIND_ALL_GATHER) {
		out = all;
		q->alias = (uintptr_t)0 - (size_t)comm->rank * block;
	} else if (m->kind == COLL_KIND_REDUCE_SCATTER) {
		in = all;
		q->alias = (size_t)comm->rank * block;
	} else if (m->kind == COLL_KIND_ALL_TO_ALL) {
		in = out = all;
	}
	q->gap = in;
	q->room = (uintptr_t)0 - out - in;
	q->bytes = m->kind == COLL_KIND_BARRIER ? 0 : (uint32_t)(in > out ? in : out);
}

void coll_fastpath_prepare(struct coll_comm *comm, const struct coll_call *c, struct coll_memo *memo,
                           const struct coll_job *job)
{
	struct coll_fastpath *q = &comm->fastpath[coll_fastpath_place(c->kind, c->root)];

	if (comm->prepared_for != memo || !memo->fastpath || c->record_kind)
		return;
	if (q->memo && q->memo->fastpath_key == &q->key)
		q->memo->fastpath_key = NULL;
	*q = (struct coll_fastpath){.key = coll_fastpath_key(c->kind, c->type, c->op),
	                            .count = c->count,
	                            .root = c->root,
	                            .prepared_as = memo,
	                            .signature = job->signature,
	                            .simple = simple(memo),
	                            .memo = memo,
	                            .record = comm->call,
	                            .job = *job};
	q->what = coll_entry_what(comm->call.signature, memo->kind, memo->type, (uint8_t)memo->op, job->intra->way,
	                          false);
	q->run = comm->size == 2 && comm->ctx->dedicated_cores && job->intra->way == COLL_WAY_EAGER_LINE ? one_line
	                                                                                                 : intranode;
	place(comm, q, memo);
	memo->fastpath_key = &q->key;
}
