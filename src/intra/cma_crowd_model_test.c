/*
 * What three ranks agree on in cma.c, explored: each reads the others' blocks where they lie, as soon as the line of
 * each has come, and then all of them may have to go by tiles. Every interleaving of their memory operations, on a
 * memory as weak as Arm's (weak_model_test.h). The kernel's reading is a load; tiles are one a call, and
 * cico_model_test.c has more of them. Calls after one that could not be read, and those that fail: cma_model_test.c.
 *
 * Required: what is read is what its owner gave to this call, unless it is thrown away, and nobody waits for ever: so
 * all go the same way.
 *
 * Every rule is dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { RANKS = 3, AREAS = 2 };

/* By tiles from the beginning; read by all; the results of rank 2 come where its input lies; rank 0 cannot read. */
enum { TILES, PULLED, IN_PLACE, REFUSED, KINDS };
enum { HAS_RESULT = 2, CANNOT = 0 };

enum rule {
	NO_RULE,
	OFFER_BEFORE_BLOCK, /* an offer is stored without release */
	BLOCK_BEFORE_OFFER, /* and awaited without acquire */
	TAKEN_BEFORE_READ,  /* that the blocks were read is stored without release */
	STEP_BEFORE_READ,   /* a step of tiles is stored without release */
	RETURNS_AT_ONCE,    /* a rank does not wait until its own block has been read */
	ASKS_ONE,           /* it waits until the next rank has read it */
	RESULTS_ARE_READ,   /* all read, though the results of one come where its input lies */
	CONCLUDES_ALONE,    /* a rank that could read is content, whatever the others say */
	RULES
};
static const char *const rule_names[RULES] = {"none dropped",      "offer before block", "block before offer",
                                              "taken before read", "step before read",   "returns at once",
                                              "asks one",          "results are read",   "concludes alone"};

/* Words: blocks; offers, and what was taken; areas of tiles, and steps. */
enum {
	BLOCK,
	OFFER = BLOCK + RANKS,
	TAKEN = OFFER + RANKS,
	AREA = TAKEN + RANKS,
	STEPS = AREA + RANKS * AREAS,
	WORDS = STEPS + RANKS
};
static_assert((int)WORDS <= WEAK_WORDS, "the words of all ranks");

struct writer {
	struct weak *w;
	enum rule dropped;
	int me;
	int epoch;
	int tiles; /* so far */
};

static struct weak_code *emit(struct writer *w, enum weak_op op, int word, int value)
{
	return weak_emit(w->w, w->me, op, word, value);
}

static int nth(const struct writer *w, int k)
{
	return (w->me + k) % RANKS;
}

/* No two blocks are alike; results are nobody's block. */
static int block_of(const struct writer *w, int rank)
{
	return w->epoch * (RANKS + 1) + rank;
}

static void by_tiles(struct writer *w, int kind)
{
	const int area = w->tiles++ % AREAS;

	emit(w, WEAK_LOAD, BLOCK + w->me, block_of(w, w->me));
	emit(w, WEAK_STORE, AREA + w->me * AREAS + area, block_of(w, w->me));
	emit(w, WEAK_STORE, STEPS + w->me, w->epoch)->release = w->dropped != STEP_BEFORE_READ;
	for (int k = 1; k < RANKS; k++)
		emit(w, WEAK_AWAIT_REACHED, STEPS + nth(w, k), w->epoch)->acquire = true;
	for (int k = 1; k < RANKS; k++)
		emit(w, WEAK_LOAD, AREA + nth(w, k) * AREAS + area, block_of(w, nth(w, k)));
	if (kind == IN_PLACE && w->me == HAS_RESULT)
		emit(w, WEAK_STORE, BLOCK + w->me, block_of(w, RANKS));
}

/* Offers, and blocks as they come: until one says that it must not be. */
static void read_blocks(struct writer *w, int kind)
{
	const bool overwrites = kind == IN_PLACE && w->dropped == RESULTS_ARE_READ && w->me == HAS_RESULT;
	bool apart = kind != IN_PLACE || w->me != HAS_RESULT || overwrites;

	emit(w, WEAK_STORE, OFFER + w->me, w->epoch)->release = w->dropped != OFFER_BEFORE_BLOCK;
	for (int k = 1; k < RANKS; k++) {
		const int from = nth(w, k);

		emit(w, WEAK_AWAIT_EQUAL, OFFER + from, w->epoch)->acquire = w->dropped != BLOCK_BEFORE_OFFER;
		if (kind == IN_PLACE && from == HAS_RESULT && w->dropped != RESULTS_ARE_READ)
			apart = false;
		if (apart && (kind != REFUSED || w->me != CANNOT))
			emit(w, WEAK_LOAD, BLOCK + from, block_of(w, from));
	}
	if (overwrites)
		emit(w, WEAK_STORE, BLOCK + w->me, block_of(w, RANKS));
}

/* Of a line that says whether the blocks were read: the turn, and which. */
static int taken_word(const struct writer *w, int kind, int rank)
{
	return w->epoch * 2 + (kind == REFUSED && rank == CANNOT);
}

/* Whether all could read, as this rank concludes. */
static bool all_taken(struct writer *w, int kind)
{
	const int ask = w->dropped == RETURNS_AT_ONCE ? 0 : w->dropped == ASKS_ONE ? 1 : RANKS - 1;

	emit(w, WEAK_STORE, TAKEN + w->me, taken_word(w, kind, w->me))->release = w->dropped != TAKEN_BEFORE_READ;
	for (int k = 1; k <= ask; k++)
		emit(w, WEAK_AWAIT_EQUAL, TAKEN + nth(w, k), taken_word(w, kind, nth(w, k)))->acquire = true;
	return kind != REFUSED || (w->dropped == CONCLUDES_ALONE && w->me != CANNOT);
}

static void operation(struct writer *w, int kind)
{
	const bool apart = kind != IN_PLACE || w->dropped == RESULTS_ARE_READ;

	w->epoch++;
	emit(w, WEAK_STORE, BLOCK + w->me, block_of(w, w->me)); /* by the caller */
	if (kind != TILES)
		read_blocks(w, kind);
	if (kind == TILES || !apart || !all_taken(w, kind))
		by_tiles(w, kind);
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	weak_begin(weak, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {.w = weak, .dropped = (enum rule)weak->dropped, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, kinds[i]);
	}
	return true;
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {2},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .capacity = 1 << 20};
