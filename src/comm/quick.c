/*
 * The shortest call: one like the last, small, made by hand, of two ranks that have a core
 * each, while nothing else goes on. In this file all of it is in one place, since every
 * instruction counts: what it leaves behind (record, recorder, numbers, turns) is what the
 * long way in call.c leaves behind, and what does not end at once goes on there.
 */
#include "native/quick.h"

#include "comm/async.h"

enum { LOOKS = 400 };

/* Sums of one or two elements: what a kernel does with them, without the call (a third of
 * the instructions of an 8-byte all-reduce). */
enum { NOT_SIMPLE, ONE_F32, TWO_F32, ONE_F64 };

static int simple(const struct coll_memo *m)
{
	if (m->kind != COLL_KIND_ALL_REDUCE || m->op != COLL_SUM || m->count > 2)
		return NOT_SIMPLE;
	if (m->type == COLL_F32)
		return m->count == 2 ? TWO_F32 : ONE_F32;
	return m->type == COLL_F64 && m->count == 1 ? ONE_F64 : NOT_SIMPLE;
}

/* False: a NaN, of which there are many; which one is the kernel's choice, on all ranks. */
static inline bool add_f32(void *out, const void *a, const void *b, int count)
{
	float x[2], y[2];
	bool fine = true;

	memcpy(x, a, (size_t)count * sizeof(float));
	memcpy(y, b, (size_t)count * sizeof(float));
	for (int i = 0; i < count; i++) {
		x[i] += y[i];
		fine = fine && x[i] == x[i];
	}
	if (likely(fine))
		memcpy(out, x, (size_t)count * sizeof(float));
	return fine;
}

static inline bool add_f64(void *out, const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x += y;
	if (likely(x == x))
		memcpy(out, &x, sizeof(x));
	return x == x;
}

static __attribute__((noinline)) void reduce_any(const struct coll_comm *comm, const void *in, void *out,
                                                 const void *theirs)
{
	const void *src[2];

	src[comm->rank] = in;
	src[!comm->rank] = theirs;
	coll_reduce_run(&comm->quick.memo->reduction, out, src, 2, -1, true, comm->quick.count);
}

/* Sums are the same in either order, but for NaN. */
static inline void reduce(const struct coll_comm *comm, const void *in, void *out, const void *theirs)
{
	bool done = false;

	switch (comm->quick.simple) {
	case TWO_F32: done = add_f32(out, in, theirs, 2); break;
	case ONE_F32: done = add_f32(out, in, theirs, 1); break;
	case ONE_F64: done = add_f64(out, in, theirs); break;
	default: break;
	}
	if (unlikely(!done))
		reduce_any(comm, in, out, theirs);
}

void coll_quick_prepare(struct coll_comm *comm, const struct coll_memo *memo, uint32_t signature)
{
	struct coll_quick *q = &comm->quick;

	q->memo = (const struct coll_memo *)(const void *)q;
	if (comm->prepared != memo || !memo->quick || comm->size != 2)
		return;
	q->memo = memo;
	q->count = memo->count;
	q->bytes = memo->kind == COLL_KIND_BARRIER ? 0 : memo->count * memo->elem_bytes;
	q->kind = (enum coll_kind)memo->kind;
	q->shape = coll_quick_shape((coll_dtype)memo->type, memo->op);
	q->signature = signature;
	q->simple = simple(memo);
	q->what = coll_entry_what(comm->call.signature, memo->kind, memo->type, (uint8_t)memo->op, false);
}

/* Not at once: as any call made by hand, from here on. */
static __attribute__((noinline, cold)) coll_status go_on(struct coll_comm *comm, const void *in, void *out,
                                                         uint32_t turn, struct coll_entry *entry)
{
	const struct coll_hand_state state = coll_native_quick_state(turn);
	const struct coll_wait wait = {.runs = {comm->run}, .nruns = 1, .record = &comm->call, .entries = {entry}};
	coll_status st;

	comm->call.sequence = comm->sequence;
	comm->call.active = 1;
	coll_run_restart_begun(comm->run, in, out, comm->sequence, &state);
	st = coll_comm_wait(comm, &wait);
	coll_record_retire(&comm->record, &comm->call);
	coll_recorder_end(&comm->recorder, entry, st);
	return st;
}

static __attribute__((noinline, cold)) coll_status long_way(struct coll_comm *comm, const void *in, void *out)
{
	const struct coll_memo *m = comm->prepared;

	return coll_comm_call(comm, &(struct coll_call){.kind = (enum coll_kind)m->kind,
	                                                .in = in,
	                                                .out = out,
	                                                .count = m->count,
	                                                .type = (coll_dtype)m->type,
	                                                .op = m->op});
}

/* comm->call is not kept up to date, what others see of it is. */
static inline void record(struct coll_comm *comm, uint64_t sequence)
{
	struct coll_record r;

	r.sequence = sequence;
	r.signature = comm->call.signature;
	r.active = 1;
	r.waits_for = -1;
	r.pad2 = 0;
	coll_record_again(&comm->record, &r);
}

static inline void retire(struct coll_comm *comm)
{
	if (COLL_GUARDS)
		atomic_store_explicit(&comm->record.word[COLL_RECORD_ACTIVE], coll_record_pair(comm->call.signature, 0),
		                      memory_order_relaxed);
}

coll_status coll_comm_quick(struct coll_comm *comm, const void *in, void *out)
{
	const struct coll_quick *q = &comm->quick;
	struct coll_native *n = comm->native;
	const uint64_t sequence = comm->sequence + 1;
	const struct native_line *theirs;
	struct coll_entry *entry;
	struct native_line *mine;
	uint64_t word;
	uint32_t turn;
	int looks = LOOKS;

	mine = coll_native_quick_line(n, &turn);
	if (unlikely(!mine))
		return long_way(comm, in, out);
	coll_native_copy_small(mine->payload, in, q->bytes);
	word = coll_native_word(turn, q->signature);
	coll_native_quick_send(n, mine, sequence, word);
	/* All the rest of a call's beginning is done while the lines travel. */
	comm->sequence = sequence;
	comm->box.status = COLL_OK;
	record(comm, sequence);
	entry = coll_recorder_begin(&comm->recorder, sequence, q->what, q->count, 0, 0);
	theirs = coll_native_quick_theirs(n, turn);
	while (atomic_load_explicit(&theirs->word, memory_order_acquire) != word)
		if (unlikely(--looks == 0))
			return go_on(comm, in, out, turn, entry);
	if (unlikely(theirs->sequence != sequence))
		return go_on(comm, in, out, turn, entry); /* which says why */
	if (q->bytes > 0)
		reduce(comm, in, out, theirs->payload);
	coll_native_quick_end(n, turn);
	retire(comm);
	coll_recorder_end_quick(entry);
	return COLL_OK;
}
