/*
 * n processes of one machine that measure together: memory they share, a barrier in which
 * they sleep (there may be more of them than cores), and the exchange that makes a
 * communicator without a launcher.
 */
#ifndef COLL_TESTS_MULTI_CROWD_H
#define COLL_TESTS_MULTI_CROWD_H

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

#include "coll/coll.h"

enum { CROWD_MAX = 128, CROWD_NOTE_BYTES = 8192, CROWD_USER_BYTES = 4096, CROWD_PATIENCE_S = 120 };

struct crowd_shared {
	_Alignas(64) _Atomic unsigned arrived;
	_Alignas(64) _Atomic unsigned round;
	_Atomic unsigned came[CROWD_MAX]; /* barriers, of each */
	_Alignas(64) char note[CROWD_MAX][CROWD_NOTE_BYTES];
	_Alignas(64) char user[CROWD_USER_BYTES];
};

struct crowd {
	int rank, size;
	struct crowd_shared *shared;
	pid_t child[CROWD_MAX];
};

/* Fork ranks 1 .. size-1; every process returns, rank 0 is the caller. */
void crowd_begin(struct crowd *c, int size);
/* Ends this process when another has ended, or does not come for CROWD_PATIENCE_S. */
void crowd_barrier(struct crowd *c);
/* coll_config.exchange; arg is the crowd. */
int crowd_exchange(void *arg, const void *mine, void *all, size_t len_bytes);
/* A communicator of all over settings ("COLL_TRANSPORTS=tcp" ..., ended by NULL). */
coll_comm *crowd_create(struct crowd *c, const char *const *settings);
/* An error of a call on comm (NULL: of its creation) ends this process. */
void crowd_check(const coll_comm *comm, coll_status status, const char *what);
/* Ranks other than 0 end here; rank 0 waits for them: its own status, or 1 if one of them failed. */
int crowd_end(struct crowd *c, int status);

#endif
