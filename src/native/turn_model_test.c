/*
 * Turns, entries and cells of src/native, explored exhaustively: two or three ranks, a few
 * operations of all kinds behind each other, every interleaving of their memory operations, on a
 * memory as weak as Arm's.
 *
 * A rank's part in a sequence of operations is a straight line of stores, loads and waits: what
 * it knows of the others' turns depends on the operations alone. A rank may execute an operation
 * before an earlier one unless something orders them: an acquire before, a release after, the
 * same word, or a wait before a store. What is executed is seen by all at once.
 *
 * Required: whoever reads a payload finds that of the turn, not an earlier or a later one, and nobody
 * waits for ever. Cells are two, entries two, so that each is used again soon, or four, so
 * that what protects an entry does not protect a cell. Every rule is dropped once, and one of these must then break.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define PLAIN_OWN_MAIN
#include "tests/plain.h"

enum { RANKS = 3, DEPTH_MAX = 4, SPACE = 2, CODE = 80, AHEAD = 4 };
/* Kinds of operations: lines of all; of a root; to a root; a cell of everybody; of a root; places that two ranks
 * write in turn (of three: as cells); a wide place of a root, which of two ranks changes hands. */
enum kind { ALL, FROM_0, FROM_1, TO_0, CELLS, CELL_FROM_0, EXCHANGE, WIDE_FROM_0, WIDE_FROM_1, KINDS };

enum rule {
	NO_RULE,
	WORD_BEFORE_PAYLOAD, /* the word is stored without release */
	PAYLOAD_BEFORE_WORD, /* and awaited without acquire */
	NO_EVIDENCE,         /* an entry is written without looking at anybody's turn */
	OLD_EVIDENCE,        /* that they have entered the turn that had the entry before, not the one after it */
	ROOTED_IS_ALL,       /* a rooted operation counts as evidence of everybody */
	SILENT_READERS,      /* who has no payload does not say that it has entered */
	CELL_WITHOUT_EVIDENCE,
	CELL_OLD_EVIDENCE,
	FLAG_BEFORE_CELL, /* the flag of a piece is stored without release */
	PLACES_STAY,      /* of an exchange: a rank writes to the same place again */
	WIDE_STAYS,       /* a rank that is root again writes to the same wide place */
	RULES
};
static const char *const rule_names[RULES] = {"none dropped",     "word before payload",   "payload before word",
                                              "no evidence",      "old evidence",          "rooted is all",
                                              "silent readers",   "cell without evidence", "cell with old evidence",
                                              "flag before cell", "places stay",           "wide stays"};

/* Words of one rank: its entries' words and payloads, its cells' flags and payloads. */
enum {
	WORD,
	PAYLOAD = WORD + DEPTH_MAX,
	FLAG = PAYLOAD + DEPTH_MAX,
	CELL = FLAG + SPACE,
	PLACE_FLAG = CELL + SPACE,
	PLACE,
	WIDE_FLAG,
	WIDE = WIDE_FLAG + DEPTH_MAX,
	WORDS = WIDE + DEPTH_MAX
};

enum op { END, STORE, AWAIT_EQUAL, AWAIT_REACHED, LOAD };

struct code {
	enum op op;
	uint8_t rank, word, value;
	bool ordered; /* release, or acquire */
};

struct state {
	uint8_t mem[RANKS][WORDS];
	uint8_t at[RANKS], ahead[RANKS];
	uint16_t used; /* in which exploration */
};

struct exploration {
	struct code code[RANKS][CODE];
	int size, depth;
	uint16_t number;
	enum rule dropped;
	uint64_t states, wrong, stuck;
	struct state *seen;
	size_t capacity, full;
};

/* ---- The ranks' programs ------------------------------------------------------------------- */

struct writer {
	struct exploration *x;
	int me, n;
	int seen[RANKS]; /* the turn that a rank is known to have entered */
	int cells;       /* operations in cells so far */
	int exchanges;   /* exchanges so far */
	int cell_turn[SPACE];
	int wide, wide_root;
};

