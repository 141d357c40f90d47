/*
 * Chains of waiting: A waits for B, who waits for C, who does something else. Whoever
 * warns about B had better name C. Followed through the records that ranks answer with,
 * one question per link of the chain.
 */
#ifndef COLL_WATCH_WAIT_CHAIN_H
#define COLL_WATCH_WAIT_CHAIN_H

#include "core/comm.h"

enum { COLL_CHAIN_TEXT = 640 };

/* What rank peer is doing, which this rank (doing mine) waits for, and whom it waits for
 * in turn, to the end: "alive, last seen after all_reduce(...) number 12" or "alive, in
 * recv(...), waits for rank 2, which is alive, last seen after ...". False: a rank of the
 * chain has been asked and has not answered yet; with impatient set that is said instead.
 * To be called again while it is false, as questions are forgotten. */
bool coll_wait_chain_describe(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                              char text[COLL_CHAIN_TEXT]);

#endif
