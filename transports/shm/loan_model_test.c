/*
 * The life of a record, explored exhaustively: memory loaned by reference, its reader, its
 * owner who may fail and take it back at any moment, and a third rank that gets what the
 * reader made of it. Every interleaving, on a memory model as weak as Arm's.
 *
 * Each rank is a short program of memory operations. A rank may execute an operation
 * before an earlier one unless something orders them: an acquire or a compare-and-swap
 * before, a release or a compare-and-swap after, the same word, a value one makes and the
 * other uses, or a branch. What is executed is seen by all at once. So an ordering that
 * the code asks for and does not need would show as a rule that may be dropped.
 *
 * Memory whose owner has it back is overwritten at once with POISON. Required: nobody
 * uses a poisoned or half-written value; a reader is refused only when the owner took the
 * memory back; nobody waits for ever. Every rule is dropped once, and one of these must
 * then break. docs/design/shm-memory-ordering.md says which line of code each rule is.
 */
#include <stdint.h>
#include <stdlib.h>

#include "tests/plain.h"

enum { GOOD = 1, POISON = 9 };
enum loan { LOANED = 1, BACK, REVOKED };
enum { OWNER, READER, THIRD, RANKS };
enum { REGISTERS = 4, CODE = 24, AHEAD = 4 };

/* Words of shared memory: what is loaned (M), the loan and the counters of the channels
 * owner -> reader (no number), reader -> third or owner -> third (2), the reader's own
 * memory (N) or slot. */
enum word { MA, MB, LOAN, TURN, FREED, CLOSED, NA, NB, LOAN2, TURN2, FREED2, TOLD, WORDS };

enum order { PLAIN, ACQ, REL, BOTH };
enum op { END, STORE, STORE_REG, LOAD, AWAIT, AWAIT_ANY, SWAP, JUMP_IF_NOT, JUMP, MAY_JUMP, USE, REFUSED };

struct code {
	enum op op;
	enum word word;
	int value; /* stored, awaited, or swapped in; AWAIT_ANY: the other word, both awaited to be 1 */
	int reg;
	int to; /* index of an instruction */
	enum order order;
};

struct scene {
	const char *name;
	struct code code[RANKS][CODE];
	uint8_t first[WORDS];
};

struct rank_state {
	uint8_t at;
	uint8_t ahead; /* bit i: instruction at + 1 + i has been executed */
	uint8_t reg[REGISTERS];
};

struct state {
	uint8_t mem[WORDS];
	struct rank_state rank[RANKS];
	uint8_t wrong;
	uint8_t used; /* marks a place of the table as taken */
};

struct exploration {
	const struct scene *scene;
	uint64_t states, wrong, stuck, ends;
	struct state *seen;
	size_t capacity;
};

/* ---- What may overtake what ------------------------------------------------------------ */

static bool writes_word(const struct code *c)
{
	return c->op == STORE || c->op == STORE_REG || c->op == SWAP;
}

static bool touches_word(const struct code *c)
{
	return writes_word(c) || c->op == LOAD || c->op == AWAIT || c->op == AWAIT_ANY;
}

static bool writes_reg(const struct code *c)
{
	return c->op == LOAD || c->op == SWAP;
}

static bool reads_reg(const struct code *c)
{
	return c->op == STORE_REG || c->op == JUMP_IF_NOT || c->op == USE;
}

static bool branches(const struct code *c)
{
	return c->op == END || c->op == JUMP_IF_NOT || c->op == JUMP || c->op == MAY_JUMP || c->op == REFUSED ||
	       c->op == USE;
}

static bool waits(const struct code *c)
{
	return c->op == AWAIT || c->op == AWAIT_ANY;
}

/* Whether b, later in the program, may be executed before a. */
static bool may_overtake(const struct code *a, const struct code *b)
{
	if (branches(a) || branches(b) || waits(b))
		return false;
	if (a->order == ACQ || a->order == BOTH || b->order == REL || b->order == BOTH)
		return false;
	if (waits(a) && writes_word(b)) /* no store before it is sure to be reached */
		return false;
	if (touches_word(a) && touches_word(b) && a->word == b->word)
		return false;
	if (writes_reg(a) && (reads_reg(b) || writes_reg(b)) && a->reg == b->reg)
		return false;
	return !(reads_reg(a) && writes_reg(b) && a->reg == b->reg);
}

static bool executed(const struct rank_state *r, int ahead)
{
	return ahead > 0 && r->ahead >> (ahead - 1) & 1;
}

static bool may_run(const struct code *code, const struct rank_state *r, int ahead)
{
	if (executed(r, ahead))
		return false;
	for (int i = 0; i < ahead; i++)
		if (!executed(r, i) && !may_overtake(&code[r->at + i], &code[r->at + ahead]))
			return false;
	return true;
}

