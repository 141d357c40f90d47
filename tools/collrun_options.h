/*
 * What the files that read the command line share. Functions that return an int return -1 to go on, else the exit
 * status: what is wrong has been told.
 */
#ifndef COLLRUN_OPTIONS_H
#define COLLRUN_OPTIONS_H

#include "collrun.h"

enum { RANKS_MAX = 1 << 20 };

/* Says what is wrong; returns the exit status of a command line that is refused. */
int options_refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Hosts (collrun_hosts.c) -------------------------------------------- */

/* Slots of a host that is named again are added. */
int hosts_add(struct options *o, const char *name, int slots);
/* "a:2,b" */
int hosts_add_list(struct options *o, const char *list);
int hosts_read_file(struct options *o, const char *path);
/* Which rank runs where. */
int hosts_place(struct options *o);
/* For --dry-run: the placement and the commands. */
void hosts_print(const struct options *o);

/* ---- Allocations (collrun_allocation.c) --------------------------------- */

/* The hosts that a scheduler gave this process, if one did: Slurm, PBS, LSF, Grid Engine. */
int allocation_read(struct options *o);

#endif
