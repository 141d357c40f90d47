/*
 * New communicators from an existing one.
 */
#ifndef COLL_COMM_SPLIT_H
#define COLL_COMM_SPLIT_H

#include "core/comm.h"

/* The arguments have passed the checks of api/. */
coll_status coll_comm_split_by_colour(struct coll_comm *parent, int colour, int key, struct coll_comm **child);
coll_status coll_comm_split_duplicate(struct coll_comm *parent, struct coll_comm **child);
coll_status coll_comm_split_from_ranks(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child);

/* ---- For group.c as well ---- */

/* The processes of these ranks of the parent (NULL: all ranks in order), indexed by rank of the child (malloc'd). */
int *coll_comm_processes_of(const struct coll_comm *parent, const int *ranks, int n);

/* Create the child with these processes. Consumes process_of (NULL: its allocation failed). A failure here concerns
 * this rank only. A gossip note reports it to the other members, which have their child. */
coll_status coll_comm_make_child(struct coll_comm *parent, const char *name, int *process_of, int n, uint64_t id,
                                 struct coll_comm **child);

/* The call failed together with the parent. Other members may wait in their child already, and the cause of the failure
 * need not be a member of that child. So this rank sends a gossip note with the reason why it will never join. Does
 * nothing while the parent stands. */
void coll_comm_announce_failed_child(const struct coll_comm *parent, coll_status st, uint64_t id);

#endif
