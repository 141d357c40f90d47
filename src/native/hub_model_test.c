/*
 * The turns of the hub (hub.h), explored: three ranks in two groups, a few operations of all shapes behind each
 * other, interleavings of their memory operations, on a memory where what is not ordered may be
 * executed in another order.
 *
 * A rank's part is a program of steps over words of the area: stores, loads and waits, and additions to
 * counts, whose last one goes on to work for the others. A step of a program may be executed before an earlier one
 * unless something orders them (release, acquire, a wait before a store, the same word), as in turn_model_test.c. The
 * real AHEAD is 4 and DEPTH 8; here they are 1 and 2, so that everything is used again soon.
 *
 * Required: a reader of turn t finds what turn t has put there, and nobody waits for ever. Every rule is
 * dropped once, and then one of these must break.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PLAIN_OWN_MAIN
#include "tests/plain.h"

enum { RANKS = 3, GROUPS = 2, AHEAD = 1, DEPTH = 2 * AHEAD, CODE = 96, WINDOW = 4 };

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
enum { WORDS = DEPTH * SET };

enum op { END, STORE, LOAD, AWAIT, ADD };

/* ADD: value is how many ranks more; when the word then is not `complete`, `skip` steps are left out. */
struct code {
	enum op op;
	uint8_t word, value, complete, skip;
	bool acquire, release;
};

struct state {
	uint8_t mem[WORDS];
	uint8_t at[RANKS], ahead[RANKS];
	uint8_t guessed[RANKS]; /* wrong loads made before it was known whether they are made at all */
	uint16_t used;
};

struct exploration {
	struct code code[RANKS][CODE];
	int length[RANKS];
	uint16_t number;
	enum rule dropped;
	uint64_t states;
	bool wrong, stuck, small;
	struct state *seen;
	size_t capacity, full;
};

/* ---- The ranks' programs --------------------------------------------------------------------- */

static const int group_of[RANKS] = {0, 0, 1}, size_of[GROUPS] = {2, 1};

struct writer {
	struct exploration *x;
	int me;
};

static bool drops(const struct writer *w, enum rule rule)
{
	return w->x->dropped == rule;
}

static struct code *emit(struct writer *w, enum op op, int turn, int word, int value)
{
	struct code *c = &w->x->code[w->me][w->x->length[w->me]++];

	*c = (struct code){.op = op, .word = (uint8_t)(turn % DEPTH * SET + word), .value = (uint8_t)value};
	return c;
}

static bool writes(enum kind kind, int rank)
{
	return kind == FROM_0 ? rank == 0 : kind == FROM_2 ? rank == 2 : true;
}

static bool reduces(enum kind kind)
{
	return kind == REDUCE_ALL || kind == TO_0;
}

static void await_done(struct writer *w, int turn)
{
	emit(w, AWAIT, turn, DONE, turn)->acquire = !drops(w, DONE_NO_ACQUIRE);
}

/* Adding to a count; what follows until close() is for who completes it. */
static int open_count(struct writer *w, int turn, int word, int ranks, int complete)
{
	struct code *c = emit(w, ADD, turn, word, ranks);

	c->complete = (uint8_t)complete;
	c->release = true;
	c->acquire = !drops(w, COUNT_NO_ACQUIRE);
	return w->x->length[w->me] - 1;
}
static void close_count(struct writer *w, int at)
{
	w->x->code[w->me][at].skip = (uint8_t)(w->x->length[w->me] - 1 - at);
}

static void arrive(struct writer *w, enum kind kind, int turn)
{
	const int group = group_of[w->me];
	int in_group, in_all;

	emit(w, STORE, turn, LINE + w->me, turn)->release = !drops(w, ROOT_LINE_RELAXED);
	in_group = open_count(w, turn, COUNT + group, 1, size_of[group]);
	if (!drops(w, NO_RESET))
		emit(w, STORE, turn, COUNT + group, 0);
	for (int r = 0; reduces(kind) && r < RANKS; r++)
		if (group_of[r] == group)
			emit(w, LOAD, turn, CELL + r, turn);
	if (reduces(kind))
		emit(w, STORE, turn, PARTIAL + group, turn);
	in_all = open_count(w, turn, ALL, size_of[group], RANKS);
	if (!drops(w, NO_RESET))
		emit(w, STORE, turn, ALL, 0);
	for (int g = 0; reduces(kind) && g < GROUPS; g++)
		emit(w, LOAD, turn, PARTIAL + g, turn);
	if (reduces(kind))
		emit(w, STORE, turn, RESULT, turn);
	emit(w, STORE, turn, DONE, turn)->release = !drops(w, DONE_NO_RELEASE);
	close_count(w, in_all);
	close_count(w, in_group);
}

