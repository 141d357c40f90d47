/*
 * Which window of the text is trained on when.
 *
 * Training windows start at every position; each epoch visits every start once,
 * in an order that is a keyed permutation of (seed, epoch). Sequence number q of
 * a run (step * batch + place in the batch) therefore names its window without
 * any state: all ranks agree on it, whatever their number. Validation windows
 * do not overlap. The i-th of those that are read belongs to rank i mod size: each is
 * read once.
 */
#ifndef GPT_SAMPLER_H
#define GPT_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

/* Position 0 <= x < n after the permutation of 0 .. n-1 chosen by key. */
uint64_t gpt_permute(uint64_t key, uint64_t n, uint64_t x);

struct gpt_sampler {
	uint64_t seed;
	uint64_t window_count;
};

/* A text of n tokens, windows of context tokens and their targets. n > context. */
void gpt_sampler_init(struct gpt_sampler *s, uint64_t seed, size_t n, int context);

/* Where the window of sequence q starts. */
size_t gpt_sampler_start(const struct gpt_sampler *s, uint64_t q);

/* How many whole windows with targets, side by side, n tokens hold. */
size_t gpt_sampler_val_windows(size_t n, int context);

/* Of count <= all windows, spread evenly over all: the i-th. */
size_t gpt_sampler_val_window(size_t i, size_t count, size_t all);

#endif
