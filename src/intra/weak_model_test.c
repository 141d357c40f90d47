/*
 * See weak_model_test.h. Invariant: a state is visited once in an exploration; what a rank has executed before its
 * time is a set of bits behind its place in its program.
 */
#include "intra/weak_model_test.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN_OWN_MAIN
#include "tests/plain.h"

enum { WINDOW = 4, OPERATIONS_MAX = 8 };

struct state {
	uint8_t mem[WEAK_WORDS];
	uint8_t at[WEAK_RANKS], ahead[WEAK_RANKS];
	uint8_t guessed[WEAK_RANKS]; /* wrong loads made before it was known whether they are made at all */
};
static_assert(sizeof(struct state) % sizeof(uint64_t) == 0, "hashed by words");

struct weak_place {
	struct state state;
	uint16_t used; /* in which exploration */
};

struct weak_code *weak_emit(struct weak *w, int rank, enum weak_op op, int word, int value)
{
	struct weak_code *c = &w->code[rank][w->length[rank]++];

	assert(w->length[rank] <= WEAK_CODE - WINDOW);
	assert(word < WEAK_WORDS);
	*c = (struct weak_code){.op = op, .word = (uint8_t)word, .value = (uint8_t)value};
	return c;
}

void weak_begin(struct weak *w, int ranks)
{
	memset(w->code, 0, sizeof(w->code));
	memset(w->length, 0, sizeof(w->length));
	w->ranks = ranks;
}

/* ---- What may overtake what ---- */

static bool waits(const struct weak_code *c)
{
	return c->op == WEAK_AWAIT_EQUAL || c->op == WEAK_AWAIT_REACHED;
}

/* Whether b, later in the program, may be executed before a. A wait is never overtaken by a store, nor by another wait,
 * which may depend on what was stored in between. What comes behind an addition depends on it: only loads may have
 * been made already. */
static bool may_overtake(const struct weak_code *a, const struct weak_code *b)
{
	if (b->op == WEAK_END || waits(b) || b->op == WEAK_ADD || b->release || a->acquire || a->op == WEAK_END)
		return false;
	if ((waits(a) || a->op == WEAK_ADD) && b->op == WEAK_STORE)
		return false;
	if (a->sequential && b->sequential)
		return false;
	return a->word != b->word;
}

static bool executed(const struct state *s, int rank, int i)
{
	return i > 0 && s->ahead[rank] >> (i - 1) & 1;
}

static bool may_run(const struct weak *w, const struct state *s, int rank, int i)
{
	const struct weak_code *code = &w->code[rank][s->at[rank]];

	if (executed(s, rank, i) || code[i].op == WEAK_END)
		return false;
	for (int k = 0; k < i; k++) {
		if (executed(s, rank, k))
			continue;
		if (!may_overtake(&code[k], &code[i]))
			return false;
		/* What an addition may leave out is not looked beyond: what is there is not known. */
		if (code[k].op == WEAK_ADD && k + code[k].skip < i)
			return false;
	}
	return true;
}

/* ---- Exploration ---- */

static struct weak_place *find(struct weak *w, const struct state *s)
{
	uint64_t h = 1469598103934665603u, word;

	for (size_t i = 0; i < sizeof(*s); i += sizeof(word)) {
		memcpy(&word, (const char *)s + i, sizeof(word));
		h = (h ^ word) * 1099511628211u;
		h ^= h >> 32;
	}
	for (size_t i = h % w->capacity;; i = (i + 1) % w->capacity)
		if (w->places[i].used != w->number || memcmp(&w->places[i].state, s, sizeof(*s)) == 0)
			return &w->places[i];
}

static void visit(struct weak *w, const struct state *from);

/* Past what has been executed before its time. */
static void advance(struct state *s, int rank)
{
	bool next;

	do {
		next = s->ahead[rank] & 1;
		s->at[rank]++;
		s->ahead[rank] >>= 1;
	} while (next);
}

static bool behind_addition(const struct weak *w, const struct state *s, int rank, int i)
{
	bool behind = false;

	for (int k = 0; k < i; k++)
		behind |= !executed(s, rank, k) && w->code[rank][s->at[rank] + k].op == WEAK_ADD;
	return behind;
}

/* What was read ahead counts if this rank completes the word, and was for nothing otherwise; false then. */
static bool completes(struct weak *w, const struct weak_code *c, struct state *s, int rank)
{
	const bool complete = s->mem[c->word] == c->complete;

	w->wrong |= complete && s->guessed[rank];
	s->guessed[rank] = 0;
	return complete;
}