static void read_all(struct writer *w, enum kind kind, int turn)
{
	const int root = kind == FROM_2 ? 2 : 0;

	if (kind == FROM_0 || kind == FROM_2) {
		if (w->me == root)
			return;
		emit(w, AWAIT, turn, LINE + root, turn)->acquire = true;
		emit(w, LOAD, turn, CELL + root, turn);
		return;
	}
	if (kind == TO_0 && w->me != 0)
		return;
	await_done(w, turn);
	if (reduces(kind))
		emit(w, LOAD, turn, RESULT, turn);
	for (int r = 0; !reduces(kind) && r < RANKS; r++)
		if (r != w->me)
			emit(w, LOAD, turn, CELL + r, turn);
}

static void write_programs(struct exploration *x, const enum kind *kinds, int count)
{
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {x, r};

		x->length[r] = 0;
		for (int turn = 1; turn <= count; turn++) {
			const enum kind kind = kinds[turn - 1];

			if (drops(&w, READS_LATER) && turn > AHEAD + 1)
				read_all(&w, kinds[turn - 3], turn - 2);
			if (!drops(&w, NO_WAIT_TO_ENTER) && turn - AHEAD - drops(&w, LATE_WAIT) > 0)
				await_done(&w, turn - AHEAD - drops(&w, LATE_WAIT));
			if (writes(kind, r) && !drops(&w, CELL_AFTER_COUNT))
				emit(&w, STORE, turn, CELL + r, turn);
			arrive(&w, kind, turn);
			if (writes(kind, r) && drops(&w, CELL_AFTER_COUNT))
				emit(&w, STORE, turn, CELL + r, turn);
			if (!drops(&w, READS_LATER))
				read_all(&w, kind, turn);
		}
		emit(&w, END, 0, 0, 0);
	}
}

/* ---- What may overtake what -------------------------------------------------------------------- */

static bool may_overtake(const struct code *a, const struct code *b)
{
	/* What comes behind an addition depends on it; only loads may have been made already. */
	if (b->op == END || b->op == AWAIT || b->op == ADD || b->release || a->acquire || a->op == END)
		return false;
	if ((a->op == AWAIT || a->op == ADD) && b->op == STORE)
		return false;
	return a->word != b->word;
}

static bool executed(const struct state *s, int rank, int i)
{
	return i > 0 && s->ahead[rank] >> (i - 1) & 1;
}

static bool may_run(const struct exploration *x, const struct state *s, int rank, int i)
{
	const struct code *code = &x->code[rank][s->at[rank]];

	if (s->at[rank] + i >= x->length[rank] || executed(s, rank, i) || code[i].op == END)
		return false;
	for (int k = 0; k < i; k++)
		if (!executed(s, rank, k) && !may_overtake(&code[k], &code[i]))
			return false;
	/* What an addition may leave out is not looked beyond: what is there is not known. */
	for (int k = 0; k < i; k++)
		if (!executed(s, rank, k) && code[k].op == ADD && k + code[k].skip < i)
			return false;
	return true;
}

/* ---- Exploration ----------------------------------------------------------------------------------- */

static struct state *find(struct exploration *x, const struct state *s)
{
	uint64_t h = 1469598103934665603u;
	const uint8_t *bytes = (const uint8_t *)s;

	for (size_t i = 0; i < offsetof(struct state, used); i++)
		h = (h ^ bytes[i]) * 1099511628211u;
	for (size_t i = (h ^ h >> 29) % x->capacity;; i = (i + 1) % x->capacity)
		if (x->seen[i].used != x->number || memcmp(&x->seen[i], s, offsetof(struct state, used)) == 0)
			return &x->seen[i];
}

static void visit(struct exploration *x, const struct state *from);

static void advance(struct state *s, int rank)
{
	bool next;

	do {
		next = s->ahead[rank] & 1;
		s->at[rank]++;
		s->ahead[rank] >>= 1;
	} while (next);
}

static bool behind_addition(const struct exploration *x, const struct state *s, int rank, int i)
{
	bool behind = false;

	for (int k = 0; k < i; k++)
		behind |= !executed(s, rank, k) && x->code[rank][s->at[rank] + k].op == ADD;
	return behind;
}

