/*
 * A trained model in a file: shape, vocabulary, step, weights, checksum.
 *
 * Little-endian: magic "collgpt2"; u32 vocab kind, vocab size, context, layers,
 * heads, width; u64 step, number of weights; the vocabulary's 256 bytes; the
 * weights as f32 in arena order; u64 checksum of all before it. The file under
 * its final name is always whole: it is written aside, flushed, then renamed.
 */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "gpt/model.h"
#include "gpt/tokenizer.h"

/* 0, or -1 with errno set. */
int gpt_checkpoint_write(const char *path, struct gpt_model *model, const struct gpt_tokenizer *t, uint64_t step);

struct gpt_checkpoint {
	struct gpt_shape shape;
	struct gpt_tokenizer tokenizer;
	uint64_t step;
	float *weights; /* gpt_param_count(&shape) */
};

/* 0, or -1 with errno set (EILSEQ: not a checkpoint, or a damaged one). free() the weights. */
int gpt_checkpoint_read(const char *path, struct gpt_checkpoint *c);

uint64_t gpt_checksum(uint64_t seed, const void *data, size_t len_bytes);

#endif
