/*
 * A look at the tagged message that a receive would get. The wait for one is a request, see tag.c.
 */
#include "call/probe.h"

#include "call/tag.h"
#include "core/error.h"
#include "inflight/drive.h"
#include "match/receive.h"

struct probe {
	struct coll_comm *comm;
	struct coll_tag_op op;
	coll_status status;
};

static bool sees(void *arg)
{
	struct probe *p = arg;

	p->status = coll_tags_look(p->comm, &p->op);
	return p->status != COLL_AGAIN;
}

coll_status coll_comm_iprobe(struct coll_comm *comm, int source, int tag, coll_message_info *info)
{
	struct probe p = {.comm = comm};
	coll_status st = coll_tag_need(comm, "iprobe");

	if (st != COLL_OK)
		return st;
	coll_tag_op_probe(&p.op, source, tag);
	if (!sees(&p))
		coll_drive_ask(comm->ctx, sees, &p);
	if (p.status == COLL_OK && info)
		*info = (coll_message_info){
		        .source = p.op.source, .tag = p.op.got_tag, .count = p.op.got_count, .type = p.op.got_type};
	return p.status == COLL_ERR_PEER_DEAD ? coll_comm_refuse_dead(comm, "iprobe", p.op.source) : p.status;
}
