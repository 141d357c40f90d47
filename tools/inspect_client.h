/*
 * Querying running processes of jobs for dumps. A process has a listener per context
 * (src/inspect/inspector.h).
 */
#ifndef COLL_TOOLS_INSPECT_CLIENT_H
#define COLL_TOOLS_INSPECT_CLIENT_H

#include "dump.h"

enum { DOOR_FAMILY_MAX = 4096, DOOR_SILENT_MAX = 256 };

/* Processes whose listener exists but does not answer. */
struct door_silent {
	struct {
		int pid, process; /* its rank in the job */
		char why[120];    /* "is stopped: ..." */
	} who[DOOR_SILENT_MAX];
	int n;
};

/* Ask all contexts of a process and of all its descendants, and if the process is a rank
 * itself, of the other ranks of its job on this host: "state" (newest operations)
 * or "dump" (all that is recorded). Returns how many contexts answered. */
int door_ask_family(int pid, const char *request, struct dump_list *list, struct door_silent *silent);

/* The rest of each job in the list, as one of its processes is told by them (src/inspect/job_state.h): dumps that are
 * `heard`. */
void door_ask_job(struct dump_list *list);

/* What the processes of each job in the list say of their waits and links: dumps with `slow`, into told. False: nobody
 * has said anything. */
bool door_ask_slow(const struct dump_list *list, struct dump_list *told);

/* A sentence on why a process has no listener. */
void door_why_none(int pid, char *why, size_t why_bytes);

#endif
