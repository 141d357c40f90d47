/*
 * Wait chains: A waits for B, which waits for C, which does something else. A warning about B should
 * name C. The chain is followed through the call records in the answers of ranks, with one ping per
 * link of the chain.
 */
#ifndef COLL_WATCH_WAIT_CHAIN_H
#define COLL_WATCH_WAIT_CHAIN_H

#include "core/comm.h"

enum { COLL_CHAIN_TEXT = 640 };

/* Describe what rank peer is doing, for which this rank (in call mine) waits, and follow the ranks that it
 * waits for to the end of the chain. The text is "alive, last seen after all_reduce(...) number 12" or
 * "alive, in recv(...), waits for rank 2, which is alive, last seen after ...". False: a rank of the
 * chain was pinged and has not answered yet; with impatient set the text says so instead.
 * Call it again while it returns false, since pings expire. */
bool coll_wait_chain_describe(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                              char text[COLL_CHAIN_TEXT]);

/* The rank at the end of the chain that begins with peer: it is not in a call, or waits for no other rank. Peer itself
 * if the chain is a cycle. *record: what it last said. -1: a rank of the chain has not answered yet; impatient: then
 * the last one that has. */
int coll_wait_chain_end(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                        struct coll_record *record);

#endif
