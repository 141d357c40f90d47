/*
 * sched-groups: the first and the last call of a group (src/comm/group_barrier.c) under the seeded adversary.
 *
 *   sched-groups [FIRST LAST]
 *
 * Each seed draws 2 to 12 members, who brings which hash, when each enters and who never does, and the order of all
 * events. It checks that a call ends on no member before all have entered it; that it ends on all members with the same
 * word, unless one never enters; and that then every wait leads, from one waiting member to the next, to that one. The
 * last call may begin on a member while others are still in the first one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/group_barrier.h"
#include "sim/adversary.h"
#include "sim/world.h"

enum { MEMBERS_MAX = 12, CALLS = 2 };

struct member {
	struct coll_context ctx;
	struct coll_comm comm;
	struct coll_intra_state state;
	struct coll_job job;
	int call; /* entered: the calls below this number, and this one if inside */
	bool inside;
};

struct play {
	struct coll_rng rng;
	struct sim_adversary adversary;
	struct sim_world world;
	struct coll_opened_transport opened;
	struct member *members;
	int size, absent; /* -1: all come */
	const char *wrong;
};

static uint32_t below(struct play *p, uint32_t n)
{
	return coll_rng_below(&p->rng, n);
}

/* ---- Members ---- */

/* As much of a context and a communicator as the barrier looks at. */
static bool make_member(struct play *p, int rank)
{
	struct member *m = &p->members[rank];

	pthread_mutex_init(&m->ctx.links_lock, NULL);
	m->ctx.rank = rank;
	m->ctx.size = p->size;
	m->ctx.processes = calloc((size_t)p->size, sizeof(*m->ctx.processes));
	if (!m->ctx.processes)
		return false;
	for (int peer = 0; peer < p->size; peer++) {
		if (peer != rank && sim_world_link(&p->world.ranks[rank], peer) != COLL_OK)
			return false;
		m->ctx.processes[peer].opened = &p->opened;
		m->ctx.processes[peer].link = p->world.ranks[rank].links[peer];
	}
	m->comm.ctx = &m->ctx;
	m->comm.id = 77;
	m->comm.rank = rank;
	m->comm.size = p->size;
	m->comm.rank_map = (struct coll_rank_map){.size = p->size, .processes = p->size};
	return coll_group_barrier_create(&m->comm, below(p, 4) ? 5 : below(p, 100), 100 + rank) == COLL_OK;
}

static bool make(struct play *p, uint64_t seed)
{
	p->rng.state = seed;
	p->size = 2 + (int)below(p, MEMBERS_MAX - 1);
	p->absent = below(p, 3) ? -1 : (int)below(p, (uint32_t)p->size);
	p->members = calloc((size_t)p->size, sizeof(*p->members));
	if (!p->members || sim_adversary_init(&p->adversary, &p->rng) != COLL_OK)
		return false;
	p->adversary.fickle = below(p, 2) ? 0 : below(p, 50);
	if (sim_world_create(&p->world, p->size, &sim_transport, &p->adversary, 2, 64, SIZE_MAX) != COLL_OK)
		return false;
	p->opened.table = p->world.transport;
	for (int r = 0; r < p->size; r++)
		if (!make_member(p, r))
			return false;
	return true;
}

static void unmake(struct play *p)
{
	for (int r = 0; p->members && r < p->size; r++) {
		coll_group_barrier_destroy(&p->members[r].comm.group_barrier);
		free(p->members[r].ctx.processes);
	}
	sim_world_destroy(&p->world);
	sim_adversary_fini(&p->adversary);
	free(p->members);
}

/* ---- Play ---- */

static void enter(struct member *m)
{
	m->inside = true;
	m->state = (struct coll_intra_state){0};
	m->job = (struct coll_job){.sequence = (uint64_t)m->call + 1, .signature = 9 + (uint32_t)m->call};
}

/* All members have entered this call. */
static bool all_entered(const struct play *p, int call)
{
	for (int r = 0; r < p->size; r++)
		if (p->members[r].call < call || (p->members[r].call == call && !p->members[r].inside))
			return false;
	return true;
}

/* True: something moved. */
static bool poll(struct play *p, struct member *m)
{
	const struct coll_intra_op *op = m->comm.group_op;
	const uint32_t before = m->state.events;
	const coll_status st = op->poll(op->arg, &m->job, &m->state);

	if (st == COLL_OK) {
		if (!all_entered(p, m->call))
			p->wrong = "a member left a call before all had entered it";
		m->inside = false;
		m->call++;
		return true;
	}
	if (st != COLL_AGAIN)
		p->wrong = coll_status_string(st);
	return m->state.events != before;
}

