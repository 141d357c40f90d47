/*
 * Groups: a communicator that its members make alone, while other ranks of the parent do something else.
 *
 * Nothing of it is a call of the parent: it takes no sequence number there and uses no channel of it. All that the
 * members must agree on beforehand is the id, and each computes it: a hash of (parent, set of members, tag, how often
 * this set and tag were made before). The members make the same calls with one set and tag in the same order, so they
 * count alike. Each makes the child and then waits in its first call, a barrier (group_barrier.h), under the ordinary
 * watchdog. So whoever is late, silent or dead is named by the code that names it everywhere. A member that cannot
 * make its child, or whose parent has failed, reports that to the others by a gossip note about the id.
 *
 * Until that barrier has shown that all lists are equal, ranks are numbered by the order in the parent, so that every
 * member means the same rank by a number whatever it passed. A list in another order makes the child a second time.
 */
#include "comm/group.h"

#include <stdlib.h>

#include "base/hash.h"
#include "call/tag.h"
#include "comm/create.h"
#include "comm/devices.h"
#include "comm/group_barrier.h"
#include "comm/split.h"
#include "core/dead.h"
#include "core/error.h"
#include "inflight/drive.h"

static const char name[] = "comm_create_group";

enum { FIRST_ROOM = 16 };

/* ---- Counts ---- */

/* The place of a key, or the free one where it belongs. */
static struct coll_group_count *find_count(const struct coll_group_counts *t, uint64_t key)
{
	for (size_t i = (size_t)key;; i++) {
		struct coll_group_count *c = &t->at[i & (t->room - 1)];

		if (c->key == key || c->key == 0)
			return c;
	}
}

/* A quarter of the places stays free, so that every search ends. */
static bool make_room(struct coll_group_counts *t)
{
	struct coll_group_counts grown = {.room = t->room ? 2 * t->room : FIRST_ROOM, .used = t->used};

	if (t->used < t->room / 4 * 3)
		return true;
	grown.at = calloc(grown.room, sizeof(*grown.at));
	if (!grown.at)
		return false;
	for (size_t i = 0; i < t->room; i++)
		if (t->at[i].key)
			*find_count(&grown, t->at[i].key) = t->at[i];
	free(t->at);
	*t = grown;
	return true;
}

static uint64_t count_of(const struct coll_group_counts *t, uint64_t key)
{
	return t->room ? find_count(t, key)->made : 0;
}

/* One more. False: no memory, and this rank counts less than the others. */
static bool count(struct coll_group_counts *t, uint64_t key)
{
	struct coll_group_count *c;

	if (!make_room(t))
		return false;
	c = find_count(t, key);
	t->used += c->key == 0;
	c->key = key;
	c->made++;
	return true;
}

/* ---- Identity ---- */

/* What is wrong with the list, as far as that is seen without memory. NULL: nothing. */
static const char *fault_of(const struct coll_comm *parent, const int *ranks, int n)
{
	bool own = false;

	if (n < 1 || n > parent->size)
		return "has an impossible length";
	if (!ranks)
		return "is NULL";
	for (int i = 0; i < n; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->size)
			return "has a rank that does not exist";
		own = own || ranks[i] == parent->rank;
	}
	return own ? NULL : "does not have this rank, and only members make this call";
}

/* Of the set of members, whatever their order, and the tag. */
static uint64_t key_of(const int *ranks, int n, uint64_t tag)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += coll_mix64((uint64_t)ranks[i] + 1);
	return coll_hash_combine(coll_hash_combine(sum, (uint64_t)n), tag) | 1;
}

static uint64_t id_of(const struct coll_comm *parent, uint64_t key)
{
	const uint64_t of_parent = coll_hash_combine(coll_hash_combine(parent->id, parent->epoch), UINT64_MAX);

	/* Odd: id 0 stands for all communicators. */
	return coll_hash_combine(coll_hash_combine(of_parent, key), count_of(&parent->groups, key)) | 1;
}

/* ---- The two numberings ---- */

/* The position of each rank of the parent in the list, -1: not a member (malloc'd). *twice: a rank that is there twice,
 * -1: none. */
static int *positions_of(const struct coll_comm *parent, const int *ranks, int n, int *twice)
{
	int *position = malloc((size_t)parent->size * sizeof(*position));

	*twice = -1;
	for (int r = 0; position && r < parent->size; r++)
		position[r] = -1;
	for (int i = 0; position && i < n; i++) {
		if (position[ranks[i]] >= 0)
			*twice = ranks[i];
		position[ranks[i]] = i;
	}
	return position;
}

/* The processes of the members by their order in the parent (malloc'd). */
static int *processes_in_order(const struct coll_comm *parent, const int *position, int n)
{
	int *process_of = malloc((size_t)n * sizeof(*process_of)), found = 0;

	for (int r = 0; process_of && r < parent->size; r++)
		if (position[r] >= 0)
			process_of[found++] = coll_comm_process(parent, r);
	return process_of;
}

static bool in_order(const int *ranks, int n)
{
	for (int i = 1; i < n; i++)
		if (ranks[i] < ranks[i - 1])
			return false;
	return true;
}

