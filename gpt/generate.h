/*
 * Text from a model: token after token, drawn from its own predictions.
 */
#ifndef GPT_GENERATE_H
#define GPT_GENERATE_H

#include "gpt/decode.h"
#include "gpt/model.h"
#include "gpt/tokenizer.h"

struct gpt_generate {
	int len;            /* tokens to draw */
	double temperature; /* 0: always the likeliest */
	int top_k;          /* draw among the k likeliest; 0: among all */
	uint64_t seed;
	bool no_cache; /* a whole pass for each token: slower, the same text */
};

/* A token drawn from vocab logits, which are overwritten. u in (0, 1). */
int gpt_pick_token(gpt_real *logits, int vocab, double temperature, int top_k, double u);

/* Hands each new byte to emit. The prompt's last context tokens are what the
 * first one follows; an empty prompt starts from the end token, a newline, or token 0. When
 * the context is full its older half is forgotten. -1: no memory. */
typedef void (*gpt_emit_fn)(void *arg, uint8_t byte);
int gpt_generate(struct gpt_model *model, const struct gpt_tokenizer *t, const struct gpt_generate *g,
                 const char *prompt, gpt_emit_fn emit, void *arg);

#endif
