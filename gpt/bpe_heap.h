/*
 * The queue of byte-level BPE: of all entries the least first, by first, then by second. An entry that is no longer
 * true is the caller's to skip.
 */
#ifndef GPT_BPE_HEAP_H
#define GPT_BPE_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpt_bpe_entry {
	uint64_t first, second;
};

/* Begins as zeroes; free() at. */
struct gpt_bpe_heap {
	struct gpt_bpe_entry *at;
	size_t count, room;
};

/* False: no memory, and nothing has changed. */
bool gpt_bpe_push(struct gpt_bpe_heap *h, struct gpt_bpe_entry x);
/* The least; there is one. */
struct gpt_bpe_entry gpt_bpe_pop(struct gpt_bpe_heap *h);

#endif
