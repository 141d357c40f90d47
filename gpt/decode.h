/*
 * The model one token at a time: keys and values of the tokens so far are kept,
 * so that a token costs one row of each product and not a whole pass.
 */
#ifndef GPT_DECODE_H
#define GPT_DECODE_H

#include "gpt/model.h"

struct gpt_decode;

/* NULL: no memory. The model must outlive it. */
struct gpt_decode *gpt_decode_create(struct gpt_model *model);
void gpt_decode_destroy(struct gpt_decode **decode);

/* Forget all tokens. */
void gpt_decode_reset(struct gpt_decode *decode);
int gpt_decode_count(const struct gpt_decode *decode);

/* Add a token (fewer than the shape's context so far); logits: vocab scores of
 * what follows it. */
void gpt_decode_next(struct gpt_decode *decode, int32_t token, gpt_real *logits);

#endif
