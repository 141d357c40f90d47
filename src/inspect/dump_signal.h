/*
 * The signal that asks every context of this process for a dump.
 *
 * A signal has one handler per process, so this is a table of the process: the eventfds
 * of the contexts that want to know. The handler only writes to them; the dump is made by
 * each context's service thread.
 */
#ifndef COLL_INSPECT_DUMP_SIGNAL_H
#define COLL_INSPECT_DUMP_SIGNAL_H

#include <stdbool.h>

/* "usr1", "usr2" or "none" -> SIGUSR1, SIGUSR2 or 0; -1: something else. */
int coll_dump_signal_parse(const char *name);

/* From now on the signal writes to fd. The first call installs the handler if the signal has
 * none; otherwise it does nothing, and *taken is false. */
void coll_dump_signal_add(int sig, int fd, bool *taken);

/* Undo that; when this returns no handler will touch fd. The last call removes the handler,
 * unless another one was installed meanwhile. */
void coll_dump_signal_remove(int fd);

#endif
