/*
 * The slot and sleep protocol of shm, explored exhaustively: one sender, one
 * receiver, two slots, a few frames, every interleaving of their memory operations.
 *
 * Memory is weaker than x86 and as weak as Arm where the protocol cares: a thread's
 * stores become visible to the other in any order, one by one, unless a store is a
 * release, which waits for all earlier ones; loads are satisfied from the thread's own
 * pending stores first. (Loads that run early are covered by mutants that issue them
 * early.) A membarrier makes every pending store of both threads visible.
 *
 * Every rule of the protocol is dropped once, and the exploration must then find a
 * torn frame, an overwritten one, or a sleeper that nobody wakes: so the model can
 * fail. docs/design/shm-memory-ordering.md says which line of code each rule is.
 */
#include <stdint.h>
#include <stdlib.h>

#include "tests/plain.h"

enum { SLOTS = 2, FRAMES = 4, BUFFER = 8 };

/* Words of shared memory. */
enum { BYTES_A, BYTES_B = BYTES_A + SLOTS, TURN = BYTES_B + SLOTS, FREED = TURN + SLOTS, ARMED, WORDS = ARMED + 2 };
enum { SENDER, RECEIVER };

enum rule {
	RULE_NONE,
	RULE_TURN_RELEASE,   /* the turn is published after the bytes */
	RULE_TURN_ACQUIRE,   /* the bytes are read after the turn */
	RULE_FREED_AFTER,    /* freed is stored after the last read */
	RULE_CREDIT,         /* a slot is written only when freed covers it */
	RULE_BARRIER,        /* a membarrier between armed and the last look */
	RULE_RECHECK,        /* the last look itself */
	RULE_ARM_FIRST,      /* armed before the last look, not after */
	RULE_BELL_AFTER,     /* the sleeper is looked for after the store, not before */
	RULE_BELL_ON_CREDIT, /* giving back also rings */
	RULES
};

static const char *const rule_names[RULES] = {"(all kept)", "turn-release",  "turn-acquire", "freed-after",
                                              "credit",     "barrier",       "recheck",      "arm-first",
                                              "bell-after", "bell-on-credit"};

struct pending {
	uint8_t word, value, release, spare;
};

struct thread {
	uint8_t at;   /* next operation */
	uint8_t n;    /* frames sent, or given back */
	uint8_t seen; /* sender: freed as last loaded */
	uint8_t a, b; /* bytes read */
	uint8_t bell; /* armed as loaded too early */
	uint8_t asleep;
	uint8_t stores;
	struct pending store[BUFFER];
};

struct state {
	uint8_t mem[WORDS];
	uint8_t wake[2]; /* the eventfds */
	uint8_t wrong;
	struct thread thread[2];
};

struct model {
	enum rule dropped;
	bool fences; /* posters fence; sleepers have no membarrier */
	uint64_t states, torn, stuck;
	struct state *seen;
	size_t capacity;
};

/* ---- Memory ------------------------------------------------------------------- */

static uint8_t load(const struct state *s, int t, int word)
{
	const struct thread *me = &s->thread[t];

	for (int i = me->stores - 1; i >= 0; i--) {
		if (me->store[i].word == word)
			return me->store[i].value;
	}
	return s->mem[word];
}

static void store(struct state *s, int t, int word, int value, bool release)
{
	struct thread *me = &s->thread[t];

	if (me->stores == BUFFER)
		abort();
	me->store[me->stores++] = (struct pending){(uint8_t)word, (uint8_t)value, release, 0};
}

static bool may_commit(const struct thread *me, int i)
{
	if (i > 0 && me->store[i].release)
		return false;
	for (int k = 0; k < i; k++) {
		if (me->store[k].word == me->store[i].word)
			return false;
	}
	return true;
}

static void commit(struct state *s, int t, int i)
{
	struct thread *me = &s->thread[t];

	s->mem[me->store[i].word] = me->store[i].value;
	for (int k = i; k + 1 < me->stores; k++)
		me->store[k] = me->store[k + 1];
	me->stores--;
	memset(&me->store[me->stores], 0, sizeof(me->store[0]));
}

static void drain(struct state *s, int t)
{
	while (s->thread[t].stores)
		commit(s, t, 0);
}

/* An atomic read-modify-write, sequentially consistent. */
static void set_armed(struct state *s, int t, int value)
{
	drain(s, t);
	s->mem[ARMED + t] = (uint8_t)value;
}

static void barrier(const struct model *m, struct state *s, int t)
{
	drain(s, t);
	if (!m->fences && m->dropped != RULE_BARRIER)
		drain(s, !t);
}

/* ---- The two programs: one memory operation per step --------------------------------- */

enum {
	START,
	LOOK_AGAIN, /* sender: read freed */
	ARM,
	BARRIER,
	LAST_LOOK,
	SLEEP,
	WORK_1, /* write or read the bytes */
	WORK_2,
	PUBLISH, /* the turn, or freed */
	FENCE,
	BELL,
	DONE
};

