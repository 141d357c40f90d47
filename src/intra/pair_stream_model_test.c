/*
 * The slots of pair_stream.c, of both schedules, explored: two ranks, a few operations of some chunks each behind each
 * other, every interleaving of their memory operations, on a memory as weak as Arm's (weak_model_test.h). The real
 * rings have four slots; here they have two, so that each is used again soon. Operations are in place: what is sent is
 * what the operation before has put there. How far a rank of the pair stream sends ahead of what it takes depends on
 * the other: each of the two takes as soon as it can, or as late as it may. What is read before the first chunk is
 * epoch_model_test.c's.
 *
 * Required: chunk c is taken as it was sent, whatever its slot held before, and nobody waits for ever. Every rule is
 * dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { RANKS = 2, SLOTS = 2, HALVES_AHEAD = SLOTS / 2, CHUNKS_MAX = 6, STEP_RANGE = 8 };
static_assert(CHUNKS_MAX < STEP_RANGE, "a count of chunks beside the turn");

/* How many chunks an operation of each kind has, which go by the pair stream or, in pairs, by halves; 0: it is another
 * one, which only takes a turn. */
static const struct {
	int chunks;
	bool halves;
} kinds_of[] = {{0, false}, {1, false}, {2, false}, {3, false}, {5, false}, {2, true}, {4, true}, {6, true}};
enum { KINDS = sizeof(kinds_of) / sizeof(kinds_of[0]) };

enum rule {
	NO_RULE,
	STEPS_BEFORE_CHUNK, /* steps are stored without release */
	CHUNK_BEFORE_STEPS, /* and awaited without acquire */
	STEPS_WITHOUT_TURN, /* steps count this operation's chunks alone */
	RINGS_STAY,         /* a rank writes to the same ring always */
	COUNTED_ANEW,       /* chunks are counted from 0 in each operation */
	ONE_TOO_FAR,        /* chunk c + SLOTS is sent before c has been taken */
	STORED_UNSENT,      /* a rank takes chunk c before it has sent its own */
	SENT_UNTAKEN,       /* halves: a slot is filled before what came back in it is taken */
	STEP_TOO_SOON,      /* halves: a step waits for one less of the other's */
	RINGS_SHARED,       /* halves: in the slots of the pair stream */
	STEPS_BEFORE_HALF,  /* halves: steps are stored without release */
	HALF_BEFORE_STEPS,  /* and awaited without acquire */
	RULES
};
static const char *const rule_names[RULES] = {
        "none dropped", "steps before chunk", "chunk before steps", "steps without turn", "rings stay",
        "counted anew", "one too far",        "stored unsent",      "sent untaken",       "step too soon",
        "rings shared", "steps before half",  "half before steps"};

/* Words: the slots of both rings, and of halves; what each rank has sent; its buffer, a word for each chunk. */
enum {
	SLOT,
	HALF_SLOT = SLOT + 2 * SLOTS,
	STEPS = HALF_SLOT + 2 * SLOTS,
	BUFFER = STEPS + RANKS,
	WORDS = BUFFER + RANKS * CHUNKS_MAX
};
static_assert((int)WORDS <= WEAK_WORDS, "the words of both ranks");

/* ---- The ranks' programs --------------------------------------------------------------------- */

struct writer {
	struct weak *w;
	int me;
	int epoch;
	int streamed_in;      /* chunks of the operations before, by the pair stream */
	int sent;             /* by either */
	int held[CHUNKS_MAX]; /* what its buffer holds when the operation begins */
};

static bool drops(const struct writer *w, enum rule rule)
{
	return w->w->dropped == (int)rule;
}

static int slot_of(const struct writer *w, int k, int rank)
{
	const int c = (drops(w, COUNTED_ANEW) ? 0 : w->streamed_in) + k;
	const int ring = drops(w, RINGS_STAY) ? rank : (c / SLOTS + rank) % 2;

	return SLOT + ring * SLOTS + c % SLOTS;
}

/* No two chunks are alike. */
static int chunk_of(const struct writer *w, int k, int rank)
{
	return (w->sent + k + 1) * RANKS + rank;
}

static int steps_of(const struct writer *w, int sent)
{
	return (drops(w, STEPS_WITHOUT_TURN) ? 0 : w->epoch * STEP_RANGE) + sent;
}

static int buffer_of(int rank, int k)
{
	return BUFFER + rank * CHUNKS_MAX + k;
}

static void send(struct writer *w, int k)
{
	weak_emit(w->w, w->me, WEAK_LOAD, buffer_of(w->me, k), w->held[k]);
	weak_emit(w->w, w->me, WEAK_STORE, slot_of(w, k, w->me), chunk_of(w, k, w->me));
	weak_emit(w->w, w->me, WEAK_STORE, STEPS + w->me, steps_of(w, k + 1))->release = !drops(w, STEPS_BEFORE_CHUNK);
}

