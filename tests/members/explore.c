/*
 * Explorer of the decision who the members are (src/members/decide.c, detect.c): all orders of events of small jobs.
 *
 * The functions are the library's own. The adversary is stronger than a network and a machine: a message that was sent
 * arrives at any time, at whatever time again, or never; any member begins a ballot at any time, and goes on with those
 * that it gave up; members die for good between any two steps, also while they give their words to the others, so that
 * any of those has them; who lives may be suspected or reported as dead; a death is noticed late or never, and words
 * are read late.
 * Safety alone: no two decisions differ, and who leaves or never promised is in none.
 *
 * usage: members-explore suite|all | CASE...   suite: what takes seconds; all: every case and every planted defect
 *        CASE: n=3 b=2 c=2 hosts=1 leave=0 m=0 (members, ballots, deaths, hosts, who leaves, number of the defect)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hash.h"
#include "base/planted.h"
#include "members/decide.h"
#include "members/detect.h"

enum { P = COLL_MEMBERS_MAX, B = 3 };

enum coll_planted coll_planted;

struct explored {
	int members, ballots, deaths, hosts, leavers;
	enum coll_planted defect;
};
static struct explored job;

/* All zero at the beginning. No padding: it is hashed as it is. */
struct state {
	struct coll_voter voter[P];
	struct coll_words given[P][P]; /* [reader][writer]: the words that lie there */
	struct coll_words promise[B][P];
	struct coll_ballot ballot[B];               /* in number order */
	uint8_t begun[B], promised[B], accepted[B]; /* masks: who sent that answer */
	uint8_t dead, ndead;
	uint8_t decided;
	struct coll_member_set decision;
};

static const char *violation;

static bool in(unsigned mask, int p)
{
	return mask >> p & 1;
}

static int host_of(int p)
{
	return p % job.hosts;
}

static bool leaves(int p)
{
	return p >= job.members - job.leavers;
}

/* ---- States seen ---- */

static struct {
	uint64_t *at;
	size_t room, used;
} seen;

static bool insert(uint64_t hash)
{
	size_t i = hash & (seen.room - 1);

	while (seen.at[i] && seen.at[i] != hash)
		i = (i + 1) & (seen.room - 1);
	if (seen.at[i])
		return false;
	seen.at[i] = hash;
	seen.used++;
	return true;
}

static void grow(void)
{
	uint64_t *old = seen.at;
	const size_t room = seen.room;

	if (seen.used < seen.room / 2 && seen.room)
		return;
	seen.room = room ? 2 * room : 1 << 16;
	seen.used = 0;
	seen.at = calloc(seen.room, sizeof(*seen.at));
	if (!seen.at)
		exit(2);
	for (size_t i = 0; i < room; i++)
		if (old[i])
			insert(old[i]);
	free(old);
}

