/*
 * The turns of the central buffer (central.h), explored: three ranks in two groups, a few operations of all shapes
 * behind each other, every interleaving of their memory operations, on a memory as weak as Arm's (weak_model_test.h).
 * Whoever is the last to add to a count goes on to work for the others. The real AHEAD is 4 and DEPTH 8; here they are
 * 1 and 2, so that everything is used again soon.
 *
 * Required: a reader of turn t finds what turn t has put there, and nobody waits for ever. Every rule is
 * dropped once, and then one of these must break.
 */
#include <assert.h>

#define PLAIN_OWN_MAIN
#include "intra/weak_model_test.h"
#include "tests/plain.h"

enum { RANKS = WEAK_RANKS, GROUPS = 2, AHEAD = 1, DEPTH = 2 * AHEAD };

/* Shapes of operations: everybody reads a result (all_reduce); everybody reads all cells (all_gather); a
 * root's cell (broadcast); a root reads the result (reduce). */
enum kind { REDUCE_ALL, GATHER_ALL, FROM_0, FROM_2, TO_0, KINDS };

enum rule {
	NO_RULE,
	NO_WAIT_TO_ENTER,  /* a rank enters without looking whether turn - AHEAD is done */
	LATE_WAIT,         /* it looks at turn - AHEAD - 1 */
	READS_LATER,       /* it enters a turn before it has read what it will of turn - AHEAD */
	CELL_AFTER_COUNT,  /* the count does not wait for the cell */
	COUNT_NO_ACQUIRE,  /* and who completes it reads before */
	DONE_NO_RELEASE,   /* done is stored without release */
	DONE_NO_ACQUIRE,   /* and looked at without acquire */
	NO_RESET,          /* a count is not set to 0 */
	ROOT_LINE_RELAXED, /* the root's line says too early that its cell is full */
	RULES
};
static const char *const rule_names[RULES] = {
        "none dropped",          "no wait to enter", "late wait",        "reads later", "cell after count",
        "count without acquire", "done, no release", "done, no acquire", "no reset",    "root line relaxed"};

/* Words of one turn's set. */
enum {
	LINE,
	CELL = LINE + RANKS,
	COUNT = CELL + RANKS,
	PARTIAL = COUNT + GROUPS,
	ALL = PARTIAL + GROUPS,
	RESULT,
	DONE,
	SET
};
static_assert(DEPTH * SET <= WEAK_WORDS, "the words of all sets");

/* ---- The ranks' programs --------------------------------------------------------------------- */

static const int group_of[RANKS] = {0, 0, 1}, size_of[GROUPS] = {2, 1};

struct writer {
	struct weak *w;
	int me;
};

static bool drops(const struct writer *w, enum rule rule)
{
	return w->w->dropped == (int)rule;
}

static struct weak_code *emit(struct writer *w, enum weak_op op, int epoch, int word, int value)
{
	return weak_emit(w->w, w->me, op, epoch % DEPTH * SET + word, value);
}

static bool writes(enum kind kind, int rank)
{
	return kind == FROM_0 ? rank == 0 : kind == FROM_2 ? rank == 2 : true;
}

static bool reduces(enum kind kind)
{
	return kind == REDUCE_ALL || kind == TO_0;
}

static void await_done(struct writer *w, int epoch)
{
	emit(w, WEAK_AWAIT_REACHED, epoch, DONE, epoch)->acquire = !drops(w, DONE_NO_ACQUIRE);
}

/* Adding to a count; what follows until close() is for who completes it. */
static int open_count(struct writer *w, int epoch, int word, int ranks, int complete)
{
	struct weak_code *c = emit(w, WEAK_ADD, epoch, word, ranks);

	c->complete = (uint8_t)complete;
	c->release = true;
	c->acquire = !drops(w, COUNT_NO_ACQUIRE);
	return w->w->length[w->me] - 1;
}
static void close_count(struct writer *w, int at)
{
	w->w->code[w->me][at].skip = (uint8_t)(w->w->length[w->me] - 1 - at);
}

