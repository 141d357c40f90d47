/*
 * Groups (group.h). A call outside a group is a group of one. At the end, creations run first, each in a thread of its
 * own if there are several, since each waits for the other ranks. Then the calls of all communicators are one group of
 * the library, so that one thread can drive several ranks.
 *
 * If a call of the group was refused, none is made, as in NCCL. The library takes a limited number of calls in one
 * group of a capture: collectives beyond it become further groups, which all ranks divide equally.
 */
#include "compat/nccl/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "call/group.h"
#include "compat/nccl/driver.h"
#include "compat/nccl/error.h"
#include "core/ops.h"

enum { TOGETHER = 32, REFUSAL_BYTES = 1024 };

/* Between the outermost start and end; NULL: no group is open. A pointer, for the reason that error.c gives. */
struct group {
	int depth;
	ncclResult_t refused;        /* the first refusal */
	char refusal[REFUSAL_BYTES]; /* its sentence */
	struct nccl_call *calls;
	size_t count, room;
	struct nccl_creation *creations;
};
static _Thread_local struct group *group;

ncclResult_t nccl_refuse(ncclResult_t r)
{
	if (group && r != ncclSuccess && group->refused == ncclSuccess) {
		group->refused = r;
		nccl_last(group->refusal, sizeof(group->refusal));
	}
	return r;
}

/* ---- Making calls ---- */

static coll_status start(const struct nccl_call *c, coll_stream *s)
{
	coll_comm *comm = c->comm->comm;

	switch (c->kind) {
	case NCCL_ALL_REDUCE: return coll_all_reduce(c->in, c->out, c->count, c->type, c->op, comm, s);
	case NCCL_REDUCE: return coll_reduce(c->in, c->out, c->count, c->type, c->op, c->root, comm, s);
	case NCCL_BROADCAST: return coll_broadcast(c->in, c->out, c->count, c->type, c->root, comm, s);
	case NCCL_ALL_GATHER: return coll_all_gather(c->in, c->out, c->count, c->type, comm, s);
	case NCCL_REDUCE_SCATTER: return coll_reduce_scatter(c->in, c->out, c->count, c->type, c->op, comm, s);
	case NCCL_ALL_TO_ALL: return coll_all_to_all(c->in, c->out, c->count, c->type, comm, s);
	case NCCL_GATHER: return coll_gather(c->in, c->out, c->count, c->type, c->root, comm, s);
	case NCCL_SCATTER: return coll_scatter(c->in, c->out, c->count, c->type, c->root, comm, s);
	case NCCL_SEND: return coll_send(c->in, c->count, c->type, c->root, comm, s);
	default: return coll_recv(c->out, c->count, c->type, c->root, comm, s);
	}
}

/* A message to this rank itself; both halves name the same memory if it stays where it is. */
static coll_status to_itself(const struct nccl_call *send, const struct nccl_call *recv, coll_stream *s)
{
	const int self = send->comm->rank;

	if (send->in == recv->out)
		return COLL_OK;
	return coll_send_recv(send->in, send->count, self, recv->out, recv->count, self, send->type, send->comm->comm,
	                      s);
}

/* The k-th send of a communicator to its own rank belongs to its k-th receive. */
static struct nccl_call *partner(struct nccl_call *calls, size_t count, const struct nccl_call *send)
{
	for (size_t i = 0; i < count; i++)
		if (calls[i].kind == NCCL_RECV && calls[i].comm == send->comm && calls[i].root == send->comm->rank &&
		    !calls[i].paired)
			return &calls[i];
	return NULL;
}

/* A factor in device memory counts as it is when the stream has come to the call. */
static ncclResult_t read_scalar(const struct nccl_call *c, char *value)
{
	bool captured = false;
	ncclResult_t r = nccl_driver_captured(c->comm->device, c->stream, &captured, c->function);

	if (r == ncclSuccess && captured)
		r = nccl_fail(ncclInvalidUsage,
		              "%s: a factor in device memory cannot be read while the stream is captured: make the "
		              "operation with ncclScalarHostImmediate",
		              c->function);
	if (r != ncclSuccess)
		return r;
	return nccl_driver_read(c->comm->device, value, c->scalar, coll_dtype_size(c->type), c->stream, c->function);
}

/* The library's call has a factor of its own from here on. */
static ncclResult_t scale(const struct nccl_call *c)
{
	char value[sizeof(double)];
	ncclResult_t r = ncclSuccess;

	if (!c->scaled)
		return ncclSuccess;
	memcpy(value, c->factor, sizeof(value));
	if (c->scalar)
		r = read_scalar(c, value);
	return r == ncclSuccess ? nccl_from(coll_op_rescale(c->op, c->comm->comm, value), c->comm->comm, c->function)
	                        : r;
}

