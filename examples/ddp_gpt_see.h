/*
 * Which ranks see the output directory of rank 0, and how the others' bytes get there.
 */
#ifndef DDP_GPT_SEE_H
#define DDP_GPT_SEE_H

#include "ddp_gpt_job.h"
#include "gpt/formats/file.h"

/* Collective. Gives rank 0's directory (GPT_PATH_MAX bytes, absolute) to all; sees[r]: rank r can read and write there.
 */
int see_directory(struct job *j, char *directory, int32_t *sees);

/* What a rank that does not see it puts in this sink arrives at see_receive() of rank 0. */
struct see_sender {
	struct gpt_sink sink;
	struct job *job;
	char *chunk;
	size_t used;
};
int see_send_begin(struct job *j, struct see_sender *s, uint64_t total_bytes);
int see_send_end(struct see_sender *s);

/* Rank 0: write what rank sends to path; its length and checksum. What cannot be written is noted; -1: a call failed.
 */
int see_receive(struct job *j, int rank, const char *path, struct gpt_sink *got);

#endif