static void arrive(struct writer *w, enum kind kind, int epoch)
{
	const int group = group_of[w->me];
	int in_group, in_all;

	emit(w, WEAK_STORE, epoch, LINE + w->me, epoch)->release = !drops(w, ROOT_LINE_RELAXED);
	in_group = open_count(w, epoch, COUNT + group, 1, size_of[group]);
	if (!drops(w, NO_RESET))
		emit(w, WEAK_STORE, epoch, COUNT + group, 0);
	for (int r = 0; reduces(kind) && r < RANKS; r++)
		if (group_of[r] == group)
			emit(w, WEAK_LOAD, epoch, CELL + r, epoch);
	if (reduces(kind))
		emit(w, WEAK_STORE, epoch, PARTIAL + group, epoch);
	in_all = open_count(w, epoch, ALL, size_of[group], RANKS);
	if (!drops(w, NO_RESET))
		emit(w, WEAK_STORE, epoch, ALL, 0);
	for (int g = 0; reduces(kind) && g < GROUPS; g++)
		emit(w, WEAK_LOAD, epoch, PARTIAL + g, epoch);
	if (reduces(kind))
		emit(w, WEAK_STORE, epoch, RESULT, epoch);
	emit(w, WEAK_STORE, epoch, DONE, epoch)->release = !drops(w, DONE_NO_RELEASE);
	close_count(w, in_all);
	close_count(w, in_group);
}

static void read_all(struct writer *w, enum kind kind, int epoch)
{
	const int root = kind == FROM_2 ? 2 : 0;

	if (kind == FROM_0 || kind == FROM_2) {
		if (w->me == root)
			return;
		emit(w, WEAK_AWAIT_REACHED, epoch, LINE + root, epoch)->acquire = true;
		emit(w, WEAK_LOAD, epoch, CELL + root, epoch);
		return;
	}
	if (kind == TO_0 && w->me != 0)
		return;
	await_done(w, epoch);
	if (reduces(kind))
		emit(w, WEAK_LOAD, epoch, RESULT, epoch);
	for (int r = 0; !reduces(kind) && r < RANKS; r++)
		if (r != w->me)
			emit(w, WEAK_LOAD, epoch, CELL + r, epoch);
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	weak_begin(weak, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {weak, r};

		for (int epoch = 1; epoch <= count; epoch++) {
			const enum kind kind = (enum kind)kinds[epoch - 1];

			if (drops(&w, READS_LATER) && epoch > AHEAD + 1)
				read_all(&w, (enum kind)kinds[epoch - 3], epoch - 2);
			if (!drops(&w, NO_WAIT_TO_ENTER) && epoch - AHEAD - drops(&w, LATE_WAIT) > 0)
				await_done(&w, epoch - AHEAD - drops(&w, LATE_WAIT));
			if (writes(kind, r) && !drops(&w, CELL_AFTER_COUNT))
				emit(&w, WEAK_STORE, epoch, CELL + r, epoch);
			arrive(&w, kind, epoch);
			if (writes(kind, r) && drops(&w, CELL_AFTER_COUNT))
				emit(&w, WEAK_STORE, epoch, CELL + r, epoch);
			if (!drops(&w, READS_LATER))
				read_all(&w, kind, epoch);
		}
	}
	return true;
}

/* Longer ones, of the kinds in which nobody, or only a root, looks at the turn. */
static void long_sequences_hold(struct weak *weak)
{
	const int sequences[][5] = {{REDUCE_ALL, TO_0, FROM_2, FROM_2, FROM_2},
	                            {FROM_0, FROM_0, FROM_2, FROM_0, GATHER_ALL},
	                            {TO_0, TO_0, FROM_0, TO_0, TO_0},
	                            {GATHER_ALL, FROM_2, REDUCE_ALL, TO_0, FROM_0}};

	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++) {
		write_programs(weak, sequences[i], 5);
		CHECK(weak_holds(weak), "sequence %zu: wrong %d, stuck %d, too many %d", i, weak->wrong, weak->stuck,
		      weak->small);
	}
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {3},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .capacity = 1 << 18,
                                      .more = long_sequences_hold,
                                      .more_name = "long_sequences_hold"};
