/*
 * The tiles of cico.c, explored: two or three ranks, a few operations of some tiles each behind each other, every
 * interleaving of their memory operations, on a memory as weak as Arm's (weak_model_test.h). A slot is two words here,
 * what was staged and what was reduced, of which each other rank reads its part. A rank keeps step, with two slots, or
 * goes ahead of the others, with three. What is read before the first tile is epoch_model_test.c's.
 *
 * Required: each tile is read as it was written, whatever its slot held before, and nobody waits for ever. Every rule
 * is dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { SLOTS = 3, IN_STEP = 2, STEP_RANGE = 8 };

/* An operation of each kind; no tiles: it is another one. */
static const struct kind {
	int tiles;
	bool reduces;
} kinds[] = {{1, false}, {2, false}, {3, false}, {1, true}, {2, true}, {3, true}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Of each shape how many ranks there are, and which of them go ahead. */
static const struct shape {
	int ranks;
	bool ahead[WEAK_RANKS];
} shapes[WEAK_SHAPES] = {{2, {0}}, {3, {0, 1}}, {2, {1}}, {2, {1, 1}}};

enum rule {
	NO_RULE,
	STAGED_BEFORE_BYTES,   /* a count is stored without release */
	BYTES_BEFORE_STAGED,   /* and awaited without acquire */
	REDUCED_BEFORE_BYTES,  /* the same of what is reduced */
	BYTES_BEFORE_REDUCED,  /* */
	GATHERED_BEFORE_BYTES, /* and of what is gathered: the loads may come later */
	COUNTED_ANEW,          /* counts begin at 0 in each operation */
	ONE_SLOT,              /* every tile has the same */
	GIVEN_TOO_SOON,        /* a slot is free when all but one have gathered it */
	REDUCED_TOO_SOON,      /* a tile is reduced when all have staged the one before */
	GATHERED_TOO_SOON,     /* a tile is gathered when all have reduced the one before */
	STAGED_AS_RESULTS,     /* results lie where inputs were staged */
	ENTRY_AFTER_STAGED,    /* the number of a slot is written behind the count */
	RULES
};
static const char *const rule_names[RULES] = {
        "none dropped",         "staged before bytes",   "bytes before staged", "reduced before bytes",
        "bytes before reduced", "gathered before bytes", "counted anew",        "one slot",
        "given too soon",       "reduced too soon",      "gathered too soon",   "staged as results",
        "entry after staged"};

/* Words of each rank: what it has staged and reduced, in each slot, which slot has which tile, and its counts. */
enum { STAGE = 0, RESULT = SLOTS, ENTRY = 2 * SLOTS, STAGED = 3 * SLOTS, REDUCED, GATHERED, OF_A_RANK };
static_assert((int)OF_A_RANK * WEAK_RANKS <= WEAK_WORDS, "the words of all ranks");

/* Which slots a rank has given to its tiles, of all operations; it follows from its own order. */
enum { TILES_MAX = 16 };
struct slots {
	int of[TILES_MAX];
	bool used[SLOTS];
	int staged, reduced, gathered, given; /* tiles */
};

struct writer {
	struct weak *w;
	int me;
	int tiles; /* of the operations before */
	struct slots of[WEAK_RANKS];
};

static bool drops(const struct writer *w, enum rule rule)
{
	return w->w->dropped == (int)rule;
}

/* ---- The ranks' programs --------------------------------------------------------------------- */

static int word(int rank, int what)
{
	return rank * OF_A_RANK + what;
}

static int place(const struct writer *w, int rank, int first, int tile)
{
	if (drops(w, STAGED_AS_RESULTS))
		first = STAGE;
	return word(rank, first + (drops(w, ONE_SLOT) ? 0 : w->of[rank].of[tile]));
}

/* No two are alike. */
static int content(int rank, int first, int tile)
{
	return ((tile + 1) * 2 + (first == RESULT)) * WEAK_RANKS + rank;
}

static int count(const struct writer *w, int tiles)
{
	return drops(w, COUNTED_ANEW) ? tiles - w->tiles : tiles;
}

static void await(struct writer *w, int what, int tiles, bool acquire)
{
	for (int r = 0; r < w->w->ranks; r++)
		if (r != w->me)
			weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, word(r, what), tiles)->acquire = acquire;
}

static void look(struct writer *w, int first, int tile)
{
	for (int r = 0; r < w->w->ranks; r++) {
		if (r == w->me)
			continue;
		weak_emit(w->w, w->me, WEAK_LOAD, word(r, ENTRY + tile % SLOTS), w->of[r].of[tile] + 1);
		weak_emit(w->w, w->me, WEAK_LOAD, place(w, r, first, tile), content(r, first, tile));
	}
}

