/*
 * Which tokens are learned when: several sources, each a row of arrays of tokens in memory or in mapped files.
 *
 * Sequence q of a run names its source and its place there by arithmetic on (seed, q) alone. It depends on no rank,
 * batch or earlier sequence, so a run goes on anywhere in O(1), and no window is left out or read twice. Of every
 * block of GPT_SLOTS sequences each source has as many as its weight says, in an order that the seed gives.
 */
#ifndef GPT_DATASET_H
#define GPT_DATASET_H

#include "gpt/sampler.h"
#include <stdint.h>

#define GPT_SLOTS 1024

struct gpt_segment {
	const void *tokens;
	int token_bytes; /* 2 or 4 */
	uint64_t count;
	const char *name;  /* for what is said of a token that is none */
	uint64_t at_bytes; /* where in the file of this name the first token is */
};

/* The i-th, whatever their size. */
static inline int64_t gpt_token_at(const void *tokens, int token_bytes, uint64_t i)
{
	return token_bytes == 2 ? ((const uint16_t *)tokens)[i] : ((const uint32_t *)tokens)[i];
}

/* Tokens of a document: from the first up to the end. */
struct gpt_span {
	uint64_t first, end;
};

struct gpt_source {
	/* Given by the caller, whose memory stays. */
	const struct gpt_segment *segments;
	int segment_count;
	/* The part of it that counts: of the tokens of all segments, or of the documents. */
	uint64_t from, count;
	/* A sequence is one document, cut after context + 1 tokens. NULL: it is a window of context + 1 tokens. */
	const struct gpt_span *documents;
	/* Between the starts of windows: 1, or context, from an offset that depends on the epoch. */
	int stride;
	double weight;

	/* Of gpt_dataset_open(). */
	struct gpt_sampler sampler; /* its window_count: sequences of an epoch */
	int slots;
};

struct gpt_dataset {
	struct gpt_source *sources;
	int source_count, context;
	uint64_t seed;
	/* Of gpt_dataset_open(). */
	uint64_t windows; /* of all sources */
	uint16_t source_of[GPT_SLOTS], rank_of[GPT_SLOTS];
};

/* Tokens of one sequence: count - 1 inputs, and as many targets, one place later. */
struct gpt_window {
	int source, count;
	uint64_t first;
};

/* The first members of d are given. -1: the source has not enough tokens for a sequence. */
int gpt_dataset_open(struct gpt_dataset *d, int *source);

struct gpt_window gpt_dataset_window(const struct gpt_dataset *d, uint64_t q);

/* For validation: sequences in the order of the sources, windows side by side. */
uint64_t gpt_dataset_plain_count(const struct gpt_dataset *d);
struct gpt_window gpt_dataset_plain_window(const struct gpt_dataset *d, uint64_t i);

/* A token that is not below vocab, and where it is. */
struct gpt_bad_token {
	const char *name;
	uint64_t at_bytes;
	int64_t token;
};

/* All tokens of the window, count numbers. -1: *bad says which is none. */
int gpt_dataset_copy(const struct gpt_dataset *d, const struct gpt_window *w, int vocab, int32_t *out,
                     struct gpt_bad_token *bad);

#endif
