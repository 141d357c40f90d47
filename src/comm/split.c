/*
 * New communicators from an old one: split, duplicate, from a list of ranks.
 *
 * Each is one all_gather on the parent, with a record kind of its own, in which every
 * rank sends its request. All ranks compute the result from the same requests. So
 * all ranks succeed, or all are refused with the same message: invalid arguments of one
 * rank are sent too. Nothing else is exchanged: the processes have links to each
 * other already, and channels open when they are used.
 *
 * The id of a child is a hash of (parent's id, sequence number, colour, epoch): equal on
 * its members, different for all other children of the job.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/messages.h"
#include "call/blocking.h"
#include "comm/create.h"
#include "comm/split.h"
#include "control/gossip.h"
#include "core/comm.h"
#include "core/error.h"
#include "progress/drive.h"

/* What a rank says. 8-byte units, so that any rank's layout is every rank's. */
struct wish {
	uint64_t birth; /* hash of what all children of this call share: checked */
	uint64_t list;  /* from ranks: hash of the list, 0: an empty one */
	int32_t colour; /* split: colour; from ranks: enum fault */
	int32_t key;    /* split: key; from ranks: position of this rank in its list, -1: not in it */
};
static_assert(sizeof(struct wish) == 24, "no padding travels");

enum fault { FAULT_NONE, FAULT_LENGTH, FAULT_NULL, FAULT_RANGE, FAULT_TWICE, FAULT_COUNT };

static const char *const fault_texts[] = {NULL, "has an impossible length", "is NULL", "has a rank that does not exist",
                                          "has a rank twice"};
static_assert(sizeof(fault_texts) / sizeof(fault_texts[0]) == FAULT_COUNT, "a text for every fault");

/* ---- Exchange ---- */

static uint64_t birth_of(const struct coll_comm *parent, uint64_t sequence)
{
	return coll_hash_combine(coll_hash_combine(parent->id, sequence), parent->epoch);
}

static coll_status gather(struct coll_comm *parent, enum coll_record_kind kind, const void *in, void *out,
                          size_t len_bytes)
{
	return coll_comm_call(parent, &(struct coll_call){.kind = COLL_KIND_ALL_GATHER,
	                                                  .record_kind = (uint8_t)kind,
	                                                  .in = in,
	                                                  .out = out,
	                                                  .count = len_bytes / 4,
	                                                  .type = COLL_U32});
}

/* All wishes in rank order (malloc'd), after the checks that all calls share. */
static coll_status exchange(struct coll_comm *parent, enum coll_record_kind kind, struct wish *mine, struct wish **all)
{
	const char *name = coll_record_kind_name((uint8_t)kind);
	struct wish *w = malloc((size_t)parent->size * sizeof(*w));
	coll_status st;

	if (!w)
		return coll_comm_refuse(parent, name, COLL_ERR_MEMORY, "out of memory");
	mine->birth = birth_of(parent, parent->sequence + 1);
	st = gather(parent, kind, mine, w, sizeof(*w));
	for (int r = 0; r < parent->size && st == COLL_OK; r++)
		if (w[r].birth != mine->birth)
			st = coll_comm_lose(parent, COLL_ERR_CORRUPT, r,
			                    "[COLL-3203] ranks derive different communicators from one call");
	if (st != COLL_OK) {
		free(w);
		return st;
	}
	*all = w;
	return COLL_OK;
}

/* ---- Birth ---- */

/* By rank of the child, for these ranks of the parent (NULL: all, in their order). */
static int *processes_of(const struct coll_comm *parent, const int *ranks, int n)
{
	int *process_of = malloc((size_t)n * sizeof(*process_of));

	for (int r = 0; process_of && r < n; r++)
		process_of[r] = coll_comm_process(parent, ranks ? ranks[r] : r);
	return process_of;
}

/* The child of these processes (consumed; NULL: there was no memory for them). A failure
 * here is this rank's alone: the other members, who have their child, are told. */