/* ---- Execution -------------------------------------------------------------------------- */

/* The effect of a memory operation; false: it has to wait. */
static bool execute(struct state *s, struct rank_state *r, const struct code *c)
{
	switch (c->op) {
	case STORE: s->mem[c->word] = (uint8_t)c->value; return true;
	case STORE_REG: s->mem[c->word] = r->reg[c->reg]; return true;
	case LOAD: r->reg[c->reg] = s->mem[c->word]; return true;
	case AWAIT: return s->mem[c->word] == c->value;
	case AWAIT_ANY: return s->mem[c->word] == 1 || s->mem[c->value] == 1;
	case SWAP:
		r->reg[c->reg] = s->mem[c->word] == LOANED;
		if (r->reg[c->reg])
			s->mem[c->word] = (uint8_t)c->value;
		return true;
	case USE:
		if (r->reg[c->reg] != GOOD)
			s->wrong = 1;
		return true;
	case REFUSED:
		if (s->mem[c->word] != REVOKED)
			s->wrong = 1;
		return true;
	default: return true;
	}
}

/* Where the rank goes on: past what it has executed ahead of time. */
static void advance(struct rank_state *r)
{
	bool done;

	do {
		done = r->ahead & 1;
		r->ahead >>= 1;
		r->at++;
	} while (done);
}

/* Execute the instruction `ahead` places on. False: it cannot be. taken: of a choice. */
static bool step(const struct scene *sc, struct state *s, int rank, int ahead, bool taken)
{
	struct rank_state *r = &s->rank[rank];
	const struct code *c = &sc->code[rank][r->at + ahead];

	if (c->op == END || !may_run(sc->code[rank], r, ahead) || (taken && c->op != MAY_JUMP))
		return false;
	if (!execute(s, r, c))
		return false;
	if (c->op == JUMP || (c->op == MAY_JUMP && taken) || (c->op == JUMP_IF_NOT && !r->reg[c->reg])) {
		r->at = (uint8_t)c->to;
		r->ahead = 0;
	} else if (ahead) {
		r->ahead |= (uint8_t)(1u << (ahead - 1));
	} else {
		advance(r);
	}
	return true;
}

/* ---- Exploration -------------------------------------------------------------------------- */

