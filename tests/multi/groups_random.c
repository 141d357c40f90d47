/*
 * Random programs of groups: overlapping ones, equal members with different tags, members that never come, and ranks
 * that are killed while groups are made and used. Ranks are processes.
 *
 * A program is a list of acts that every rank derives from its seed: make a group, use one, close one, call the parent.
 * Each rank makes the acts in which it takes part, in order, and goes on after an error. What is right:
 *
 *   no death   every act succeeds; a member that stays away is named to all others
 *   a death    an act succeeds, or its error is that death and names the rank that was killed, within the promised time
 *   always     threads and descriptors stay what they were before the first group, however many there are
 *
 * usage: groups_random shm|tcp|mixed [SEED [PROGRAMS]]
 */
#include "base/hash.h"
#include "holdings.h"
#include "processes.h"

enum { RANKS_MAX = 6, ACTS_MAX = 80, LONGEST = 6000, TAGS = 3, ABSENT_MS = 1200, GRACE_MS = 2000 };
/* A thread that has to sleep for the first time gets a descriptor for it, and a stream a progress thread. */
enum { DESCRIPTORS_MORE = 4, THREADS_MORE = 1 };

/* ---- Programs ---- */

enum act_kind { MAKE, USE, CLOSE, PARENT, ABSENT, ACT_KINDS };
enum use_kind { REDUCE, BROADCAST, SEND_RECV, TAGGED, ON_STREAM, USE_KINDS };

struct act {
	enum act_kind kind;
	int group; /* of USE and CLOSE: the act that made it; of MAKE: itself */
	int n, ranks[RANKS_MAX];
	uint64_t tag;
	enum use_kind use;
	size_t count;
	int root, absent;
};

enum program_kind { LASTING, DEADLY, LACKING };

struct program {
	uint64_t seed;
	enum program_kind kind;
	int size, nacts;
	struct act acts[ACTS_MAX];
	int victim, victim_acts; /* killed once it has made so many of its acts, and some time later */
	unsigned victim_us;
};

static void pick_members(struct coll_rng *rng, int size, struct act *a)
{
	int all[RANKS_MAX];

	for (int i = 0; i < size; i++)
		all[i] = i;
	a->n = 2 + (int)coll_rng_below(rng, (uint32_t)size - 1);
	for (int i = 0; i < a->n; i++) {
		const int k = i + (int)coll_rng_below(rng, (uint32_t)(size - i)), taken = all[k];

		all[k] = all[i];
		a->ranks[i] = all[i] = taken;
	}
	a->tag = (uint64_t)coll_rng_below(rng, TAGS) << 33;
}

static void pick_use(struct coll_rng *rng, struct act *a)
{
	a->use = (enum use_kind)coll_rng_below(rng, USE_KINDS);
	a->count = coll_rng_below(rng, 3) ? 1 + coll_rng_below(rng, 200) : 1 + coll_rng_below(rng, LONGEST);
	a->root = (int)coll_rng_below(rng, (uint32_t)a->n);
}

/* A group that is open behind the acts so far; -1: none. */
static int pick_open(struct coll_rng *rng, const struct program *p)
{
	int open[ACTS_MAX], n = 0;

	for (int i = 0; i < p->nacts; i++)
		if (p->acts[i].kind == MAKE)
			open[n++] = i;
		else
			for (int k = 0; p->acts[i].kind == CLOSE && k < n; k++)
				if (open[k] == p->acts[i].group)
					open[k--] = open[--n];
	return n ? open[coll_rng_below(rng, (uint32_t)n)] : -1;
}

static struct act *new_act(struct program *p, enum act_kind kind)
{
	struct act *a = &p->acts[p->nacts];

	*a = (struct act){.kind = kind, .group = p->nacts++, .n = p->size};
	for (int i = 0; i < p->size; i++)
		a->ranks[i] = i;
	return a;
}

static void write_act(struct coll_rng *rng, struct program *p)
{
	const uint32_t dice = coll_rng_below(rng, 20);
	const int open = pick_open(rng, p);
	struct act *a;

	if (dice < 8 || open < 0) {
		a = new_act(p, MAKE);
		pick_members(rng, p->size, a);
		/* The same members with another tag, or once more with the same; perhaps in another order. */
		if (dice < 3 && open >= 0) {
			a->n = p->acts[open].n;
			memcpy(a->ranks, p->acts[open].ranks, sizeof(a->ranks));
			if (dice == 0) {
				a->ranks[0] = p->acts[open].ranks[1];
				a->ranks[1] = p->acts[open].ranks[0];
			}
		}
	} else if (dice < 19) {
		a = new_act(p, dice < 15 ? USE : dice < 18 ? CLOSE : PARENT);
		if (a->kind != PARENT) {
			a->group = open;
			a->n = p->acts[open].n;
			memcpy(a->ranks, p->acts[open].ranks, sizeof(a->ranks));
		}
		pick_use(rng, a);
	} else if (p->kind == LACKING) {
		a = new_act(p, ABSENT);
		pick_members(rng, p->size, a);
		a->absent = a->ranks[coll_rng_below(rng, (uint32_t)a->n)];
	}
}