static bool satisfied(const struct model *m, const struct state *s, int t)
{
	const struct thread *me = &s->thread[t];

	if (t == SENDER)
		return m->dropped == RULE_CREDIT || me->n - load(s, t, FREED) < SLOTS;
	return load(s, t, TURN + me->n % SLOTS) == me->n + 1;
}

static void ring(struct state *s, int t, uint8_t armed)
{
	if (armed)
		s->wake[!t] = 1;
}

static void check_bytes(struct state *s, const struct thread *me)
{
	if (me->a != me->n + 1 || me->b != me->n + 1)
		s->wrong = 1;
}

static void publish(const struct model *m, struct state *s, int t)
{
	const struct thread *me = &s->thread[t];

	if (t == SENDER)
		store(s, t, TURN + me->n % SLOTS, me->n + 1, m->dropped != RULE_TURN_RELEASE);
	else
		store(s, t, FREED, me->n + 1, true);
}

static void work(struct state *s, int t, int word)
{
	struct thread *me = &s->thread[t];

	if (t == SENDER)
		store(s, t, word + me->n % SLOTS, me->n + 1, false);
	else if (word == BYTES_A)
		me->a = load(s, t, word + me->n % SLOTS);
	else
		me->b = load(s, t, word + me->n % SLOTS);
}

static void finish(struct thread *me)
{
	me->n++;
	me->a = me->b = me->bell = 0;
	me->at = me->n == FRAMES ? DONE : START;
}

/* The receiver with the order of its operations changed by a mutant. */
static bool odd_receiver(const struct model *m, struct state *s)
{
	struct thread *me = &s->thread[RECEIVER];

	if (m->dropped == RULE_TURN_ACQUIRE) {
		/* Bytes first, turn after: what an early load would see. */
		if (me->at == START && !me->a) {
			me->a = load(s, RECEIVER, BYTES_A + me->n % SLOTS) + 16;
			return true;
		}
		if (me->at == WORK_1) {
			me->a -= 16;
			me->at = WORK_2;
			return true;
		}
	}
	if (m->dropped == RULE_FREED_AFTER) {
		/* Given back before the second half is read. */
		if (me->at == WORK_2) {
			publish(m, s, RECEIVER);
			me->at = PUBLISH;
			return true;
		}
		if (me->at == PUBLISH) {
			work(s, RECEIVER, BYTES_B);
			check_bytes(s, me);
			me->at = FENCE;
			return true;
		}
	}
	return false;
}

static void arm(const struct model *m, struct state *s, int t)
{
	struct thread *me = &s->thread[t];

	if (m->dropped != RULE_ARM_FIRST) {
		set_armed(s, t, 1);
		me->at = BARRIER;
		return;
	}
	/* The last look came first: the other end may move in between. */
	if (!me->bell) {
		me->bell = satisfied(m, s, t) ? 2 : 1;
		return;
	}
	me->at = me->bell == 2 ? START : SLEEP;
	if (me->bell == 1)
		set_armed(s, t, 1);
	me->bell = 0;
}

static void last_look(const struct model *m, struct state *s, int t)
{
	struct thread *me = &s->thread[t];

	me->at = SLEEP;
	if (satisfied(m, s, t)) {
		set_armed(s, t, 0);
		me->at = START;
	}
}

static bool wake_up(struct state *s, int t)
{
	if (!s->wake[t])
		return false;
	s->wake[t] = 0;
	set_armed(s, t, 0);
	s->thread[t].at = START;
	return true;
}

static void hand_over(const struct model *m, struct state *s, int t)
{
	struct thread *me = &s->thread[t];

	if (m->dropped == RULE_BELL_AFTER && !me->bell) {
		me->bell = (uint8_t)(2 + load(s, t, ARMED + !t));
		return;
	}
	publish(m, s, t);
	me->at = FENCE;
}

/* False: the thread cannot move. */
static bool step(const struct model *m, struct state *s, int t)
{
	struct thread *me = &s->thread[t];

	if (t == RECEIVER && odd_receiver(m, s))
		return true;
	switch (me->at) {
	case START: me->at = satisfied(m, s, t) ? WORK_1 : ARM; return true;
	case ARM: arm(m, s, t); return true;
	case BARRIER:
		barrier(m, s, t);
		me->at = m->dropped == RULE_RECHECK ? SLEEP : LAST_LOOK;
		return true;
	case LAST_LOOK: last_look(m, s, t); return true;
	case SLEEP: return wake_up(s, t);
	case WORK_1:
		work(s, t, BYTES_A);
		me->at = WORK_2;
		return true;
	case WORK_2:
		work(s, t, BYTES_B);
		if (t == RECEIVER)
			check_bytes(s, me);
		me->at = PUBLISH;
		return true;
	case PUBLISH: hand_over(m, s, t); return true;
	case FENCE:
		if (m->fences)
			drain(s, t);
		me->at = BELL;
		return true;
	case BELL:
		if (t == SENDER || m->dropped != RULE_BELL_ON_CREDIT)
			ring(s, t, m->dropped == RULE_BELL_AFTER ? me->bell == 3 : load(s, t, ARMED + !t));
		finish(me);
		return true;
	default: return false;
	}
}

