/*
 * The beginning of every intranode operation, and what its readers check; private to
 * src/intra.
 */
#ifndef COLL_INTRA_ENTER_H
#define COLL_INTRA_ENTER_H

#include "intra/region.h"
#include "intra/shape.h"

/* An epoch of this operation: when it is OK, its entry may be written. Not committed: whether it is
 * run intranode after all depends on what the others write there. */
static inline coll_status coll_intra_enter_as(struct coll_intra *n, struct coll_intra_state *s, bool committed)
{
	const uint32_t epoch = (uint32_t)n->epoch + 1;
	coll_status st;

	if (unlikely(n->verdict != INTRA_GOOD)) {
		st = coll_intra_form(n, &s->pending);
		if (st != COLL_OK)
			return st;
	}
	s->committed = committed;
	if (unlikely(!coll_intra_reached(n->all, epoch - COLL_DEPTH + 1))) {
		st = coll_intra_entered(n, epoch - COLL_DEPTH + 1, &s->pending);
		if (st != COLL_OK)
			return st;
	}
	n->epoch++;
	s->epoch = epoch;
	s->phase = INTRA_BEGUN;
	s->events++;
	return COLL_OK;
}

static inline coll_status coll_intra_enter(struct coll_intra *n, struct coll_intra_state *s)
{
	return coll_intra_enter_as(n, s, true);
}

/* The first line of this epoch: its payload is there. */
static inline void coll_intra_publish(struct coll_intra *n, const struct coll_job *job,
                                      const struct coll_intra_state *s)
{
	struct intra_line *line = &n->mine->entries[s->epoch % COLL_DEPTH].lines[0];

	line->sequence = job->sequence;
	atomic_store_explicit(&line->word, coll_intra_word(s->epoch, job->signature), memory_order_release);
}

/* What others fall back to: in the epoch that they have entered, or in a new one. Its first line has no payload. Who
 * calls it wakes the readers. */
static inline coll_status coll_intra_enter_once(struct coll_intra *n, const struct coll_job *job,
                                                struct coll_intra_state *s)
{
	coll_status st;

	if (!s->entered) {
		st = coll_intra_enter_as(n, s, true);
		if (unlikely(st != COLL_OK))
			return st;
		coll_intra_publish(n, job, s);
		s->entered = true;
	}
	s->committed = true;
	s->phase = INTRA_BEGUN;
	return COLL_OK;
}

/* At most 64 bytes, in moves of constant lengths, the last of which may overlap the one before:
 * no call, and no load longer than what wrote the bytes is likely to have stored at once. */
static inline void coll_intra_copy_part(char *to, const char *from, size_t bytes)
{
	if (bytes >= 16) {
		for (const char *last = from + bytes - 16; from < last; from += 16, to += 16)
			memcpy(to, from, 16);
		memcpy(to - (16 - bytes % 16) % 16, from - (16 - bytes % 16) % 16, 16);
	} else if (bytes >= 8) {
		memcpy(to, from, 8);
		memcpy(to + bytes - 8, from + bytes - 8, 8);
	} else if (bytes >= 4) {
		memcpy(to, from, 4);
		memcpy(to + bytes - 4, from + bytes - 4, 4);
	} else {
		for (size_t i = 0; i < bytes; i++)
			to[i] = from[i];
	}
}

/* Any number. Loads no longer than what wrote the bytes a moment ago is likely to have stored at once. */
static inline void coll_intra_copy_lines(char *to, const char *from, size_t bytes)
{
	for (; bytes >= COLL_LINE_BYTES; bytes -= COLL_LINE_BYTES, to += COLL_LINE_BYTES, from += COLL_LINE_BYTES)
		memcpy(to, from, COLL_LINE_BYTES);
	if (bytes > 0)
		coll_intra_copy_part(to, from, bytes);
}

