/*
 * What a run learns from: sources of --data and --val-data, as sequences of tokens that all ranks have alike.
 */
#ifndef DDP_GPT_DATA_H
#define DDP_GPT_DATA_H

#include "ddp_gpt_job.h"
#include <jansson.h>

/* Collective: read or map all files, make the vocabulary of the text if there is no other, and cut off what is for
 * validation. */
int job_open_data(struct job *j);
void job_close_data(struct job *j);

/* Sequences of an epoch, of all sources together. */
uint64_t job_windows(const struct job *j);
/* Tokens of both parts, for the line at the start. */
uint64_t job_train_tokens(const struct job *j);
uint64_t job_val_tokens(const struct job *j);

/* Targets of sequence q of the run; and of the i-th of those that a validation reads. */
int job_window_targets(const struct job *j, uint64_t q);
int job_val_window_targets(const struct job *j, uint64_t i);
/* Sequence q of the run, to this place of j->inputs and j->targets, padded to len. Local: -1 aborts the job, since a
 * file has a token that is none. */
int job_copy_window(struct job *j, int place, int len, uint64_t q);
int job_copy_val_window(struct job *j, int place, int len, uint64_t i);
/* Sequences first .. first + count are wanted soon. */
void job_expect_windows(const struct job *j, uint64_t first, uint64_t count);

/* Of each source: name, bytes, crc32c, weight. */
json_t *job_describe_data(const struct job *j);
/* Does such a list fit? NULL, or the source that differs. */
const char *job_other_data(const struct job *j, const json_t *list);

#endif
