/*
 * Entry points of send and receive.
 */
#include "call/pair.h"
#include "api/check.h"
#include "core/error.h"

static coll_status check_half(coll_comm *comm, const char *kind, const char *what, const void *buf, size_t count,
                              coll_dtype type, int peer)
{
	coll_status st = peer == COLL_NO_PEER ? COLL_OK : coll_check_rank(comm, kind, "peer", peer);

	return st == COLL_OK ? coll_check_buffer(comm, kind, what, buf, 1, count, type) : st;
}

coll_status coll_send(const void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm, coll_stream *stream)
{
	coll_status st = coll_check_message(comm, "send", stream, type);

	if (st == COLL_OK)
		st = check_half(comm, "send", "buf", buf, count, type, peer);
	if (st == COLL_OK && peer == comm->rank)
		st = coll_comm_refuse(comm, "send", COLL_ERR_ARGUMENT,
		                      "a rank that sends to itself must use coll_send_recv()");
	if (st != COLL_OK || peer == COLL_NO_PEER)
		return st;
	return coll_comm_pair(
	        comm,
	        &(struct coll_pair){
	                .send = buf, .send_count = count, .dest = peer, .source = -1, .type = type, .stream = stream});
}

coll_status coll_recv(void *buf, size_t count, coll_dtype type, int peer, coll_comm *comm, coll_stream *stream)
{
	coll_status st = coll_check_message(comm, "recv", stream, type);

	if (st == COLL_OK)
		st = check_half(comm, "recv", "buf", buf, count, type, peer);
	if (st == COLL_OK && peer == comm->rank)
		st = coll_comm_refuse(comm, "recv", COLL_ERR_ARGUMENT,
		                      "a rank that receives from itself must use coll_send_recv()");
	if (st != COLL_OK || peer == COLL_NO_PEER)
		return st;
	return coll_comm_pair(
	        comm,
	        &(struct coll_pair){
	                .dest = -1, .recv = buf, .recv_count = count, .source = peer, .type = type, .stream = stream});
}

coll_status coll_send_recv(const void *sendbuf, size_t send_count, int dest, void *recvbuf, size_t recv_count,
                           int source, coll_dtype type, coll_comm *comm, coll_stream *stream)
{
	coll_status st = coll_check_message(comm, "send_recv", stream, type);
	size_t elem = coll_dtype_size(type);

	dest = dest == COLL_NO_PEER ? -1 : dest;
	source = source == COLL_NO_PEER ? -1 : source;
	if (st == COLL_OK && dest != -1)
		st = check_half(comm, "send_recv", "sendbuf", sendbuf, send_count, type, dest);
	if (st == COLL_OK && source != -1)
		st = check_half(comm, "send_recv", "recvbuf", recvbuf, recv_count, type, source);
	if (st == COLL_OK && dest != -1 && source != -1)
		st = coll_check_apart(comm, "send_recv", sendbuf, send_count * elem, recvbuf, recv_count * elem,
		                      SIZE_MAX);
	if (st == COLL_OK && (dest == comm->rank) != (source == comm->rank))
		st = coll_comm_refuse(comm, "send_recv", COLL_ERR_ARGUMENT,
		                      "a rank that exchanges with itself must be both dest and source: dest %d, source "
		                      "%d, this is rank %d",
		                      dest, source, comm->rank);
	if (st == COLL_OK && dest == comm->rank && source == comm->rank && send_count != recv_count)
		st = coll_comm_refuse(comm, "send_recv", COLL_ERR_ARGUMENT, "counts differ: %zu sent, %zu received",
		                      send_count, recv_count);
	if (st != COLL_OK)
		return st;
	return coll_comm_pair(comm, &(struct coll_pair){.send = sendbuf,
	                                                .send_count = send_count,
	                                                .dest = dest,
	                                                .recv = recvbuf,
	                                                .recv_count = recv_count,
	                                                .source = source,
	                                                .type = type,
	                                                .stream = stream});
}