/* False: it has to wait. */
static bool execute(struct exploration *x, const struct state *from, int rank, int i)
{
	const struct code *c = &x->code[rank][from->at[rank] + i];
	struct state s = *from;
	uint8_t *word = &s.mem[c->word];

	if (c->op == AWAIT && *word < c->value)
		return false;
	if (c->op == STORE)
		*word = c->value;
	if (c->op == ADD)
		*word = (uint8_t)(*word + c->value);
	if (c->op == LOAD && *word != c->value) {
		if (behind_addition(x, from, rank, i))
			s.guessed[rank] = 1;
		else
			x->wrong = true;
	}
	if (c->op == ADD && *word == c->complete)
		x->wrong |= s.guessed[rank];
	if (c->op == ADD)
		s.guessed[rank] = 0;
	if (c->op == ADD && *word != c->complete) {
		/* Others go on with it; what was read ahead was for nothing. */
		s.at[rank] = (uint8_t)(s.at[rank] + 1 + c->skip);
		s.ahead[rank] = 0;
	} else if (i > 0) {
		s.ahead[rank] |= (uint8_t)(1u << (i - 1));
	} else {
		advance(&s, rank);
	}
	visit(x, &s);
	return true;
}

static void visit(struct exploration *x, const struct state *from)
{
	struct state *at = find(x, from);
	bool moved = false, ended = true;

	if (at->used == x->number || x->wrong || x->stuck || x->small)
		return;
	*at = *from;
	at->used = x->number;
	if (++x->full * 4 > x->capacity * 3) {
		x->small = true; /* no success */
		return;
	}
	x->states++;
	for (int r = 0; r < RANKS; r++) {
		ended &= x->code[r][from->at[r]].op == END;
		for (int i = 0; i < WINDOW; i++)
			if (may_run(x, from, r, i))
				moved |= execute(x, from, r, i);
	}
	if (!moved && !ended)
		x->stuck = true;
}

static bool holds(struct exploration *x, enum rule dropped, const enum kind *kinds, int count)
{
	struct state first;

	if (++x->number == 0) {
		memset(x->seen, 0, x->capacity * sizeof(*x->seen));
		x->number = 1;
	}
	memset(&first, 0, sizeof(first));
	x->dropped = dropped;
	x->wrong = x->stuck = x->small = false;
	x->full = 0;
	write_programs(x, kinds, count);
	visit(x, &first);
	return !x->wrong && !x->stuck && !x->small;
}

/* All sequences of so many operations; how many of them fail. */
static int failures(struct exploration *x, enum rule dropped, int count, bool all)
{
	int failed = 0, sequences = 1;

	for (int i = 0; i < count; i++)
		sequences *= KINDS;
	for (int q = 0; q < sequences && (all || failed == 0); q++) {
		enum kind kinds[8];

		for (int i = 0, rest = q; i < count; i++, rest /= KINDS)
			kinds[i] = (enum kind)(rest % KINDS);
		failed += !holds(x, dropped, kinds, count);
	}
	return failed;
}

static struct exploration exploration = {.capacity = (size_t)1 << 21};

static void sequences_hold(void)
{
	CHECK(failures(&exploration, NO_RULE, 3, true) == 0, "wrong %d, stuck %d, too many states %d",
	      exploration.wrong, exploration.stuck, exploration.small);
	CHECK(exploration.states > 10000, "%llu states", (unsigned long long)exploration.states);
}

/* Longer ones, of the kinds in which nobody, or only a root, looks at the turn. */
static void long_sequences_hold(void)
{
	const enum kind sequences[][5] = {{REDUCE_ALL, TO_0, FROM_2, FROM_2, FROM_2},
	                                  {FROM_0, FROM_0, FROM_2, FROM_0, GATHER_ALL},
	                                  {TO_0, TO_0, FROM_0, TO_0, TO_0},
	                                  {GATHER_ALL, FROM_2, REDUCE_ALL, TO_0, FROM_0}};

	for (size_t i = 0; i < sizeof(sequences) / sizeof(sequences[0]); i++)
		CHECK(holds(&exploration, NO_RULE, sequences[i], 5), "sequence %zu: wrong %d, stuck %d, too many %d", i,
		      exploration.wrong, exploration.stuck, exploration.small);
}

/* Dropped, it breaks some sequence: and not by being too large to explore. */
static void every_rule_is_needed(void)
{
	for (int rule = 1; rule < RULES; rule++) {
		const int failed = failures(&exploration, (enum rule)rule, 3, false);

		CHECK(failed > 0 && !exploration.small, "%s", rule_names[rule]);
	}
}

int main(void)
{
	exploration.seen = calloc(exploration.capacity, sizeof(*exploration.seen));
	if (!exploration.seen)
		return 1;
	PLAIN_RUN(sequences_hold);
	PLAIN_RUN(long_sequences_hold);
	PLAIN_RUN(every_rule_is_needed);
	printf("%llu states\n", (unsigned long long)exploration.states);
	free(exploration.seen);
	return plain_summary();
}
