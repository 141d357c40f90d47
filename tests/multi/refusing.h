/*
 * An allocator that refuses: malloc and its kin for a whole program. Each thread says which of its
 * allocations fail; those of other libraries (hwloc, libc) never do.
 * With REFUSED_TRACE set the first refusal is shown with where it was asked for.
 */
#ifndef COLL_TESTS_REFUSING_H
#define COLL_TESTS_REFUSING_H

#include <stdbool.h>
#include <stddef.h>

enum refusing { REFUSING_ONE, REFUSING_ALL_FROM };

/* Once, before the rest. */
void refusing_begin(void);
/* The k-th allocation of this thread from now on fails, or it and all after it; 0: none. */
void refusing_arm(unsigned k, enum refusing mode);
/* No further one. Returns how many were refused. */
unsigned refusing_disarm(void);
/* Blocks that are not freed. */
long refusing_live(void);
/* The test's own memory, zeroed: not counted, never refused. */
int *refusing_ints(size_t n);
void refusing_free(void *p);

#endif