/* Payload of pair_swap.c and eager_bcast.c, by pieces. */
static inline size_t coll_intra_piece(size_t bytes)
{
	enum { PIECES = 4 };

	return coll_intra_piece_bytes(bytes, PIECES, COLL_EAGER_PIECE_MIN);
}
static inline size_t coll_intra_piece_at(size_t bytes, size_t at, size_t piece)
{
	return bytes - at < piece ? bytes - at : piece;
}

/* A piece is there. */
static inline void coll_intra_flag(const struct coll_job *job, const struct coll_intra_state *s,
                                   struct intra_line *flag)
{
	flag->sequence = job->sequence;
	/* Release: a reader that sees the word sees the piece. */
	atomic_store_explicit(&flag->word, coll_intra_word(s->epoch, job->signature), memory_order_release);
}

/* Piece by piece, each told by a flag of its own. */
static inline void coll_intra_put(const struct coll_job *job, const struct coll_intra_state *s, struct intra_line *flag,
                                  char *to, const char *from, size_t bytes)
{
	const size_t piece = coll_intra_piece(bytes);

	for (size_t at = 0; at < bytes; at += piece, flag++) {
		coll_intra_copy_lines(to + at, from + at, coll_intra_piece_at(bytes, at, piece));
		coll_intra_flag(job, s, flag);
	}
}

/* A word that is not the one waited for: AGAIN, or it is of another call. */
coll_status coll_intra_unexpected(const struct coll_job *job, struct coll_intra_state *s, const struct intra_line *line,
                                  bool numbered);

/* Whether the line is this call's. AGAIN: not yet. numbered: it holds the call's number, too. */
static inline coll_status coll_intra_check(const struct coll_job *job, struct coll_intra_state *s,
                                           const struct intra_line *line, bool numbered)
{
	const uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	if (likely(word == coll_intra_word(s->epoch, job->signature)) &&
	    likely(!numbered || line->sequence == job->sequence))
		return COLL_OK;
	return coll_intra_unexpected(job, s, line, numbered);
}

/* Other threads want the cores: what the other ranks do takes as long as their turn comes. */
static inline bool coll_intra_is_crowded(const struct coll_intra *n)
{
	return n->fabric.crowded && atomic_load_explicit(n->fabric.crowded, memory_order_relaxed);
}

/* At what is about to come: when nothing was looked for in vain since the last movement. Whoever polls again pauses
 * between polls and has other things to look at. */
static inline int coll_intra_looks(const struct coll_intra *n, const struct coll_intra_state *s)
{
	return s->idle > 0 || coll_intra_is_crowded(n) ? 0 : n->looks;
}

/* The same, looking for a while: it is about to come. A pause between two looks: without it a core
 * has many loads of the line under way when it is taken away to be written, which costs half
 * of a hand-off (measured: 1.6 times one way without, 0.97 to 1.07 with it). */
static inline coll_status coll_intra_await(const struct coll_intra *n, const struct coll_job *job,
                                           struct coll_intra_state *s, const struct intra_line *line, bool numbered)
{
	const uint64_t word = coll_intra_word(s->epoch, job->signature);

	for (int left = coll_intra_looks(n, s); left > 0; left--) {
		if (atomic_load_explicit(&line->word, memory_order_acquire) == word)
			break;
		coll_cpu_relax();
	}
	return coll_intra_check(job, s, line, numbered);
}

