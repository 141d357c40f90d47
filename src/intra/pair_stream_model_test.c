/*
 * The slots of pair_stream.c, of both schedules, explored: two ranks, a few operations of some chunks each behind each
 * other, every interleaving of their memory operations, on a memory as weak as Arm's (weak_model_test.h). The real
 * rings have four slots; here they have two, so that each is used again soon; of halves there are three, with those
 * that a rank fills while the other does not run (ahead.h). Operations are in place: what is sent is what the operation
 * before has put there. How far a rank sends ahead of what it takes depends on the other: each of the two takes as soon
 * as it can, or as late as it may. What is read before the first chunk is epoch_model_test.c's.
 *
 * Required: chunk c is taken as it was sent, whatever its slot held before, and nobody waits for ever. Every rule is
 * dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { RANKS = 2, SLOTS = 2, HALF_SLOTS = 3, IN_STEP = 2, CHUNKS_MAX = 6, STEP_RANGE = 8 };
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
	JOINED_TOO_SOON,    /* halves: a chunk is joined when the one before has been sent */
	TAKEN_TOO_SOON,     /* halves: a chunk is taken when the one before has been joined */
	RINGS_SHARED,       /* halves: in the slots of the pair stream */
	STEPS_BEFORE_HALF,  /* halves: the count of what was sent is stored without release */
	HALF_BEFORE_STEPS,  /* and awaited without acquire */
	JOINED_BEFORE_SUM,  /* halves: the count of what was joined is stored without release */
	SUM_BEFORE_JOINED,  /* and awaited without acquire */
	ENTRY_AFTER_STEPS,  /* halves: the number of a slot is written behind the count */
	ENTRY_TOO_SOON,     /* halves: and is read before it */
	RULES
};
static const char *const rule_names[RULES] = {
        "none dropped",      "steps before chunk", "chunk before steps", "steps without turn", "rings stay",
        "counted anew",      "one too far",        "stored unsent",      "sent untaken",       "joined too soon",
        "taken too soon",    "rings shared",       "steps before half",  "half before steps",  "joined before sum",
        "sum before joined", "entry after steps",  "entry too soon"};

/* Words: the slots of both rings, and of halves; which slot has which chunk; what each rank has sent, and joined; its
 * buffer, a word for each chunk. */
enum {
	SLOT,
	HALF_SLOT = SLOT + 2 * SLOTS,
	ENTRY = HALF_SLOT + RANKS * HALF_SLOTS,
	STEPS = ENTRY + RANKS * HALF_SLOTS,
	JOINED = STEPS + RANKS,
	BUFFER = JOINED + RANKS,
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

/* A rank's part in one call: which slots it has given to its chunks so far, as it sends and takes them. */
struct halves {
	int of[CHUNKS_MAX / 2];
	bool used[HALF_SLOTS];
	int sent, joined, taken, pairs;
};

/* What the other rank gives to its chunks follows from its own order. */
static void plan_halves(const struct writer *w, int rank, int pairs, int *of);

static int half_slot(const struct writer *w, int slot, int rank)
{
	return drops(w, RINGS_SHARED) ? SLOT + rank * SLOTS + slot % SLOTS : HALF_SLOT + rank * HALF_SLOTS + slot;
}

static int entry_of(int rank, int k)
{
	return ENTRY + rank * HALF_SLOTS + k % HALF_SLOTS;
}

static void take_half(struct writer *w, struct halves *h)
{
	const int k = h->taken, c = 2 * k + !w->me, early = drops(w, TAKEN_TOO_SOON);

	weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, JOINED + !w->me, steps_of(w, k + 1 - early))->acquire =
	        !drops(w, SUM_BEFORE_JOINED);
	weak_emit(w->w, w->me, WEAK_LOAD, half_slot(w, h->of[k], w->me), chunk_of(w, c, !w->me));
	weak_emit(w->w, w->me, WEAK_STORE, buffer_of(w->me, c), w->epoch);
	h->used[h->of[k]] = false;
	h->taken++;
}

