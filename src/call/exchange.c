/*
 * Messages between two ranks as requests: one to a rank and one from a rank, each with a run and a queue of its own.
 */
#include "call/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "call/begin.h"
#include "core/dead.h"
#include "core/error.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/queue.h"
#include "select/bind_pair.h"

static coll_status bind(struct coll_pair_request *p, const struct coll_pair *pair)
{
	struct coll_comm *comm = p->request.comm;
	struct coll_inflight *f = &comm->inflight;
	coll_status st = COLL_OK;

	p->pair = *pair;
	p->stage[0] = p->stage[1] = NULL;
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		coll_plan_cache_release(comm->plans, p->plan[half]);
		p->plan[half] = NULL;
		if (coll_pair_peer(pair, half) < 0 || coll_pair_self(comm, pair))
			continue;
		if (!f->pairs[half])
			f->pairs[half] = calloc((size_t)comm->size, sizeof(struct coll_request *));
		if (!f->pairs[half] || (!p->run[half] && coll_run_create(&p->run[half]) != COLL_OK))
			return coll_comm_refuse(comm, "send_recv", COLL_ERR_MEMORY, "no memory for a request");
		st = coll_pair_plan(comm, half, coll_pair_peer(pair, half), &p->plan[half]);
	}
	return st;
}

static void enter(struct coll_request *r)
{
	struct coll_pair_request *p = coll_pair_of(r);
	struct coll_comm *comm = r->comm;
	int n = 0;

	coll_pair_record(comm, &p->pair, &r->record);
	for (int half = 0; half < 2; half++) {
		const int peer = coll_pair_peer(&p->pair, half);

		if (!p->plan[half])
			continue;
		p->sequence[half] = coll_pair_number(comm, half, peer);
		coll_inflight_queue(r, half, &comm->inflight.pairs[half][peer]);
		r->wait.entries[n++] = coll_begin_pair_entry(comm, &p->pair, half, p->sequence[half],
		                                             r->stream ? r->stream->number : 0);
	}
}

/* Half i of those that are left has ended with its rank. The status is kept for the end of the request. */
static void give_up(struct coll_request *r, int i)
{
	struct coll_wait *w = &r->wait;

	coll_comm_death_reported(r->comm);
	r->status = COLL_ERR_PEER_DEAD;
	coll_recorder_end(&r->comm->recorder, w->entries[i], r->status);
	if (i == 0) {
		w->entries[0] = w->entries[1];
		w->runs[0] = w->runs[1];
	}
	w->entries[1] = NULL;
	w->nruns -= w->nruns > i;
}

static coll_status start(struct coll_request *r)
{
	struct coll_pair_request *p = coll_pair_of(r);
	struct coll_comm *comm = r->comm;
	coll_status st = COLL_OK;

	coll_inflight_started(r);
	r->record.sequence = comm->inflight.begun;
	if (coll_pair_self(comm, &p->pair) && p->pair.send_count > 0)
		memmove(p->pair.recv, p->pair.send, p->pair.send_count * coll_dtype_size(p->pair.type));
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		struct coll_job job;

		if (!p->plan[half])
			continue;
		if (coll_comm_is_dead(comm, coll_pair_peer(&p->pair, half))) {
			give_up(r, r->wait.nruns);
			continue;
		}
		coll_pair_job(comm, &p->pair, half, p->plan[half], &job);
		job.sequence = p->sequence[half];
		job.stage = p->stage[half];
		r->wait.runs[r->wait.nruns++] = p->run[half];
		st = coll_run_start(p->run[half], &comm->pairs.fabric, &job);
	}
	coll_inflight_publish(comm, NULL);
	if (r->status == COLL_ERR_PEER_DEAD && r->wait.nruns == 0)
		coll_inflight_complete(r, r->status);
	return st;
}

/* A half that had ended before counts; the other one goes on. */
static bool lose_dead(struct coll_request *r)
{
	const struct coll_pair_request *p = coll_pair_of(r);

	for (int i = 0; i < r->wait.nruns;) {
		struct coll_run *run = r->wait.runs[i];

		if (coll_comm_is_dead(r->comm, coll_pair_peer(&p->pair, run == p->run[1]))) {
			coll_run_cancel(run, COLL_ERR_PEER_DEAD);
			if (coll_run_poll(run, NULL) != COLL_OK) {
				give_up(r, i);
				continue;
			}
		}
		i++;
	}
	if (r->status != COLL_ERR_PEER_DEAD || r->wait.nruns > 0)
		return false;
	coll_inflight_complete(r, r->status);
	return true;
}

static bool poll(struct coll_request *r)
{
	bool waits, moved;

	if (r->status == COLL_AGAIN)
		return coll_drive_poll(r);
	moved = coll_drive_runs(r, &waits);
	if (moved && !r->comm->inflight.faulty)
		coll_wait_timer_moved(r->comm, &r->timer);
	if (waits)
		return moved;
	coll_inflight_complete(r, r->status);
	return true;
}

static enum coll_limit limited(struct coll_request *r)
{
	return r->wait.nruns > 0 ? COLL_LIMITED_MESSAGE : COLL_UNLIMITED;
}

static void leave(struct coll_request *r)
{
	coll_inflight_pass(r, 0);
	coll_inflight_pass(r, 1);
}

static void fini(struct coll_request *r)
{
	struct coll_pair_request *p = coll_pair_of(r);

	for (int half = 0; half < 2; half++) {
		coll_plan_cache_release(r->comm->plans, p->plan[half]);
		coll_run_destroy(&p->run[half]);
	}
}

static const struct coll_request_kind pair_kind = {.name = "pair",
                                                   .enter = enter,
                                                   .start = start,
                                                   .poll = poll,
                                                   .limited = limited,
                                                   .lose_dead = lose_dead,
                                                   .leave = leave,
                                                   .recycle = coll_request_give,
                                                   .fini = fini};

coll_status coll_exchange_make(struct coll_comm *comm, const struct coll_pair *pair, struct coll_request **out)
{
	struct coll_request *r = coll_request_take(comm, &pair_kind, COLL_IS_PAIR, sizeof(struct coll_pair_request));
	coll_status st;

	if (!r)
		return coll_comm_refuse(comm, "send_recv", COLL_ERR_MEMORY, "no memory for a request");
	st = bind(coll_pair_of(r), pair);
	if (st != COLL_OK)
		coll_request_recycle(r);
	else
		*out = r;
	return st;
}