static void write_program(struct program *p, uint64_t seed)
{
	struct coll_rng rng = {coll_mix64(seed)};
	const uint32_t dice = coll_rng_below(&rng, 20);
	int absences = 0;

	*p = (struct program){.seed = seed, .kind = dice < 8 ? LASTING : dice < 18 ? DEADLY : LACKING};
	p->size = 3 + (int)coll_rng_below(&rng, RANKS_MAX - 2);
	for (int i = 0; i < ACTS_MAX && p->nacts < ACTS_MAX - 1 && absences < 2; i++) {
		write_act(&rng, p);
		absences += p->nacts > 0 && p->acts[p->nacts - 1].kind == ABSENT;
	}
	if (p->kind == LACKING && absences == 0) {
		struct act *a = new_act(p, ABSENT);

		pick_members(&rng, p->size, a);
		a->absent = a->ranks[0];
	}
	p->victim = (int)coll_rng_below(&rng, (uint32_t)p->size);
	p->victim_acts = (int)coll_rng_below(&rng, (uint32_t)p->nacts / 2);
	p->victim_us = coll_rng_below(&rng, 2) ? coll_rng_below(&rng, 2000) : 0;
}

/* ---- What ranks share ---- */

struct shared {
	struct processes job;
	atomic_int acts[RANKS_MAX]; /* made so far */
	atomic_int told[ACTS_MAX];
	coll_status first[RANKS_MAX]; /* error */
};

static struct shared *shared;

/* ---- A rank ---- */

struct rank {
	const struct program *p;
	int rank, at; /* the act under way */
	coll_comm *world, *groups[ACTS_MAX];
	int descriptors, threads; /* before the first group */
};

static bool takes_part(const struct act *a, int rank)
{
	for (int i = 0; i < a->n; i++)
		if (a->ranks[i] == rank)
			return true;
	return false;
}

/* A death makes errors right that name it. */
static void judge(struct rank *r, coll_status st, const coll_comm *comm)
{
	const char *message = coll_last_error(comm)->message;

	if (st == COLL_OK)
		return;
	if (shared->first[r->rank] == COLL_OK)
		shared->first[r->rank] = st;
	MUST(r->p->kind == DEADLY && st == COLL_ERR_PEER_DEAD && processes_named(message, r->p->victim),
	     "act %d: %d, rank %d is the victim: %s", r->at, st, r->p->victim, message);
}

/* Messages of one value around the ring, by number or by tag. */
static coll_status ring(coll_comm *comm, const struct act *a, int32_t *x, int32_t *y)
{
	const int n = coll_comm_size(comm), me = coll_comm_rank(comm), next = (me + 1) % n, prev = (me + n - 1) % n;
	coll_message_info info;
	coll_request *req = NULL;
	coll_status st;

	if (a->use == SEND_RECV)
		return coll_send_recv(x, a->count, next, y, a->count, prev, COLL_I32, comm, NULL);
	/* A receive from any source tells of a death once: behind that it would wait for a dead rank. */
	st = coll_irecv(y, a->count, COLL_I32,
	                a->root % 2 || coll_last_error(comm)->status == COLL_ERR_PEER_DEAD ? prev : COLL_ANY_SOURCE,
	                a->root, comm, &req);
	if (st == COLL_OK)
		st = coll_send_tag(x, a->count, COLL_I32, next, a->root, comm, NULL);
	if (req) {
		coll_status received = coll_request_wait(&req, -1, &info);

		/* From any source: it fails once. The one before may live, and waits for a receive. */
		if (received == COLL_ERR_PEER_DEAD)
			received = coll_recv_tag(y, a->count, COLL_I32, prev, a->root, comm, &info);
		st = st == COLL_OK ? received : st;
	}
	return st;
}

static coll_status on_stream(coll_comm *comm, const struct act *a, int32_t *x)
{
	coll_stream *stream = NULL;
	coll_status st = coll_stream_create(&stream, comm), ended;

	if (st == COLL_OK)
		st = coll_all_reduce(x, x, a->count, COLL_I32, COLL_SUM, comm, stream);
	ended = stream ? coll_stream_destroy(&stream) : st;
	return st == COLL_OK ? ended : st;
}

