/*
 * The simulated machine: processes made of threads, one virtual clock, and a seeded choice of who
 * runs next. Everything is on one thread of the system. Time passes only when it is read, when a
 * thread gives way, and when nobody can run: then it jumps to the next event.
 */
#ifndef COLL_SIM_JOBS_MACHINE_H
#define COLL_SIM_JOBS_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SIM_NEVER UINT64_MAX
enum { SIM_KEYS_MAX = 32 };

struct sim_process;
struct sim_thread;

uint64_t sim_now_ns(void);
/* A number below n, from the seed. */
uint64_t sim_below(uint64_t n);
uint64_t sim_seed(void);
/* Begin anew with this seed, before any process is started. */
void sim_reseed(uint64_t seed);
/* A hash of who ran when, so far: equal seeds give equal ones. */
uint64_t sim_trace(void);

/* ---- Threads ---- */

/* Wait until ready says so (true) or for the time (false). ready is asked by whoever runs, so it
 * only looks. */
bool sim_wait(bool (*ready)(void *arg), void *arg, uint64_t until_ns);
void sim_sleep(uint64_t ns);
/* Let others run. Who does nothing else pauses for longer and longer, up to a millisecond. */
void sim_yield(void);
/* Perhaps let others run; for places where a scheduler of the system may take the processor away. */
void sim_preempt(void);

struct sim_thread *sim_thread_start(struct sim_process *in, void *(*run)(void *arg), void *arg);
struct sim_thread *sim_thread_self(void);
/* Waits for its end, then forgets it. */
void *sim_thread_join(struct sim_thread *t);
/* Values of pthread keys of the thread that runs, and locks that it holds. */
void **sim_thread_values(void);
int *sim_thread_locks(void);

/* ---- Processes ---- */

/* A process whose first thread runs body(arg, rank). Returns its number. */
pid_t sim_process_start(void (*body)(const void *arg, int rank), const void *arg, int rank);
struct sim_process *sim_process_self(void);
pid_t sim_process_number(const struct sim_process *p);
pid_t sim_process_parent(const struct sim_process *p); /* 0: it is the program itself */
struct sim_process *sim_process_find(pid_t number);
bool sim_process_lives(const struct sim_process *p);
/* status as waitpid() gives it. Does not return if the process is the caller's. */
void sim_process_end(struct sim_process *p, int status);
/* Its threads stand still, or go on. */
void sim_process_stop(struct sim_process *p, bool stop);
/* As the system's, of children; pid -1: any. */
pid_t sim_process_wait(pid_t number, int *status, int options);
/* Called once for each process that ends: before its threads are gone. */
void sim_on_end(void (*fn)(struct sim_process *p));

/* ---- Events ---- */

/* At that time, fn is called outside all threads. */
void sim_at(uint64_t ns, void (*fn)(void *arg), void *arg);

#endif
