/*
 * Payloads of messages above the eager limit: ordinary pair transfers on a lane of their own, one at a time in each
 * direction between two ranks, in the order in which the receiver asked for them.
 */
#include "match/bulk.h"

#include "match/state.h"
#include "select/bind_pair.h"

static coll_status need_run(struct coll_comm *comm, struct coll_tag_peer *p, int half)
{
	struct coll_tags *t = comm->tagged.tags;
	coll_status st = COLL_OK;

	if (!p->run[half])
		st = coll_run_create(&p->run[half]);
	if (st == COLL_OK && !p->plan[half])
		st = coll_pair_plan_from(comm, t->plans, half, p->rank, &p->plan[half]);
	return st;
}

static coll_status start(struct coll_comm *comm, struct coll_tag_peer *p, int half, struct coll_tag_op *op)
{
	const size_t count = half == COLL_TAG_RECEIVE ? op->got_count : op->count;
	const struct coll_pair pair = {.send = op->buf,
	                               .send_count = count,
	                               .dest = half == COLL_TAG_SEND ? p->rank : -1,
	                               .recv = op->buf,
	                               .recv_count = count,
	                               .source = half == COLL_TAG_RECEIVE ? p->rank : -1,
	                               .type = op->type};
	struct coll_job job;
	coll_status st = need_run(comm, p, half);

	if (st != COLL_OK)
		return st;
	coll_pair_job(comm, &pair, half, p->plan[half], &job);
	job.sequence = ++p->bulk_last[half];
	return coll_run_start(p->run[half], &comm->tagged.own->fabric.fabric, &job);
}

static void fail(struct coll_tags *t, struct coll_tag_peer *p, int half, coll_status st)
{
	coll_tag_fail(t, st, p->rank, "");
	t->fault.run = p->running[half] ? p->run[half] : NULL;
	t->fault.op = p->moving[half];
}

/* True: something moved. */
static bool advance(struct coll_comm *comm, struct coll_tag_peer *p, int half)
{
	struct coll_tags *t = comm->tagged.tags;
	bool moved = false;
	coll_status st = COLL_OK;

	if (!p->running[half]) {
		p->moving[half] = coll_tag_first(&p->bulk[half]);
		if (!p->moving[half])
			return false;
		st = start(comm, p, half, p->moving[half]);
		if (st != COLL_OK) {
			fail(t, p, half, st);
			return true;
		}
		p->running[half] = true;
		coll_list_remove(&p->moving[half]->link);
	}
	st = coll_run_poll(p->run[half], &moved);
	p->moves[half] += moved;
	if (st == COLL_AGAIN)
		return moved;
	if (st != COLL_OK) {
		fail(t, p, half, st);
		return true;
	}
	p->running[half] = false;
	coll_tag_finish(t, p->moving[half], COLL_OK);
	p->moving[half] = NULL;
	return true;
}

bool coll_tag_bulk(struct coll_comm *comm, struct coll_tag_peer *p)
{
	bool moved = false;

	for (int half = 0; half < 2; half++)
		if (comm->tagged.tags->fault.status == COLL_OK)
			moved |= advance(comm, p, half);
	return moved;
}
