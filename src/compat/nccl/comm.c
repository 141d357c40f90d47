/*
 * The life of communicators: unique ids, creation, split, shrink, end, and what they tell.
 *
 * A communicator's device is that of the context that is current in the creating thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/proof.h"
#include "bootstrap/id.h"
#include "compat/nccl/config.h"
#include "compat/nccl/driver.h"
#include "compat/nccl/error.h"
#include "compat/nccl/group.h"
#include "compat/nccl/say.h"
#include "compat/nccl/variables.h"
#include "inflight/drive.h"

enum { KEY_AT = 8, KEY_BYTES = 16 }; /* where an id has the key of its job */

/* What this thread is creating, NULL: nothing. The hook stays with the communicator and its children, which may outlive
 * the handle that it was made for: so it is asked about the handle of this moment. */
static _Thread_local ncclComm_t making;

static int was_aborted(void *arg)
{
	(void)arg;
	return making && atomic_load(&making->ended);
}

/* ---- Creation ---- */

/* 0: a setting is malformed. */
static int version_given(void)
{
	struct coll_settings *s = malloc(sizeof(*s));
	const int version = s && coll_settings_load(s, NULL, NULL, NULL) == COLL_OK ? s->nccl_version : 0;

	free(s);
	return version;
}

/* The end of a creation, in the thread that ran it. No rank goes on before all have what they need of the driver:
 * streams that wait for a rank of the same process could keep it from getting that. */
static ncclResult_t settle(struct nccl_creation *c, coll_comm *made, ncclResult_t r)
{

	if (made && r == ncclSuccess) {
		r = nccl_from(coll_barrier(made, NULL), made, c->function);
		if (r != ncclSuccess)
			coll_comm_destroy(&made);
	}
	making = NULL;
	if (made) {
		nccl_say_made(c->handle, made);
		nccl_handle_ready(c->handle, made);
		return r;
	}
	*c->out = NULL;
	if (nccl_handle_drop(c->handle))
		nccl_job_leave(c->handle, false, c->function);
	return r;
}

static ncclResult_t run_init(struct nccl_creation *c)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *made = NULL;
	coll_unique_id id;
	char device[24] = "host";
	coll_status st;

	memcpy(id.bytes, c->id.internal, sizeof(id.bytes));
	if (c->handle->device >= 0)
		snprintf(device, sizeof(device), "cuda:%d", c->handle->device);
	cfg.rank = c->handle->rank;
	cfg.size = c->handle->size;
	cfg.id = &id;
	cfg.device = device;
	cfg.interrupt = was_aborted;
	making = c->handle;
	nccl_say_version(cfg.rank, version_given());
	nccl_say_comm(c->handle, "Init START");
	st = coll_comm_create(&made, &cfg);
	return settle(c, made, nccl_from(st, NULL, c->function));
}

static ncclResult_t init(ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank, const ncclConfig_t *config,
                         const char *function)
{
	struct nccl_creation *c;
	ncclResult_t r = nccl_check_config(config, function);
	int device;

	if (r == ncclSuccess)
		r = nccl_variables(function);
	if (r != ncclSuccess)
		return r;
	if (!out || !id)
		return nccl_fail(ncclInvalidArgument, "%s: the pointer for the %s is NULL", function,
		                 out ? "id" : "communicator");
	if (nranks < 1 || rank < 0 || rank >= nranks)
		return nccl_fail(ncclInvalidArgument, "%s: rank %d of %d ranks is impossible", function, rank, nranks);
	r = nccl_driver_device(&device, function);
	if (r != ncclSuccess)
		return r;
	c = calloc(1, sizeof(*c));
	if (c)
		c->handle = nccl_handle_new(rank, nranks, device);
	if (c && c->handle)
		c->handle->job = nccl_job_join(id->internal + KEY_AT, KEY_BYTES, 1);
	if (!c || !c->handle || !c->handle->job) {
		if (c && c->handle && nccl_handle_drop(c->handle))
			nccl_job_leave(c->handle, false, function);
		free(c);
		return nccl_fail(ncclSystemError, "%s: out of memory", function);
	}
	c->function = function;
	c->run = run_init;
	c->id = *id;
	c->out = out;
	*out = c->handle;
	return nccl_create(c);
}

NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))
{
	coll_unique_id made;
	coll_status st;

	if (!id)
		return nccl_fail(ncclInvalidArgument, "ncclGetUniqueId: the pointer for the id is NULL");
	if (nccl_variables("ncclGetUniqueId") != ncclSuccess)
		return ncclInvalidUsage;
	st = coll_unique_id_create(&made);
	if (st == COLL_OK)
		memcpy(id->internal, made.bytes, sizeof(id->internal));
	return nccl_from(st, NULL, "ncclGetUniqueId");
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig,
              (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config))
{
	return nccl_refuse(init(comm, nranks, &id, rank, config, "ncclCommInitRankConfig"));
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank))
{
	return nccl_refuse(init(comm, nranks, &id, rank, NULL, "ncclCommInitRank"));
}

/* One meeting serves all ranks, that of the first id. */
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankScalable,
              (ncclComm_t * comm, int nranks, int rank, int nids, ncclUniqueId *ids, ncclConfig_t *config))
{
	const char *function = "ncclCommInitRankScalable";

	if (nids < 1 || nids > nranks)
		return nccl_refuse(nccl_fail(ncclInvalidArgument, "%s: %d ids for %d ranks", function, nids, nranks));
	for (int i = 1; ids && i < nids; i++) {
		coll_unique_id id;

		memcpy(id.bytes, ids[i].internal, sizeof(id.bytes));
		coll_id_give_up(&id);
	}
	return nccl_refuse(init(comm, nranks, ids, rank, config, function));
}

/* ---- All ranks in this process ---- */

static ncclResult_t create_all(coll_comm **made, int n, const int *devices, const char *function)
{
	coll_config cfg = COLL_CONFIG_INIT;
	char text[16 * 64 + 16] = "host";
	size_t at = 0;

	for (int i = 0; i < n && devices[0] >= 0 && at < sizeof(text); i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", i ? "," : "cuda:", devices[i]);
	cfg.device = text;
	nccl_say_version(0, version_given());
	cfg.interrupt = was_aborted; /* of children */
	return nccl_from(coll_comm_create_all(made, n, &cfg), NULL, function);
}

/* Handles for what was made. */
static ncclResult_t hand_out(ncclComm_t *comms, int n, const int *devices, coll_comm **made)
{
	uint64_t key[2];
	struct nccl_job *job = NULL;
	int have = 0;

	if (coll_random(key, sizeof(key))) /* names the job in this process; not secret */
		job = nccl_job_join(key, sizeof(key), n);
	while (job && have < n && (comms[have] = nccl_handle_new(have, n, devices[have])))
		comms[have++]->job = job;
	for (int i = 0; i < have; i++) {
		nccl_say_made(comms[i], made[i]);
		nccl_handle_ready(comms[i], made[i]);
	}
	if (job && have == n)
		return ncclSuccess;
	for (int i = 0; i < n; i++)
		coll_comm_abort(made[i], "out of memory"); /* lost to the program, which cannot go on */
	return nccl_fail(ncclSystemError, "ncclCommInitAll: no memory, or no random bytes");
}

NCCL_FUNCTION(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int n, const int *list))
{
	static const char *const function = "ncclCommInitAll";
	coll_comm *made[64];
	int devices[64], here;
	ncclResult_t r = nccl_variables(function);

	if (r == ncclSuccess)
		r = nccl_driver_device(&here, function);
	if (r != ncclSuccess)
		return nccl_refuse(r);
	if (!comms || n < 1 || n > 64)
		return nccl_refuse(
		        nccl_fail(ncclInvalidArgument, "%s: %d communicators at %p", function, n, (void *)comms));
	for (int i = 0; i < n; i++) {
		devices[i] = here < 0 ? -1 : list ? list[i] : i;
		if (list && list[i] < 0)
			return nccl_refuse(
			        nccl_fail(ncclInvalidArgument, "%s: device %d does not exist", function, list[i]));
	}
	r = create_all(made, n, devices, function);
	return nccl_refuse(r == ncclSuccess ? hand_out(comms, n, devices, made) : r);
}

/* ---- From a communicator ---- */

static ncclResult_t run_child(struct nccl_creation *c)
{
	coll_comm *made = NULL;
	ncclResult_t r;
	coll_status st;

	making = c->handle;
	if (c->ranks)
		st = coll_comm_create_group(c->parent->comm, c->ranks, c->nranks, 0, &made);
	else
		st = coll_comm_split(c->parent->comm, c->colour, c->key, &made);
	if (made) {
		c->handle->rank = coll_comm_rank(made);
		c->handle->size = coll_comm_size(made);
	}
	r = nccl_from(st, c->parent->comm, c->function);
	nccl_leave_busy(c->parent);
	return settle(c, made, r);
}