/* Both streams wait for what is in front of the message: it is moved in the stream of the send. */
static ncclResult_t make_to_itself(struct nccl_call *c, struct nccl_call *all, size_t count, coll_stream *s)
{
	struct nccl_call *p = c->kind == NCCL_SEND ? partner(all, count, c) : NULL;
	ncclResult_t r;

	if (!p || p->count != c->count || p->type != c->type)
		return nccl_fail(ncclInvalidUsage,
		                 "%s: a message of rank %d to itself needs its partner of equal length and "
		                 "type in the same group",
		                 c->function, c->root);
	p->paired = true;
	c->partner = p;
	r = nccl_stream_order(c->comm, p->stream, c->stream, c->function);
	return r == ncclSuccess ? nccl_from(to_itself(c, p, s), c->comm->comm, c->function) : r;
}

/* And what comes behind it in the stream of the receive waits for it. */
static ncclResult_t rejoin(const struct nccl_call *calls, size_t count)
{
	ncclResult_t r = ncclSuccess;

	for (size_t i = 0; i < count && r == ncclSuccess; i++)
		if (calls[i].partner)
			r = nccl_stream_order(calls[i].comm, calls[i].stream, calls[i].partner->stream,
			                      calls[i].function);
	return r;
}

static ncclResult_t make(struct nccl_call *c, struct nccl_call *all, size_t count)
{
	coll_stream *s = NULL;
	ncclResult_t r;

	if (c->paired)
		return ncclSuccess;
	r = nccl_stream_of(c->comm, c->stream, &s, c->function);
	if (r == ncclSuccess)
		r = scale(c);
	if (r != ncclSuccess)
		return r;
	if (c->kind >= NCCL_SEND && c->root == c->comm->rank)
		return make_to_itself(c, all, count, s);
	return nccl_from(start(c, s), c->comm->comm, c->function);
}

/* Calls of the same communicator before it. */
static size_t place(const struct nccl_call *calls, size_t i)
{
	size_t before = 0;

	for (size_t j = 0; j < i; j++)
		before += calls[j].comm == calls[i].comm;
	return before;
}

static bool must_be_one(const struct nccl_call *calls, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (calls[i].kind >= NCCL_SEND || calls[i].comm->device < 0)
			return true;
	return false;
}

/* The communicator whose call failed at the end of a group: the first one that is lost, else the first. */
static coll_comm *to_blame(const struct nccl_call *calls, size_t count, coll_status st)
{
	for (size_t i = 0; i < count; i++)
		if (coll_last_error(calls[i].comm->comm)->status == st)
			return calls[i].comm->comm;
	return calls[0].comm->comm;
}

/* The calls whose places are from .. from + TOGETHER - 1, or all. */
static ncclResult_t make_some(struct nccl_call *calls, size_t count, bool all, size_t from)
{
	ncclResult_t r = ncclSuccess;
	coll_status st;

	if (count == 1)
		return make(&calls[0], calls, 1);
	st = coll_group_begin();
	if (st != COLL_OK)
		return nccl_fail(nccl_code(st), "%s: no group can be opened", calls[0].function);
	/* Sends to itself first, since they find their receives. */
	for (int sends = 1; sends >= 0 && r == ncclSuccess; sends--)
		for (size_t i = 0; i < count && r == ncclSuccess; i++)
			if ((calls[i].kind == NCCL_SEND && calls[i].root == calls[i].comm->rank) == sends &&
			    (all || (place(calls, i) >= from && place(calls, i) < from + TOGETHER)))
				r = make(&calls[i], calls, count);
	if (r != ncclSuccess) {
		coll_group_cancel();
		return r;
	}
	st = coll_group_end();
	if (st != COLL_OK)
		return nccl_from(st, to_blame(calls, count, st), "ncclGroupEnd");
	return rejoin(calls, count);
}

static ncclResult_t make_all(struct nccl_call *calls, size_t count)
{
	ncclResult_t r = ncclSuccess;
	size_t entered = 0, most = 1;
	bool parts = false;

	if (count == 0)
		return ncclSuccess;
	while (entered < count && r == ncclSuccess) {
		r = nccl_enter_busy(calls[entered].comm, calls[entered].function);
		entered += r == ncclSuccess;
	}
	if (r == ncclSuccess && count > TOGETHER && !must_be_one(calls, count))
		r = nccl_driver_captured(calls[0].comm->device, calls[0].stream, &parts, calls[0].function);
	for (size_t i = 0; i < count && parts && r == ncclSuccess; i++)
		most = place(calls, i) + 1 > most ? place(calls, i) + 1 : most;
	for (size_t from = 0; from < most && r == ncclSuccess; from += TOGETHER)
		r = make_some(calls, count, !parts, from);
	while (entered > 0)
		nccl_leave_busy(calls[--entered].comm);
	return r;
}

ncclResult_t nccl_call(const struct nccl_call *c)
{
	struct nccl_call one = *c;

	if (!group)
		return make_all(&one, 1);
	if (group->count == group->room) {
		const size_t room = group->room ? 2 * group->room : 16;
		struct nccl_call *more = realloc(group->calls, room * sizeof(*more));

		if (!more)
			return nccl_refuse(nccl_fail(ncclSystemError, "%s: out of memory", c->function));
		group->calls = more;
		group->room = room;
	}
	group->calls[group->count++] = *c;
	return ncclSuccess;
}