static uint64_t hash_of(const struct state *s)
{
	const unsigned char *p = (const unsigned char *)s;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(*s); i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

static bool enter(struct exploration *x, const struct state *s)
{
	size_t i = hash_of(s) % x->capacity;

	while (x->seen[i].used) {
		if (memcmp(&x->seen[i], s, sizeof(*s)) == 0)
			return false;
		i = (i + 1) % x->capacity;
	}
	x->seen[i] = *s;
	if (++x->states > x->capacity / 2)
		abort();
	return true;
}

static void explore(struct exploration *x, const struct state *s)
{
	bool moved = false, ended = true;

	if (!enter(x, s))
		return;
	if (s->wrong) {
		x->wrong++;
		return;
	}
	for (int r = 0; r < RANKS; r++) {
		ended = ended && x->scene->code[r][s->rank[r].at].op == END;
		for (int i = 0; i < 2 * (AHEAD + 1); i++) {
			struct state next = *s;

			if (s->rank[r].at + i / 2 < CODE && step(x->scene, &next, r, i / 2, i % 2)) {
				moved = true;
				explore(x, &next);
			}
		}
	}
	x->ends += ended;
	x->stuck += !moved && !ended;
}

static bool holds(const struct scene *sc, const char *rule)
{
	struct exploration x = {.scene = sc, .capacity = 1u << 20};
	struct state s;

	x.seen = calloc(x.capacity, sizeof(*x.seen));
	memset(&s, 0, sizeof(s));
	memcpy(s.mem, sc->first, sizeof(s.mem));
	s.used = 1;
	explore(&x, &s);
	printf("     %-34s %-44s %7llu states, %llu ends, %llu wrong, %llu stuck\n", sc->name, rule,
	       (unsigned long long)x.states, (unsigned long long)x.ends, (unsigned long long)x.wrong,
	       (unsigned long long)x.stuck);
	free(x.seen);
	return x.wrong == 0 && x.stuck == 0 && x.ends > 0;
}

/* ---- The protocol ------------------------------------------------------------------------- */

/* Overwritten by its owner: two words of memory. */
#define OVERWRITE(a, b)                         \
	{STORE, a, POISON}, {STORE, b, POISON}, \
	{                                       \
		END                             \
	}

/* Lend M to one reader, then fail, or wait until it is given back; either way the memory
 * is the caller's again. 0-3 lend, 4 fail or not, 5-6 wait, 7 revoke, 8- the caller writes. */
#define LENDER                                                                                               \
	{                                                                                                    \
		{STORE, MA, GOOD}, {STORE, MB, GOOD}, {STORE, LOAN, LOANED}, {STORE, TURN, 1, .order = REL}, \
		        {MAY_JUMP, .to = 7}, {AWAIT_ANY, FREED, CLOSED, .order = ACQ}, {JUMP, .to = 8},      \
		        {SWAP, LOAN, REVOKED, 0, .order = BOTH}, OVERWRITE(MA, MB)                           \
	}

/* Look at M in place, give it back, use what was seen. */
static const struct scene two_ranks = {
        .name = "owner, reader",
        .first = {[LOAN] = BACK},
        .code = {LENDER,
                 {{AWAIT, TURN, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {SWAP, LOAN, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 9},
                  {STORE, FREED, 1, .order = REL},
                  {USE, .reg = 0},
                  {USE, .reg = 1},
                  {END},
                  {REFUSED, LOAN},
                  {END}}},
};

/* The reader closes its end instead: the call it was in has failed. What it has read it
 * does not use, but its loads must be over when CLOSED is seen. */
static const struct scene reader_closes = {
        .name = "owner, reader that closes",
        .first = {[LOAN] = BACK},
        .code = {LENDER,
                 {{AWAIT, TURN, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {SWAP, LOAN, BACK, 2, .order = BOTH},
                  {STORE, CLOSED, 1, .order = REL},
                  {JUMP_IF_NOT, .reg = 2, .to = 8},
                  {USE, .reg = 0}, /* as good as any: they were read in time */
                  {USE, .reg = 1},
                  {END}}},
};

/* A fused step: what the reader makes of M goes into a slot (N) and on to a third rank. */
static const struct scene forwarded = {
        .name = "owner, reader, third by value",
        .first = {[LOAN] = BACK},
        .code = {LENDER,
                 {{AWAIT, TURN, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {STORE_REG, NA, 0, 0},
                  {STORE_REG, NB, 0, 1},
                  {SWAP, LOAN, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 10},
                  {STORE, FREED, 1, .order = REL},
                  {STORE, TURN2, 1, .order = REL},
                  {END},
                  {REFUSED, LOAN},
                  {STORE, TOLD, 1, .order = REL},
                  {END}},
                 {{AWAIT_ANY, TURN2, TOLD, .order = ACQ},
                  {LOAD, TURN2, 0, 3, .order = ACQ},
                  {JUMP_IF_NOT, .reg = 3, .to = 7},
                  {LOAD, NA, 0, 0},
                  {LOAD, NB, 0, 1},
                  {USE, .reg = 0},
                  {USE, .reg = 1},
                  {END}}},
};

/* The reader keeps what it got in memory of its own (N) and lends that to a third; it may
 * fail itself, at any time, as soon as it has loaned. */
static const struct scene loaned_on = {
        .name = "owner, reader that lends, third",
        .first = {[LOAN] = BACK, [LOAN2] = BACK},
        .code = {LENDER,
                 {{AWAIT, TURN, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {STORE_REG, NA, 0, 0},
                  {STORE_REG, NB, 0, 1},
                  {SWAP, LOAN, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 17},
                  {STORE, FREED, 1, .order = REL},
                  {STORE, LOAN2, LOANED},
                  {STORE, TURN2, 1, .order = REL},
                  {MAY_JUMP, .to = 13},
                  {AWAIT, FREED2, 1, .order = ACQ},
                  {JUMP, .to = 14},
                  {SWAP, LOAN2, REVOKED, 3, .order = BOTH},
                  OVERWRITE(NA, NB), /* 14 to 16 */
                  {REFUSED, LOAN},
                  {STORE, TOLD, 1, .order = REL},
                  OVERWRITE(NA, NB)},
                 {{AWAIT_ANY, TURN2, TOLD, .order = ACQ},
                  {LOAD, TURN2, 0, 3, .order = ACQ},
                  {JUMP_IF_NOT, .reg = 3, .to = 11},
                  {LOAD, NA, 0, 0},
                  {LOAD, NB, 0, 1},
                  {SWAP, LOAN2, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 11},
                  {STORE, FREED2, 1, .order = REL},
                  {USE, .reg = 0},
                  {USE, .reg = 1},
                  {END},
                  {END}}},
};

/* The same memory loaned to two readers: one record each. */
static const struct scene two_readers = {
        .name = "owner, two readers",
        .first = {[LOAN] = BACK, [LOAN2] = BACK},
        .code = {{{STORE, MA, GOOD},
                  {STORE, MB, GOOD},
                  {STORE, LOAN, LOANED},
                  {STORE, TURN, 1, .order = REL},
                  {STORE, LOAN2, LOANED},
                  {STORE, TURN2, 1, .order = REL},
                  {MAY_JUMP, .to = 10},
                  {AWAIT, FREED, 1, .order = ACQ},
                  {AWAIT, FREED2, 1, .order = ACQ},
                  {JUMP, .to = 12},
                  {SWAP, LOAN, REVOKED, 0, .order = BOTH},
                  {SWAP, LOAN2, REVOKED, 1, .order = BOTH},
                  OVERWRITE(MA, MB)},
                 {{AWAIT, TURN, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {SWAP, LOAN, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 9},
                  {STORE, FREED, 1, .order = REL},
                  {USE, .reg = 0},
                  {USE, .reg = 1},
                  {END},
                  {REFUSED, LOAN},
                  {END}},
                 {{AWAIT, TURN2, 1, .order = ACQ},
                  {LOAD, MA, 0, 0},
                  {LOAD, MB, 0, 1},
                  {SWAP, LOAN2, BACK, 2, .order = BOTH},
                  {JUMP_IF_NOT, .reg = 2, .to = 9},
                  {STORE, FREED2, 1, .order = REL},
                  {USE, .reg = 0},
                  {USE, .reg = 1},
                  {END},
                  {REFUSED, LOAN2},
                  {END}}},
};

/* ---- Rules, dropped one at a time ----------------------------------------------------------- */

/* Exchange two instructions, move the second up to the first, make one plain, leave one out
 * (a load into a register that nobody uses), or ignore what a swap said. */
struct dropped {
	const char *rule;
	const struct scene *scene;
	int rank, a, b;
	enum { SWAPPED, MOVED_UP, UNORDERED, LEFT_OUT, IGNORED } change;
};

static const struct dropped dropped[] = {
        {"the turn is a release", &two_ranks, OWNER, 3, 0, UNORDERED},
        {"the turn is acquired", &two_ranks, READER, 0, 0, UNORDERED},
        {"the loan is loaned before the turn", &two_ranks, OWNER, 2, 3, SWAPPED},
        {"the reader's swap orders its reads", &two_ranks, READER, 3, 0, UNORDERED},
        {"the owner's swap orders what follows", &two_ranks, OWNER, 7, 0, UNORDERED},
        {"the owner revokes before it returns", &two_ranks, OWNER, 7, 0, LEFT_OUT},
        {"the reader swaps after it has read", &two_ranks, READER, 2, 3, SWAPPED},
        {"a reader that is refused uses nothing", &two_ranks, READER, 4, 0, IGNORED},
        {"closing comes after the last read", &reader_closes, READER, 2, 4, SWAPPED},
        {"what is derived is posted after the swap", &forwarded, READER, 5, 8, MOVED_UP},
        {"a reader that is refused posts nothing", &forwarded, READER, 6, 0, IGNORED},
        {"the reader's swap orders its reads", &forwarded, READER, 5, 0, UNORDERED},
        {"the third's swap orders its reads", &loaned_on, THIRD, 5, 0, UNORDERED},
        {"the middle revokes before it returns", &loaned_on, READER, 13, 0, LEFT_OUT},
        {"the middle is not refused and lends on", &loaned_on, READER, 6, 0, IGNORED},
        {"every record is revoked", &two_readers, OWNER, 11, 0, LEFT_OUT},
        {"every reader is waited for", &two_readers, OWNER, 8, 0, LEFT_OUT},
};

static void drop(struct scene *sc, const struct dropped *d)
{
	struct code *code = sc->code[d->rank], *a = &code[d->a], kept = *a;

	switch (d->change) {
	case SWAPPED:
		*a = code[d->b];
		code[d->b] = kept;
		break;
	case MOVED_UP:
		kept = code[d->b];
		memmove(a + 1, a, (size_t)(d->b - d->a) * sizeof(*a));
		*a = kept;
		break;
	case UNORDERED: a->order = PLAIN; break;
	case LEFT_OUT: *a = (struct code){.op = LOAD, .word = TOLD, .reg = 3}; break;
	default: a->to = d->a + 1; break; /* goes on as if it had not been refused */
	}
}

TEST(loan_model, records_hold)
{
	CHECK(holds(&two_ranks, "(all kept)"));
	CHECK(holds(&reader_closes, "(all kept)"));
	CHECK(holds(&forwarded, "(all kept)"));
	CHECK(holds(&loaned_on, "(all kept)"));
	CHECK(holds(&two_readers, "(all kept)"));
}

TEST(loan_model, every_rule_is_needed)
{
	for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++) {
		struct scene sc = *dropped[i].scene;

		drop(&sc, &dropped[i]);
		CHECK(!holds(&sc, dropped[i].rule), "dropping \"%s\" goes unnoticed", dropped[i].rule);
	}
}
