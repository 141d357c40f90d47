/*
 * Counters of a communicator's calls, by transport and way. The flight recorder has the facts and adds them up when an
 * entry is used again (record/recorder.h); this file says where an operation belongs and how many bytes it has. So a
 * call pays nothing, and no clock is read for the counters.
 */
#include "comm/stats.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/sized.h"
#include "core/comm.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/way_name.h"

/* Groups of the recorder's counters; the transports of the context follow. */
enum { SELF, MIXED, DEVICE, FIRST_TRANSPORT };
static_assert((int)FIRST_TRANSPORT + (int)COLL_TRANSPORTS <= (int)COLL_RECORDER_GROUPS, "each has a group");

static int group_of_rank(const struct coll_comm *comm, int rank)
{
	const struct coll_opened_transport *w;

	if (rank == comm->rank)
		return SELF;
	w = rank >= 0 && rank < comm->size ? coll_context_choose(comm->ctx, coll_comm_process(comm, rank), NULL, 0)
	                                   : NULL;
	return w ? FIRST_TRANSPORT + (int)(w - comm->ctx->transports) : MIXED;
}

/* The one transport to all others, if there is only one. */
static int group_of_all(const struct coll_comm *comm)
{
	int group = SELF;

	for (int r = 0; r < comm->size && group != MIXED; r++) {
		const int next = group_of_rank(comm, r);

		if (next != SELF)
			group = group == SELF || group == next ? next : MIXED;
	}
	return group;
}

static int sort(const void *arg, const struct coll_op_record *o, uint64_t *bytes)
{
	const struct coll_comm *comm = arg;
	uint64_t blocks = 1;

	if (o->kind > COLL_KIND_SEND_RECV)
		return -1;
	switch ((enum coll_kind)o->kind) {
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_ALL_TO_ALL: blocks = (uint64_t)comm->size; break;
	case COLL_KIND_GATHER:
	case COLL_KIND_SCATTER: blocks = o->root == comm->rank ? (uint64_t)comm->size : 1; break;
	case COLL_KIND_BARRIER: blocks = 0; break;
	default: break;
	}
	*bytes = o->count * coll_dtype_size((coll_dtype)o->type) * blocks;
	if ((o->way & COLL_WAY_MAX & ~COLL_WAY_STAGED) == COLL_WAY_DEVICE_DIRECT)
		return DEVICE;
	if (o->kind == COLL_KIND_SEND_RECV && comm->all_by == MIXED)
		return group_of_rank(comm, o->root);
	if (o->kind == COLL_KIND_SEND_RECV && o->root == comm->rank)
		return SELF;
	return comm->all_by;
}

void coll_stats_prepare(struct coll_comm *comm)
{
	comm->all_by = (uint8_t)group_of_all(comm);
	coll_recorder_sort(&comm->recorder, sort, comm);
}

/* ---- Reading ---- */

static const char *group_name(const struct coll_comm *comm, int group)
{
	switch (group) {
	case SELF: return "self";
	case MIXED: return "mixed";
	case DEVICE: return "device";
	default: return comm->ctx->transports[group - FIRST_TRANSPORT].table.name;
	}
}

/* Seconds of a tick, by the clocks now and when the context was created. */
static double tick_s(const struct coll_comm *comm)
{
	const struct coll_moment *first = &comm->ctx->birth;
	struct coll_moment now;

	coll_moment_take(&now, comm->recorder.counter);
	return now.ticks > first->ticks
	               ? (double)(now.mono_ns - first->mono_ns) / (double)(now.ticks - first->ticks) / 1e9
	               : 1e-9;
}

coll_status coll_comm_stats(coll_comm *comm, coll_stats *rows, int *count)
{
	const size_t first = COLL_SIZED_FIRST(coll_stats, waited_s);
	struct coll_counts *counts;
	size_t row_bytes;
	double tick;
	int n = 0;

	if (coll_entry_no_comm(comm, "comm_stats"))
		return COLL_ERR_ARGUMENT;
	if (!count || *count < 0 || (*count > 0 && !rows))
		return coll_comm_refuse(comm, "comm_stats", COLL_ERR_ARGUMENT, "count or rows is NULL, or *count < 0");
	row_bytes = *count > 0 ? coll_sized_of(rows, first) : first;
	if (row_bytes == 0)
		return coll_comm_refuse(comm, "comm_stats", COLL_ERR_ARGUMENT,
		                        "rows[0] was not made by COLL_STATS_INIT");
	counts = calloc(1, sizeof(*counts));
	if (!counts)
		return coll_comm_refuse(comm, "comm_stats", COLL_ERR_MEMORY, "out of memory");
	coll_recorder_totals(&comm->recorder, counts);
	tick = tick_s(comm);
	for (int g = 0; g < COLL_RECORDER_GROUPS; g++)
		for (int way = 0; way <= COLL_WAY_MAX; way++) {
			const struct coll_count *c = &counts->of[g][way];
			void *row = n < *count ? (char *)rows + (size_t)n * row_bytes : NULL;

			if (c->calls == 0)
				continue;
			n++;
			if (!row)
				continue;
			memcpy(row, &row_bytes, sizeof(row_bytes));
			coll_sized_write(row,
			                 &(coll_stats){.struct_size = sizeof(coll_stats),
			                               .transport = group_name(comm, g),
			                               .way = coll_way_name((uint8_t)way),
			                               .calls = c->calls,
			                               .bytes = c->bytes,
			                               .waited_s = (double)c->ticks * tick},
			                 sizeof(coll_stats), first);
		}
	free(counts);
	*count = n;
	return COLL_OK;
}