/* False: it has to wait. */
static bool execute(struct weak *w, const struct state *from, int rank, int i)
{
	const struct weak_code *c = &w->code[rank][from->at[rank] + i];
	struct state s = *from;
	uint8_t *word = &s.mem[c->word];

	if ((c->op == WEAK_AWAIT_EQUAL && *word != c->value) || (c->op == WEAK_AWAIT_REACHED && *word < c->value))
		return false;
	if (c->op == WEAK_ASSUME && *word != c->value)
		return true;
	if (c->op == WEAK_STORE)
		*word = c->value;
	if (c->op == WEAK_ADD)
		*word = (uint8_t)(*word + c->value);
	if (c->op == WEAK_LOAD && *word != c->value) {
		if (behind_addition(w, from, rank, i))
			s.guessed[rank] = 1;
		else
			w->wrong = true;
	}
	if (c->op == WEAK_ADD && !completes(w, c, &s, rank)) {
		s.at[rank] = (uint8_t)(s.at[rank] + 1 + c->skip);
		s.ahead[rank] = 0;
	} else if (i > 0) {
		s.ahead[rank] |= (uint8_t)(1u << (i - 1));
	} else {
		advance(&s, rank);
	}
	visit(w, &s);
	return true;
}

static void visit(struct weak *w, const struct state *from)
{
	struct weak_place *at = find(w, from);
	bool moved = false, ended = true;

	if (at->used == w->number || w->wrong || w->stuck || w->small)
		return;
	at->state = *from;
	at->used = w->number;
	if (++w->taken * 4 > w->capacity * 3) {
		w->small = true;
		return;
	}
	w->states++;
	for (int r = 0; r < w->ranks; r++) {
		ended &= w->code[r][from->at[r]].op == WEAK_END;
		for (int i = 0; i < WINDOW; i++)
			if (may_run(w, from, r, i))
				moved |= execute(w, from, r, i);
	}
	if (!moved && !ended)
		w->stuck = true;
}

bool weak_holds(struct weak *w)
{
	const struct state first = {.at = {0}};

	if (++w->number == 0) { /* all numbers were used */
		memset(w->places, 0, w->capacity * sizeof(*w->places));
		w->number = 1;
	}
	w->wrong = w->stuck = w->small = false;
	w->taken = 0;
	visit(w, &first);
	return !w->wrong && !w->stuck && !w->small;
}

/* ---- Tests ---- */

static const struct weak_model *const model = &weak_model;
static struct weak weak;

/* Of all sequences of count operations. The first that does not remains in `weak`. */
static bool all_hold(int count)
{
	int kinds[OPERATIONS_MAX], sequences = 1;

	assert(count <= OPERATIONS_MAX);
	for (int i = 0; i < count; i++)
		sequences *= model->kinds;
	for (int q = 0; q < sequences; q++) {
		for (int i = 0, rest = q; i < count; i++, rest /= model->kinds)
			kinds[i] = rest % model->kinds;
		if (model->write(&weak, kinds, count) && !weak_holds(&weak))
			return false;
	}
	return true;
}

/* The same in all shapes. */
static bool model_holds(int dropped)
{
	weak.dropped = dropped;
	for (weak.shape = 0; weak.shape < WEAK_SHAPES && model->operations[weak.shape] > 0; weak.shape++) {
		const bool others = dropped && model->operations_dropped;

		if (!all_hold(others ? model->operations_dropped : model->operations[weak.shape]))
			return false;
	}
	return true;
}

static void sequences_hold(void)
{
	CHECK(model_holds(0), "shape %d: wrong %d, stuck %d, too many states %d", weak.shape, weak.wrong, weak.stuck,
	      weak.small);
	CHECK(weak.states > 10000, "%llu states", (unsigned long long)weak.states);
}

/* Dropped, it breaks some sequence: and not by being too large to explore. */
static void every_rule_is_needed(void)
{
	CHECK(model->nrules > 1);
	for (int rule = 1; rule < model->nrules; rule++)
		CHECK(!model_holds(rule) && !weak.small && (weak.wrong || !model->must_see_wrong),
		      "%s: wrong %d, stuck %d, too many states %d", model->rules[rule], weak.wrong, weak.stuck,
		      weak.small);
}

static void more(void)
{
	weak.dropped = 0;
	model->more(&weak);
}

int main(void)
{
	weak.capacity = model->capacity;
	weak.places = calloc(weak.capacity, sizeof(*weak.places));
	if (!weak.places)
		return 1;
	PLAIN_RUN(sequences_hold);
	PLAIN_RUN(every_rule_is_needed);
	if (model->more)
		plain_run("", model->more_name, more);
	printf("%llu states\n", (unsigned long long)weak.states);
	free(weak.places);
	return plain_summary();
}
