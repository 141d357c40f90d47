/*
 * The slots of pair_bcast.c, explored: two ranks, a few broadcasts of some chunks each behind each other, whose roots
 * are the same or in turn, every interleaving of their memory operations, on a memory as weak as Arm's
 * (weak_model_test.h). There are four slots; here there are two, so that each is used again soon.
 *
 * Required: chunk c is taken as it was sent, whatever its slot held before, and nobody waits for ever. Every rule is
 * dropped once, and then one of these must break.
 */
#include <assert.h>

#include "intra/weak_model_test.h"

enum { RANKS = 2, SLOTS = 2, CHUNKS_MAX = 3, KINDS = RANKS * CHUNKS_MAX };

enum rule {
	NO_RULE,
	POURED_BEFORE_CHUNK,  /* poured is stored without release */
	CHUNK_BEFORE_POURED,  /* and awaited without acquire */
	DRAINED_BEFORE_CHUNK, /* drained is stored without release */
	ONE_TOO_FAR,          /* chunk c + SLOTS is stored before c has been drained */
	ONLY_THIS_CALL,       /* a root looks for no evidence of its calls before */
	ALWAYS_EVIDENCE,      /* and asks the other for what it has drained itself */
	COUNTED_ANEW,         /* chunks are counted from 0 in each operation */
	RULES
};
static const char *const rule_names[RULES] = {"none dropped",         "poured before chunk", "chunk before poured",
                                              "drained before chunk", "one too far",         "only this call",
                                              "always evidence",      "counted anew"};

/* Words: the slots; what each rank has poured, and drained. */
enum { SLOT, POURED = SLOT + SLOTS, DRAINED = POURED + RANKS, WORDS = DRAINED + RANKS };
static_assert((int)WORDS <= WEAK_WORDS, "the words of both ranks");

struct writer {
	struct weak *w;
	int dropped;
	int me;
	int chuted, run; /* chunks of the operations before; of those before this rank was root without end */
};

static void pour(struct writer *w, int chunk, int base)
{
	const int free = w->dropped == ONLY_THIS_CALL ? base : w->dropped == ALWAYS_EVIDENCE ? 0 : w->run;
	const int room = SLOTS + (w->dropped == ONE_TOO_FAR);

	if (chunk >= free + room)
		weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, DRAINED + !w->me, chunk + 1 - room)->acquire = true;
	weak_emit(w->w, w->me, WEAK_STORE, SLOT + chunk % SLOTS, chunk + 1);
	weak_emit(w->w, w->me, WEAK_STORE, POURED + w->me, chunk + 1)->release = w->dropped != POURED_BEFORE_CHUNK;
}

static void drain(struct writer *w, int chunk)
{
	weak_emit(w->w, w->me, WEAK_AWAIT_REACHED, POURED + !w->me, chunk + 1)->acquire =
	        w->dropped != CHUNK_BEFORE_POURED;
	weak_emit(w->w, w->me, WEAK_LOAD, SLOT + chunk % SLOTS, chunk + 1);
	weak_emit(w->w, w->me, WEAK_STORE, DRAINED + w->me, chunk + 1)->release = w->dropped != DRAINED_BEFORE_CHUNK;
}

static void operation(struct writer *w, int root, int chunks)
{
	const int base = w->dropped == COUNTED_ANEW ? 0 : w->chuted;

	for (int k = 0; k < chunks; k++)
		if (w->me == root)
			pour(w, base + k, base);
		else
			drain(w, base + k);
	w->chuted += chunks;
	if (w->me != root)
		w->run = w->chuted;
}

static bool write_programs(struct weak *weak, const int *kinds, int count)
{
	weak_begin(weak, RANKS);
	for (int r = 0; r < RANKS; r++) {
		struct writer w = {.w = weak, .dropped = weak->dropped, .me = r};

		for (int i = 0; i < count; i++)
			operation(&w, kinds[i] % RANKS, 1 + kinds[i] / RANKS);
	}
	return true;
}

const struct weak_model weak_model = {.write = write_programs,
                                      .kinds = KINDS,
                                      .operations = {4},
                                      .rules = rule_names,
                                      .nrules = RULES,
                                      .capacity = 1 << 16};
