/*
 * Entry points of tagged messages.
 */
#include "call/tag.h"
#include "api/check.h"
#include "call/probe.h"
#include "core/error.h"
#include "core/memory.h"

static coll_status check_tag(coll_comm *comm, const char *kind, int tag)
{
	if (tag < 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "tag %d is negative", tag);
	return COLL_OK;
}

coll_status coll_send_tag(const void *buf, size_t count, coll_dtype type, int peer, int tag, coll_comm *comm,
                          coll_stream *stream)
{
	coll_status st = coll_check_message(comm, "send_tag", stream, type);

	if (st == COLL_OK && peer != COLL_NO_PEER)
		st = coll_check_rank(comm, "send_tag", "peer", peer);
	if (st == COLL_OK)
		st = check_tag(comm, "send_tag", tag);
	if (st == COLL_OK)
		st = coll_check_buffer(comm, "send_tag", "buf", buf, 1, count, type);
	/* The check before has found that the product does not overflow. */
	if (st == COLL_OK)
		st = coll_comm_takes(comm, "send_tag", "buf", buf, count * coll_dtype_size(type));
	return st == COLL_OK && peer != COLL_NO_PEER ? coll_comm_send_tag(comm, buf, count, type, peer, tag, stream)
	                                             : st;
}

/* What a receive or a probe names. */
static coll_status check_names(coll_comm *comm, const char *kind, coll_dtype type, int source, int tag)
{
	coll_status st = coll_check_message(comm, kind, NULL, type);

	if (st == COLL_OK && source != COLL_ANY_SOURCE && source != COLL_NO_PEER)
		st = coll_check_rank(comm, kind, "source", source);
	return st == COLL_OK && tag != COLL_ANY_TAG ? check_tag(comm, kind, tag) : st;
}

static void fill_none(coll_message_info *info, coll_dtype type)
{
	if (info)
		*info = (coll_message_info){.source = COLL_NO_PEER, .tag = COLL_ANY_TAG, .type = type};
}

static coll_status check_receive(coll_comm *comm, const char *kind, void *buf, size_t max_count, coll_dtype type,
                                 int source, int tag)
{
	coll_status st = check_names(comm, kind, type, source, tag);

	if (st == COLL_OK)
		st = coll_check_buffer(comm, kind, "buf", buf, 1, max_count, type);
	return st == COLL_OK ? coll_comm_takes(comm, kind, "buf", buf, max_count * coll_dtype_size(type)) : st;
}

coll_status coll_recv_tag(void *buf, size_t max_count, coll_dtype type, int source, int tag, coll_comm *comm,
                          coll_message_info *info)
{
	const coll_status st = check_receive(comm, "recv_tag", buf, max_count, type, source, tag);

	if (st != COLL_OK)
		return st;
	if (source != COLL_NO_PEER)
		return coll_comm_recv_tag(comm, buf, max_count, type, source, tag, info);
	fill_none(info, type);
	return COLL_OK;
}

static coll_status look(coll_comm *comm, const char *kind, int source, int tag, coll_message_info *info,
                        coll_status (*how)(coll_comm *comm, int source, int tag, coll_message_info *info))
{
	const coll_status st = check_names(comm, kind, COLL_U8, source, tag);

	if (st != COLL_OK)
		return st;
	if (source != COLL_NO_PEER)
		return how(comm, source, tag, info);
	fill_none(info, COLL_U8);
	return COLL_OK;
}

coll_status coll_probe(int source, int tag, coll_comm *comm, coll_message_info *info)
{
	return look(comm, "probe", source, tag, info, coll_comm_probe);
}

coll_status coll_iprobe(int source, int tag, coll_comm *comm, coll_message_info *info)
{
	return look(comm, "iprobe", source, tag, info, coll_comm_iprobe);
}

coll_status coll_irecv(void *buf, size_t max_count, coll_dtype type, int source, int tag, coll_comm *comm,
                       coll_request **req)
{
	coll_status st = check_receive(comm, "irecv", buf, max_count, type, source, tag);

	if (st == COLL_OK && !req)
		st = coll_comm_refuse(comm, "irecv", COLL_ERR_ARGUMENT, "req is NULL");
	return st == COLL_OK ? coll_comm_irecv(comm, buf, max_count, type, source, tag, req) : st;
}
