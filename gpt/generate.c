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

/* Numbers in their order as integers. */
static uint64_t order_of(gpt_real x)
{
	const double d = (double)x;
	uint64_t u;

	memcpy(&u, &d, sizeof(u));
	return u >> 63 ? ~u : u | 1ull << 63;
}

static int count_from(const gpt_real *x, int n, uint64_t least)
{
	int count = 0;

	for (int i = 0; i < n; i++)
		count += order_of(x[i]) >= least;
	return count;
}

/* The k-th largest of n: the bits of its order from the first to the last, by counting. */
static gpt_real kth_largest(const gpt_real *x, int n, int k)
{
	uint64_t least = 0, u;
	double d;

	for (int bit = 63; bit >= 0; bit--)
		if (count_from(x, n, least | 1ull << bit) >= k)
			least |= 1ull << bit;
	u = least >> 63 ? least & INT64_MAX : ~least;
	memcpy(&d, &u, sizeof(d));
	return (gpt_real)d;
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

/* The text so far, as far as the model sees it. */
struct tail {
	int32_t *tokens;
	int count, room;
};

static void push(struct tail *t, int32_t token)
{
	const int kept = t->room / 2;

	assert(t->room > 0);
	if (t->count == t->room) {
		memmove(t->tokens, t->tokens + (t->room - kept), (size_t)kept * sizeof(*t->tokens));
		t->count = kept;
	}
	t->tokens[t->count++] = token;
}

/* The last room tokens of the prompt; -1: no memory. */
static int start(struct tail *tail, const struct gpt_tokenizer *t, const char *prompt)
{
	const size_t len = prompt ? strlen(prompt) : 0;
	int32_t *tokens = malloc((len + 1) * sizeof(*tokens));
	const long count = tokens ? gpt_tokenizer_encode(t, (const uint8_t *)prompt, len, tokens) : -1;

	for (long i = count > tail->room ? count - tail->room : 0; i < count; i++)
		push(tail, tokens[i]);
	free(tokens);
	if (!tail->count)
		push(tail, gpt_tokenizer_start(t));
	return count < 0 ? -1 : 0;
}

/* Scores after the tail. The cache holds all but its last token, or nothing of it
 * when older tokens were forgotten since. */
static void predict(struct gpt_model *model, struct gpt_decode *cache, const struct tail *tail, gpt_real *logits)
{
	if (!cache) {
		gpt_model_predict(model, tail->tokens, tail->count, logits);
		return;
	}
	if (gpt_decode_count(cache) >= tail->count)
		gpt_decode_reset(cache);
	for (int i = gpt_decode_count(cache); i < tail->count; i++)
		gpt_decode_next(cache, tail->tokens[i], logits);
}

int gpt_generate(struct gpt_model *model, const struct gpt_tokenizer *t, const struct gpt_generate *g,
                 const char *prompt, gpt_emit_fn emit, void *arg)
{
	struct tail tail = {.room = gpt_model_shape(model)->context};
	gpt_real *logits = malloc((size_t)gpt_model_shape(model)->vocab * sizeof(*logits));
	struct gpt_decode *cache = g->no_cache ? NULL : gpt_decode_create(model);
	int rc = -1;

	tail.tokens = malloc((size_t)tail.room * sizeof(*tail.tokens));
	if (!logits || !tail.tokens || (!cache && !g->no_cache))
		goto out;
	if (start(&tail, t, prompt))
		goto out;
	for (int i = 0; i < g->len; i++) {
		const uint8_t *bytes;
		size_t n;
		int token;

		predict(model, cache, &tail, logits);
		token = gpt_pick_token(logits, t->size, g->temperature, g->top_k, gpt_uniform(g->seed, (uint64_t)i));
		bytes = gpt_tokenizer_bytes(t, token, &n);
		for (size_t k = 0; k < n && bytes; k++)
			emit(arg, bytes[k]);
		push(&tail, token);
	}
	rc = 0;
out:
	gpt_decode_destroy(&cache);
	free(logits);
	free(tail.tokens);
	return rc;
}