static void use(struct rank *r, coll_comm *comm, const struct act *a)
{
	const int me = coll_comm_rank(comm), n = coll_comm_size(comm), prev = (me + n - 1) % n;
	int32_t x[LONGEST], y[LONGEST];
	int32_t expected = 0;
	coll_status st;

	for (size_t i = 0; i < a->count; i++)
		x[i] = 100 * (r->at + 1) + me, y[i] = -1;
	switch (a->use) {
	case REDUCE: st = coll_all_reduce(x, y, a->count, COLL_I32, COLL_SUM, comm, NULL); break;
	case BROADCAST: st = coll_broadcast(x, y, a->count, COLL_I32, a->root, comm, NULL); break;
	case ON_STREAM:
		st = on_stream(comm, a, x);
		memcpy(y, x, sizeof(y));
		break;
	default: st = ring(comm, a, x, y);
	}
	for (int i = 0; i < n; i++)
		if (a->use == REDUCE || a->use == ON_STREAM || (a->use == BROADCAST ? i == a->root : i == prev))
			expected += 100 * (r->at + 1) + i;
	for (size_t i = 0; i < a->count && st == COLL_OK; i++)
		if (y[i] != expected) {
			MUST(false, "use %d: element %zu of %zu is %d, not %d", (int)a->use, i, a->count, y[i],
			     expected);
			break;
		}
	judge(r, st, comm);
}

static void make(struct rank *r, const struct act *a)
{
	coll_comm *child = NULL;
	const coll_status st = coll_comm_create_group(r->world, a->ranks, a->n, a->tag, &child);

	r->groups[r->at] = child;
	if (st != COLL_OK) {
		MUST(!child, "a group and an error");
		judge(r, st, r->world);
		return;
	}
	MUST(coll_comm_size(child) == a->n && a->ranks[coll_comm_rank(child)] == r->rank, "rank %d of %d",
	     coll_comm_rank(child), coll_comm_size(child));
}

/* One member comes only when all others have given up. */
static void lack(struct rank *r, const struct act *a)
{
	coll_comm *child = NULL;
	coll_status st;

	MUST(coll_barrier(r->world, NULL) == COLL_OK, "%s", coll_last_error(r->world)->message);
	coll_comm_set_timeout(r->world, -1, ABSENT_MS);
	if (takes_part(a, r->rank) && r->rank != a->absent) {
		st = coll_comm_create_group(r->world, a->ranks, a->n, a->tag, &child);
		MUST(st == COLL_ERR_PEER_LATE && !child && coll_last_error(r->world)->rank == a->absent,
		     "%d, rank %d instead of %d: %s", st, coll_last_error(r->world)->rank, a->absent,
		     coll_last_error(r->world)->message);
		atomic_fetch_add(&shared->told[r->at], 1);
	}
	while (atomic_load(&shared->told[r->at]) < a->n - 1)
		usleep(500);
	if (r->rank == a->absent) {
		st = coll_comm_create_group(r->world, a->ranks, a->n, a->tag, &child);
		MUST(st == COLL_ERR_PEER_LATE && !child, "%d: %s", st, coll_last_error(r->world)->message);
	}
	coll_comm_set_timeout(r->world, -1, -1);
}

static void turn(void *world)
{
	coll_progress(world);
}

static void perform(struct rank *r, const struct act *a)
{
	if (a->kind == ABSENT) {
		lack(r, a);
	} else if (takes_part(a, r->rank)) {
		coll_comm *comm = a->kind == PARENT ? r->world : r->groups[a->group];

		if (a->kind == MAKE)
			make(r, a);
		else if (a->kind == CLOSE)
			coll_comm_destroy(&r->groups[a->group]); /* the error of a death: members have it already */
		else if (comm)
			use(r, comm, a);
	}
	MUST(holdings_settle(r->descriptors + DESCRIPTORS_MORE, r->threads + THREADS_MORE, turn, r->world),
	     "descriptors %d, %d before; threads %d, %d before", holdings_descriptors(), r->descriptors,
	     holdings_threads(), r->threads);
}

