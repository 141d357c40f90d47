/*
 * Liveness check of a process whose connection ended without a goodbye: liveness.c has the rules.
 */
#ifndef COLL_CONTROL_LIVENESS_H
#define COLL_CONTROL_LIVENESS_H

#include "control/state.h"

void coll_control_suspect(struct coll_control *c, int peer, const char *cause, enum coll_suspect_why why);

/* Its listener refused a connection. */
void coll_control_gone(struct coll_control *c, int peer, const char *cause);

/* Its host has answered. */
void coll_control_reached(struct coll_control *c, int peer);

/* If it is suspected, ask over this link, which is proved. */
void coll_control_ask_for_life(struct coll_control *c, struct coll_control_link *l);

/* It has answered. */
void coll_control_alive(struct coll_control *c, int peer, uint64_t suspect);
void coll_control_settle_suspects(struct coll_control *c, uint64_t now);
int coll_control_neighbour(const struct coll_control *c, int peer, int i);

/* Its process has ended. If this process would have received its goodbye it declares the death; otherwise the
 * process counts as one that has left. */
void coll_control_missing(struct coll_control *c, int peer, const char *cause);

#endif