/* The caller is inside the parent, and stays so until the creation has run. */
static ncclResult_t child(ncclComm_t parent, ncclComm_t *out, struct nccl_creation like)
{
	struct nccl_creation *c = malloc(sizeof(*c));

	like.handle = c ? nccl_handle_new(-1, 0, parent->device) : NULL;
	if (!like.handle) {
		free(c);
		free(like.ranks);
		nccl_leave_busy(parent);
		return nccl_fail(ncclSystemError, "%s: out of memory", like.function);
	}
	*c = like;
	c->run = run_child;
	c->parent = parent;
	c->out = out;
	c->handle->job = parent->job;
	nccl_job_retain(parent->job);
	*out = c->handle;
	return nccl_create(c);
}

/* Begin a call that makes a communicator from another one. */
static ncclResult_t enter_parent(ncclComm_t parent, ncclComm_t *out, const ncclConfig_t *config, const char *function)
{
	ncclResult_t r = nccl_check_config(config, function);

	if (r == ncclSuccess && !out)
		r = nccl_fail(ncclInvalidArgument, "%s: the pointer for the communicator is NULL", function);
	if (r == ncclSuccess)
		r = nccl_enter_busy(parent, function);
	if (r != ncclSuccess)
		return r;
	if (parent->finalized || parent->suspended) {
		r = nccl_fail(parent->finalized ? ncclInvalidArgument : ncclInvalidUsage, "%s: the communicator was %s",
		              function, parent->finalized ? "finalized" : "suspended");
		nccl_leave_busy(parent);
	}
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config))
{
	static const char *const function = "ncclCommSplit";
	ncclResult_t r;

	if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
		return nccl_refuse(nccl_fail(ncclInvalidArgument,
		                             "%s: colour %d is negative, and not NCCL_SPLIT_NOCOLOR", function, color));
	r = enter_parent(comm, out, config, function);
	if (r == ncclSuccess)
		r = child(comm, out,
		          (struct nccl_creation){.function = function,
		                                 .colour = color == NCCL_SPLIT_NOCOLOR ? COLL_NO_COLOUR : color,
		                                 .key = key});
	return nccl_refuse(r);
}

/* The ranks that stay, in order; NULL: the list is impossible. */
static int *remaining(const struct ncclComm *comm, const int *excluded, int count, int *n)
{
	int *ranks = calloc((size_t)comm->size, sizeof(*ranks));

	*n = 0;
	for (int r = 0; ranks && r < comm->size; r++) {
		bool gone = false;

		for (int i = 0; i < count; i++)
			gone = gone || excluded[i] == r;
		if (!gone)
			ranks[(*n)++] = r;
	}
	return ranks;
}

static ncclResult_t check_shrink(const struct ncclComm *comm, const int *excluded, int count, int flags)
{
	static const char *const function = "ncclCommShrink";

	if (flags != NCCL_SHRINK_DEFAULT && flags != NCCL_SHRINK_ABORT)
		return nccl_fail(ncclInvalidArgument, "%s: flags 0x%x are unknown", function, (unsigned)flags);
	if (count < 1 || count >= comm->size || !excluded)
		return nccl_fail(ncclInvalidArgument, "%s: a list of %d ranks to exclude, of %d", function, count,
		                 comm->size);
	for (int i = 0; i < count; i++) {
		if (excluded[i] < 0 || excluded[i] >= comm->size)
			return nccl_fail(ncclInvalidArgument, "%s: there is no rank %d", function, excluded[i]);
		if (excluded[i] == comm->rank)
			return nccl_fail(ncclInvalidArgument, "%s: this rank, %d, is excluded: it must not call",
			                 function, comm->rank);
	}
	if (coll_comm_status(comm->comm) != COLL_OK)
		return nccl_fail(ncclInvalidUsage, "%s: the communicator has failed, and has no children any more: %s",
		                 function, coll_last_error(comm->comm)->message);
	return ncclSuccess;
}