static coll_status bear(struct coll_comm *parent, const char *name, int *process_of, int n, uint64_t id,
                        coll_comm **child)
{
	struct coll_context *ctx = parent->ctx;
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL,
	                         .status = COLL_ERR_MEMORY,
	                         .process = ctx->rank,
	                         .origin = ctx->rank,
	                         .comm = id};
	struct coll_error_box err;
	coll_status st;

	coll_error_clear(&err);
	if (process_of)
		st = coll_comm_new(ctx, id, parent->epoch, process_of, n, child, &err);
	else
		st = coll_error_set(&err, COLL_ERR_MEMORY, "out of memory for a communicator of %d", n);
	free(process_of);
	if (st == COLL_OK)
		return st;
	snprintf(note.text, sizeof(note.text), "rank %d of the job could not create its communicator: %.150s",
	         ctx->rank, coll_message_split(st, err.message).text);
	note.status = st;
	if (ctx->control)
		coll_control_tell(ctx->control, &note);
	return coll_comm_refuse(parent, name, st, "%s", err.message);
}

static uint64_t child_id(uint64_t birth, uint64_t colour)
{
	const uint64_t id = coll_hash_combine(birth, colour);

	return id ? id : 1; /* 0 names all communicators */
}

/* The call failed with its communicator. Other members may have had the last frame of it
 * and wait in their child by now, whose members need not be those that the failure is
 * about: they are told why this rank will never come. */
static void unborn(const struct coll_comm *parent, coll_status st, uint64_t id)
{
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL, .status = st, .process = -1, .comm = id};
	const struct coll_context *ctx = parent->ctx;
	const struct coll_error *e;

	if (coll_comm_status(parent) == COLL_OK || !ctx->control)
		return;
	e = coll_last_error(parent);
	note.origin = ctx->rank;
	if (e->rank >= 0 && e->rank < parent->size)
		note.process = coll_comm_process(parent, e->rank);
	snprintf(note.text, sizeof(note.text), "%.255s", parent->box.message);
	coll_control_tell(ctx->control, &note);
}

/* ---- Split ---- */

struct member {
	int key, rank;
};

static int by_key_then_rank(const void *a, const void *b)
{
	const struct member *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->rank < y->rank ? -1 : 1;
}

/* The processes of one colour, ordered by key, then by rank; malloc'd. */
static int *processes_of_colour(const struct coll_comm *parent, const struct wish *w, int colour, int *n)
{
	struct member *rank_map = malloc((size_t)parent->size * sizeof(*rank_map));
	int *process_of = rank_map ? malloc((size_t)parent->size * sizeof(*process_of)) : NULL;

	*n = 0;
	for (int r = 0; rank_map && r < parent->size; r++)
		if (w[r].colour == colour)
			rank_map[(*n)++] = (struct member){w[r].key, r};
	if (process_of)
		qsort(rank_map, (size_t)*n, sizeof(*rank_map), by_key_then_rank);
	for (int i = 0; process_of && i < *n; i++)
		process_of[i] = coll_comm_process(parent, rank_map[i].rank);
	free(rank_map);
	return process_of;
}

static coll_status check_colours(struct coll_comm *parent, const struct wish *w)
{
	for (int r = 0; r < parent->size; r++)
		if (w[r].colour < 0 && w[r].colour != COLL_NO_COLOUR)
			return coll_comm_refuse(
			        parent, "comm_split", COLL_ERR_ARGUMENT,
			        "rank %d passed the colour %d: colours are 0 or more, or COLL_NO_COLOUR", r,
			        w[r].colour);
	return COLL_OK;
}

coll_status coll_comm_born_by_split(struct coll_comm *parent, int colour, int key, struct coll_comm **child)
{
	struct wish mine = {.colour = colour, .key = key}, *all = NULL;
	struct coll_comm *made = NULL;
	coll_status st = exchange(parent, COLL_RECORD_SPLIT, &mine, &all);
	int *process_of, n;

	if (st == COLL_OK)
		st = check_colours(parent, all);
	if (st == COLL_OK && colour != COLL_NO_COLOUR) {
		process_of = processes_of_colour(parent, all, colour, &n);
		st = bear(parent, "comm_split", process_of, n, child_id(mine.birth, (uint64_t)colour), &made);
	}
	if (st == COLL_OK)
		*child = made;
	else if (colour >= 0)
		unborn(parent, st, child_id(mine.birth, (uint64_t)colour));
	free(all);
	return st;
}

/* ---- Duplicate ---- */