/* ---- Exploration ----------------------------------------------------------------------- */

static uint64_t hash_of(const struct state *s)
{
	const unsigned char *p = (const unsigned char *)s;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < sizeof(*s); i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h ^ h >> 29;
}

/* True if new. An all-zero state marks an empty place; no state is all zero, as the
 * first byte of wrong is set to 2 in stored ones. */
static bool enter(struct model *m, const struct state *s)
{
	struct state key = *s;
	size_t i = hash_of(s) % m->capacity;

	key.wrong |= 2;
	while (m->seen[i].wrong) {
		if (memcmp(&m->seen[i], &key, sizeof(key)) == 0)
			return false;
		i = (i + 1) % m->capacity;
	}
	m->seen[i] = key;
	if (++m->states > m->capacity / 2)
		abort();
	return true;
}

static void explore(struct model *m, const struct state *s)
{
	bool moved = false;

	if (!enter(m, s))
		return;
	if (s->wrong) {
		m->torn++;
		return;
	}
	for (int t = 0; t < 2; t++) {
		struct state next = *s;

		if (s->thread[t].stores + 1 < BUFFER && step(m, &next, t)) {
			moved = true;
			explore(m, &next);
		}
		for (int i = 0; i < s->thread[t].stores; i++) {
			if (!may_commit(&s->thread[t], i))
				continue;
			moved = true;
			next = *s;
			commit(&next, t, i);
			explore(m, &next);
		}
	}
	if (!moved && (s->thread[SENDER].at != DONE || s->thread[RECEIVER].at != DONE))
		m->stuck++;
}

static void run_model(enum rule dropped, bool fences, bool must_hold)
{
	struct model m = {.dropped = dropped, .fences = fences, .capacity = 1u << 21};
	struct state s;

	m.seen = calloc(m.capacity, sizeof(*m.seen));
	memset(&s, 0, sizeof(s));
	explore(&m, &s);
	printf("     %-15s %-10s %7llu states, %llu torn, %llu stuck\n", rule_names[dropped],
	       fences ? "fences" : "membarrier", (unsigned long long)m.states, (unsigned long long)m.torn,
	       (unsigned long long)m.stuck);
	if (must_hold)
		CHECK(m.torn == 0 && m.stuck == 0);
	else
		CHECK(m.torn + m.stuck > 0, "dropping %s goes unnoticed", rule_names[dropped]);
	free(m.seen);
}

TEST(model, protocol_holds)
{
	run_model(RULE_NONE, false, true);
	run_model(RULE_NONE, true, true);
	/* With fences on the posting side the sleeper needs no membarrier. */
	run_model(RULE_BARRIER, true, true);
}

TEST(model, every_rule_is_needed)
{
	for (int r = RULE_NONE + 1; r < RULES; r++)
		run_model((enum rule)r, false, false);
}

/* ---- Loaned memory: the reader's compare-and-swap against the owner's ------------------------ */

/* Reader: two reads, then LOANED -> BACK. Owner: LOANED -> REVOKED, then two overwrites. All
 * interleavings of three operations with three, by their order bits. */
static bool loan_holds(unsigned order, bool swap_first)
{
	enum { LOANED, BACK, REVOKED };
	int loan = LOANED, a = 1, b = 1, read_a = 0, read_b = 0, reader = 0, owner = 0;
	bool used = false, mine = false;

	for (int i = 0; i < 6; i++) {
		if (order >> i & 1) {
			const int op = owner++;

			if (op == 0 && loan == LOANED) {
				loan = REVOKED;
				mine = true;
			} else if (op == 0) {
				mine = true; /* BACK: nobody reads any more */
			} else if (mine) {
				*(op == 1 ? &a : &b) = 2;
			}
			continue;
		}
		switch ((reader++ + (swap_first ? 2 : 0)) % 3) {
		case 0: read_a = a; break;
		case 1: read_b = b; break;
		case 2:
			used = loan == LOANED;
			if (used)
				loan = BACK;
			break;
		}
	}
	return !used || (read_a == 1 && read_b == 1);
}

TEST(model, loans_are_whole_or_refused)
{
	int broken = 0;

	for (unsigned order = 0; order < 64; order++) {
		if (__builtin_popcount(order) != 3)
			continue;
		CHECK(loan_holds(order, false), "order %x", order);
		broken += !loan_holds(order, true);
	}
	CHECK(broken > 0, "swapping before reading goes unnoticed");
}
