/*
 * A binary heap in an array that doubles.
 */
#include "gpt/bpe_heap.h"
#include <stdlib.h>

static bool before(const struct gpt_bpe_entry *x, const struct gpt_bpe_entry *y)
{
	return x->first < y->first || (x->first == y->first && x->second < y->second);
}

bool gpt_bpe_push(struct gpt_bpe_heap *h, struct gpt_bpe_entry x)
{
	size_t i;

	if (h->count == h->room) {
		const size_t room = h->room ? 2 * h->room : 1 << 12;
		struct gpt_bpe_entry *grown = realloc(h->at, room * sizeof(*grown));

		if (!grown)
			return false;
		h->at = grown;
		h->room = room;
	}
	for (i = h->count++; i > 0 && before(&x, &h->at[(i - 1) / 2]); i = (i - 1) / 2)
		h->at[i] = h->at[(i - 1) / 2];
	h->at[i] = x;
	return true;
}

struct gpt_bpe_entry gpt_bpe_pop(struct gpt_bpe_heap *h)
{
	const struct gpt_bpe_entry top = h->at[0], x = h->at[--h->count];
	size_t i = 0, child;

	while ((child = 2 * i + 1) < h->count) {
		child += child + 1 < h->count && before(&h->at[child + 1], &h->at[child]);
		if (!before(&h->at[child], &x))
			break;
		h->at[i] = h->at[child];
		i = child;
	}
	h->at[i] = x;
	return top;
}