static void stage(struct writer *w, bool reduces, int tile)
{
	const int first = reduces ? STAGE : RESULT;
	const bool late = drops(w, ENTRY_AFTER_STAGED);

	weak_emit(w->w, w->me, WEAK_STORE, place(w, w->me, first, tile), content(w->me, first, tile));
	if (!late)
		weak_emit(w->w, w->me, WEAK_STORE, word(w->me, ENTRY + tile % SLOTS), w->of[w->me].of[tile] + 1);
	weak_emit(w->w, w->me, WEAK_STORE, word(w->me, STAGED), count(w, tile + 1))->release =
	        !drops(w, STAGED_BEFORE_BYTES);
	if (late)
		weak_emit(w->w, w->me, WEAK_STORE, word(w->me, ENTRY + tile % SLOTS), w->of[w->me].of[tile] + 1);
}

static void reduce(struct writer *w, int tile)
{
	await(w, STAGED, count(w, tile + 1 - drops(w, REDUCED_TOO_SOON)), !drops(w, BYTES_BEFORE_STAGED));
	look(w, STAGE, tile);
	weak_emit(w->w, w->me, WEAK_STORE, place(w, w->me, RESULT, tile), content(w->me, RESULT, tile));
	weak_emit(w->w, w->me, WEAK_STORE, word(w->me, REDUCED), count(w, tile + 1))->release =
	        !drops(w, REDUCED_BEFORE_BYTES);
}

static void gather(struct writer *w, bool reduces, int tile)
{
	const int reached = count(w, tile + 1 - drops(w, GATHERED_TOO_SOON));

	if (reduces)
		await(w, REDUCED, reached, !drops(w, BYTES_BEFORE_REDUCED));
	else
		await(w, STAGED, reached, !drops(w, BYTES_BEFORE_STAGED));
	look(w, RESULT, tile);
	weak_emit(w->w, w->me, WEAK_STORE, word(w->me, GATHERED), count(w, tile + 1))->release =
	        !drops(w, GATHERED_BEFORE_BYTES);
}

/* What a rank does next: as much as its slots allow, then what others wait for. */
enum action { STAGES, REDUCES, GATHERS, GIVES, ENDS };

static enum action next(struct slots *s, int rank, const struct shape *shape, bool reduces, int end)
{
	const int most = shape->ahead[rank] ? SLOTS : IN_STEP;

	if (s->staged < end && s->staged - s->given < most) {
		int slot = 0;

		while (s->used[slot])
			slot++;
		s->of[s->staged++] = slot;
		s->used[slot] = true;
		return STAGES;
	}
	/* One that keeps step stages no more before this one has gathered what it has. */
	if (reduces && s->reduced < s->staged && s->reduced - s->gathered < IN_STEP) {
		s->reduced++;
		return REDUCES;
	}
	if (s->gathered < s->staged) {
		s->gathered++;
		return GATHERS;
	}
	if (s->staged == end)
		return ENDS;
	s->used[s->of[s->given++]] = false;
	return GIVES;
}

static void operation(struct writer *w, const struct kind *kind)
{
	const struct shape *shape = &shapes[w->w->shape];
	const int end = w->tiles + kind->tiles;
	struct slots *mine = &w->of[w->me];
	enum action a;

	for (int r = 0; r < w->w->ranks; r++) {
		w->of[r].reduced = w->tiles;
		while (r != w->me && next(&w->of[r], r, shape, kind->reduces, end) != ENDS)
			;
	}
	while ((a = next(mine, w->me, shape, kind->reduces, end)) != ENDS)
		switch (a) {
		case STAGES: stage(w, kind->reduces, mine->staged - 1); break;
		case REDUCES: reduce(w, mine->reduced - 1); break;
		case GATHERS: gather(w, kind->reduces, mine->gathered - 1); break;
		default:
			/* A store to the slot does not come before what it waits for. */
			await(w, GATHERED, count(w, mine->given - drops(w, GIVEN_TOO_SOON)), false);
		}
	w->tiles = end;
}

static bool write_programs(struct weak *weak, const int *sequence, int operations)
{
	weak_begin(weak, shapes[weak->shape].ranks);
	for (int r = 0; r < weak->ranks; r++) {
		struct writer w = {.w = weak, .me = r};

		for (int i = 0; i < operations; i++)
			operation(&w, &kinds[sequence[i]]);
	}
	return true;
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {2, 2, 2, 2},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .must_see_wrong = true,
                                      .capacity = 1 << 20};