static void emit(struct writer *w, enum op op, int rank, int word, int value, bool ordered)
{
	if (w->n < CODE - 1)
		w->x->code[w->me][w->n++] = (struct code){op, (uint8_t)rank, (uint8_t)word, (uint8_t)value, ordered};
}

static bool drops(const struct writer *w, enum rule rule)
{
	return w->x->dropped == rule;
}

/* All others have entered this turn. */
static void entered(struct writer *w, int turn)
{
	for (int r = 0; r < w->x->size; r++) {
		if (r == w->me || w->seen[r] >= turn)
			continue;
		emit(w, AWAIT_REACHED, r, WORD + turn % w->x->depth, turn, true);
		w->seen[r] = turn;
	}
}

static bool writes(enum kind kind, int rank)
{
	if (kind == FROM_0 || kind == CELL_FROM_0 || kind == WIDE_FROM_0)
		return rank == 0;
	return kind == FROM_1 || kind == WIDE_FROM_1 ? rank == 1 : kind == TO_0 ? rank != 0 : true;
}

static bool reads(enum kind kind, int reader, int rank)
{
	return reader != rank && writes(kind, rank) && (kind != TO_0 || reader == 0);
}

static bool in_cell(enum kind kind)
{
	return kind == CELLS || kind == CELL_FROM_0 || kind == EXCHANGE;
}

/* Two ranks: each writes what it has read in the exchange before. */
static void exchange(struct writer *w, int turn)
{
	const int to = drops(w, PLACES_STAY) ? w->me : (w->exchanges + w->me) % 2;

	w->exchanges++;
	emit(w, STORE, w->me, WORD + turn % w->x->depth, turn, true);
	emit(w, STORE, to, PLACE, turn, false);
	emit(w, STORE, to, PLACE_FLAG, turn, !drops(w, FLAG_BEFORE_CELL));
	emit(w, AWAIT_EQUAL, !to, PLACE_FLAG, turn, !drops(w, PAYLOAD_BEFORE_WORD));
	emit(w, LOAD, !to, PLACE, turn, false);
	w->seen[!w->me] = turn;
}

/* The same place again where the root has read it; of three ranks the root's own, of this turn's entry. */
static void wide(struct writer *w, int turn, int root)
{
	const bool pair = w->x->size == 2;
	const int owner = pair ? 0 : root;
	int place = turn % w->x->depth;

	if (pair && w->wide_root == root && !drops(w, WIDE_STAYS))
		w->wide = (w->wide + 1) % w->x->depth;
	w->wide_root = root;
	if (pair)
		place = w->wide;
	emit(w, STORE, w->me, WORD + turn % w->x->depth, turn, true);
	if (w->me == root) {
		emit(w, STORE, owner, WIDE + place, turn, false);
		emit(w, STORE, owner, WIDE_FLAG + place, turn, !drops(w, FLAG_BEFORE_CELL));
		return;
	}
	emit(w, AWAIT_EQUAL, owner, WIDE_FLAG + place, turn, !drops(w, PAYLOAD_BEFORE_WORD));
	emit(w, LOAD, owner, WIDE + place, turn, false);
	w->seen[root] = turn;
}

