/*
 * What coll_comm_stats() counts.
 */
#ifndef COLL_COMM_STATS_H
#define COLL_COMM_STATS_H

struct coll_comm;

/* The flight recorder of a new communicator counts from now on. */
void coll_stats_prepare(struct coll_comm *comm);

#endif
