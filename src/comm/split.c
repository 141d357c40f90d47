/*
 * New communicators from an existing one: split, duplicate, or from a list of ranks.
 *
 * Each operation is one all_gather on the parent, with a record kind of its own. In it every rank
 * sends its request. All ranks then compute the same result from all requests. So either all ranks
 * succeed, or all ranks refuse the call with the same message. For this reason a rank also sends
 * requests that it has already found invalid. Nothing else is exchanged: the processes are already
 * connected, and channels open on first use.
 *
 * The id of a child is a hash of (id of the parent, sequence number, colour, epoch). It is equal on
 * all members and differs from the ids of all other children of the job.
 */
#include "comm/split.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/messages.h"
#include "call/blocking.h"
#include "comm/create.h"
#include "comm/devices.h"
#include "control/gossip.h"
#include "core/comm.h"
#include "core/error.h"
#include "inflight/drive.h"

/* The request of one rank. It consists of 8-byte units, so its layout is the same on all ranks. */
struct split_request {
	uint64_t call_hash; /* hash that all children of this call share; checked */
	uint64_t list;      /* from ranks: hash of the list, 0: empty list */
	int32_t colour;     /* split: colour; from ranks: enum fault */
	int32_t key;        /* split: key; from ranks: position of this rank in its list, -1: absent */
};
static_assert(sizeof(struct split_request) == 24, "no padding travels");

enum fault { FAULT_NONE, FAULT_LENGTH, FAULT_NULL, FAULT_RANGE, FAULT_TWICE, FAULT_COUNT };

static const char *const fault_texts[] = {NULL, "has an impossible length", "is NULL", "has a rank that does not exist",
                                          "has a rank twice"};
static_assert(sizeof(fault_texts) / sizeof(fault_texts[0]) == FAULT_COUNT, "a text for every fault");

/* ---- Exchange ---- */

static uint64_t call_hash_of(const struct coll_comm *parent, uint64_t sequence)
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

/* Gather the requests of all ranks in rank order (malloc'd). Makes the checks that all three
 * operations share. */
static coll_status exchange(struct coll_comm *parent, enum coll_record_kind kind, struct split_request *mine,
                            struct split_request **all)
{
	const char *name = coll_record_kind_name((uint8_t)kind);
	struct split_request *w = malloc((size_t)parent->size * sizeof(*w));
	coll_status st;

	if (!w)
		return coll_comm_refuse(parent, name, COLL_ERR_MEMORY, "out of memory");
	mine->call_hash = call_hash_of(parent, parent->sequence + 1);
	st = gather(parent, kind, mine, w, sizeof(*w));
	for (int r = 0; r < parent->size && st == COLL_OK; r++)
		if (w[r].call_hash != mine->call_hash)
			st = coll_comm_lose(parent, COLL_ERR_CORRUPT, r,
			                    "[COLL-3203] ranks derive different communicators from one call");
	if (st != COLL_OK) {
		free(w);
		return st;
	}
	*all = w;
	return COLL_OK;
}

/* ---- Child ---- */

int *coll_comm_processes_of(const struct coll_comm *parent, const int *ranks, int n)
{
	int *process_of = malloc((size_t)n * sizeof(*process_of));

	for (int r = 0; process_of && r < n; r++)
		process_of[r] = coll_comm_process(parent, ranks ? ranks[r] : r);
	return process_of;
}

coll_status coll_comm_make_child(struct coll_comm *parent, const char *name, int *process_of, int n, uint64_t id,
                                 struct coll_comm **child)
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
	if (st == COLL_OK) {
		(*child)->timeout_ms = parent->timeout_ms;
		(*child)->arrival_timeout_ms = parent->arrival_timeout_ms;
		return st;
	}
	snprintf(note.text, sizeof(note.text), "rank %d of the job could not create its communicator: %.150s",
	         ctx->rank, coll_message_split(st, err.message).text);
	note.status = st;
	if (ctx->control)
		coll_control_report(ctx->control, &note);
	return coll_comm_refuse(parent, name, st, "%s", err.message);
}

static coll_status create_child(struct coll_comm *parent, const char *name, int *process_of, int n, uint64_t id,
                                struct coll_comm **child)
{
	coll_status st = coll_comm_make_child(parent, name, process_of, n, id, child);

	if (st == COLL_OK && (st = coll_comm_devices_connect(*child)) != COLL_OK) {
		coll_comm_refuse(parent, name, st, "%s", (*child)->lost.message);
		coll_comm_destroy(child);
	}
	if (st == COLL_OK)
		coll_comm_describe(*child);
	return st;
}

static uint64_t child_id(uint64_t call_hash, uint64_t colour)
{
	const uint64_t id = coll_hash_combine(call_hash, colour);

	return id ? id : 1; /* id 0 stands for all communicators */
}

void coll_comm_announce_failed_child(const struct coll_comm *parent, coll_status st, uint64_t id)
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
	coll_control_report(ctx->control, &note);
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

