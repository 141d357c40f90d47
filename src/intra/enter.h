/*
 * The beginning of every operation made by hand, and what its readers check; private to
 * src/native.
 */
#ifndef COLL_NATIVE_ENTER_H
#define COLL_NATIVE_ENTER_H

#include "intra/region.h"

/* A turn of this operation: when it is OK, its entry may be written. Not committed: whether it is
 * made by hand after all depends on what the others write there. */
static inline coll_status coll_native_enter_as(struct coll_native *n, struct coll_hand_state *s, bool committed)
{
	const uint32_t turn = (uint32_t)n->turn + 1;
	coll_status st;

	if (unlikely(n->verdict != NATIVE_GOOD)) {
		st = coll_native_form(n, &s->pending);
		if (st != COLL_OK)
			return st;
	}
	s->committed = committed;
	if (unlikely(!coll_native_reached(n->all, turn - COLL_DEPTH + 1))) {
		st = coll_native_entered(n, turn - COLL_DEPTH + 1, &s->pending);
		if (st != COLL_OK)
			return st;
	}
	n->turn++;
	s->turn = turn;
	s->phase = NATIVE_BEGUN;
	s->events++;
	return COLL_OK;
}

static inline coll_status coll_native_enter(struct coll_native *n, struct coll_hand_state *s)
{
	return coll_native_enter_as(n, s, true);
}

/* The first line of this turn: its payload is there. */
static inline void coll_native_publish(struct coll_native *n, const struct coll_job *job,
                                       const struct coll_hand_state *s)
{
	struct native_line *line = &n->mine->entries[s->turn % COLL_DEPTH].lines[0];

	line->sequence = job->sequence;
	atomic_store_explicit(&line->word, coll_native_word(s->turn, job->signature), memory_order_release);
}

/* At most 64 bytes, in moves of constant lengths, the last of which may overlap the one before:
 * no call, and no load longer than what wrote the bytes is likely to have stored at once. */
static inline void coll_native_copy_part(char *to, const char *from, size_t bytes)
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
static inline void coll_native_copy_lines(char *to, const char *from, size_t bytes)
{
	for (; bytes >= COLL_LINE_BYTES; bytes -= COLL_LINE_BYTES, to += COLL_LINE_BYTES, from += COLL_LINE_BYTES)
		memcpy(to, from, COLL_LINE_BYTES);
	if (bytes > 0)
		coll_native_copy_part(to, from, bytes);
}

/* Payload of pair_swap.c and eager_bcast.c, by pieces. Whole lines, so that no two pieces share one. */
static inline size_t coll_native_piece(size_t bytes)
{
	enum { PIECE_MIN = 1024, PIECES = 4 };
	const size_t piece = (bytes / PIECES + COLL_LINE_BYTES - 1) & ~(size_t)(COLL_LINE_BYTES - 1);

	return piece < PIECE_MIN ? PIECE_MIN : piece;
}
static inline size_t coll_native_piece_at(size_t bytes, size_t at, size_t piece)
{
	return bytes - at < piece ? bytes - at : piece;
}

/* A piece is there. */
static inline void coll_native_flag(const struct coll_job *job, const struct coll_hand_state *s,
                                    struct native_line *flag)
{
	flag->sequence = job->sequence;
	/* Release: a reader that sees the word sees the piece. */
	atomic_store_explicit(&flag->word, coll_native_word(s->turn, job->signature), memory_order_release);
}

/* Piece by piece, each told by a flag of its own. */
static inline void coll_native_put(const struct coll_job *job, const struct coll_hand_state *s,
                                   struct native_line *flag, char *to, const char *from, size_t bytes)
{
	const size_t piece = coll_native_piece(bytes);

	for (size_t at = 0; at < bytes; at += piece, flag++) {
		coll_native_copy_lines(to + at, from + at, coll_native_piece_at(bytes, at, piece));
		coll_native_flag(job, s, flag);
	}
}

/* A word that is not the one waited for: AGAIN, or it is of another call. */
coll_status coll_native_stray(const struct coll_job *job, struct coll_hand_state *s, const struct native_line *line,
                              bool numbered);

/* Whether the line is this call's. AGAIN: not yet. numbered: it holds the call's number, too. */
static inline coll_status coll_native_check(const struct coll_job *job, struct coll_hand_state *s,
                                            const struct native_line *line, bool numbered)
{
	const uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	if (likely(word == coll_native_word(s->turn, job->signature)) &&
	    likely(!numbered || line->sequence == job->sequence))
		return COLL_OK;
	return coll_native_stray(job, s, line, numbered);
}

