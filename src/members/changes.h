/*
 * Changes of members at one process: the voter of each communicator whose members are decided anew. Messages and words
 * come from the control plane, which calls with its lock held, as all functions here are called.
 */
#ifndef COLL_MEMBERS_CHANGES_H
#define COLL_MEMBERS_CHANGES_H

#include "core/comm.h"

struct coll_change;
struct coll_change_msg;

/* Members of struct coll_control_env. The voter answers whether or not its program makes a call. */
void coll_changes_on_message(void *ctx, int process, bool words, const uint8_t *bytes);
void coll_changes_serve(void *ctx);
/* Behind the end of the control plane, without the lock. */
void coll_changes_free(struct coll_context *ctx);

/* ---- For proposal.c ---- */

/* Found or made; NULL: no memory, or of another size. */
struct coll_change *coll_change_of(struct coll_context *ctx, uint64_t comm, int size);
/* Nobody waits for what is decided. */
void coll_change_tidy(struct coll_change *c);
/* To this process itself, too. False: not now. */
bool coll_change_send(struct coll_context *ctx, int process, struct coll_change *c, struct coll_change_msg *m);

#endif
