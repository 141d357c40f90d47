/*
 * Turns, entries and cells of src/intra, explored exhaustively: two or three ranks, a few
 * operations of all kinds behind each other, every interleaving of their memory operations, on a
 * memory as weak as Arm's (weak_model_test.h).
 *
 * A rank's part in a sequence of operations is a straight line of stores, loads and waits: what
 * it knows of the others' turns depends on the operations alone.
 *
 * Required: whoever reads a payload finds that of the turn, not an earlier or a later one, and nobody
 * waits for ever. Cells are two, entries two, so that each is used again soon, or four, so
 * that what protects an entry does not protect a cell. Every rule is dropped once, and one of these must then break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { RANKS = WEAK_RANKS, DEPTH_MAX = 4, SPACE = 2 };
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

static_assert(RANKS * WORDS <= WEAK_WORDS, "the words of all ranks");

/* ---- The ranks' programs ------------------------------------------------------------------- */

struct writer {
	struct weak *w;
	int me;
	int depth;       /* entries */
	int seen[RANKS]; /* the turn that a rank is known to have entered */
	int cells;       /* operations in cells so far */
	int exchanges;   /* exchanges so far */
	int cell_turn[SPACE];
	int wide, wide_root;
};

static void emit(struct writer *w, enum weak_op op, int rank, int word, int value, bool ordered)
{
	struct weak_code *c = weak_emit(w->w, w->me, op, rank * WORDS + word, value);

	c->release = ordered && op == WEAK_STORE;
	c->acquire = ordered && op != WEAK_STORE;
}

static bool drops(const struct writer *w, enum rule rule)
{
	return w->w->dropped == (int)rule;
}

/* All others have entered this turn. */
static void entered(struct writer *w, int epoch)
{
	for (int r = 0; r < w->w->ranks; r++) {
		if (r == w->me || w->seen[r] >= epoch)
			continue;
		emit(w, WEAK_AWAIT_REACHED, r, WORD + epoch % w->depth, epoch, true);
		w->seen[r] = epoch;
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
static void exchange(struct writer *w, int epoch)
{
	const int to = drops(w, PLACES_STAY) ? w->me : (w->exchanges + w->me) % 2;

	w->exchanges++;
	emit(w, WEAK_STORE, w->me, WORD + epoch % w->depth, epoch, true);
	emit(w, WEAK_STORE, to, PLACE, epoch, false);
	emit(w, WEAK_STORE, to, PLACE_FLAG, epoch, !drops(w, FLAG_BEFORE_CELL));
	emit(w, WEAK_AWAIT_EQUAL, !to, PLACE_FLAG, epoch, !drops(w, PAYLOAD_BEFORE_WORD));
	emit(w, WEAK_LOAD, !to, PLACE, epoch, false);
	w->seen[!w->me] = epoch;
}

/* The same place again where the root has read it; of three ranks the root's own, of this turn's entry. */
static void wide(struct writer *w, int epoch, int root)
{
	const bool pair = w->w->ranks == 2;
	const int owner = pair ? 0 : root;
	int place = epoch % w->depth;

	if (pair && w->wide_root == root && !drops(w, WIDE_STAYS))
		w->wide = (w->wide + 1) % w->depth;
	w->wide_root = root;
	if (pair)
		place = w->wide;
	emit(w, WEAK_STORE, w->me, WORD + epoch % w->depth, epoch, true);
	if (w->me == root) {
		emit(w, WEAK_STORE, owner, WIDE + place, epoch, false);
		emit(w, WEAK_STORE, owner, WIDE_FLAG + place, epoch, !drops(w, FLAG_BEFORE_CELL));
		return;
	}
	emit(w, WEAK_AWAIT_EQUAL, owner, WIDE_FLAG + place, epoch, !drops(w, PAYLOAD_BEFORE_WORD));
	emit(w, WEAK_LOAD, owner, WIDE + place, epoch, false);
	w->seen[root] = epoch;
}

static void operation(struct writer *w, enum kind kind, int epoch)
{
	const int entry = epoch % w->depth;
	const bool mine = writes(kind, w->me);
	int cell = 0;

	if (in_cell(kind) && !(kind == EXCHANGE && w->w->ranks == 2)) {
		cell = w->cells++ % SPACE;
		if (w->cell_turn[cell] > 0 && !drops(w, CELL_WITHOUT_EVIDENCE))
			entered(w, w->cell_turn[cell] + !drops(w, CELL_OLD_EVIDENCE));
		w->cell_turn[cell] = epoch;
	}
	if (!drops(w, NO_EVIDENCE) && epoch >= w->depth)
		entered(w, epoch - w->depth + !drops(w, OLD_EVIDENCE));
	if (kind == EXCHANGE && w->w->ranks == 2) {
		exchange(w, epoch);
		return;
	}
	if (kind == WIDE_FROM_0 || kind == WIDE_FROM_1) {
		wide(w, epoch, kind == WIDE_FROM_1);
		return;
	}
	if (mine && !in_cell(kind))
		emit(w, WEAK_STORE, w->me, PAYLOAD + entry, epoch, false);
	if (mine || !drops(w, SILENT_READERS))
		emit(w, WEAK_STORE, w->me, WORD + entry, epoch, !drops(w, WORD_BEFORE_PAYLOAD));
	if (mine && in_cell(kind)) {
		emit(w, WEAK_STORE, w->me, CELL + cell, epoch, false);
		emit(w, WEAK_STORE, w->me, FLAG + cell, epoch, !drops(w, FLAG_BEFORE_CELL));
	}
	for (int r = 0; r < w->w->ranks; r++) {
		if (reads(kind, w->me, r)) {
			emit(w, WEAK_AWAIT_EQUAL, r, in_cell(kind) ? FLAG + cell : WORD + entry, epoch,
			     !drops(w, PAYLOAD_BEFORE_WORD));
			emit(w, WEAK_LOAD, r, in_cell(kind) ? CELL + cell : PAYLOAD + entry, epoch, false);
		}
		if (reads(kind, w->me, r) || drops(w, ROOTED_IS_ALL))
			w->seen[r] = epoch;
	}
}

/* Two ranks: what goes to rank 0 is what comes from rank 1; and ranks may change names, but for a cell of rank 0, so
 * that the first root is rank 0. Of three an exchange is made as cells. */
static bool is_another(int size, const int *kinds, int count)
{
	bool roots = false, from_1 = false, named = false;

	for (int i = 0; i < count; i++) {
		const bool is_1 = kinds[i] == FROM_1 || kinds[i] == WIDE_FROM_1;

		if (kinds[i] == (size == 2 ? TO_0 : EXCHANGE))
			return true;
		from_1 |= !roots && is_1;
		roots |= is_1 || kinds[i] == FROM_0 || kinds[i] == WIDE_FROM_0;
		named |= kinds[i] == CELL_FROM_0;
	}
	return size == 2 && from_1 && !named;
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	const int size = 2 + weak->shape / 2;

	if (is_another(size, kinds, count))
		return false;
	weak_begin(weak, size);
	for (int r = 0; r < size; r++) {
		struct writer w = {.w = weak, .me = r, .depth = 2 + weak->shape % 2 * 2};

		for (int i = 0; i < count; i++)
			operation(&w, (enum kind)kinds[i], i + 1);
	}
	return true;
}

/* Two ranks and three, two entries and four. */
const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {5, 5, 4, 4},
                                      .operations_dropped = 4,
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .capacity = 1 << 16};
