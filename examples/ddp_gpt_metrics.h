/*
 * What a progress line leaves in --out: a line of metrics.jsonl or metrics.csv, and the events of TensorBoard.
 */
#ifndef DDP_GPT_METRICS_H
#define DDP_GPT_METRICS_H

#include "ddp_gpt_job.h"

/* Numbers of one progress line. ABSENT: there is none. */
#define ABSENT (-1e300)

struct metrics {
	double step, loss, val_loss, grad_norm, stubbed, lr, tokens_per_s, ms_per_step, comm_share, mfu, wire_s,
	        waited_s;
	double sent_bytes, time, elapsed_s, tokens, epoch, data_wait_s, rss_mb, ranks;
};

/* Rank 0: fills what it finds itself, from time on, and writes. */
void metrics_write(struct job *j, struct metrics *m);

#endif