/* Only those that stay make this call. */
NCCL_FUNCTION(ncclResult_t, ncclCommShrink,
              (ncclComm_t comm, int *excluded, int count, ncclComm_t *out, ncclConfig_t *config, int flags))
{
	struct nccl_creation c = {.function = "ncclCommShrink"};
	ncclResult_t r = enter_parent(comm, out, config, c.function);

	if (r != ncclSuccess)
		return nccl_refuse(r);
	r = check_shrink(comm, excluded, count, flags);
	if (r == ncclSuccess && !(c.ranks = remaining(comm, excluded, count, &c.nranks)))
		r = nccl_fail(ncclSystemError, "%s: out of memory", c.function);
	if (r == ncclSuccess)
		return nccl_refuse(child(comm, out, c));
	nccl_leave_busy(comm);
	return nccl_refuse(r);
}

/* ---- The end ---- */

NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))
{
	static const char *const function = "ncclCommFinalize";
	ncclResult_t r;

	if (!comm)
		return ncclSuccess;
	r = nccl_enter_busy(comm, function);
	if (r != ncclSuccess)
		return r;
	if (comm->finalized)
		r = nccl_fail(ncclInvalidArgument, "%s: the communicator was finalized before", function);
	else
		r = nccl_flush(comm, function);
	comm->finalized = true;
	nccl_leave_busy(comm);
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))
{
	ncclResult_t r;

	if (!comm)
		return ncclSuccess;
	r = nccl_group_leaves(comm, "ncclCommDestroy");
	if (r == ncclSuccess)
		r = nccl_handle_end(comm, "ncclCommDestroy");
	if (r == ncclSuccess)
		nccl_say_comm(comm, "Destroy COMPLETE");
	return r == ncclSuccess ? nccl_job_leave(comm, false, "ncclCommDestroy") : r;
}

NCCL_FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t comm))
{
	ncclResult_t r;
	bool idle;

	if (!comm)
		return ncclSuccess;
	r = nccl_group_leaves(comm, "ncclCommAbort");
	if (r == ncclSuccess)
		r = nccl_handle_abort(comm, &idle, "ncclCommAbort");
	if (r == ncclSuccess)
		nccl_say_comm(comm, "Abort COMPLETE");
	if (r == ncclSuccess)
		/* Its calls have failed, as was asked for. To free its memory the driver may wait for streams of
		 * others, which a group aborts next. */
		nccl_job_leave(comm, idle || nccl_group_is_open(), "ncclCommAbort");
	return r;
}

/* ---- Questions ---- */

NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error))
{
	static const char *const function = "ncclCommGetAsyncError";
	ncclResult_t r;
	coll_status st;

	if (!error)
		return nccl_fail(ncclInvalidArgument, "%s: the pointer for the result is NULL", function);
	r = nccl_enter_any(comm, function);
	if (r != ncclSuccess)
		return r;
	if (!nccl_is_ready(comm)) {
		*error = ncclInProgress;
	} else {
		st = coll_comm_status(comm->comm);
		*error = nccl_code(st);
		if (st != COLL_OK)
			*error = nccl_from(st, comm->comm, "asynchronous error");
	}
	nccl_leave(comm);
	return ncclSuccess;
}

static ncclResult_t tell(ncclComm_t comm, const char *function, int *to, size_t offset)
{
	ncclResult_t r;

	if (!to)
		return nccl_fail(ncclInvalidArgument, "%s: the pointer for the result is NULL", function);
	r = nccl_enter(comm, function);
	if (r != ncclSuccess)
		return r;
	memcpy(to, (const char *)comm + offset, sizeof(*to));
	nccl_leave(comm);
	return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclCommCount, (ncclComm_t comm, int *count))
{
	return tell(comm, "ncclCommCount", count, offsetof(struct ncclComm, size));
}

NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, (ncclComm_t comm, int *device))
{
	return tell(comm, "ncclCommCuDevice", device, offsetof(struct ncclComm, device));
}

NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, (ncclComm_t comm, int *rank))
{
	return tell(comm, "ncclCommUserRank", rank, offsetof(struct ncclComm, rank));
}

NCCL_FUNCTION(ncclResult_t, ncclGetVersion, (int *version))
{
	if (!version)
		return nccl_fail(ncclInvalidArgument, "ncclGetVersion: the pointer for the result is NULL");
	*version = version_given();
	return *version ? ncclSuccess : nccl_fail(ncclInvalidUsage, "ncclGetVersion: a setting (COLL_*) is malformed");
}