/* ---- Creations ---- */

/* And those behind it, which have the same parent. */
static void *run_creation(void *arg)
{
	for (struct nccl_creation *c = arg; c; c = c->behind) {
		c->result = c->run(c);
		if (c->result != ncclSuccess)
			nccl_last(c->text, sizeof(c->text));
	}
	return NULL;
}

static void free_creation(struct nccl_creation *c)
{
	free(c->ranks);
	free(c);
}

ncclResult_t nccl_create(struct nccl_creation *c)
{
	struct nccl_creation **at;
	ncclResult_t r;

	if (!group) {
		r = c->run(c);
		free_creation(c);
		return r;
	}
	for (at = &group->creations; *at;)
		at = &(*at)->next;
	*at = c;
	return ncclSuccess;
}

ncclResult_t nccl_group_leaves(ncclComm_t comm, const char *function)
{
	for (const struct nccl_creation *c = group ? group->creations : NULL; c; c = c->next)
		if (c->parent == comm || c->handle == comm)
			return nccl_fail(ncclInvalidUsage, "%s: the open group has an %s with this communicator",
			                 function, c->function);
	return ncclSuccess;
}

bool nccl_group_is_open(void)
{
	return group != NULL;
}

/* A parent makes one child after the other, in the order of the group. */
static void put_behind(struct nccl_creation *list)
{
	for (struct nccl_creation *c = list; c; c = c->next)
		for (struct nccl_creation *d = c->next; d && c->parent && !c->behind; d = d->next)
			if (d->parent == c->parent) {
				c->behind = d;
				d->follows = true;
			}
}

/* The calling thread runs the last one, or what no thread can be had for. */
static void run_together(struct nccl_creation *list, pthread_t *threads)
{
	struct nccl_creation *last = NULL;
	size_t started = 0;

	for (struct nccl_creation *c = list; c; c = c->next) {
		if (c->follows)
			continue;
		if (last &&
		    (!threads || coll_thread_start(&threads[started], NCCL_STACK_BYTES, run_creation, last) != 0))
			run_creation(last);
		else if (last)
			started++;
		last = c;
	}
	run_creation(last);
	for (size_t i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
}

static ncclResult_t create_all(struct nccl_creation *list)
{
	ncclResult_t r = ncclSuccess;
	pthread_t *threads;
	size_t n = 0;

	for (const struct nccl_creation *c = list; c; c = c->next)
		n++;
	if (n == 0)
		return ncclSuccess;
	threads = calloc(n, sizeof(*threads));
	put_behind(list);
	run_together(list, threads);
	free(threads);
	for (struct nccl_creation *c = list, *next; c; c = next) {
		next = c->next;
		if (r == ncclSuccess && c->result != ncclSuccess)
			r = nccl_fail(c->result, "%s", c->text);
		free_creation(c);
	}
	return r;
}

/* A group that fails creates nothing. */
static void drop_creations(struct nccl_creation *list)
{
	for (struct nccl_creation *c = list, *next; c; c = next) {
		next = c->next;
		if (c->parent)
			nccl_leave_busy(c->parent);
		if (nccl_handle_drop(c->handle))
			nccl_job_leave(c->handle, false, c->function);
		*c->out = NULL;
		free_creation(c);
	}
}

/* ---- Interface ---- */

NCCL_FUNCTION(ncclResult_t, ncclGroupStart, (void))
{
	if (!group)
		group = calloc(1, sizeof(*group));
	if (!group)
		return nccl_fail(ncclSystemError, "ncclGroupStart: out of memory");
	group->depth++;
	return ncclSuccess;
}

static ncclResult_t end(const char *function, bool simulate)
{
	struct group *g = group;
	ncclResult_t r;

	if (!g)
		return nccl_fail(ncclInvalidUsage, "%s: no group is open", function);
	if (--g->depth > 0)
		return ncclSuccess;
	group = NULL; /* what follows is not inside it */
	r = g->refused;
	if (r != ncclSuccess || simulate)
		drop_creations(g->creations);
	else
		r = create_all(g->creations);
	if (g->refused != ncclSuccess)
		nccl_fail(r, "%s", g->refusal);
	if (r == ncclSuccess && !simulate)
		r = make_all(g->calls, g->count);
	free(g->calls);
	free(g);
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, (void))
{
	return end("ncclGroupEnd", false);
}

/* Nothing is started. The library has no estimate of a group, so the time stays as the initializer has it. */
NCCL_FUNCTION(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info))
{
	const char *function = "ncclGroupSimulateEnd";

	if (info &&
	    (info->magic != NCCL_SIM_MAGIC || info->size < offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float)))
		return nccl_refuse(
		        nccl_fail(ncclInvalidArgument, "%s: ncclSimInfo_t was not set by its initializer", function));
	if (info)
		info->estimatedTime = -1.0f;
	return end(function, true);
}
