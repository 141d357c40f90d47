/*
 * Failed system calls in words: the reason, the limit that was met and the command that raises it.
 *
 * A call that fails far below the function that writes the error is kept for it: its name and errno, by thread. Who
 * opens something clears what is kept, and takes it when the opening fails.
 */
#ifndef COLL_BASE_ERRNO_TEXT_H
#define COLL_BASE_ERRNO_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"

struct coll_errno_text {
	char text[192];
};

/* "Too many open files (RLIMIT_NOFILE is 8; ulimit -n N raises it)". */
struct coll_errno_text coll_errno_text(int error);

/* The same of a call that starts a thread. */
struct coll_errno_text coll_errno_thread(int error);

/* The same of a call that locks memory, as adapters need it: "Cannot allocate memory (RLIMIT_MEMLOCK is 64 KiB; ulimit
 * -l N raises it)". */
struct coll_errno_text coll_errno_lock(int error);

/* Keep errno, of a call of this name: what follows a bracket in it is dropped. The string stays the caller's. */
void coll_errno_keep(const char *call);
void coll_errno_keep_lock(const char *call);
void coll_errno_clear(void);

/* What is kept in words, "memfd_create: Too many open files (...)", and keep it no longer. otherwise: none is kept. */
struct coll_errno_text coll_errno_take(const char *otherwise);

/* What is kept as a status; none: otherwise. */
coll_status coll_errno_status(coll_status otherwise);

/* This process or host has no more of something: trying another way would hide it. */
bool coll_errno_is_shortage(int error);
bool coll_errno_kept_shortage(void);

/* Of a connection: the other host cannot be reached, now or any more. */
bool coll_errno_unreachable(int error);

#endif