/* The processes of one colour, ordered by key, then by rank (malloc'd). */
static int *processes_of_colour(const struct coll_comm *parent, const struct split_request *w, int colour, int *n)
{
	struct member *members = malloc((size_t)parent->size * sizeof(*members));
	int *process_of = members ? malloc((size_t)parent->size * sizeof(*process_of)) : NULL;

	*n = 0;
	for (int r = 0; members && r < parent->size; r++)
		if (w[r].colour == colour)
			members[(*n)++] = (struct member){w[r].key, r};
	if (process_of)
		qsort(members, (size_t)*n, sizeof(*members), by_key_then_rank);
	for (int i = 0; process_of && i < *n; i++)
		process_of[i] = coll_comm_process(parent, members[i].rank);
	free(members);
	return process_of;
}

static coll_status check_colours(struct coll_comm *parent, const struct split_request *w)
{
	for (int r = 0; r < parent->size; r++)
		if (w[r].colour < 0 && w[r].colour != COLL_NO_COLOUR)
			return coll_comm_refuse(
			        parent, "comm_split", COLL_ERR_ARGUMENT,
			        "rank %d passed the colour %d: colours are 0 or more, or COLL_NO_COLOUR", r,
			        w[r].colour);
	return COLL_OK;
}

coll_status coll_comm_split_by_colour(struct coll_comm *parent, int colour, int key, struct coll_comm **child)
{
	struct split_request mine = {.colour = colour, .key = key}, *all = NULL;
	struct coll_comm *created = NULL;
	coll_status st = exchange(parent, COLL_RECORD_SPLIT, &mine, &all);
	int *process_of, n;

	if (st == COLL_OK)
		st = check_colours(parent, all);
	if (st == COLL_OK && colour != COLL_NO_COLOUR) {
		process_of = processes_of_colour(parent, all, colour, &n);
		st = create_child(parent, "comm_split", process_of, n, child_id(mine.call_hash, (uint64_t)colour),
		                  &created);
	}
	if (st == COLL_OK)
		*child = created;
	else if (colour >= 0)
		coll_comm_announce_failed_child(parent, st, child_id(mine.call_hash, (uint64_t)colour));
	free(all);
	return st;
}

/* ---- Duplicate ---- */

coll_status coll_comm_split_duplicate(struct coll_comm *parent, struct coll_comm **child)
{
	struct split_request mine = {.colour = 0}, *all = NULL;
	coll_status st = exchange(parent, COLL_RECORD_DUPLICATE, &mine, &all);

	if (st == COLL_OK)
		st = create_child(parent, "comm_duplicate", coll_comm_processes_of(parent, NULL, parent->size),
		                  parent->size, child_id(mine.call_hash, 0), child);
	if (st != COLL_OK)
		coll_comm_announce_failed_child(parent, st, child_id(mine.call_hash, 0));
	free(all);
	return st;
}

/* ---- From a list of ranks ---- */

static const char from_ranks[] = "comm_create_from_ranks";

/* The request for this rank's list. It includes the first fault found in the list. */
static struct split_request read_list(const struct coll_comm *parent, const int *ranks, int n, bool *seen)
{
	struct split_request w = {.key = -1};

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

static bool lists_differ(const struct split_request *w, int size)
{
	for (int r = 1; r < size; r++)
		if (w[r].list != w[0].list)
			return true;
	return false;
}

/* Only a rank that has a list can see which ranks the list names. Each rank reports whether a rank
 * in its own list passed a different list. If any rank reports one, all ranks refuse the call. */
static coll_status compare_lists(struct coll_comm *parent, const struct split_request *w, const int *ranks, int n)
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

static coll_status check_lists(struct coll_comm *parent, const struct split_request *w, const int *ranks, int n)
{
	for (int r = 0; r < parent->size; r++)
		if (w[r].colour > FAULT_NONE && w[r].colour < FAULT_COUNT)
			return coll_comm_refuse(parent, from_ranks, COLL_ERR_ARGUMENT, "the list of rank %d %s", r,
			                        fault_texts[w[r].colour]);
	return lists_differ(w, parent->size) ? compare_lists(parent, w, ranks, n) : COLL_OK;
}

coll_status coll_comm_split_from_ranks(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child)
{
	bool *seen = calloc((size_t)parent->size, sizeof(*seen));
	struct coll_comm *created = NULL;
	struct split_request mine, *all = NULL;
	coll_status st;

	if (!seen)
		return coll_comm_refuse(parent, from_ranks, COLL_ERR_MEMORY, "out of memory");
	mine = read_list(parent, ranks, n, seen);
	free(seen);
	st = exchange(parent, COLL_RECORD_FROM_RANKS, &mine, &all);
	if (st == COLL_OK)
		st = check_lists(parent, all, ranks, n);
	if (st == COLL_OK && mine.key >= 0)
		st = create_child(parent, from_ranks, coll_comm_processes_of(parent, ranks, n), n,
		                  child_id(mine.call_hash, mine.list), &created);
	if (st == COLL_OK)
		*child = created;
	else if (mine.key >= 0)
		coll_comm_announce_failed_child(parent, st, child_id(mine.call_hash, mine.list));
	free(all);
	return st;
}