/* The same, looking for a while: it is about to come. A pause between two looks: without it a core
 * has many loads of the line under way when it is taken away to be written, which costs half
 * of a hand-off (measured: 1.6 times one way without, 0.97 to 1.07 with it). */
static inline coll_status coll_native_await(const struct coll_native *n, const struct coll_job *job,
                                            struct coll_hand_state *s, const struct native_line *line, bool numbered)
{
	const uint64_t word = coll_native_word(s->turn, job->signature);

	for (int left = n->looks; left > 0; left--) {
		if (atomic_load_explicit(&line->word, memory_order_acquire) == word)
			break;
		coll_cpu_relax();
	}
	return coll_native_check(job, s, line, numbered);
}

typedef coll_status native_move(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);

/* What is about to come, or to be possible, looked for a while. */
static inline coll_status coll_native_look(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s,
                                           native_move *move)
{
	coll_status st = move(n, job, s);

	for (int left = n->looks; st == COLL_AGAIN && left > 0; left--) {
		coll_cpu_relax();
		st = move(n, job, s);
	}
	return st;
}

/* Some pieces at a time: whoever polls looks at other things in between. OK: all of them are done. */
static inline coll_status coll_native_some(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s,
                                           native_move *step)
{
	enum { PIECES = 8 };
	coll_status st = COLL_OK;

	for (int i = 0; i < PIECES && s->done < s->pieces && st == COLL_OK; i++)
		st = step(n, job, s);
	return st == COLL_OK && s->done < s->pieces ? COLL_AGAIN : st;
}

/* The end of an operation in which all hear from all: everybody has entered this turn. */
static inline void coll_native_heard_all(struct coll_native *n, struct coll_hand_state *s)
{
	n->all = s->turn;
	s->events++;
}

/* Nothing yet from s->pending: AGAIN, or its link is broken. */
coll_status coll_native_idle(struct coll_native *n, struct coll_hand_state *s);
/* What a poll says that cannot go on. */
static inline coll_status coll_native_not_now(struct coll_native *n, struct coll_hand_state *s, coll_status st)
{
	return st == COLL_AGAIN ? coll_native_idle(n, s) : st;
}

void coll_native_where(void *arg, const struct coll_job *job, const struct coll_hand_state *s,
                       struct coll_run_where *where);

/* Lines of an entry that a payload takes: 48 bytes in the first, 56 in each further one. */
static inline uint32_t coll_native_lines(size_t bytes)
{
	return bytes <= COLL_FIRST_PAYLOAD
	               ? 1
	               : 1 + (uint32_t)((bytes - COLL_FIRST_PAYLOAD + COLL_MORE_PAYLOAD - 1) / COLL_MORE_PAYLOAD);
}
/* eager_line.c: so many bytes, to our entry from a line on; from a peer's, each line when it is there.
 * AGAIN: called again until it is OK. */
void coll_native_pack(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s,
                      uint32_t first, const char *from, size_t bytes);
coll_status coll_native_unpack(const struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s,
                               uint32_t rank, uint32_t first, char *to, size_t bytes);
