/*
 * Forked children. A child owns nothing of its parent: each call on an object of the parent is refused, and the
 * descriptors of the library are closed at once, so that a peer of the parent sees its end while the child lives on.
 *
 * Each process that has contexts has a number, the mark. Its word lies in a page that the kernel clears in a child,
 * however it was made: by fork() or by clone(). vfork() and posix_spawn() share the memory, and run nothing of ours.
 * A context keeps the mark of the process that made it.
 *
 * The descriptors are a set of bits. A bit is set and cleared under a lock that fork() takes, together with the system
 * call, so no descriptor is missed. Only close() is called in the child: nothing there may lock or allocate.
 */
#ifndef COLL_BASE_FORK_H
#define COLL_BASE_FORK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

extern _Atomic uint32_t *coll_fork_word;

/* The mark of this process, for an object that it makes. From now on forks are watched. */
uint32_t coll_fork_mark(void);

/* Whether this process made an object with that mark. */
static inline bool coll_fork_owns(uint32_t mark)
{
	return __builtin_expect(atomic_load_explicit(coll_fork_word, memory_order_relaxed) == mark, true);
}

/* Evaluate a call that makes a descriptor, and keep what it makes for a child to close. Never one of the standard
 * descriptors. -1 and errno as the call has it, which is kept (errno_text.h). */
#define COLL_FD(call) (coll_fd_begin(), coll_fd_keep(call, #call))

void coll_fd_begin(void);
int coll_fd_keep(int fd, const char *call);

/* Close one, made by COLL_FD() or not. errno stays. */
int coll_fd_close(int fd);

#endif