typedef coll_status intra_move(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

/* What is about to come, or to be possible, looked for a while. */
static inline coll_status coll_intra_look(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                                          intra_move *move)
{
	coll_status st = move(n, job, s);

	for (int left = coll_intra_looks(n, s); st == COLL_AGAIN && left > 0; left--) {
		coll_cpu_relax();
		st = move(n, job, s);
	}
	return st;
}

/* Some pieces at a time: whoever polls looks at other things in between. OK: all of them are done. */
static inline coll_status coll_intra_step_some(struct coll_intra *n, const struct coll_job *job,
                                               struct coll_intra_state *s, intra_move *step)
{
	enum { PIECES = 8 };
	coll_status st = COLL_OK;

	for (int i = 0; i < PIECES && s->done < s->pieces && st == COLL_OK; i++)
		st = step(n, job, s);
	return st == COLL_OK && s->done < s->pieces ? COLL_AGAIN : st;
}

/* The end of an operation in which all hear from all: everybody has entered this epoch. */
static inline void coll_intra_entered_all(struct coll_intra *n, struct coll_intra_state *s)
{
	n->all = s->epoch;
	s->events++;
}

/* Nothing yet from s->pending: AGAIN, or its link is broken. */
coll_status coll_intra_idle(struct coll_intra *n, struct coll_intra_state *s);
/* The same where others touch buffers of this call: one that has failed does not go on. */
static inline bool coll_intra_is_revoked(const struct coll_intra *n, uint32_t rank)
{
	/* Sequentially consistent: see zero_copy.c. */
	return atomic_load(&n->peers[rank].region->revoked);
}
static inline coll_status coll_intra_idle_loaned(struct coll_intra *n, struct coll_intra_state *s)
{
	return coll_intra_is_revoked(n, s->pending) ? COLL_ERR_ABORTED : coll_intra_idle(n, s);
}
/* What a poll says that cannot go on. */
static inline coll_status coll_intra_not_yet(struct coll_intra *n, struct coll_intra_state *s, coll_status st)
{
	return st == COLL_AGAIN ? coll_intra_idle(n, s) : st;
}

/* Lines of an entry that a payload takes: 48 bytes in the first, 56 in each further one. */
static inline uint32_t coll_intra_lines(size_t bytes)
{
	return bytes <= COLL_FIRST_PAYLOAD
	               ? 1
	               : 1 + (uint32_t)((bytes - COLL_FIRST_PAYLOAD + COLL_MORE_PAYLOAD - 1) / COLL_MORE_PAYLOAD);
}
/* Whether that piece of a peer is there. */
static inline coll_status coll_intra_filled(const struct coll_intra *n, const struct coll_job *job,
                                            struct coll_intra_state *s, uint32_t rank, uint32_t piece)
{
	const coll_status st = coll_intra_check(job, s, &n->peers[rank].region->flags[s->cell].pieces[piece], true);

	if (st != COLL_OK)
		s->pending = rank;
	return st;
}

/* A line of ours says so in this epoch. Release: after all that was read and written before. */
static inline void coll_intra_announce(struct coll_intra *n, const struct coll_intra_state *s, int line, uint32_t what)
{
	atomic_store_explicit(&n->mine->entries[s->epoch % COLL_DEPTH].lines[line].word,
	                      coll_intra_word(s->epoch, what), memory_order_release);
	coll_intra_nudge(n);
}

/* What was read of others' memory comes before what is looked at. */
static inline void coll_intra_after_reading(void)
{
#if !defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* What was tried in vain: whether this call is one of the 1, 2, 4 ... 64 that do not try it after that. */
static inline bool coll_intra_backoff_skip(struct intra_backoff *backoff)
{
	if (backoff->left == 0)
		return false;
	backoff->left--;
	return true;
}

/* It was tried. */
static inline void coll_intra_backoff_result(struct intra_backoff *backoff, bool went)
{
	enum { PAUSE_MAX = 64 };

	if (went)
		backoff->pause = 0;
	else if (backoff->pause < PAUSE_MAX)
		backoff->pause = backoff->pause ? 2 * backoff->pause : 1;
	backoff->left = backoff->pause;
}

/* What one of two ranks does in an operation: pair_swap.c, pair_stream.c. */
struct coll_exchange {
	const char *send; /* what the other needs */
	const char *own;  /* what is joined with the other's, or goes to own_to */
	char *own_to;     /* NULL: nowhere */
	char *to;         /* the other's, or the joined */
	size_t bytes;
	bool joins;
};

/* Whom the operation waits for, for diagnosis: coll_intra_op.where. */
void coll_intra_position(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                         struct coll_run_where *where);

#endif