static void join_half(struct writer *w, struct halves *h, const int *theirs)
{
	const int k = h->joined, c = 2 * k + w->me, slot = half_slot(w, theirs[k], !w->me);

	if (drops(w, ENTRY_TOO_SOON))
		weak_emit(w->w, w->me, WEAK_LOAD, entry_of(!w->me, k), theirs[k] + 1);
	weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, STEPS + !w->me, steps_of(w, k + 1 - drops(w, JOINED_TOO_SOON)))
	        ->acquire = !drops(w, HALF_BEFORE_STEPS);
	if (!drops(w, ENTRY_TOO_SOON))
		weak_emit(w->w, w->me, WEAK_LOAD, entry_of(!w->me, k), theirs[k] + 1);
	weak_emit(w->w, w->me, WEAK_LOAD, slot, chunk_of(w, c, !w->me));
	weak_emit(w->w, w->me, WEAK_LOAD, buffer_of(w->me, c), w->held[c]);
	weak_emit(w->w, w->me, WEAK_STORE, slot, chunk_of(w, c, w->me));
	weak_emit(w->w, w->me, WEAK_STORE, buffer_of(w->me, c), w->epoch);
	weak_emit(w->w, w->me, WEAK_STORE, JOINED + w->me, steps_of(w, k + 1))->release = !drops(w, JOINED_BEFORE_SUM);
	h->joined++;
}

static int first_free(const struct halves *h)
{
	int slot = 0;

	while (h->used[slot])
		slot++;
	return slot;
}

static void send_half(struct writer *w, struct halves *h)
{
	const int k = h->sent, c = 2 * k + !w->me, slot = first_free(h);

	h->of[k] = slot;
	h->used[slot] = true;
	weak_emit(w->w, w->me, WEAK_LOAD, buffer_of(w->me, c), w->held[c]);
	weak_emit(w->w, w->me, WEAK_STORE, half_slot(w, slot, w->me), chunk_of(w, c, w->me));
	if (!drops(w, ENTRY_AFTER_STEPS))
		weak_emit(w->w, w->me, WEAK_STORE, entry_of(w->me, k), slot + 1);
	weak_emit(w->w, w->me, WEAK_STORE, STEPS + w->me, steps_of(w, k + 1))->release = !drops(w, STEPS_BEFORE_HALF);
	if (drops(w, ENTRY_AFTER_STEPS))
		weak_emit(w->w, w->me, WEAK_STORE, entry_of(w->me, k), slot + 1);
	h->sent++;
}

/* Pairs of this rank that are under way at most: in step, or while the other does not run. */
static int under_way(const struct writer *w, int rank)
{
	return (rank == 0 ? w->w->shape / SLOTS : w->w->shape % SLOTS) ? HALF_SLOTS : IN_STEP;
}

/* One turn: takes and joins, then sends, where the schedule of the rank has it so. */
enum { TAKES = 1, JOINS = 2, SENDS = 4 };
static int turn_of(const struct writer *w, int rank, const struct halves *h)
{
	const int most = under_way(w, rank);
	const bool full = h->sent == h->pairs || h->sent - h->taken == most;
	int turn = 0;

	if (h->joined < h->pairs && (full || h->joined + IN_STEP / 2 <= h->sent) && most == IN_STEP)
		turn |= JOINS;
	if (h->joined < h->pairs && full && most > IN_STEP)
		turn |= JOINS;
	if (full && h->taken < h->sent)
		turn |= TAKES;
	if (h->sent < h->pairs && h->sent - h->taken - (turn & TAKES) < most)
		turn |= SENDS;
	return turn;
}

static void halves(struct writer *w, int pairs)
{
	struct halves h = {.pairs = pairs};
	int theirs[CHUNKS_MAX / 2];

	plan_halves(w, !w->me, pairs, theirs);
	while (h.taken < pairs || h.joined < pairs) {
		const int turn = turn_of(w, w->me, &h);
		const bool first = drops(w, SENT_UNTAKEN) && turn & SENDS && turn & TAKES;

		/* The other joins first what it takes last: who takes in front of that would wait for itself. */
		if (turn & JOINS)
			join_half(w, &h, theirs);
		if (first) {
			h.used[h.of[h.taken]] = false;
			send_half(w, &h);
		}
		if (turn & TAKES)
			take_half(w, &h);
		if (turn & SENDS && !first)
			send_half(w, &h);
	}
}

static void plan_halves(const struct writer *w, int rank, int pairs, int *of)
{
	struct halves h = {.pairs = pairs};

	while (h.taken < pairs || h.joined < pairs) {
		const int turn = turn_of(w, rank, &h);

		h.joined += (turn & JOINS) != 0;
		if (turn & TAKES)
			h.used[h.of[h.taken++]] = false;
		if (turn & SENDS) {
			h.of[h.sent] = of[h.sent] = first_free(&h);
			h.used[h.of[h.sent++]] = true;
		}
	}
}

static void operation(struct writer *w, int kind)
{
	const int chunks = kinds_of[kind].chunks, pairs = chunks / 2;

	w->epoch++;
	if (!kinds_of[kind].halves)
		stream(w, chunks);
	if (kinds_of[kind].halves)
		halves(w, pairs);
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
