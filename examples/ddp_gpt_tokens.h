/*
 * `ddp_gpt tokenizer train` and `ddp_gpt tokenize`.
 */
#ifndef DDP_GPT_TOKENS_H
#define DDP_GPT_TOKENS_H

#include <stdbool.h>

bool tokens_wanted(int argc, char **argv);
/* The exit status. */
int tokens_main(int argc, char **argv);

#endif
