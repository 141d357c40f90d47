/*
 * What two ranks agree on in cma.c, explored (three: cma_crowd_model_test.c): blocks that the kernel reads where they
 * lie, in calls of which some cannot be read by one rank or the other, behind each other; every interleaving of their
 * memory operations, on a memory as weak as Arm's (weak_model_test.h). The kernel's reading is a load. An entry is used
 * again after two turns, not eight. Slots are one for each direction, that change hands; pair_stream_model_test.c has
 * more of them.
 *
 * Required: what is read is what its owner gave to this call, and nobody waits for ever: so both go the same way. Then,
 * of a call whose owner fails while the other reads: what was there afterwards is not taken for the block.
 *
 * Every rule is dropped once, and then one of these must break.
 */
#include <assert.h>

#define PLAIN_OWN_MAIN
#include "intra/weak_model_test.h"
#include "tests/plain.h"

enum { RANKS = 2, DEPTH = 2 };

/* By slots from the beginning; read by both; rank 0 cannot, rank 1 cannot. After the latter one call goes by slots. */
enum { SLOTS, PULLED, REFUSED_0, REFUSED_1, KINDS };

enum rule {
	NO_RULE,
	OFFER_BEFORE_BLOCK, /* an offer is stored without release */
	BLOCK_BEFORE_OFFER, /* and awaited without acquire */
	TAKEN_BEFORE_READ,  /* that the block was read is stored without release */
	RETURNS_AT_ONCE,    /* a rank does not wait until its own block has been read */
	OFFERS_UNNUMBERED,  /* an earlier call's offer is taken for this one's */
	CONCLUDES_ALONE,    /* a rank that could read is content, whatever the other says */
	PAUSES_ALONE,       /* only the rank that could not read goes by slots in the next call */
	RULES
};
static const char *const rule_names[RULES] = {"none dropped",      "offer before block", "block before offer",
                                              "taken before read", "returns at once",    "offers unnumbered",
                                              "concludes alone",   "pauses alone"};

/* Words: blocks; offers, and what was taken, by entry; slots, and how many calls have filled them. */
enum {
	BLOCK,
	OFFER = BLOCK + RANKS,
	TAKEN = OFFER + RANKS * DEPTH,
	SLOT = TAKEN + RANKS * DEPTH,
	FILLED = SLOT + RANKS,
	WORDS = FILLED + RANKS
};
static_assert((int)WORDS <= WEAK_WORDS, "the words of both ranks");

struct writer {
	struct weak *w;
	int dropped;
	int me;
	int epoch;
	int exchanged; /* calls by slots so far */
	int pause;     /* calls to come that go by slots */
};

static struct weak_code *emit(struct writer *w, enum weak_op op, int word, int value)
{
	return weak_emit(w->w, w->me, op, word, value);
}

/* No two blocks are alike. */
static int block_of(const struct writer *w, int rank)
{
	return w->epoch * RANKS + rank;
}

static int line(const struct writer *w, int words, int rank)
{
	return words + rank * DEPTH + w->epoch % DEPTH;
}

static void by_slots(struct writer *w)
{
	const int mine = SLOT + (w->exchanged + w->me) % 2, theirs = SLOT + (w->exchanged + !w->me) % 2;

	w->exchanged++;
	emit(w, WEAK_LOAD, BLOCK + w->me, block_of(w, w->me));
	emit(w, WEAK_STORE, mine, block_of(w, w->me));
	emit(w, WEAK_STORE, FILLED + w->me, w->epoch)->release = true;
	emit(w, WEAK_AWAIT_REACHED, FILLED + !w->me, w->epoch)->acquire = true;
	emit(w, WEAK_LOAD, theirs, block_of(w, !w->me));
}

/* Of a line that says whether the block was read: the turn, and which. */
static int taken_word(const struct writer *w, bool good)
{
	return w->epoch * 2 + good;
}

