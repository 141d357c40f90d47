/*
 * Other jobs of this user that share the cores of this rank.
 *
 * Its waits spin while each rank has a core. Here is found out whether that holds with the ranks of other jobs counted,
 * too, when this job begins and once a second on its service thread. Only ranks that may use a processor of this rank
 * count, and each process once, as it waits in one job at a time. The decision is that of this rank alone.
 * Sets the members spins and core_sharers of the context.
 */
#ifndef COLL_CONTEXT_OTHER_JOBS_H
#define COLL_CONTEXT_OTHER_JOBS_H

struct coll_context;

/* After coll_locality_find(). Not without the service thread. */
void coll_other_jobs_enter(struct coll_context *c);
/* Look again, if it is time. */
void coll_other_jobs_look(struct coll_context *c);
void coll_other_jobs_leave(struct coll_context *c);

#endif