/* Make the child again, in the order of the list: all members do. It goes on where the first one was. The new one is
 * listed before the old one is not, so that whoever asks for the id finds one of them. */
static coll_status number_anew(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child)
{
	struct coll_comm *old = *child, *made = NULL;
	const coll_status st =
	        coll_comm_make_child(parent, name, coll_comm_processes_of(parent, ranks, n), n, old->id, &made);

	if (st != COLL_OK)
		return st;
	coll_group_barrier_move(old, made);
	coll_comm_free(&old);
	coll_context_leave(parent->ctx); /* parent uses it */
	*child = made;
	return COLL_OK;
}

/* ---- Creation ---- */

/* The child has failed, or a call on it was refused on this rank alone. The error becomes one of the parent, which
 * stays usable. */
static coll_status pass_on(struct coll_comm *parent, struct coll_comm *child, coll_status st)
{
	int culprit = -1;

	if (coll_comm_status(child) == COLL_OK)
		coll_comm_lose(child, st, child->rank, child->refused.message);
	coll_comm_refuse(parent, name, st, "%s", child->box.message);
	if (child->box.rank >= 0)
		culprit = coll_comm_rank_of(parent, coll_comm_process(child, child->box.rank));
	if (culprit >= 0)
		coll_comm_refused_for(parent, culprit);
	if (st == COLL_ERR_PEER_LATE)
		coll_comm_refused_late(parent, child);
	return st;
}

/* Wait for the other members. All of them come to the same result. */
static coll_status wait_for_members(struct coll_comm *parent, struct coll_comm *child, const int *ranks, int n)
{
	const uint64_t list = coll_hash_bytes((uint64_t)n, ranks, (size_t)n * sizeof(*ranks));
	struct coll_group_word word;
	coll_status st = coll_group_barrier_create(child, list, parent->rank);

	if (st != COLL_OK) {
		coll_comm_lose(child, st, child->rank, "out of memory for a group");
		return pass_on(parent, child, st);
	}
	st = coll_group_barrier_run(child, parent, &word);
	if (st != COLL_OK)
		return pass_on(parent, child, st);
	if (word.low_hash != word.high_hash)
		return coll_comm_refuse(parent, name, COLL_ERR_ARGUMENT,
		                        "lists differ: ranks %d and %d pass the same ranks in different orders",
		                        word.low_rank, word.high_rank);
	return COLL_OK;
}

static coll_status create(struct coll_comm *parent, const int *ranks, int n, const int *position, uint64_t id,
                          struct coll_comm **child)
{
	int *process_of = position ? processes_in_order(parent, position, n) : NULL;
	struct coll_comm *made = NULL;
	coll_status st = coll_comm_make_child(parent, name, process_of, n, id, &made);

	/* A member that is through with the barrier may send at once. What the first child took in would be lost with
	 * it, so it opens no channel for tagged messages: the sender wakes it again, and the second child answers. */
	if (st == COLL_OK && !in_order(ranks, n))
		coll_tag_end(made);
	if (st == COLL_OK && n > 1)
		st = wait_for_members(parent, made, ranks, n);
	if (st == COLL_OK && !in_order(ranks, n))
		st = number_anew(parent, ranks, n, &made);
	if (st == COLL_OK && (st = coll_comm_devices_connect(made)) != COLL_OK)
		st = coll_comm_refuse(parent, name, st, "%s", made->lost.message);
	if (st != COLL_OK) {
		coll_comm_destroy(&made);
		return st;
	}
	coll_comm_describe(made);
	*child = made;
	return COLL_OK;
}

coll_status coll_comm_group_create(struct coll_comm *parent, const int *ranks, int n, uint64_t tag,
                                   struct coll_comm **child)
{
	const char *fault = fault_of(parent, ranks, n);
	uint64_t key, id;
	int *position, twice;
	coll_status st;

	int dead = -1;

	if (fault)
		return coll_comm_refuse(parent, name, COLL_ERR_ARGUMENT, "the list %s", fault);
	for (int i = 0; i < n && dead < 0; i++)
		dead = coll_comm_is_dead(parent, ranks[i]) ? ranks[i] : -1;
	position = positions_of(parent, ranks, n, &twice);
	if (twice >= 0) {
		free(position);
		return coll_comm_refuse(parent, name, COLL_ERR_ARGUMENT, "the list has rank %d twice", twice);
	}
	key = key_of(ranks, n, tag);
	id = id_of(parent, key);
	/* Without memory the others must get that reason: they wait for this rank. */
	if (!count(&parent->groups, key)) {
		free(position);
		position = NULL;
	}
	/* The others count this call, too, and learn of the death by themselves. */
	st = dead >= 0 ? coll_comm_refuse_dead(parent, name, dead) : create(parent, ranks, n, position, id, child);
	free(position);
	return st;
}

void coll_comm_group_decline(const struct coll_comm *parent, const int *ranks, int n, uint64_t tag, coll_status st)
{
	if (!fault_of(parent, ranks, n))
		coll_comm_announce_failed_child(parent, st, id_of(parent, key_of(ranks, n, tag)));
}
