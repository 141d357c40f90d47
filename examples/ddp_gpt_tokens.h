/*
 * `ddp_gpt tokenizer train`, `ddp_gpt tokenize` and `ddp_gpt decode`.
 */
#ifndef DDP_GPT_TOKENS_H
#define DDP_GPT_TOKENS_H

#include <stdbool.h>

bool tokens_wanted(int argc, char **argv);
/* The exit status. */
int tokens_main(int argc, char **argv);

#endif
