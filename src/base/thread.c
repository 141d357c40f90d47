/*
 * See thread.h.
 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

int coll_thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *arg), void *arg)
{
	pthread_attr_t attr;
	sigset_t all, old;
	int e;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, stack_bytes);
	e = pthread_create(thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	/* The program's thread-local memory lies in the stack, and may need more. */
	if (e == EINVAL)
		e = pthread_create(thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return e;
}
