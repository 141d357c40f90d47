/*
 * The output directory: what an earlier run left there, and run.json, which says what made it.
 */
#ifndef DDP_GPT_OUT_H
#define DDP_GPT_OUT_H

#include "ddp_gpt_job.h"
#include <jansson.h>

/* Collective. Is --out free, or does the command line say what is to become of the run that is there? Nothing is
 * changed. */
int job_check_out(struct job *j);
/* Collective. Make the directory, remove with --overwrite what an earlier run left there, and write run.json. */
int job_open_out(struct job *j);

/* Of rank 0: NAME in --out. -1 with errno. */
int out_path(const struct job *j, const char *name, char *path);

/* All flags with their values; NULL: no memory. */
json_t *out_flags(const struct job *j);
/* Eight hexadecimal digits. */
json_t *out_crc32c(uint32_t crc);

#endif