static uint64_t hash_of(const struct state *s)
{
	const uint64_t *w = (const uint64_t *)(const void *)s;
	uint64_t h = 7;

	for (size_t i = 0; i < sizeof(*s) / sizeof(*w); i++) {
		h = (h ^ w[i]) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return coll_mix64(h) | 1;
}

static struct {
	struct state *at;
	size_t room, count;
} todo;

static void push(const struct state *s)
{
	grow();
	if (!insert(hash_of(s)))
		return;
	if (todo.count == todo.room) {
		todo.room = todo.room ? 2 * todo.room : 1024;
		todo.at = realloc(todo.at, todo.room * sizeof(*todo.at));
		if (!todo.at)
			exit(2);
	}
	todo.at[todo.count++] = *s;
}

/* ---- Voters ---- */

static void send_answer(struct state *s, int p, enum coll_vote vote, int b)
{
	if (vote == COLL_VOTE_PROMISE && !in(s->promised[b], p) && s->ballot[b].phase == COLL_BALLOT_PREPARES) {
		s->promised[b] |= (uint8_t)(1u << p);
		s->promise[b][p] = s->voter[p].words;
	} else if (vote == COLL_VOTE_ACCEPTED) {
		s->accepted[b] |= (uint8_t)(1u << p);
	}
}

/* Its readers: the others of its host. */
static unsigned readers_of(const struct state *s, int p)
{
	unsigned readers = 0;

	for (int q = 0; q < job.members; q++)
		if (q != p && host_of(q) == host_of(p) && !in(s->dead, q))
			readers |= 1u << q;
	return readers;
}

static void give(struct state *s, int p, unsigned readers)
{
	for (int q = 0; q < job.members && job.deaths > 0; q++)
		if (in(readers, q))
			s->given[q][p] = s->voter[p].words;
}

/* What it was is of no use to anybody: fewer states. */
static void die(struct state *s, int p)
{
	s->dead |= (uint8_t)(1u << p);
	s->ndead++;
	memset(&s->voter[p], 0, sizeof(s->voter[p]));
	memset(s->given[p], 0, sizeof(s->given[p]));
}

/*
 * A voter has taken a message. It gives its words to all of its host, and answers then; or it dies when some of them
 * have the words. While it lives nobody makes anything of them, so it need not wait between two of them.
 */
static void carry_out(const struct state *s, int p, struct coll_voter_acts acts, int b)
{
	struct state t = *s;
	const unsigned readers = readers_of(s, p);

	if (acts.write)
		give(&t, p, readers);
	send_answer(&t, p, acts.answer, b);
	if (t.voter[p].owed)
		send_answer(&t, p, coll_decide_written(&t.voter[p]), b);
	push(&t);
	if (!acts.write || s->ndead >= job.deaths)
		return;
	for (unsigned have = readers;; have = (have - 1) & readers) {
		t = *s;
		give(&t, p, have);
		send_answer(&t, p, acts.answer, b);
		die(&t, p);
		push(&t);
		if (!have)
			break;
	}
}

static void voter_events(const struct state *s, int p)
{
	for (int b = 0; b < job.ballots; b++) {
		struct state t = *s;
		struct coll_voter_acts acts;

		if (!s->begun[b])
			continue;
		acts = coll_decide_prepare(&t.voter[p], s->ballot[b].number);
		carry_out(&t, p, acts, b);
		if (s->ballot[b].phase == COLL_BALLOT_PREPARES)
			continue;
		t = *s;
		acts = coll_decide_propose(&t.voter[p], s->ballot[b].number, &s->ballot[b].value);
		carry_out(&t, p, acts, b);
	}
}

static void death(const struct state *s, int p)
{
	struct state t = *s;

	if (s->ndead >= job.deaths)
		return;
	die(&t, p);
	push(&t);
}

/* ---- Proposers ---- */

/* How the proposer sees a member. ENDED_UNREAD: and it has not looked whether words lie there. */
enum view { AS_IT_IS, REPORTED, ENDED_UNREAD, ENDED_READ, VIEWS };

/* Those that change nothing are left out: who does not answer is suspected anyhow, and who is not read, too. */
static bool possible(const struct state *s, int p, enum view v)
{
	const bool wrongly = job.defect == COLL_PLANTED_DETECT_REPORTED || job.defect == COLL_PLANTED_DECIDE_SUSPECTED;

	if (v == ENDED_UNREAD && job.defect != COLL_PLANTED_DETECT_EARLY)
		return false;
	return in(s->dead, p) ? v != AS_IT_IS : v == AS_IT_IS || (v == REPORTED && wrongly);
}

static struct coll_member_state state_of(const struct state *s, int owner, int p, enum view v, bool heard)
{
	struct coll_detect_facts f = {.here = host_of(p) == host_of(owner), .heard = heard, .silent = true};
	struct coll_member_state m = {.words = {0}};

	f.reported = v == REPORTED;
	f.ended = v >= ENDED_UNREAD;
	f.words_read = v == ENDED_READ;
	m.standing = coll_detect_standing(&f);
	if (m.standing == COLL_STANDING_ENDED && v == ENDED_READ)
		m.words = s->given[owner][p];
	return m;
}

static void decided(struct state *s, const struct coll_ballot *b)
{
	if (s->decided && !coll_set_same(&s->decision, &b->value))
		violation = "two decisions";
	s->decided = 1;
	s->decision = b->value;
	for (int p = 0; p < job.members; p++)
		if (coll_set_has(&b->value, p) && leaves(p))
			violation = "who leaves is a member";
	if (!coll_set_within(&b->value, job.members))
		violation = "a member that there is not";
}

/* The promises in the mask have arrived, and the members are seen so. */
static void look(const struct state *s, int b, int owner, unsigned arrived, const enum view *views)
{
	struct state t = *s;
	struct coll_member_state member[P];
	struct coll_ballot *ballot = &t.ballot[b];
	const bool prepares = ballot->phase == COLL_BALLOT_PREPARES;
	const unsigned answers = prepares ? arrived : s->accepted[b];
	enum coll_ballot_act act;

	for (int p = 0; p < job.members; p++) {
		if (prepares && in(arrived, p))
			coll_decide_promised(ballot, p, ballot->number, leaves(p), &s->promise[b][p]);
		else if (!prepares && in(answers, p))
			coll_decide_accepted(ballot, p, ballot->number);
		member[p] = state_of(s, owner, p, views[p], in(answers, p));
	}
	act = coll_decide_look(ballot, member);
	if (act == COLL_ACT_DECIDED)
		decided(&t, ballot);
	else if (act != COLL_ACT_PROPOSE)
		return;
	/* What was said so far does not count any more. */
	memset(ballot->said, 0, sizeof(ballot->said));
	ballot->phase = COLL_BALLOT_PROPOSES;
	ballot->above = ballot->number;
	ballot->best = 0;
	for (int p = 0; prepares && p < job.members; p++)
		memset(&t.promise[b][p], 0, sizeof(t.promise[b][p]));
	push(&t);
}

static void looks(const struct state *s, int b, int owner, unsigned arrived)
{
	enum view views[P] = {AS_IT_IS};
	int p = 0;

	while (p < job.members && !violation) {
		bool fits = views[owner] == AS_IT_IS;

		for (p = 0; p < job.members; p++)
			fits = fits && possible(s, p, views[p]);
		if (fits)
			look(s, b, owner, arrived, views);
		for (p = 0; p < job.members && ++views[p] == VIEWS; p++)
			views[p] = AS_IT_IS;
	}
}

static void proposer_events(const struct state *s, int p)
{
	for (int b = 0; b < job.ballots; b++) {
		if (!s->begun[b]) {
			struct state t = *s;

			t.begun[b] = (uint8_t)(p + 1);
			coll_decide_begin(&t.ballot[b], coll_ballot_number((uint64_t)b + 1, p), job.members);
			push(&t);
		} else if (s->begun[b] == p + 1 && s->ballot[b].phase == COLL_BALLOT_PREPARES) {
			for (unsigned arrived = s->promised[b]; arrived; arrived = (arrived - 1) & s->promised[b])
				looks(s, b, p, arrived);
		} else if (s->begun[b] == p + 1) {
			looks(s, b, p, 0);
		}
	}
}

/* ---- Runs ---- */

static bool explore(const struct explored *e)
{
	const time_t begin = time(NULL);
	struct state s;

	job = *e;
	coll_planted = e->defect;
	violation = NULL;
	memset(&s, 0, sizeof(s));
	if (seen.at)
		memset(seen.at, 0, seen.room * sizeof(*seen.at));
	seen.used = todo.count = 0;
	push(&s);
	while (todo.count > 0 && !violation) {
		s = todo.at[--todo.count];
		for (int p = 0; p < job.members && !violation; p++) {
			if (in(s.dead, p))
				continue;
			voter_events(&s, p);
			proposer_events(&s, p);
			death(&s, p);
		}
	}
	printf("n=%d b=%d c=%d hosts=%d leave=%d m=%d: %zu states, %lld s: %s\n", job.members, job.ballots, job.deaths,
	       job.hosts, job.leavers, (int)e->defect, seen.used, (long long)(time(NULL) - begin),
	       violation ? violation : "no violation");
	fflush(stdout);
	return !violation;
}

/* The rules, whole. The first ones take seconds. */
static const struct explored rules[] = {
        {.members = 2, .ballots = 2, .deaths = 1, .hosts = 1},
        {.members = 3, .ballots = 2, .deaths = 0, .hosts = 1, .leavers = 1},
        {.members = 3, .ballots = 2, .deaths = 1, .hosts = 1},
        {.members = 3, .ballots = 2, .deaths = 1, .hosts = 2},
        {.members = 3, .ballots = 2, .deaths = 2, .hosts = 1, .leavers = 1},
};
enum { RULES = sizeof(rules) / sizeof(rules[0]), RULES_QUICK = 3 };

/* Every defect, in a case that has what it needs. */
static const struct explored defects[] = {
        {3, 2, 2, 1, 0, COLL_PLANTED_DECIDE_UNREAD},         {3, 2, 0, 1, 0, COLL_PLANTED_DECIDE_ANSWERS_ONLY},
        {3, 3, 0, 1, 0, COLL_PLANTED_DECIDE_KEEPS_PROMISED}, {3, 2, 0, 1, 0, COLL_PLANTED_DECIDE_OWN_VALUE},
        {3, 3, 0, 1, 0, COLL_PLANTED_DECIDE_LOWEST},         {3, 2, 0, 1, 0, COLL_PLANTED_DECIDE_LATE_ACCEPT},
        {3, 2, 2, 1, 0, COLL_PLANTED_DECIDE_EARLY_ANSWER},   {2, 2, 0, 1, 0, COLL_PLANTED_DECIDE_HALF},
        {3, 2, 2, 1, 0, COLL_PLANTED_DECIDE_WORDS_ACCEPT},   {3, 2, 2, 1, 0, COLL_PLANTED_DECIDE_GOES_ON},
        {3, 2, 0, 1, 0, COLL_PLANTED_DECIDE_SUSPECTED},      {3, 2, 0, 1, 0, COLL_PLANTED_DECIDE_FORGETS},
        {3, 2, 2, 1, 0, COLL_PLANTED_DETECT_EARLY},          {3, 2, 2, 2, 0, COLL_PLANTED_DETECT_OTHER_HOST},
        {3, 2, 0, 1, 0, COLL_PLANTED_DETECT_REPORTED},
};
enum { DEFECTS = sizeof(defects) / sizeof(defects[0]) };
_Static_assert(DEFECTS == COLL_PLANTED_DECIDE_END - COLL_PLANTED_DECIDE_FIRST, "a case for every defect");

/* Those that take longer than two seconds are left to `all`. */
static bool is_slow(enum coll_planted defect)
{
	return defect == COLL_PLANTED_DECIDE_WORDS_ACCEPT || defect == COLL_PLANTED_DETECT_OTHER_HOST;
}

static int campaign(bool all)
{
	int wrong = 0;

	for (int i = 0; i < (all ? RULES : RULES_QUICK); i++)
		wrong += !explore(&rules[i]);
	for (int i = 0; i < DEFECTS; i++)
		if (all || !is_slow(defects[i].defect))
			wrong += explore(&defects[i]);
	printf("%d wrong\n", wrong);
	return wrong != 0;
}

static bool read_case(const char *arg, struct explored *e)
{
	int m = (int)e->defect;
	const bool good = sscanf(arg, "n=%d", &e->members) == 1 || sscanf(arg, "b=%d", &e->ballots) == 1 ||
	                  sscanf(arg, "c=%d", &e->deaths) == 1 || sscanf(arg, "hosts=%d", &e->hosts) == 1 ||
	                  sscanf(arg, "leave=%d", &e->leavers) == 1 || sscanf(arg, "m=%d", &m) == 1;

	e->defect = m ? (enum coll_planted)(m < COLL_PLANTED_DECIDE_FIRST ? COLL_PLANTED_DECIDE_FIRST + m - 1 : m)
	              : COLL_PLANTED_NONE;
	return good;
}

int main(int argc, char **argv)
{
	struct explored e = {.members = 3, .ballots = 2, .deaths = 1, .hosts = 1};

	if (argc == 2 && (strcmp(argv[1], "suite") == 0 || strcmp(argv[1], "all") == 0))
		return campaign(argv[1][0] == 'a');
	for (int i = 1; i < argc; i++)
		if (!read_case(argv[i], &e))
			return 2;
	if (e.members < 1 || e.members > P || e.ballots < 1 || e.ballots > B || e.hosts < 1 || e.leavers > e.members)
		return 2;
	return !explore(&e);
}
