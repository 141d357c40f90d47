/*
 * The operation that holds this process up: of those that run, the oldest that names whom it waits for, else the
 * oldest. tools/hang.c chooses alike among those of a dump. Reads the flight recorders, changes nothing.
 */
#include "watch/held_up.h"

#include "core/comm.h"
#include "watch/mismatch.h"
#include "watch/slow.h"

/* A receive that is posted holds nobody up, unless a thread waits for somebody in it. */
static bool holds_up(const struct coll_op_record *op)
{
	return op->state == COLL_OP_RUNNING &&
	       (op->waits_for >= 0 || op->kind != COLL_KIND_SEND_RECV || op->op != COLL_MESSAGE_IRECV);
}

static bool is_better(const struct coll_op_record *op, const struct coll_op_record *best)
{
	return (op->waits_for >= 0) != (best->waits_for >= 0) ? op->waits_for >= 0 : op->begun < best->begun;
}

static void answer(struct coll_context *c, struct coll_answer *a)
{
	struct coll_op_record op, best = {.waits_for = -1, .begun = UINT64_MAX};
	struct coll_moment now;

	for (struct coll_comm *comm = c->comms; comm; comm = comm->next) {
		const struct coll_recorder *r = &comm->recorder;

		for (size_t i = 0; r->entries && i < COLL_RECORDER_ENTRIES; i++) {
			const uint64_t v = atomic_load_explicit(&r->entries[i].version, memory_order_relaxed);

			if (v < 2 || !coll_recorder_read(r, v / 2 - 1, comm->id, &op) || !holds_up(&op) ||
			    !is_better(&op, &best))
				continue;
			best = op;
			a->third = op.waits_for >= 0 ? coll_comm_process(comm, op.waits_for) : -1;
		}
	}
	if (best.begun == UINT64_MAX)
		return;
	coll_moment_take(&now, c->birth_counter);
	coll_op_record_call(&best, &a->call);
	a->in_stream = best.in_stream ? best.stream : 0;
	a->wait = now.real_ns - coll_ticks_real_ns(&c->birth, &now, best.started ? best.started : best.begun);
}

static bool answer_slow(struct coll_context *c, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	*a = (struct coll_answer){.sequence = q->sequence, .about = q->about};
	coll_slow_facts(c, &a->slow);
	return true;
}

static bool answer_dump(struct coll_context *c, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	unsigned nobody = 0;

	*a = (struct coll_answer){.sequence = q->sequence, .about = q->about};
	atomic_compare_exchange_strong_explicit(&c->dump_asked, &nobody, 1, memory_order_relaxed, memory_order_relaxed);
	return true;
}

bool coll_held_up_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a)
{
	struct coll_context *c = ctx;

	if (q->about == COLL_ABOUT_SLOW)
		return answer_slow(c, q, a);
	if (q->about == COLL_ABOUT_DUMP)
		return answer_dump(c, q, a);
	if (q->about != COLL_ABOUT_JOB)
		return coll_mismatch_answer(ctx, process, q, a);
	*a = (struct coll_answer){.sequence = q->sequence, .about = q->about};
	pthread_mutex_lock(&c->comms_lock);
	answer(c, a);
	pthread_mutex_unlock(&c->comms_lock);
	return true;
}