/* Links between all ranks, and whatever the first of each kind needs: every use, in a group of all. */
static void warm_up(struct rank *r)
{
	struct act a = {.kind = MAKE, .n = r->p->size, .count = LONGEST};
	coll_comm *child = NULL;
	int32_t x[RANKS_MAX] = {0}, y[RANKS_MAX];

	for (int i = 0; i < a.n; i++)
		a.ranks[i] = i;
	MUST(coll_all_to_all(x, y, 1, COLL_I32, r->world, NULL) == COLL_OK, "%s", coll_last_error(r->world)->message);
	/* All pairs: each group has links of its own making. */
	for (int i = 0; i < a.n; i++)
		for (int k = 0; k < i; k++) {
			struct act pair = {.kind = MAKE, .n = 2, .ranks = {k, i}, .count = LONGEST};

			if (!takes_part(&pair, r->rank))
				continue;
			MUST(coll_comm_create_group(r->world, pair.ranks, 2, 77, &child) == COLL_OK, "%s",
			     coll_last_error(r->world)->message);
			for (int u = 0; u < USE_KINDS && child; u++) {
				pair.use = (enum use_kind)u;
				use(r, child, &pair);
			}
			coll_comm_destroy(&child);
		}
	for (int u = 0; u < USE_KINDS; u++) {
		a.use = (enum use_kind)u;
		use(r, r->world, &a);
	}
	MUST(coll_barrier(r->world, NULL) == COLL_OK, "%s", coll_last_error(r->world)->message);
}

static void rank_body(const void *arg, int rank)
{
	struct rank r = {.p = arg, .rank = rank, .at = -1};

	r.world = processes_world(rank, r.p->size, rank / 2, NULL);
	warm_up(&r);
	r.descriptors = holdings_descriptors();
	r.threads = holdings_threads();
	processes_meet(r.p->size);
	for (r.at = 0; r.at < r.p->nacts; r.at++) {
		perform(&r, &r.p->acts[r.at]);
		atomic_store(&shared->acts[rank], r.at + 1);
	}
	/* Some in the order in which they were made, the others the other way round. */
	for (int i = 0; i < r.p->nacts; i++)
		coll_comm_destroy(&r.groups[rank % 2 ? i : r.p->nacts - 1 - i]);
	if (r.p->kind != DEADLY) {
		MUST(coll_barrier(r.world, NULL) == COLL_OK, "%s", coll_last_error(r.world)->message);
		perform(&r, &(struct act){.kind = USE}); /* what is held, without any group */
	}
	coll_comm_destroy(&r.world);
	processes_report(rank, shared->first[rank], NULL);
	_exit(0);
}

/* ---- Programs, one after another ---- */

static void run_program(const struct program *p)
{
	const bool deadly = p->kind == DEADLY;
	pid_t pids[RANKS_MAX];

	processes_start(pids, p->size, rank_body, p);
	if (deadly) {
		processes_reach(&processes->ready, p->size);
		processes_reach(&shared->acts[p->victim], p->victim_acts);
		usleep(p->victim_us);
		processes_kill(pids, p->victim);
	}
	processes_reap(pids, p->size, deadly ? p->victim : -1);
	/* All acts of a survivor end soon after the death. */
	for (int i = 0; i < p->size && deadly; i++)
		if (i != p->victim && shared->first[i] != COLL_OK)
			processes_in_time(processes->report[i].ns, 2 * GRACE_MS, "a rank ended");
}

static uint64_t first_seed = 1;
static int programs = 25;

TEST(groups_random, random_programs)
{
	static const char *const names[] = {"all live", "one is killed", "one stays away"};
	int made[3] = {0}, hit = 0, groups = 0;
	struct program p;

	for (int i = 0; i < programs; i++) {
		const int failures = atomic_load(&plain_failures);

		write_program(&p, first_seed + (uint64_t)i);
		run_program(&p);
		made[p.kind]++;
		for (int k = 0; k < p.nacts; k++)
			groups += p.acts[k].kind == MAKE;
		for (int r = 0; p.kind == DEADLY && r < p.size; r++)
			if (shared->first[r] != COLL_OK) {
				hit++;
				break;
			}
		if (atomic_load(&plain_failures) > failures)
			printf("     again: groups_random %s %llu 1 (%s)\n", transport, (unsigned long long)p.seed,
			       names[p.kind]);
	}
	printf("     %d programs from seed %llu, %d groups: %d %s, %d %s (%d in a call), %d %s\n", programs,
	       (unsigned long long)first_seed, groups, made[0], names[0], made[1], names[1], hit, made[2], names[2]);
}

PROGRAM(groups_random, "shm|tcp|mixed [SEED [PROGRAMS]]")
{
	if (argc > 2)
		first_seed = strtoull(argv[2], NULL, 0);
	if (argc > 3)
		programs = atoi(argv[3]);
	shared = processes_begin(argv[1], sizeof(*shared));
	return argc;
}