/* False: it is to be done by slots. */
static bool by_reading(struct writer *w, int kind)
{
	const bool mine = kind != REFUSED_0 + w->me, theirs = kind != REFUSED_0 + !w->me;
	const int number = w->dropped == OFFERS_UNNUMBERED ? 1 : w->epoch;

	emit(w, WEAK_STORE, line(w, OFFER, w->me), number)->release = w->dropped != OFFER_BEFORE_BLOCK;
	emit(w, WEAK_AWAIT_EQUAL, line(w, OFFER, !w->me), number)->acquire = w->dropped != BLOCK_BEFORE_OFFER;
	if (mine)
		emit(w, WEAK_LOAD, BLOCK + !w->me, block_of(w, !w->me));
	emit(w, WEAK_STORE, line(w, TAKEN, w->me), taken_word(w, mine))->release = w->dropped != TAKEN_BEFORE_READ;
	if (w->dropped != RETURNS_AT_ONCE)
		emit(w, WEAK_AWAIT_EQUAL, line(w, TAKEN, !w->me), taken_word(w, theirs))->acquire = true;
	if (!(mine && theirs) && (w->dropped != PAUSES_ALONE || !mine))
		w->pause = 1;
	return mine && (theirs || w->dropped == CONCLUDES_ALONE);
}

static void operation(struct writer *w, int kind)
{
	w->epoch++;
	emit(w, WEAK_STORE, BLOCK + w->me, block_of(w, w->me)); /* by the caller */
	if (kind == SLOTS)
		by_slots(w);
	else if (w->pause > 0 && w->pause--)
		by_slots(w);
	else if (!by_reading(w, kind))
		by_slots(w);
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	weak_begin(weak, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {.w = weak, .dropped = weak->dropped, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, kinds[i]);
	}
	return true;
}

/* ---- A call that fails ---- */

enum failing { NO_FAILING, NO_SECOND_LOOK, LOOKED_BEFORE_READ, WRITTEN_BEFORE_REVOKED, FAILINGS };
static const char *const failing_names[FAILINGS] = {"none dropped", "no second look", "looked before read",
                                                    "written before revoked"};
enum { BUSY = WORDS, REVOKED, NEVER, FAILING_WORDS };
static_assert((int)FAILING_WORDS <= WEAK_WORDS, "theirs, too");

enum { GIVEN = 0, OTHER = 2 };

/* Rank 0 reads, and finds `found`; rank 1, whose block it is, fails at any moment. It waits until the other is not
 * busy, or, if that was stopped, does not. Stuck: rank 0 has come to its end, and takes what it found. */
static bool takes(struct weak *weak, enum failing dropped, int found, bool patient)
{
	struct weak_code *c;

	weak_begin(weak, RANKS);
	weak_emit(weak, 0, WEAK_STORE, BUSY, 1)->sequential = true;
	c = weak_emit(weak, 0, WEAK_ASSUME, REVOKED, 0);
	c->sequential = c->acquire = true;
	/* A fence behind it. */
	weak_emit(weak, 0, WEAK_ASSUME, BLOCK + 1, found)->acquire = dropped != LOOKED_BEFORE_READ;
	weak_emit(weak, 0, WEAK_STORE, BUSY, 0)->release = true;
	if (dropped != NO_SECOND_LOOK)
		weak_emit(weak, 0, WEAK_ASSUME, REVOKED, 0)->acquire = true;
	weak_emit(weak, 0, WEAK_AWAIT_EQUAL, NEVER, 1);

	c = weak_emit(weak, 1, WEAK_STORE, REVOKED, 1);
	c->sequential = c->release = true;
	c = weak_emit(weak, 1, patient ? WEAK_AWAIT_EQUAL : WEAK_LOOK, BUSY, 0);
	c->sequential = c->acquire = dropped != WRITTEN_BEFORE_REVOKED;
	weak_emit(weak, 1, WEAK_STORE, BLOCK + 1, OTHER);
	return !weak_holds(weak);
}

static void what_came_after_a_failure_is_not_taken(struct weak *weak)
{
	CHECK(takes(weak, NO_FAILING, GIVEN, true), "the block itself is taken");
	CHECK(!takes(weak, NO_FAILING, OTHER, true) && !takes(weak, NO_FAILING, OTHER, false));
	for (int rule = 1; rule < FAILINGS; rule++)
		CHECK(takes(weak, (enum failing)rule, OTHER, false) && weak->stuck, "%s", failing_names[rule]);
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {4},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .capacity = 1 << 16,
                                      .more = what_came_after_a_failure_is_not_taken,
                                      .more_name = "what_came_after_a_failure_is_not_taken"};
