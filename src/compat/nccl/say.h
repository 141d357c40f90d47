/*
 * Lines for who debugs a program of NCCL, as NCCL_DEBUG asks for them: to standard output, or to NCCL_DEBUG_FILE.
 */
#ifndef COLL_COMPAT_NCCL_SAY_H
#define COLL_COMPAT_NCCL_SAY_H

#include <stdbool.h>

#include "coll/coll.h"
#include "compat/nccl/abi.h"

struct ncclComm;

enum nccl_level { NCCL_SAY_NOTHING, NCCL_SAY_VERSION, NCCL_SAY_WARN, NCCL_SAY_INFO };

/* level: "INFO", in any case; NULL or empty: nothing is said. file: a pattern with %h (host) and %p (process), or NULL.
 * False: no such level; nothing is said. */
bool nccl_say_begin(const char *level, const char *file);

/* One line, "HOST:PID:TID NCCL INFO TEXT". */
void nccl_say(enum nccl_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Which library and which file serves which version of NCCL: once for the process. */
void nccl_say_version(int rank, int version);
/* A communicator is there: its ranks, and the way to the next one. */
void nccl_say_made(const struct ncclComm *h, const coll_comm *comm);
/* What became of it: "Destroy", "Abort", "Init START". */
void nccl_say_comm(const struct ncclComm *h, const char *what);

#endif