static bool step(struct play *p, int rank)
{
	struct member *m = &p->members[rank];

	if (m->call == CALLS || rank == p->absent)
		return false;
	if (m->inside)
		return poll(p, m);
	enter(m);
	return true;
}

/* Until nothing can move any more. */
static void play(struct play *p)
{
	const uint32_t eager = 1 + below(p, 99); /* per cent: members rather than frames */

	for (bool any = true; any && !p->wrong;) {
		any = false;
		for (int i = 0; i < 4 * p->size && !p->wrong; i++) {
			if (below(p, 100) < eager)
				any = step(p, (int)below(p, (uint32_t)p->size)) || any;
			else
				any = sim_adversary_fire(&p->adversary, below(p, 2)) >= 0 || any;
		}
		p->adversary.fooled = false;
		while (!any && sim_adversary_fire(&p->adversary, false) >= 0)
			any = true;
		for (int r = 0; !any && r < p->size && !p->wrong; r++)
			any = step(p, r);
		any = any || p->adversary.fooled;
	}
	if (!p->wrong && p->adversary.broken)
		p->wrong = p->adversary.broken;
}

/* ---- Checks ---- */

/* Whom a member waits for, and so on, in at most as many steps as there are members. */
static int end_of_waits(const struct play *p, int rank)
{
	struct coll_run_where where;

	for (int i = 0; i < p->size && rank != p->absent && p->members[rank].inside; i++) {
		const struct member *m = &p->members[rank];

		where = (struct coll_run_where){.peer = -1};
		m->comm.group_op->where(m->comm.group_op->arg, &m->job, &m->state, &where);
		if (where.peer < 0 || where.peer == rank)
			return -1;
		rank = where.peer;
	}
	return rank;
}

/* The word that all of the first call end with, reckoned member by member. */
static struct coll_group_word reckon(const struct play *p, const struct coll_group_word *brought)
{
	struct coll_group_word w = brought[0];

	for (int r = 1; r < p->size; r++) {
		if (brought[r].low_hash < w.low_hash)
			w.low_hash = brought[r].low_hash, w.low_rank = brought[r].low_rank;
		if (brought[r].high_hash > w.high_hash)
			w.high_hash = brought[r].high_hash, w.high_rank = brought[r].high_rank;
	}
	return w;
}

static bool same(const struct coll_group_word *a, const struct coll_group_word *b)
{
	return a->low_hash == b->low_hash && a->high_hash == b->high_hash && a->low_rank == b->low_rank &&
	       a->high_rank == b->high_rank;
}

static void check(struct play *p)
{
	struct coll_group_word brought[MEMBERS_MAX], expected, word;

	for (int r = 0; r < p->size; r++)
		coll_group_barrier_words(&p->members[r].comm, &brought[r], &word);
	expected = reckon(p, brought);
	for (int r = 0; r < p->size && !p->wrong; r++) {
		if (p->absent < 0 && p->members[r].call != CALLS)
			p->wrong = "a member never left a call that all had entered";
		coll_group_barrier_words(&p->members[r].comm, &brought[r], &word);
		if (p->absent < 0 && !p->wrong && !same(&word, &expected))
			p->wrong = "a member ends with another word";
		if (p->absent >= 0 && end_of_waits(p, r) != p->absent)
			p->wrong = "a wait does not lead to the member that never came";
	}
}

int main(int argc, char **argv)
{
	const uint64_t first = argc > 2 ? strtoull(argv[1], NULL, 0) : 1;
	const uint64_t last = argc > 2 ? strtoull(argv[2], NULL, 0) : 3000;
	uint64_t wrong = 0, absent = 0;

	for (uint64_t seed = first; seed <= last; seed++) {
		struct play p = {.absent = -1};

		if (!make(&p, seed))
			p.wrong = "no memory";
		else
			play(&p);
		if (!p.wrong)
			check(&p);
		absent += p.absent >= 0;
		if (p.wrong)
			printf("seed %llu: %d members, %d never comes: %s\n", (unsigned long long)seed, p.size,
			       p.absent, p.wrong);
		wrong += p.wrong != NULL;
		unmake(&p);
	}
	printf("%llu seeds, %llu with an absent member, %llu wrong\n", (unsigned long long)(last - first + 1),
	       (unsigned long long)absent, (unsigned long long)wrong);
	return wrong != 0;
}
