/*
 * The shortest call: one like a call before, small, run intranode, while nothing else goes on.
 * In this file all of it is in one place, since every instruction counts: what it leaves behind
 * (record, recorder, numbers, turns, salt) is what the long way in blocking.c leaves behind, and what
 * does not end at once goes on there.
 *
 * Calls of one kind, count, type, operation and root have a place in comm->quick[]. While they
 * come one behind another nothing is looked up; when one comes that differs from the call before
 * it, change() does what a different call needs.
 *
 * The record says, until a call goes on in go_on(), that the call has ended: as far as others can
 * see it has, once its words are written.
 */
#include "call/fastpath.h"
#include "base/limits.h"
#include "call/blocking.h"
#include "core/error.h"
#include "engine/run.h"
#include "intra/fastpath.h"
#include "progress/wait.h"
#include "select/bind.h"

#include "progress/async.h"

enum { LOOKS = 400, YIELDS = 4 };
_Static_assert((int)COLL_FASTPATH_ROOTS >= (int)COLL_INTRA_SIZE_MAX, "roots in turn have a place each");

/* Sums of one or two elements: what a kernel does with them, without the call (a third of
 * the instructions of an 8-byte all-reduce). */
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

/* Four bytes, and no more at once: a load that spans two stores of a moment ago, as those of two
 * elements are, waits until both have left the core. */
static inline uint32_t load_4(const char *from)
{
	uint32_t x;

	memcpy(&x, from, sizeof(x));
	__asm__("" : "+r"(x)); /* not to be joined with the next */
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

/* False: a NaN, of which there are many; which one is the kernel's choice, on all ranks. */
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

/* Two at once: GNU C's vectors, a third of the instructions of one behind the other. */
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

/* Sums are the same in either order, but for NaN. */
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

/* ---- Not at once ---- */

/* As any call run intranode, from here on. */
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
	if (comm->prepared == q->memo) {
		coll_run_restart(comm->run, in, out, comm->sequence);
	} else {
		struct coll_job job = q->job;

		job.in.base = (char *)(uintptr_t)in;
		job.out.base = out;
		job.sequence = comm->sequence;
		job.scratch = comm->scratch;
		st = coll_run_start(comm->run, &comm->collective.fabric, &job);
		if (st == COLL_OK) {
			comm->prepared = q->memo;
			q->as = q->memo;
		}
	}
	if (st == COLL_OK) {
		coll_run_begun(comm->run, state);
		st = coll_comm_wait(comm, &wait);
		coll_recorder_way(entry, coll_run_way(comm->run));
	} else {
		st = coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	}
	coll_record_retire(&comm->record, &comm->call);
	coll_recorder_end(&comm->recorder, entry, st);
	return st;
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

/* The call before was a different one: what a different call leaves behind. Once this one's words
 * are written, since nobody waits for any of it. */
static __attribute__((noinline)) void change(struct coll_comm *comm, struct coll_fastpath *q)
{
	const struct coll_call call = {.kind = (enum coll_kind)q->memo->kind, .count = q->count};

	comm->call = q->record;
	comm->call.sequence = comm->sequence;
	coll_call_salt(comm, &call, &comm->call);
	q->as = &q->mark;
	comm->prepared = &q->mark;
	comm->call.active = 0;
	coll_record_publish(&comm->record, &comm->call);
}

/* Its words are going to have this signature: with the salt that change() will find. False:
 * not here. */
static inline bool salt(struct coll_comm *comm, struct coll_fastpath *q)
{
	const struct coll_salt *k = &comm->salt;

	q->signature = q->memo->signature ^ (k->last == q->record.signature ? k->now : k->next);
	q->job.signature = q->signature;
	return !k->by_plan;
}

/* It has begun. Of the record one word changes, which readers see before or after. */
static inline void count_call(struct coll_comm *comm, struct coll_fastpath *q, uint64_t sequence)
{
	comm->sequence = sequence;
	comm->box.status = COLL_OK;
	if (unlikely(comm->prepared != q->as))
		change(comm, q);
	else if (COLL_GUARDS)
		atomic_store_explicit(&comm->record.word[COLL_RECORD_SEQUENCE], sequence, memory_order_relaxed);
}

/* ---- Two ranks, one line each way, or none ---- */

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
	if (unlikely(!mine) || (unlikely(comm->prepared != q->as) && !salt(comm, q)))
		return long_way(comm, q, in, out);
	copy_payload(mine->payload, in, q->bytes);
	word = coll_intra_word(epoch, q->signature);
	coll_intra_fastpath_send(n, mine, sequence, word);
	/* All the rest of a call's beginning, and of its end, is done while the lines travel. */
	entry = coll_recorder_fastpath(&comm->recorder, sequence, q->what, q->count, 0);
	count_call(comm, q, sequence);
	theirs = coll_intra_fastpath_theirs(n, epoch);
	/* A pause between looks: see coll_intra_await(). */
	while (atomic_load_explicit(&theirs->word, memory_order_acquire) != word) {
		if (unlikely(--looks == 0) || unlikely(coll_async_needs_callers(comm->ctx->async)))
			goto later;
		coll_cpu_relax();
	}
	if (unlikely(theirs->sequence != sequence))
		goto later; /* which says why */
	if (q->bytes > 0)
		reduce(comm, q, in, out, theirs->payload);
	coll_intra_fastpath_end(n, epoch);
	return COLL_OK;
later:
	state = coll_intra_fastpath_state(epoch);
	return go_on(comm, q, in, out, &state, entry);
}

/* ---- Any hand ---- */

/* It is about to come: looks where each rank has a core; elsewhere yields, as who is waited for may need this one. Few:
 * ranks of one core that all wait for another core's take turns in vain, and the engine's are slower. */
static inline coll_status look_on(struct coll_comm *comm, struct coll_fastpath *q, struct coll_intra_state *state)
{
	const bool alone = comm->ctx->dedicated_cores;
	coll_status st = COLL_AGAIN;

	for (int left = alone ? LOOKS : YIELDS; left > 0 && st == COLL_AGAIN; left--) {
		if (coll_async_needs_callers(comm->ctx->async) || (!alone && !coll_context_yield(comm->ctx)))
			break;
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

	if (unlikely(!coll_intra_is_formed(comm->intra)) || (unlikely(comm->prepared != q->as) && !salt(comm, q)))
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
		return go_on(comm, q, in, out, &state, entry); /* where an error is met again */
	if (q->bytes > COLL_SHORT_BYTES)
		coll_recorder_end(&comm->recorder, entry, COLL_OK);
	return COLL_OK;
}

/* ---- What may go this way ---- */

/* Where buffers may be, as api/ checks it. */
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

	if (comm->prepared != memo || !memo->fastpath || c->record_kind)
		return;
	if (q->memo && q->memo->fastpath_key == &q->key)
		q->memo->fastpath_key = NULL;
	*q = (struct coll_fastpath){.key = coll_fastpath_key(c->kind, c->type, c->op),
	                            .count = c->count,
	                            .root = c->root,
	                            .as = memo,
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
