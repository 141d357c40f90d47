/*
 * What a program and the library ask of the C library, in a simulated program: the linker sends these
 * calls here (--wrap). It owns nothing: threads, locks, pauses and processes are machine.c's.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "net/net.h"
#include "sim/jobs/machine.h"
#include "sim/jobs/network.h"

/* The linker's names. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wmissing-declarations"

static const uint64_t MS = 1000000;

int __real_pthread_mutex_trylock(pthread_mutex_t *m);
int __real_pthread_mutex_unlock(pthread_mutex_t *m);
int __real_clock_gettime(clockid_t clock, struct timespec *t);
FILE *__real_freopen64(const char *path, const char *mode, FILE *f);
void __real_exit(int status) __attribute__((noreturn));

/* ---- Threads ---- */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *arg), void *arg)
{
	(void)attr;
	return coll_net->thread_start(thread, 0, run, arg);
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
	return coll_net->thread_join(thread, result);
}

pthread_t __wrap_pthread_self(void)
{
	return (pthread_t)(uintptr_t)sim_thread_self();
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m)
{
	sim_preempt();
	while (__real_pthread_mutex_trylock(m) != 0)
		sim_yield();
	++*sim_thread_locks();
	return 0;
}

int __wrap_pthread_mutex_trylock(pthread_mutex_t *m)
{
	const int e = __real_pthread_mutex_trylock(m);

	*sim_thread_locks() += e == 0;
	return e;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
	const int e = __real_pthread_mutex_unlock(m);

	--*sim_thread_locks();
	sim_preempt();
	return e;
}

/* Keys: their destructors do not run, a simulated program is short. */
static unsigned keys;

int __wrap_pthread_key_create(pthread_key_t *key, void (*destroy)(void *value))
{
	(void)destroy;
	*key = keys++;
	return *key < SIM_KEYS_MAX ? 0 : ENOMEM;
}

int __wrap_pthread_key_delete(pthread_key_t key)
{
	(void)key;
	return 0;
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
	sim_thread_values()[key] = (void *)value;
	return 0;
}

void *__wrap_pthread_getspecific(pthread_key_t key)
{
	return sim_thread_values()[key];
}

/* ---- Meeting points ---- */

struct barrier {
	unsigned size, arrived, round;
};
_Static_assert(sizeof(struct barrier) <= sizeof(pthread_barrier_t), "in the place of the C library's");

struct round {
	const struct barrier *barrier;
	unsigned number;
};

static bool round_is_over(void *arg)
{
	const struct round *r = arg;

	return r->barrier->round != r->number;
}

int __wrap_pthread_barrier_init(pthread_barrier_t *b, const pthread_barrierattr_t *attr, unsigned n)
{
	(void)attr;
	*(struct barrier *)b = (struct barrier){.size = n};
	return 0;
}

int __wrap_pthread_barrier_wait(pthread_barrier_t *at)
{
	struct barrier *b = (struct barrier *)at;
	struct round r = {b, b->round};

	if (++b->arrived == b->size) {
		b->arrived = 0;
		b->round++;
		return PTHREAD_BARRIER_SERIAL_THREAD;
	}
	sim_wait(round_is_over, &r, SIM_NEVER);
	return 0;
}

int __wrap_pthread_barrier_destroy(pthread_barrier_t *b)
{
	(void)b;
	return 0;
}

static bool is_posted(void *arg)
{
	return *(int *)arg > 0;
}

int __wrap_sem_init(sem_t *s, int shared, unsigned value)
{
	(void)shared;
	*(int *)s = (int)value;
	return 0;
}

int __wrap_sem_post(sem_t *s)
{
	++*(int *)s;
	return 0;
}

int __wrap_sem_wait(sem_t *s)
{
	while (*(int *)s <= 0)
		sim_wait(is_posted, s, SIM_NEVER);
	--*(int *)s;
	return 0;
}

/* ---- Time ---- */

int __wrap_usleep(useconds_t us)
{
	sim_sleep((uint64_t)us * 1000);
	return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	return coll_net->sleep(time, left);
}

int __wrap_sched_yield(void)
{
	sim_yield();
	return 0;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	if (clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE)
		return __real_clock_gettime(clock, t);
	*t = (struct timespec){(time_t)(sim_now_ns() / (1000 * MS)), (long)(sim_now_ns() % (1000 * MS))};
	return 0;
}

/* ---- Processes ---- */

pid_t __wrap_fork(void)
{
	fprintf(stderr, "simulator: a simulated program begins processes with meeting_start()\n");
	abort();
}

pid_t __wrap_getpid(void)
{
	return sim_process_number(sim_process_self());
}

int __wrap_kill(pid_t pid, int signal)
{
	struct sim_process *p = sim_process_find(pid);

	if (!p || (!sim_process_lives(p) && signal == 0)) {
		errno = ESRCH;
		return -1;
	}
	switch (sim_process_lives(p) ? signal : 0) {
	case 0: break;
	case SIGSTOP: sim_process_stop(p, true); break;
	case SIGCONT: sim_process_stop(p, false); break;
	default: sim_process_end(p, signal);
	}
	return 0;
}

int __wrap_raise(int signal)
{
	return __wrap_kill(__wrap_getpid(), signal);
}

pid_t __wrap_waitpid(pid_t pid, int *status, int options)
{
	return sim_process_wait(pid, status, options);
}

void __wrap__exit(int status)
{
	if (sim_process_parent(sim_process_self()) == 0) {
		fflush(stdout);
		_Exit(status);
	}
	sim_process_end(sim_process_self(), (status & 0xff) << 8);
	abort();
}

void __wrap_exit(int status)
{
	if (sim_process_parent(sim_process_self()) == 0)
		__real_exit(status);
	__wrap__exit(status);
	abort();
}

/* A simulated process has no output of its own to close. */
FILE *__wrap_freopen64(const char *path, const char *mode, FILE *f)
{
	return strcmp(path, "/dev/null") == 0 ? f : __real_freopen64(path, mode, f);
}
