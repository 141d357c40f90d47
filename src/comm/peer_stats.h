/*
 * What coll_comm_peer_stats() counts, in a line of the log.
 */
#ifndef COLL_COMM_PEER_STATS_H
#define COLL_COMM_PEER_STATS_H

struct coll_comm;

/* At level info, whom it has waited for most. Before the end of a communicator, whose waits count no more. */
void coll_peer_stats_log(struct coll_comm *comm);

#endif
