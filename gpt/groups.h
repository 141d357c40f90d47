/*
 * The rows of a batch grouped by token: what the backward of the embedding
 * walks, and what an exchange of its rows sends.
 */
#ifndef GPT_GROUPS_H
#define GPT_GROUPS_H

#include "gpt/kernels.h"

/* Fill g for rows tokens below vocab. g's arrays hold rows (start: rows + 1)
 * numbers, place holds vocab. */
void gpt_group_tokens(struct gpt_groups *g, const int32_t *tokens, int rows, int vocab, int32_t *place);

#endif