coll_status coll_comm_born_as_duplicate(struct coll_comm *parent, struct coll_comm **child)
{
	struct wish mine = {.colour = 0}, *all = NULL;
	coll_status st = exchange(parent, COLL_RECORD_DUPLICATE, &mine, &all);

	if (st == COLL_OK)
		st = bear(parent, "comm_duplicate", processes_of(parent, NULL, parent->size), parent->size,
		          child_id(mine.birth, 0), child);
	if (st != COLL_OK)
		unborn(parent, st, child_id(mine.birth, 0));
	free(all);
	return st;
}

/* ---- From a list of ranks ---- */

static const char from_ranks[] = "comm_create_from_ranks";

/* What this rank's list is, and what is wrong with it. */
static struct wish read_list(const struct coll_comm *parent, const int *ranks, int n, bool *seen)
{
	struct wish w = {.key = -1};

	if (n < 0 || n > parent->size)
		w.colour = FAULT_LENGTH;
	else if (n > 0 && !ranks)
		w.colour = FAULT_NULL;
	for (int i = 0; i < n && w.colour == FAULT_NONE; i++) {
		if (ranks[i] < 0 || ranks[i] >= parent->size)
			w.colour = FAULT_RANGE;
		else if (seen[ranks[i]])
			w.colour = FAULT_TWICE;
		else
			seen[ranks[i]] = true;
		if (ranks[i] == parent->rank)
			w.key = i;
	}
	if (n > 0 && w.colour == FAULT_NONE)
		w.list = coll_hash_bytes((uint64_t)n, ranks, (size_t)n * sizeof(*ranks)) | 1;
	return w;
}

static bool lists_differ(const struct wish *w, int size)
{
	for (int r = 1; r < size; r++)
		if (w[r].list != w[0].list)
			return true;
	return false;
}

/* Only who has a list knows whom it names: each rank says whether somebody in its own
 * list passed another, and all are refused if any has. */
static coll_status compare_lists(struct coll_comm *parent, const struct wish *w, const int *ranks, int n)
{
	int32_t mine = -1, *all = malloc((size_t)parent->size * sizeof(*all));
	coll_status st;

	if (!all)
		return coll_comm_refuse(parent, from_ranks, COLL_ERR_MEMORY, "out of memory");
	for (int i = n - 1; i >= 0; i--)
		if (w[ranks[i]].list != w[parent->rank].list)
			mine = ranks[i];
	st = gather(parent, COLL_RECORD_FROM_RANKS, &mine, all, sizeof(mine));
	for (int r = 0; r < parent->size && st == COLL_OK; r++)
		if (all[r] >= 0 && all[r] < parent->size)
			st = coll_comm_refuse(parent, from_ranks, COLL_ERR_ARGUMENT,
			                      "lists differ: rank %d's names rank %d, which passed %s", r, all[r],
			                      w[all[r]].list ? "another one" : "an empty one");
	free(all);
	return st;
}

static coll_status check_lists(struct coll_comm *parent, const struct wish *w, const int *ranks, int n)
{
	for (int r = 0; r < parent->size; r++)
		if (w[r].colour > FAULT_NONE && w[r].colour < FAULT_COUNT)
			return coll_comm_refuse(parent, from_ranks, COLL_ERR_ARGUMENT, "the list of rank %d %s", r,
			                        fault_texts[w[r].colour]);
	return lists_differ(w, parent->size) ? compare_lists(parent, w, ranks, n) : COLL_OK;
}

coll_status coll_comm_born_from_ranks(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child)
{
	bool *seen = calloc((size_t)parent->size, sizeof(*seen));
	struct coll_comm *made = NULL;
	struct wish mine, *all = NULL;
	coll_status st;

	if (!seen)
		return coll_comm_refuse(parent, from_ranks, COLL_ERR_MEMORY, "out of memory");
	mine = read_list(parent, ranks, n, seen);
	free(seen);
	st = exchange(parent, COLL_RECORD_FROM_RANKS, &mine, &all);
	if (st == COLL_OK)
		st = check_lists(parent, all, ranks, n);
	if (st == COLL_OK && mine.key >= 0)
		st = bear(parent, from_ranks, processes_of(parent, ranks, n), n, child_id(mine.birth, mine.list),
		          &made);
	if (st == COLL_OK)
		*child = made;
	else if (mine.key >= 0)
		unborn(parent, st, child_id(mine.birth, mine.list));
	free(all);
	return st;
}