static void operation(struct writer *w, enum kind kind, int turn)
{
	const int entry = turn % w->x->depth;
	const bool mine = writes(kind, w->me);
	int cell = 0;

	if (in_cell(kind) && !(kind == EXCHANGE && w->x->size == 2)) {
		cell = w->cells++ % SPACE;
		if (w->cell_turn[cell] > 0 && !drops(w, CELL_WITHOUT_EVIDENCE))
			entered(w, w->cell_turn[cell] + !drops(w, CELL_OLD_EVIDENCE));
		w->cell_turn[cell] = turn;
	}
	if (!drops(w, NO_EVIDENCE) && turn >= w->x->depth)
		entered(w, turn - w->x->depth + !drops(w, OLD_EVIDENCE));
	if (kind == EXCHANGE && w->x->size == 2) {
		exchange(w, turn);
		return;
	}
	if (kind == WIDE_FROM_0 || kind == WIDE_FROM_1) {
		wide(w, turn, kind == WIDE_FROM_1);
		return;
	}
	if (mine && !in_cell(kind))
		emit(w, STORE, w->me, PAYLOAD + entry, turn, false);
	if (mine || !drops(w, SILENT_READERS))
		emit(w, STORE, w->me, WORD + entry, turn, !drops(w, WORD_BEFORE_PAYLOAD));
	if (mine && in_cell(kind)) {
		emit(w, STORE, w->me, CELL + cell, turn, false);
		emit(w, STORE, w->me, FLAG + cell, turn, !drops(w, FLAG_BEFORE_CELL));
	}
	for (int r = 0; r < w->x->size; r++) {
		if (reads(kind, w->me, r)) {
			emit(w, AWAIT_EQUAL, r, in_cell(kind) ? FLAG + cell : WORD + entry, turn,
			     !drops(w, PAYLOAD_BEFORE_WORD));
			emit(w, LOAD, r, in_cell(kind) ? CELL + cell : PAYLOAD + entry, turn, false);
		}
		if (reads(kind, w->me, r) || drops(w, ROOTED_IS_ALL))
			w->seen[r] = turn;
	}
}

static void write_programs(struct exploration *x, const enum kind *kinds, int count)
{
	for (int r = 0; r < x->size; r++) {
		struct writer w = {.x = x, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, kinds[i], i + 1);
		x->code[r][w.n] = (struct code){.op = END};
	}
}

/* ---- What may overtake what ------------------------------------------------------------------ */

static bool waits(const struct code *c)
{
	return c->op == AWAIT_EQUAL || c->op == AWAIT_REACHED;
}

/* Whether b, later in the program, may be executed before a. A wait is never overtaken by a
 * store, nor by another wait, which may depend on what was stored in between. */
static bool may_overtake(const struct code *a, const struct code *b)
{
	if (b->op == END || waits(b) || (waits(a) && (a->ordered || b->op == STORE)))
		return false;
	if (b->op == STORE && b->ordered)
		return false;
	return a->rank != b->rank || a->word != b->word;
}

static bool executed(const struct state *s, int rank, int ahead)
{
	return ahead > 0 && s->ahead[rank] >> (ahead - 1) & 1;
}

static bool may_run(const struct exploration *x, const struct state *s, int rank, int ahead)
{
	const struct code *code = &x->code[rank][s->at[rank]];

	if (executed(s, rank, ahead))
		return false;
	for (int i = 0; i < ahead; i++) {
		if (code[i].op == END)
			return false;
		if (!executed(s, rank, i) && !may_overtake(&code[i], &code[ahead]))
			return false;
	}
	return code[ahead].op != END;
}

/* ---- Exploration ------------------------------------------------------------------------------- */

static struct state *place(struct exploration *x, const struct state *s)
{
	uint64_t h = 1469598103934665603u;
	const uint8_t *bytes = (const uint8_t *)s;

	for (size_t i = 0; i < offsetof(struct state, used); i++)
		h = (h ^ bytes[i]) * 1099511628211u;
	for (size_t i = (h ^ h >> 29) % x->capacity;; i = (i + 1) % x->capacity)
		if (x->seen[i].used != x->number || memcmp(&x->seen[i], s, sizeof(*s)) == 0)
			return &x->seen[i];
}

static void visit(struct exploration *x, const struct state *from);

