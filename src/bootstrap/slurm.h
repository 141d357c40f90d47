/*
 * What the variables of Slurm say about the step of this process.
 */
#ifndef COLL_BOOTSTRAP_SLURM_H
#define COLL_BOOTSTRAP_SLURM_H

#include <stdbool.h>
#include <stddef.h>

/* The first name of "node[07-09,12],other": Slurm gives rank 0 to the first host of the step. */
bool coll_slurm_first_host(const char *list, char *host, size_t len_bytes);

/* PMI_RANK and its like are of a step around this one: srun --mpi=pmi2 names its step, and gives it a socket, which is
 * not inherited. */
bool coll_slurm_pmi_is_inherited(void);

/* srun --mpi=pmix has started this step, and not one around it. */
bool coll_slurm_has_pmix(void);

#endif
