/*
 * Broadcast in lines: the root fills its entry and returns, the others read it where it lies.
 *
 * Nobody answers, so a root may be turns ahead of its readers: as many as there are entries,
 * since its next turn of the same entry begins only when every rank is known to have entered a
 * later turn than the one that used it last (coll_native_enter()). For that each reader says in
 * its own entry, as in every operation, that it has entered this turn; and for its own next turns
 * in which it has payload it looks for the same evidence.
 */
#include "native/enter.h"

/* A reader has no payload: its first line says that it is here. */
static void begin(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s, size_t bytes)
{
	if (job->plan->root != n->rank) {
		coll_native_publish(n, job, s);
		coll_native_nudge(n);
		return;
	}
	coll_native_pack(n, job, s, 0, job->in.base, bytes);
	coll_native_nudge(n);
	coll_reduce_copy(job->out.base, job->in.base, bytes);
}

coll_status coll_native_poll_broadcast(void *arg, const struct coll_job *job, struct coll_hand_state *s)
{
	struct coll_native *n = arg;
	const uint32_t root = (uint32_t)job->plan->root;
	const size_t bytes = job->out.count * job->elem_bytes;
	coll_status st;

	if (s->phase == NATIVE_NEW) {
		st = coll_native_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_native_not_now(n, s, st);
		begin(n, job, s, bytes);
	}
	if (root == (uint32_t)n->rank)
		return COLL_OK;
	st = coll_native_unpack(n, job, s, root, 0, job->out.base, bytes);
	if (st != COLL_OK)
		return coll_native_not_now(n, s, st);
	/* Evidence of the root alone. */
	n->peers[root].seen = s->turn;
	if (n->size == 2)
		n->all = s->turn;
	return COLL_OK;
}
