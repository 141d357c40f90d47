/*
 * What coll_comm_peer_stats() shows: waits for each rank (core/waits.h), and what the system counts of links; and a
 * line about the first at the end of a communicator. Counts nothing itself.
 */
#include "comm/peer_stats.h"

#include <string.h>

#include "base/log.h"
#include "base/sized.h"
#include "core/comm.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/label.h"

/* False: nothing is to be said of that rank. */
static bool row_of(struct coll_comm *comm, int rank, coll_peer_stats *row)
{
	const struct coll_waits_of *w = comm->waits ? &comm->waits->of[rank] : NULL;
	struct coll_link_counts counts = {0};
	const bool counted =
	        rank != comm->rank && coll_context_link_counts(comm->ctx, coll_comm_process(comm, rank), &counts);
	const uint64_t ns = w ? atomic_load_explicit(&w->waited_ns, memory_order_relaxed) : 0;

	*row = (coll_peer_stats){.struct_size = sizeof(*row),
	                         .rank = rank,
	                         .last = w ? atomic_load_explicit(&w->last, memory_order_relaxed) : 0,
	                         .waited_s = (double)ns * 1e-9,
	                         .link_bytes = counts.bytes,
	                         .link_busy_s = (double)counts.busy_us * 1e-6};
	return ns > 0 || counted;
}

coll_status coll_comm_peer_stats(coll_comm *comm, coll_peer_stats *rows, int *count)
{
	const size_t first = COLL_SIZED_FIRST(coll_peer_stats, link_busy_s);
	size_t row_bytes;
	int n = 0;

	if (coll_entry_no_comm(comm, "comm_peer_stats"))
		return COLL_ERR_ARGUMENT;
	if (!count || *count < 0 || (*count > 0 && !rows))
		return coll_comm_refuse(comm, "comm_peer_stats", COLL_ERR_ARGUMENT,
		                        "count or rows is NULL, or *count < 0");
	row_bytes = *count > 0 ? coll_sized_of(rows, first) : first;
	if (row_bytes == 0)
		return coll_comm_refuse(comm, "comm_peer_stats", COLL_ERR_ARGUMENT,
		                        "rows[0] was not made by COLL_PEER_STATS_INIT");
	for (int r = 0; r < comm->size; r++) {
		coll_peer_stats row;
		void *at = n < *count ? (char *)rows + (size_t)n * row_bytes : NULL;

		if (!row_of(comm, r, &row))
			continue;
		if (at) {
			memcpy(at, &row_bytes, sizeof(row_bytes));
			coll_sized_write(at, &row, sizeof(row), first);
		}
		n++;
	}
	*count = n;
	return COLL_OK;
}

void coll_peer_stats_log(struct coll_comm *comm)
{
	const struct coll_waits *w = comm->waits;
	uint64_t most_ns = 0;
	int most = -1;

	if (!w || comm->ctx->logger.level < COLL_LOG_INFO)
		return;
	for (int r = 0; r < comm->size; r++)
		if (atomic_load_explicit(&w->of[r].waited_ns, memory_order_relaxed) > most_ns) {
			most_ns = atomic_load_explicit(&w->of[r].waited_ns, memory_order_relaxed);
			most = r;
		}
	if (most >= 0)
		coll_log(&comm->ctx->logger, COLL_LOG_INFO,
		         "%s%llu calls waited %.3f s in all, %.3f s of it for rank %d, which was last in %llu of them",
		         coll_comm_label(comm).text,
		         (unsigned long long)atomic_load_explicit(&w->waits, memory_order_relaxed),
		         (double)atomic_load_explicit(&w->waited_ns, memory_order_relaxed) * 1e-9,
		         (double)most_ns * 1e-9, most,
		         (unsigned long long)atomic_load_explicit(&w->of[most].last, memory_order_relaxed));
}