static void take(struct writer *w, int k)
{
	weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, STEPS + !w->me, steps_of(w, k + 1))->acquire =
	        !drops(w, CHUNK_BEFORE_STEPS);
	weak_emit(w->w, w->me, WEAK_LOAD, slot_of(w, k, !w->me), chunk_of(w, k, !w->me));
	weak_emit(w->w, w->me, WEAK_STORE, buffer_of(w->me, k), w->epoch);
}

/* Chunks that are sent before one is taken. Shapes: each rank is as eager, or as late, as can be. */
static int ahead_of(const struct writer *w)
{
	if (drops(w, STORED_UNSENT) && w->me == 1)
		return 0;
	return 1 + (w->me == 0 ? w->w->shape / SLOTS : w->w->shape % SLOTS) + drops(w, ONE_TOO_FAR);
}

static void stream(struct writer *w, int chunks)
{
	const int ahead = ahead_of(w);
	int sent = 0;

	for (int k = 0; k < chunks; k++) {
		while (sent < chunks && sent < k + ahead)
			send(w, sent++);
		take(w, k);
	}
	while (sent < chunks)
		send(w, sent++);
	w->streamed_in += chunks;
}

/* ---- Halves: of chunks 2k and 2k + 1 each rank joins one, and sends and takes the other ---- */

static int half_slot_of(const struct writer *w, int k, int rank)
{
	return (drops(w, RINGS_SHARED) ? SLOT : HALF_SLOT) + rank * SLOTS + k % SLOTS;
}

static void take_half(struct writer *w, int k)
{
	const int c = 2 * k + !w->me;

	weak_emit(w->w, w->me, WEAK_LOAD, half_slot_of(w, k, w->me), chunk_of(w, c, !w->me));
	weak_emit(w->w, w->me, WEAK_STORE, buffer_of(w->me, c), w->epoch);
}

static void join_half(struct writer *w, int k)
{
	const int c = 2 * k + w->me;

	weak_emit(w->w, w->me, WEAK_LOAD, half_slot_of(w, k, !w->me), chunk_of(w, c, !w->me));
	weak_emit(w->w, w->me, WEAK_LOAD, buffer_of(w->me, c), w->held[c]);
	weak_emit(w->w, w->me, WEAK_STORE, half_slot_of(w, k, !w->me), chunk_of(w, c, w->me));
	weak_emit(w->w, w->me, WEAK_STORE, buffer_of(w->me, c), w->epoch);
}

static void send_half(struct writer *w, int k)
{
	const int c = 2 * k + !w->me;

	weak_emit(w->w, w->me, WEAK_LOAD, buffer_of(w->me, c), w->held[c]);
	weak_emit(w->w, w->me, WEAK_STORE, half_slot_of(w, k, w->me), chunk_of(w, c, w->me));
}

static void step_of_halves(struct writer *w, int k, int pairs)
{
	const int taken = k - 2 * HALVES_AHEAD, joined = k - HALVES_AHEAD;
	const bool first = drops(w, SENT_UNTAKEN) && k < pairs;

	if (joined - drops(w, STEP_TOO_SOON) >= 0)
		weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, STEPS + !w->me,
		          steps_of(w, joined + 1 - drops(w, STEP_TOO_SOON)))
		        ->acquire = !drops(w, HALF_BEFORE_STEPS);
	if (first)
		send_half(w, k);
	if (taken >= 0)
		take_half(w, taken);
	if (joined >= 0 && joined < pairs)
		join_half(w, joined);
	if (k < pairs && !first)
		send_half(w, k);
	if (k < pairs + HALVES_AHEAD)
		weak_emit(w->w, w->me, WEAK_STORE, STEPS + w->me, steps_of(w, k + 1))->release =
		        !drops(w, STEPS_BEFORE_HALF);
}

static void operation(struct writer *w, int kind)
{
	const int chunks = kinds_of[kind].chunks, pairs = chunks / 2;

	w->epoch++;
	if (!kinds_of[kind].halves)
		stream(w, chunks);
	for (int k = 0; kinds_of[kind].halves && k < pairs + 2 * HALVES_AHEAD; k++)
		step_of_halves(w, k, pairs);
	for (int k = 0; k < chunks; k++)
		w->held[k] = w->epoch;
	w->sent += chunks;
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	weak_begin(weak, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {.w = weak, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, kinds[i]);
	}
	return true;
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {3, 3, 3, 3},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .must_see_wrong = true,
                                      .capacity = 1 << 16};
