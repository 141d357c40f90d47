/*
 * The model.ckpt of earlier versions, which is read and no longer written: shape, vocabulary, step, weights, checksum.
 *
 * Little-endian: magic "collgpt3"; u32 vocab kind, vocab size, context, layers,
 * heads, width, tokens of the vocabulary that are bytes, arrays (1: weights; 3: and
 * both means); u64 step, number of weights, signature, ranks, extra bytes; the
 * vocabulary's 256 bytes; the arrays as f32 in arena order; the extra bytes; u64 checksum
 * of all before it.
 */
#ifndef GPT_CHECKPOINT_H
#define GPT_CHECKPOINT_H

#include "gpt/model.h"
#include "gpt/tokenizer.h"

struct gpt_checkpoint {
	struct gpt_shape shape;
	struct gpt_tokenizer tokenizer;
	uint64_t step;
	uint64_t signature; /* the writer's: of options, say */
	uint64_t ranks;
	float *weights; /* gpt_param_count(&shape) */
	float *m, *v;   /* as many each; NULL: none */
	void *extra;    /* the writer's */
	size_t extra_bytes;
};

/* 0, or -1 with errno set (EILSEQ: not a checkpoint, or a damaged one). */
int gpt_checkpoint_read(const char *path, struct gpt_checkpoint *c);
/* free() what reading allocated. */
void gpt_checkpoint_free(struct gpt_checkpoint *c);

/* All bytes, or -1 with errno set. */
int gpt_write_all(int fd, const void *data, size_t len_bytes);

uint64_t gpt_checksum(uint64_t seed, const void *data, size_t len_bytes);

#endif
