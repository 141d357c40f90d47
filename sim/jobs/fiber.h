/*
 * Fibers: threads of a simulated program, all on one thread of the system. Each has a stack and its
 * own copy of the program's thread-local memory, so code that uses _Thread_local objects needs no
 * change.
 */
#ifndef COLL_SIM_JOBS_FIBER_H
#define COLL_SIM_JOBS_FIBER_H

struct sim_fiber;

/* The fiber that runs when the program begins. */
struct sim_fiber *sim_fiber_main(void);
/* A new one, whose thread-local memory is as at the start of a program. run never returns. */
struct sim_fiber *sim_fiber_new(void (*run)(void *arg), void *arg);
/* It will never run again. Not the one that runs. */
void sim_fiber_free(struct sim_fiber *f);
/* Go on with `to`; returns when somebody goes on with `from`, which is the one that runs. */
void sim_fiber_switch(struct sim_fiber *from, struct sim_fiber *to);

#endif