/* eager_chunk.c: a turn, and the cell that goes with it. */
coll_status coll_native_enter_cell(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
/* Piece of our cell: copied and told. */
void coll_native_fill(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s,
                      uint32_t piece, size_t at, const char *from, size_t bytes);
/* Whether that piece of a peer is there. */
static inline coll_status coll_native_filled(const struct coll_native *n, const struct coll_job *job,
                                             struct coll_hand_state *s, uint32_t rank, uint32_t piece)
{
	const coll_status st = coll_native_check(job, s, &n->peers[rank].region->flags[s->cell].pieces[piece], true);

	if (st != COLL_OK)
		s->pending = rank;
	return st;
}

/* A line of ours says so in this turn. Release: after all that was read and written before. */
static inline void coll_native_tell(struct coll_native *n, const struct coll_hand_state *s, int line, uint32_t what)
{
	atomic_store_explicit(&n->mine->entries[s->turn % COLL_DEPTH].lines[line].word, coll_native_word(s->turn, what),
	                      memory_order_release);
	coll_native_nudge(n);
}

/* What was read of others' memory comes before what is looked at. */
static inline void coll_native_after_reading(void)
{
#if !defined(__SANITIZE_THREAD__)
	atomic_thread_fence(memory_order_acquire);
#endif
}

/* What was tried in vain: whether this call is one of the 1, 2, 4 ... 64 that do not try it after that. */
static inline bool coll_native_shies(struct native_shy *shy)
{
	if (shy->left == 0)
		return false;
	shy->left--;
	return true;
}

/* It was tried. */
static inline void coll_native_encourage(struct native_shy *shy, bool went)
{
	enum { PAUSE_MAX = 64 };

	if (went)
		shy->pause = 0;
	else if (shy->pause < PAUSE_MAX)
		shy->pause = shy->pause ? 2 * shy->pause : 1;
	shy->left = shy->pause;
}

/* central.c, central_move.c: of more ranks. */
size_t coll_native_hub_cell_bytes(size_t payload_bytes);
size_t coll_native_hub_bytes(int size, size_t payload_bytes);
coll_status coll_native_poll_hub(void *arg, const struct coll_job *job, struct coll_hand_state *s);
void coll_native_where_hub(void *arg, const struct coll_job *job, const struct coll_hand_state *s,
                           struct coll_run_where *where);

/* nt_stores.c: how results of the call that begins are stored; bytes: as struct coll_stores_rule has them. None:
 * through the caches, where lines are that have just been read. As: it has been chosen. Direct: whichever the job
 * is. */
void coll_native_stores_begin(struct coll_native *n, enum coll_stores_pass pass, size_t bytes);
void coll_native_stores_none(struct coll_native *n);
void coll_native_stores_as(struct coll_native *n, bool stream);
void coll_native_stores_direct(struct coll_native *n, const struct coll_job *job);
/* Around a pass; and when the call has ended. */
uint64_t coll_native_stores_since(const struct coll_native *n);
void coll_native_stores_until(struct coll_native *n, uint64_t since_ns);
void coll_native_stores_end(struct coll_native *n);

/* What one of two ranks does in an operation: pair_swap.c, pair_stream.c. */
struct coll_exchange {
	const char *send; /* what the other needs */
	const char *own;  /* what is joined with the other's, or goes to own_to */
	char *own_to;     /* NULL: nowhere */
	char *to;         /* the other's, or the joined */
	size_t bytes;
	bool joins;
};
struct coll_exchange coll_native_exchange(const struct coll_native *n, const struct coll_job *job);

/* Polls of the operations: eager_line.c, eager_chunk.c, eager_block.c, pair_swap.c, eager_bcast.c. */
coll_status coll_native_poll_pair(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_wide(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_broadcast(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_lines(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_cells(void *arg, const struct coll_job *job, struct coll_hand_state *s);
/* zero_copy.c */
coll_status coll_native_poll_direct(void *arg, const struct coll_job *job, struct coll_hand_state *s);
bool coll_native_passes_direct(void *arg, const struct coll_job *job);
/* What such a call is made by where the buffers are plain; COLL_WAY_UNKNOWN: by what its hand says, or the plan. */
uint8_t coll_native_plain_way(const struct coll_native *n, const struct coll_job *job);
/* cico.c: whether they are better than the plan; from NATIVE_TILES_NEW on, or from NATIVE_TILES_BEGUN, when
 * all have entered this turn. */
bool coll_native_tiles_serve(const struct coll_native *n, const struct coll_job *job);
coll_status coll_native_poll_tiles(void *arg, const struct coll_job *job, struct coll_hand_state *s);
/* pair_reduce.c, pair_stream.c: the same of two ranks, an all_reduce and the others. */
bool coll_native_halves_serve(const struct coll_native *n, const struct coll_job *job);
coll_status coll_native_poll_halves(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
bool coll_native_shuttle_serves(const struct coll_native *n, const struct coll_job *job);
coll_status coll_native_poll_shuttle(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
/* pair_bcast.c: a broadcast of two ranks; phases as those of cico.c. */
bool coll_native_chute_serves(const struct coll_native *n, const struct coll_job *job);
coll_status coll_native_poll_chute(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_line_reduce(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_barrier(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_lines_reduce(void *arg, const struct coll_job *job, struct coll_hand_state *s);
coll_status coll_native_poll_cells_reduce(void *arg, const struct coll_job *job, struct coll_hand_state *s);

#endif
