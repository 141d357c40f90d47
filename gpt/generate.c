#include "gpt/generate.h"
#include "gpt/rng.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int likeliest(const gpt_real *x, int n)
{
	int best = 0;

	for (int i = 1; i < n; i++)
		if (x[i] > x[best])
			best = i;
	return best;
}

/* The k-th largest of n, by counting: n is a byte vocabulary. */
static gpt_real kth_largest(const gpt_real *x, int n, int k)
{
	for (int i = 0; i < n; i++) {
		int above = 0, equal = 0;

		for (int j = 0; j < n; j++) {
			above += x[j] > x[i];
			equal += x[j] == x[i];
		}
		if (above < k && above + equal >= k)
			return x[i];
	}
	return -INFINITY;
}

int gpt_pick_token(gpt_real *logits, int vocab, double temperature, int top_k, double u)
{
	const int top = likeliest(logits, vocab);
	const gpt_real max = logits[top];
	const gpt_real least = top_k > 0 && top_k < vocab ? kth_largest(logits, vocab, top_k) : -INFINITY;
	double sum = 0;

	if (temperature <= 0)
		return top;
	for (int i = 0; i < vocab; i++) {
		logits[i] = logits[i] < least ? 0 : (gpt_real)exp((double)(logits[i] - max) / temperature);
		sum += logits[i];
	}
	u *= sum;
	for (int i = 0; i < vocab; i++) {
		u -= logits[i];
		if (u < 0)
			return i;
	}
	return top;
}

/* The last tokens of the text so far, at most context of them. */
struct tail {
	int32_t *tokens;
	int count, room;
};

static void push(struct tail *t, int32_t token)
{
	assert(t->room > 0);
	if (t->count == t->room) {
		memmove(t->tokens, t->tokens + 1, (size_t)(t->room - 1) * sizeof(*t->tokens));
		t->count--;
	}
	t->tokens[t->count++] = token;
}

static void start(struct tail *tail, const struct gpt_tokenizer *t, const char *prompt)
{
	for (const char *p = prompt; p && *p; p++)
		if (t->token_of[(uint8_t)*p] >= 0)
			push(tail, t->token_of[(uint8_t)*p]);
	if (!tail->count)
		push(tail, t->token_of['\n'] >= 0 ? t->token_of['\n'] : 0);
}

int gpt_generate(struct gpt_model *model, const struct gpt_tokenizer *t, const struct gpt_generate *g,
                 const char *prompt, gpt_emit_fn emit, void *arg)
{
	struct tail tail = {.room = gpt_model_shape(model)->context};
	gpt_real *logits = malloc((size_t)t->size * sizeof(*logits));

	tail.tokens = malloc((size_t)tail.room * sizeof(*tail.tokens));
	if (!logits || !tail.tokens) {
		free(logits);
		free(tail.tokens);
		return -1;
	}
	start(&tail, t, prompt);
	for (int i = 0; i < g->len; i++) {
		int token;

		gpt_model_predict(model, tail.tokens, tail.count, logits);
		token = gpt_pick_token(logits, t->size, g->temperature, g->top_k, gpt_uniform(g->seed, (uint64_t)i));
		emit(arg, t->byte_of[token]);
		push(&tail, token);
	}
	free(logits);
	free(tail.tokens);
	return 0;
}
