/*
 * The barrier of a group (group.c): the first call on it, which shows each member that all others have come and whether
 * all passed the same list. Destroy of a group uses it again as its last barrier.
 *
 * It is a dissemination: in round k of ceil(log2 n) a member sends one word to the member 2^k places on and takes one
 * from the member 2^k places back. Places follow the ranks of the communicator when the barrier is made. It has
 * channels of its own, with two slots of a word each, so a group that makes no other call opens no others.
 */
#ifndef COLL_COMM_GROUP_BARRIER_H
#define COLL_COMM_GROUP_BARRIER_H

#include "core/comm.h"

struct coll_group_barrier;

/* What is combined on the way: the least and the largest hash that a member brought, and the rank of the parent that
 * brought it; of equal ones the lowest rank. */
struct coll_group_word {
	uint64_t low_hash, high_hash;
	int32_t low_rank, high_rank;
};

/* Make comm->group_barrier, of all members of comm, at least two. This member brings the hash and its rank in the
 * parent. Opens nothing. */
coll_status coll_group_barrier_create(struct coll_comm *comm, uint64_t hash, int rank);

/* The communicator goes on as another one with the same id and members in another order. */
void coll_group_barrier_move(struct coll_comm *from, struct coll_comm *to);

/* Closes the channels. NULL inside accepted. */
void coll_group_barrier_destroy(struct coll_group_barrier **group_barrier);

/* What this member brought, and the result so far: for tests. */
void coll_group_barrier_words(const struct coll_comm *comm, struct coll_group_word *brought,
                              struct coll_group_word *result);

/* The call that all members make first: returns when all have come, and sets *word to the result. It ends with the
 * failure of parent, too. */
coll_status coll_group_barrier_run(struct coll_comm *comm, const struct coll_comm *parent,
                                   struct coll_group_word *word);

#endif