/* False: it has to wait. */
static bool execute(struct exploration *x, const struct state *from, int rank, int ahead)
{
	const struct code *c = &x->code[rank][from->at[rank] + ahead];
	struct state s = *from;
	uint8_t *word = &s.mem[c->rank][c->word];

	if ((c->op == AWAIT_EQUAL && *word != c->value) || (c->op == AWAIT_REACHED && *word < c->value))
		return false;
	if (c->op == STORE)
		*word = c->value;
	if (c->op == LOAD && *word != c->value)
		x->wrong++;
	if (ahead > 0) {
		s.ahead[rank] |= (uint8_t)(1u << (ahead - 1));
	} else {
		/* Past what has been executed before its time. */
		do {
			const bool next = s.ahead[rank] & 1;

			s.at[rank]++;
			s.ahead[rank] >>= 1;
			if (!next)
				break;
		} while (true);
	}
	visit(x, &s);
	return true;
}

static void visit(struct exploration *x, const struct state *from)
{
	struct state *at = place(x, from);
	bool moved = false, ended = true;

	if (at->used == x->number || x->wrong || x->stuck)
		return;
	*at = *from;
	if (++x->full * 4 > x->capacity * 3) {
		x->stuck = UINT64_MAX; /* too small a table is no success */
		return;
	}
	x->states++;
	for (int r = 0; r < x->size; r++) {
		ended &= x->code[r][from->at[r]].op == END;
		for (int ahead = 0; ahead < AHEAD; ahead++)
			if (may_run(x, from, r, ahead))
				moved |= execute(x, from, r, ahead);
	}
	if (!moved && !ended)
		x->stuck++;
}

/* Whether the rules hold for a sequence of operations. */
static bool holds(struct exploration *x, int size, enum rule dropped, const enum kind *kinds, int count)
{
	struct state first;

	if (++x->number == 0) { /* all numbers were used */
		memset(x->seen, 0, x->capacity * sizeof(*x->seen));
		x->number = 1;
	}
	memset(&first, 0, sizeof(first));
	first.used = x->number;
	x->size = size;
	x->dropped = dropped;
	x->wrong = x->stuck = 0;
	x->full = 0;
	write_programs(x, kinds, count);
	visit(x, &first);
	return x->wrong == 0 && x->stuck == 0;
}

/* All sequences of so many operations; how many of them fail. */
static int failures(struct exploration *x, int size, enum rule dropped, int count, bool all)
{
	int failed = 0, sequences = 1;

	for (int i = 0; i < count; i++)
		sequences *= KINDS;
	for (int q = 0; q < sequences && (all || failed == 0); q++) {
		enum kind kinds[8];

		for (int i = 0, rest = q; i < count; i++, rest /= KINDS)
			kinds[i] = (enum kind)(rest % KINDS);
		failed += !holds(x, size, dropped, kinds, count);
	}
	return failed;
}

static struct exploration exploration = {.capacity = (size_t)1 << 20};

static void sequences_hold(int size, int depth, int count)
{
	exploration.depth = depth;
	CHECK(failures(&exploration, size, NO_RULE, count, true) == 0, "%d ranks, %d entries", size, depth);
}

static void two_ranks(void)
{
	sequences_hold(2, 2, 5);
	sequences_hold(2, 4, 5);
}

static void three_ranks(void)
{
	sequences_hold(3, 2, 4);
	sequences_hold(3, 4, 4);
}

/* Dropped, it breaks some sequence. */
static void every_rule_is_needed(void)
{
	for (int rule = 1; rule < RULES; rule++) {
		int failed = 0;

		for (int size = 2; size <= RANKS && failed == 0; size++) {
			for (int depth = 2; depth <= DEPTH_MAX && failed == 0; depth += 2) {
				exploration.depth = depth;
				failed = failures(&exploration, size, (enum rule)rule, 4, false);
			}
		}
		CHECK(failed > 0, "%s", rule_names[rule]);
	}
}

int main(void)
{
	exploration.seen = calloc(exploration.capacity, sizeof(*exploration.seen));
	if (!exploration.seen)
		return 1;
	PLAIN_RUN(two_ranks);
	PLAIN_RUN(three_ranks);
	PLAIN_RUN(every_rule_is_needed);
	printf("%llu states\n", (unsigned long long)exploration.states);
	free(exploration.seen);
	return plain_summary();
}
