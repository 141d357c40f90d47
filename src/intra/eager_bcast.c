/*
 * Broadcast: the root fills its entry, or a wide place, and returns; the others read it where it lies.
 *
 * Nobody answers, so a root may be epochs ahead of its readers: as many as there are entries,
 * since its next epoch of the same entry begins only when every rank is known to have entered a
 * later epoch than the one that used it last (coll_intra_enter()). For that each reader says in
 * its own entry, as in every operation, that it has entered this epoch; and for its own next epochs
 * in which it has payload it looks for the same evidence.
 *
 * What is longer than a few lines goes to a *wide place*, piece by piece: lines of payload, and a word in a line of its
 * own for each piece. More than two ranks: the root's own, that of the entry, under the same evidence. Two ranks:
 * the places are in the region of rank 0, and a root goes on in the one where it has read last, whose lines its cache
 * has; a rank that is root again takes the next place.
 *
 * Ordering. A piece is stored, then its word with release, awaited with acquire, then read; the word has the
 * number of the epoch, so an earlier one is not taken for it. Of two ranks: (1) the root has read the place in the
 * intranode operation before which used it, and was its only reader: nobody reads it any more, and the other looks at
 * it again only for the word of this epoch. (2) The root was root before, too: it takes the next of COLL_DEPTH places.
 * Each step to the next takes an epoch at least, so this one was used COLL_DEPTH epochs ago or earlier, and the
 * evidence of every epoch says that the other has entered a later one. epoch_model_test.c has it as WIDE_FROM_0 and
 * WIDE_FROM_1.
 */
#include "intra/eager_bcast.h"

#include "intra/eager_line.h"
#include "intra/enter.h"
#include "reduce/copy.h"

/* A reader has no payload: its first line says that it is here. */
static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t bytes)
{
	if (job->plan->root != n->rank) {
		coll_intra_publish(n, job, s);
		coll_intra_nudge(n);
		return;
	}
	coll_intra_pack(n, job, s, 0, job->in.base, bytes);
	coll_intra_nudge(n);
	coll_reduce_copy(job->out.base, job->in.base, bytes);
}

/* Evidence of the root alone. */
static void heard(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s)
{
	n->peers[job->plan->root].seen = s->epoch;
	if (n->size == 2)
		n->all = s->epoch;
}

coll_status coll_intra_poll_eager_bcast(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	const uint32_t root = (uint32_t)job->plan->root;
	const size_t bytes = job->out.count * job->elem_bytes;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_EAGER_BCAST;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		begin(n, job, s, bytes);
	}
	if (root == (uint32_t)n->rank)
		return COLL_OK;
	st = coll_intra_unpack(n, job, s, root, 0, job->out.base, bytes);
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	heard(n, job, s);
	return COLL_OK;
}

/* ---- Wide ---- */

/* Which place this epoch has, agreed: see above. */
static void take_place(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	if (n->size > 2) {
		s->cell = s->epoch % COLL_DEPTH;
		return;
	}
	if (n->wide_root == job->plan->root)
		n->wide = (n->wide + 1) % COLL_DEPTH;
	n->wide_root = job->plan->root;
	s->cell = n->wide;
}

static struct intra_wide *place_of(const struct coll_intra *n, const struct coll_job *job,
                                   const struct coll_intra_state *s)
{
	const int owner = n->size > 2 ? job->plan->root : 0;

	return coll_intra_wide(n, coll_intra_region(n, owner), s->cell);
}

static void send_wide(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, size_t bytes)
{
	struct intra_wide *w = place_of(n, job, s);

	coll_intra_put(job, s, w->pieces, w->payload, job->in.base, bytes);
	coll_intra_nudge(n);
	coll_reduce_copy(job->out.base, job->in.base, bytes);
}

static coll_status take_wide(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t bytes)
{
	const struct intra_wide *w = place_of(n, job, s);
	const size_t piece = coll_intra_piece(bytes);

	for (size_t at = s->next * piece; at < bytes; at += piece) {
		const coll_status st = coll_intra_await(n, job, s, &w->pieces[s->next], true);

		if (unlikely(st != COLL_OK)) {
			s->pending = (uint32_t)job->plan->root;
			return coll_intra_not_yet(n, s, st);
		}
		coll_intra_copy_lines(job->out.base + at, w->payload + at, coll_intra_piece_at(bytes, at, piece));
		s->next++;
		s->events++;
	}
	heard(n, job, s);
	return COLL_OK;
}

coll_status coll_intra_poll_wide_bcast(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	const size_t bytes = job->out.count * job->elem_bytes;
	const bool root = job->plan->root == n->rank;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_WIDE_BCAST;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		take_place(n, job, s);
		coll_intra_publish(n, job, s);
		if (root)
			send_wide(n, job, s, bytes);
		else
			coll_intra_nudge(n);
	}
	return root ? COLL_OK : take_wide(n, job, s, bytes);
}
