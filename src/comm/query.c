/*
 * Queries about a communicator.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/fork.h"
#include "base/version.h"
#include "core/comm.h"
#include "core/dead.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "core/way_name.h"
#include "device/device.h"
#include "inflight/drive.h"
#include "select/bind.h"

int coll_comm_rank(const coll_comm *comm)
{
	return comm ? comm->rank : -1;
}

int coll_comm_size(const coll_comm *comm)
{
	return comm ? comm->size : 0;
}

int coll_comm_local_rank(const coll_comm *comm)
{
	return comm ? comm->rank_map.local_rank : -1;
}

int coll_comm_local_size(const coll_comm *comm)
{
	return comm ? comm->rank_map.local_size : 0;
}

const char *coll_comm_host(const coll_comm *comm, int rank)
{
	return comm && rank >= 0 && rank < comm->size ? coll_comm_peer_info(comm, rank)->host_name : NULL;
}

const char *coll_comm_transport(const coll_comm *comm, int rank)
{
	struct coll_opened_transport *w;

	if (!comm || rank < 0 || rank >= comm->size)
		return NULL;
	if (rank == comm->rank)
		return "self";
	w = coll_context_choose(comm->ctx, coll_comm_process(comm, rank), NULL, 0);
	return w ? w->table.name : "none";
}

const char *coll_comm_device(const coll_comm *comm)
{
	if (!comm)
		return NULL;
	return comm->ctx->device ? comm->ctx->device->name : "host";
}

/* Reads the flight recorder, so calls pay nothing for this query. */
const char *coll_comm_last_way(const coll_comm *comm)
{
	const struct coll_recorder *r = comm ? &comm->recorder : NULL;
	struct coll_op_record op;
	uint64_t end;

	if (!r || !r->entries)
		return NULL;
	end = atomic_load_explicit(&r->next, memory_order_relaxed);
	for (uint64_t i = end; i > 0 && end - i < COLL_RECORDER_ENTRIES; i--)
		if (coll_recorder_read(r, i - 1, comm->id, &op) && op.state == COLL_OP_ENDED)
			return op.way == COLL_WAY_UNKNOWN ? NULL : coll_way_name(op.way);
	return NULL;
}

int coll_version(void)
{
	return COLL_VERSION_MAJOR * 10000 + COLL_VERSION_MINOR * 100 + COLL_VERSION_PATCH;
}

const char *coll_version_text(void)
{
	return coll_library_version();
}

/* The transports to this rank's own host and to others: "shm+tcp". */
static void list_transports(const coll_comm *comm, char *buf, size_t len_bytes)
{
	const uint32_t *host_of = comm->rank_map.host_of;
	const char *near = NULL, *far = NULL;

	for (int r = 0; r < comm->size && !(near && far); r++) {
		if (r == comm->rank)
			continue;
		if (host_of[r] == host_of[comm->rank] && !near)
			near = coll_comm_transport(comm, r);
		if (host_of[r] != host_of[comm->rank] && !far)
			far = coll_comm_transport(comm, r);
	}
	if (near && far && strcmp(near, far) == 0)
		far = NULL;
	snprintf(buf, len_bytes, "%s%s%s", near ? near : "", near && far ? "+" : "", far ? far : near ? "" : "none");
}

coll_status coll_comm_explain(coll_comm *comm, const char *collective, size_t count, coll_dtype type, char *buf,
                              size_t len_bytes)
{
	int kind = collective ? coll_plan_kind_from_name(collective) : -1;
	char transports[64];

	if (coll_entry_no_comm(comm, "explain"))
		return COLL_ERR_ARGUMENT;
	if (kind < 0 || kind == COLL_KIND_SEND_RECV)
		return coll_comm_refuse(comm, "explain", COLL_ERR_ARGUMENT, "'%s' is not a collective",
		                        collective ? collective : "(null)");
	if (!buf || len_bytes == 0 || coll_dtype_size(type) == 0)
		return coll_comm_refuse(comm, "explain", COLL_ERR_ARGUMENT, "no buffer, or an unknown type");
	if (count > PTRDIFF_MAX / coll_dtype_size(type) / (size_t)comm->size)
		return coll_comm_refuse(comm, "explain", COLL_ERR_ARGUMENT, "%zu elements of %s overflow", count,
		                        coll_dtype_name(type));
	list_transports(comm, transports, sizeof(transports));
	return coll_comm_explain_call(comm, (enum coll_kind)kind, count, type, transports, buf, len_bytes);
}

const coll_error *coll_last_error(const coll_comm *comm)
{
	static const coll_error none = {COLL_OK, -1, "", 0, "", -1, "", 0, "no error"};
	const struct coll_dead_members *d = NULL;

	/* What a child asked of an object of its parent. */
	if (comm && !coll_fork_owns(comm->mark))
		comm = NULL;
	if (comm)
		d = coll_comm_dead(comm);
	if (comm && coll_comm_status(comm) != COLL_OK) {
		if (!d)
			return &comm->lost.error;
		if (!coll_comm_lives_on(comm))
			return &d->ended.error;
		if (!d->refused)
			return &comm->lost.error;
	}
	if (comm)
		return comm->refused.error.message ? &comm->refused.error : &none;
	return coll_thread_error_error() ? coll_thread_error_error() : &none;
}
