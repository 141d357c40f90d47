/*
 * The areas of cico.c, explored: two or three ranks, a few operations of some tiles each behind each other, every
 * interleaving of their memory operations, on a memory as weak as Arm's (weak_model_test.h). An area is a word here, of
 * which each other rank reads its part. What is read before the first step is epoch_model_test.c's.
 *
 * Required: each tile is read as it was written, whatever its area held before, and nobody waits for ever. Every rule
 * is dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { AREAS = 2, STEP_RANGE = 8 };

/* An operation of each kind; no tiles: it is another one, which only takes a turn. */
static const struct kind {
	int tiles;
	bool reduces;
} kinds[] = {{0, false}, {1, false}, {2, false}, {1, true}, {2, true}, {3, false}, {3, true}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

enum rule {
	NO_RULE,
	STEPS_BEFORE_BYTES, /* steps are stored without release */
	BYTES_BEFORE_STEPS, /* and awaited without acquire */
	STEPS_WITHOUT_TURN, /* steps count this operation's alone */
	COUNTED_ANEW,       /* areas for results are counted from 0 in each operation */
	ONE_AREA,           /* every tile has the same */
	ONE_STEP_EARLY,     /* a step begins when all have made the one before the last */
	STAGED_AS_RESULTS,  /* results lie where inputs were staged */
	RULES
};
static const char *const rule_names[RULES] = {"none dropped",       "steps before bytes", "bytes before steps",
                                              "steps without turn", "counted anew",       "one area",
                                              "one step early",     "staged as results"};

/* Words: of each rank its areas, for inputs and for results, and how many steps it has made. */
enum { STAGE = 0, RESULT = AREAS, STEPS = 2 * AREAS, OF_A_RANK = STEPS + 1 };
static_assert((int)OF_A_RANK * WEAK_RANKS <= WEAK_WORDS, "the words of all ranks");

struct writer {
	struct weak *w;
	int me;
	int epoch;
	int tiles; /* of the operations before */
};

static bool drops(const struct writer *w, enum rule rule)
{
	return w->w->dropped == (int)rule;
}

/* ---- The ranks' programs --------------------------------------------------------------------- */

static int area(const struct writer *w, int rank, int first, int k)
{
	const int before = first == STAGE || drops(w, COUNTED_ANEW) ? 0 : w->tiles;

	if (drops(w, STAGED_AS_RESULTS))
		first = STAGE;
	return rank * OF_A_RANK + first + (drops(w, ONE_AREA) ? 0 : (before + k) % AREAS);
}

/* No two are alike. */
static int content(const struct writer *w, int rank, int first, int k)
{
	return ((w->tiles + k + 1) * 2 + (first == RESULT)) * WEAK_RANKS + rank;
}

static void put(struct writer *w, int first, int k)
{
	weak_emit(w->w, w->me, WEAK_STORE, area(w, w->me, first, k), content(w, w->me, first, k));
}

static void look(struct writer *w, int first, int k)
{
	for (int r = 0; r < w->w->ranks; r++)
		if (r != w->me)
			weak_emit(w->w, w->me, WEAK_LOAD, area(w, r, first, k), content(w, r, first, k));
}

static int steps_word(const struct writer *w, int made)
{
	return (drops(w, STEPS_WITHOUT_TURN) ? 0 : w->epoch * STEP_RANGE) + made;
}

static void await(struct writer *w, int made)
{
	for (int r = 0; r < w->w->ranks; r++)
		if (r != w->me)
			weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, r * OF_A_RANK + STEPS, steps_word(w, made))
			        ->acquire = !drops(w, BYTES_BEFORE_STEPS);
}

/* What is put and looked at in step k of an operation of so many tiles. */
static void move(struct writer *w, const struct kind *kind, int k)
{
	const int behind = kind->reduces ? 2 : 1;

	if (k >= behind)
		look(w, RESULT, k - behind);
	if (kind->reduces && k >= 1 && k - 1 < kind->tiles) {
		look(w, STAGE, k - 1);
		put(w, RESULT, k - 1);
	}
	if (k < kind->tiles)
		put(w, kind->reduces ? STAGE : RESULT, k);
}

static void operation(struct writer *w, const struct kind *kind)
{
	const int steps = kind->tiles == 0 ? 0 : kind->tiles + (kind->reduces ? 2 : 1);

	w->epoch++;
	for (int k = 0; k < steps; k++) {
		if (k > 0)
			await(w, k - (drops(w, ONE_STEP_EARLY) && k > 1));
		move(w, kind, k);
		if (k + 1 < steps)
			weak_emit(w->w, w->me, WEAK_STORE, w->me * OF_A_RANK + STEPS, steps_word(w, k + 1))->release =
			        !drops(w, STEPS_BEFORE_BYTES);
	}
	w->tiles += kind->tiles;
}

static bool write_programs(struct weak *weak, const int *sequence, int count)
{
	weak_begin(weak, 2 + weak->shape);
	for (int r = 0; r < weak->ranks; r++) {
		struct writer w = {.w = weak, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, &kinds[sequence[i]]);
	}
	return true;
}

/* Two ranks, and three. */
const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {3, 2},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .must_see_wrong = true,
                                      .capacity = 1 << 20};
