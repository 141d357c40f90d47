/*
 * Streams that do not come to a call: see stage_late.h. The driver cannot be asked what a stream waits for. So the
 * error says what this rank knows: another call of its own that waits on the device, and ranks that are threads of this
 * process and may have the same hardware queues.
 */
#include "devcall/stage_late.h"

#include <stdio.h>

#include "core/error.h"
#include "devcall/device_call.h"
#include "inflight/queue.h"
#include "watch/watchdog.h"

enum { RANKS_NAMED = 4, CALL_TEXT = 128 };

/* A call of this context that its stream has reached, and that waits for a peer: the oldest one. */
static const struct coll_request *in_front(const struct coll_request *r)
{
	const struct coll_async *a = r->comm->ctx->async;

	for (const struct coll_link *l = a->comms.next; l != &a->comms; l = l->next) {
		const struct coll_comm *comm = COLL_ENTRY(l, struct coll_comm, inflight.link);

		for (const struct coll_link *k = comm->inflight.running.next; k != &comm->inflight.running;
		     k = k->next) {
			const struct coll_request *f = COLL_ENTRY(k, struct coll_request, running);

			if (f != r && f->kind->asks && f->device->reached && !f->device->over && f->lost == COLL_OK)
				return f;
		}
	}
	return NULL;
}

/* Other ranks whose streams may be in the same queues: threads of this process with a device. */
static void name_threads(const struct coll_comm *comm, char *text, size_t len_bytes)
{
	size_t used = 0;
	int named = 0;

	text[0] = 0;
	for (int rank = 0; rank < comm->size && comm->ctx->group && used < len_bytes; rank++) {
		if (rank == comm->rank || !coll_comm_peer_info(comm, rank)->device)
			continue;
		if (named == RANKS_NAMED) {
			snprintf(text + used, len_bytes - used, " and others");
			return;
		}
		used += (size_t)snprintf(text + used, len_bytes - used, "%s%d",
		                         named++ ? ", rank " : ", with threads of this process: rank ", rank);
	}
}

coll_status coll_stage_late(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	const struct coll_request *front = in_front(r);
	char call[CALL_TEXT], there[CALL_TEXT], other[CALL_TEXT + 64] = "", threads[CALL_TEXT], text[640];

	coll_record_describe(&r->record, call, sizeof(call));
	if (front) {
		coll_record_describe(&front->record, there, sizeof(there));
		snprintf(other, sizeof(other), ", behind %s on %s communicator", there,
		         front->comm == comm ? "the same" : "another");
	}
	name_threads(comm, threads, sizeof(threads));
	snprintf(text, sizeof(text),
	         "[COLL-2303] the stream of %s does not go on with %s: it waits for other work, perhaps in a shared "
	         "hardware queue%s%s",
	         coll_comm_name(comm, comm->rank).text, call, other, threads);
	r->timer.begun_ns = r->device->waiting_ns;
	return coll_wait_fail(comm, &r->wait, &r->timer, COLL_ERR_PEER_LATE, comm->rank, text);
}
