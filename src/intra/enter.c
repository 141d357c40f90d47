/*
 * What every intranode operation does while it waits, and what it says of its position.
 */
#include "intra/enter.h"

enum { LINK_EVERY = 1024 }; /* polls */

coll_status coll_intra_unexpected(const struct coll_job *job, struct coll_intra_state *s, const struct intra_line *line,
                                  bool numbered)
{
	const uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	/* 0: never written, which is an epoch's number, too, once in a while. */
	if ((uint32_t)(word >> 32) != s->epoch || word == 0)
		return COLL_AGAIN;
	if (word == coll_intra_word(s->epoch, job->signature) && (!numbered || line->sequence == job->sequence))
		return COLL_OK; /* it has come meanwhile */
	s->bad_frame =
	        (struct coll_frame){.sequence = numbered ? line->sequence : job->sequence, .signature = (uint32_t)word};
	return COLL_ERR_MISMATCH;
}

coll_status coll_intra_idle(struct coll_intra *n, struct coll_intra_state *s)
{
	const struct intra_peer *p = &n->peers[s->pending];
	coll_status st;

	if (++s->idle % LINK_EVERY)
		return COLL_AGAIN;
	st = p->link ? p->transport->link_status(p->link) : COLL_AGAIN;
	return st == COLL_OK ? COLL_AGAIN : st;
}

void coll_intra_position(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                         struct coll_run_where *where)
{
	where->peer = (int)s->pending;
	where->frame = s->bad_frame;
}
