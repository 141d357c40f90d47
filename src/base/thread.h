/*
 * Threads of the library.
 */
#ifndef COLL_BASE_THREAD_H
#define COLL_BASE_THREAD_H

#include <pthread.h>
#include <stddef.h>

/* What a thread needs that runs no code of the user. */
enum { COLL_THREAD_STACK_BYTES = 256 * 1024 };

/* Signals are left to the application's threads. Returns an error number, or 0. */
int coll_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *arg), void *arg);

#endif
