/*
 * Programs of a few ranks over words of one memory, explored: every interleaving, on a memory as weak as Arm's.
 *
 * A rank's program is a line of stores, loads, waits and additions. A step may be executed before an earlier one
 * unless something orders them: an acquire before, a release behind, the same word, a wait or an addition before a
 * store. What is executed is seen by all at once. An addition that does not complete its word leaves out the steps
 * behind it that are for whoever completes it.
 *
 * Found: whether a load sees another value than it must, and whether somebody waits for ever. The programs, and the
 * rules that they follow, are each test's own; main() is here. It requires that all sequences of operations hold, and
 * that some sequence breaks when a rule, any of them, is dropped.
 */
#ifndef COLL_INTRA_WEAK_MODEL_TEST_H
#define COLL_INTRA_WEAK_MODEL_TEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WEAK_RANKS = 3, WEAK_WORDS = 71, WEAK_CODE = 144, WEAK_SHAPES = 4 };

enum weak_op {
	WEAK_END,
	WEAK_STORE,
	WEAK_LOAD,
	WEAK_LOOK,
	WEAK_ASSUME,
	WEAK_AWAIT_EQUAL,
	WEAK_AWAIT_REACHED,
	WEAK_ADD
};

/* LOAD: value is what must be seen. LOOK: a load of whatever is there. ASSUME: a load; where it sees another value the
 * rank goes another way, which is not explored. sequential: in one order with all others that are. ADD: value is how
 * much; when the word then is not `complete`, the `skip` steps behind it are left out. */
struct weak_code {
	enum weak_op op;
	uint8_t word, value, complete, skip;
	bool acquire, release, sequential;
};

struct weak_place;

struct weak {
	/* Of the sequence that is explored; what is not written is END. */
	struct weak_code code[WEAK_RANKS][WEAK_CODE];
	int length[WEAK_RANKS];
	int ranks;
	/* Of the model: which rule is dropped, 0: none; in which of its shapes. */
	int dropped, shape;
	/* What was found; small: nothing, as there are more states than places for them. */
	bool wrong, stuck, small;
	uint64_t states; /* of all explorations */
	/* Places that hold the number of this exploration are taken. */
	struct weak_place *places;
	size_t capacity, taken;
	uint16_t number;
};

/* Another step of the rank's program. */
struct weak_code *weak_emit(struct weak *w, int rank, enum weak_op op, int word, int value);

/* Empties the programs, which are written next, and are of so many ranks. */
void weak_begin(struct weak *w, int ranks);
/* Whether they are right, in every interleaving. */
bool weak_holds(struct weak *w);

/* What a test explores: in each shape (how many ranks, say) all sequences of so many operations. */
struct weak_model {
	/* The programs of a sequence of operations, without the rule that is dropped; false: it is the same as another
	 * one, and left out. */
	bool (*write)(struct weak *w, const int *kinds, int count);
	int kinds;                   /* of operations */
	int operations[WEAK_SHAPES]; /* of a sequence, in each shape; 0: there is no such shape */
	int operations_dropped;      /* while a rule is dropped; 0: as many */
	const char *const *rules;    /* their names; of rule 0, that none is dropped, too */
	int nrules;
	bool must_see_wrong; /* it is not enough that somebody waits for ever when a rule is dropped */
	size_t capacity;     /* for states */
	/* What else is required; NULL: nothing. No rule is dropped. */
	void (*more)(struct weak *w);
	const char *more_name;
};
extern const struct weak_model weak_model;

#endif
