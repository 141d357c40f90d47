/*
 * Communicators made of others: split, duplicated, from a list; several alive, used at
 * once, destroyed in an order that differs from rank to rank.
 */
#include <string.h>

#include "rounds.h"

static void enlist(struct crowd *c, const struct crowd *parent, const int *ranks, int n, coll_comm *comm)
{
	c->comm = comm;
	c->size = n;
	c->rank = comm ? coll_comm_rank(comm) : -1;
	for (int i = 0; i < n; i++)
		c->job_rank[i] = parent->job_rank[ranks ? ranks[i] : i];
	/* The library thinks so too. */
	if (comm && (coll_comm_size(comm) != n || c->job_rank[c->rank] != my_rank))
		atomic_fetch_add(&seat->wrong, 1);
}

/* Even and odd ranks, the last of each first. */
static int half_of(const struct crowd *world, int *ranks)
{
	int n = 0;

	for (int r = world->size - 1; r >= 0; r--)
		if (r % 2 == world->rank % 2)
			ranks[n++] = r;
	return n;
}

/* At least one, from a seeded place on, around the end. Equal on all ranks. */
static int some_of(const struct crowd *world, int round, int *ranks)
{
	const uint64_t r = mix(seed ^ mix((uint64_t)round ^ 0x50f7));
	const int n = 1 + (int)(r % (uint64_t)world->size), first = (int)(r >> 8 & 7);

	for (int i = 0; i < n; i++)
		ranks[i] = (first + i) % world->size;
	return n;
}

/* Two at least, in a seeded order. Equal on all ranks; the others do not take part. */
static int team_of(const struct crowd *world, int round, int *ranks)
{
	const uint64_t r = mix(seed ^ mix((uint64_t)round ^ 0x7ea3));
	const int n = 2 + (int)(r % (uint64_t)(world->size - 1)), first = (int)(r >> 8 & 7);

	for (int i = 0; i < n; i++)
		ranks[i] = (first + (r & 1 << 20 ? i : n - 1 - i)) % world->size;
	return n;
}

static coll_status make_team(const struct crowd *world, struct family *f, int round)
{
	int ranks[SEATS], n = team_of(world, round, ranks);
	coll_comm *made = NULL;
	bool member = false;
	coll_status st;

	for (int i = 0; i < n; i++)
		member = member || ranks[i] == world->rank;
	if (!member)
		return COLL_OK;
	st = coll_comm_create_group(world->comm, ranks, n, (uint64_t)round % 3, &made);
	if (st != COLL_OK)
		return failed_on(world, st);
	enlist(&f->team, world, ranks, n, made);
	return round % 2 ? COLL_OK : reduce_once(&f->team, round, SPLIT, 3, NULL);
}

/* Calls on all three and on the parent, together. */
static coll_status use_all(const struct crowd *world, struct family *f, int round)
{
	const struct crowd *const used[] = {&f->twin, &f->halves, f->some.comm ? &f->some : &f->halves};
	struct pending p[3];
	coll_stream *s[3] = {NULL};
	const struct crowd *culprit = NULL;
	coll_status st = COLL_OK;

	for (int i = 0; i < 3 && st == COLL_OK; i++) {
		culprit = used[i];
		st = coll_stream_create(&s[i], world->comm);
		/* some may be a member here and none there: calls on halves must be the same everywhere. */
		if (st == COLL_OK && (i < 2 || f->some.comm))
			st = begin_reduce(&p[i], used[i], round, 48 + i, s[i]);
		else
			p[i].crowd = NULL;
	}
	if (st == COLL_OK) {
		culprit = world;
		st = reduce_once(world, round, SPLIT, 8, NULL);
	}
	for (int i = 0; i < 3; i++) {
		const coll_status end = coll_stream_destroy(&s[i]);

		if (st == COLL_OK && end == COLL_OK && p[i].crowd)
			check_pending(&p[i]);
		else if (st == COLL_OK && end != COLL_OK)
			st = end, culprit = used[i];
	}
	return failed_on(culprit, st);
}

coll_status split_once(const struct crowd *world, struct family *f, int round, int call)
{
	int ranks[SEATS], n;
	coll_comm *made = NULL;
	coll_status st;

	switch (call) {
	case 0:
		st = coll_comm_duplicate(world->comm, &made);
		if (st != COLL_OK)
			return failed_on(world, st);
		enlist(&f->twin, world, NULL, world->size, made);
		return reduce_once(&f->twin, round, SPLIT, 0, NULL);
	case 1:
		n = half_of(world, ranks);
		st = coll_comm_split(world->comm, world->rank % 2, -world->rank, &made);
		if (st != COLL_OK)
			return failed_on(world, st);
		enlist(&f->halves, world, ranks, n, made);
		return exchange_once(&f->halves, round, SPLIT, 1);
	case 2:
		n = some_of(world, round, ranks);
		st = coll_comm_create_from_ranks(world->comm, ranks, n, &made);
		if (st != COLL_OK)
			return failed_on(world, st);
		enlist(&f->some, world, ranks, n, made);
		return made ? reduce_once(&f->some, round, SPLIT, 2, NULL) : COLL_OK;
	case 3: return make_team(world, f, round);
	case 4: return use_all(world, f, round);
	default: /* one goes while the others stay in use */
		st = coll_comm_destroy(&f->halves.comm);
		if (st != COLL_OK) {
			record(st, coll_last_error(NULL), &f->halves);
			return st;
		}
		return reduce_once(&f->twin, round, SPLIT, 4, NULL);
	}
}

static bool has(const struct crowd *c, int job_rank)
{
	for (int r = 0; r < c->size; r++)
		if (c->job_rank[r] == job_rank)
			return true;
	return false;
}

/* What a program does whose rank cannot go on: whoever waits for it elsewhere hears why. Of
 * a death the library tells every communicator that has the dead in it. */
static void abort_others(struct crowd *world, struct family *f)
{
	struct crowd *const all[] = {world, &f->twin, &f->halves, &f->some, &f->team};

	for (int i = 0; i < 5; i++)
		if (all[i]->comm && (seat->status != COLL_ERR_PEER_DEAD || !has(all[i], seat->culprit)))
			coll_comm_abort(all[i]->comm, seat->message);
}

/* The last one has the ranks of the job, so what it tells of others is in those too. */
coll_status part(struct crowd *world, struct family *f, int round)
{
	struct crowd *order[] = {&f->some, &f->halves, &f->team, &f->twin, world};
	coll_status result = COLL_OK;

	if (atomic_load(&seat->state))
		abort_others(world, f);
	if ((round + my_rank) % 2) {
		order[3] = world;
		order[4] = &f->twin;
	}
	if (my_rank % 3 == 1) {
		order[0] = &f->halves;
		order[1] = &f->some;
	}
	for (int i = 0; i < 5; i++) {
		const coll_status st = coll_comm_destroy(&order[i]->comm);

		if (st == COLL_OK)
			continue;
		record(st, coll_last_error(NULL), order[i]);
		result = st;
	}
	return result;
}
