/*
 * Tables and encoding.
 *
 * Short pieces repeat, so their tokens are kept. A piece of up to 512 bytes is merged by looking for the least rank
 * among all pairs; a longer one by a heap of pairs, in which stale ones are skipped: the same result in n log n.
 */
#include "gpt/bpe.h"
#include "gpt/bpe_heap.h"
#include "gpt/bpe_inner.h"
#include <stdlib.h>

#define NONE       UINT32_MAX
#define KEPT_BYTES 64 /* of pieces whose tokens are kept */
#define KEPT       65536
#define SMALL      512

struct token {
	uint8_t *bytes;
	size_t len_bytes;
	bool special;
};

/* Hash tables with open addressing: a free place has the key NONE, or the length 0. */
struct merge {
	uint32_t left, right, rank, token;
};

struct word {
	uint64_t hash;
	uint32_t len_bytes, count;
	uint8_t bytes[KEPT_BYTES];
	uint32_t *tokens;
};

struct gpt_bpe {
	int size;
	bool split;
	struct token *tokens;
	uint32_t *by_bytes; /* 2^name_bits tokens */
	int name_bits;
	struct merge *merges; /* 2^merge_bits */
	int merge_bits;
	uint32_t (*ranks)[2];
	size_t merge_count, rank_room;
	uint32_t byte_token[256];
	struct word *words; /* 2 * KEPT */
	size_t word_count;
	uint32_t *longest; /* special tokens, the longest first */
	size_t special_count;
	bool begins[256]; /* a special token */
};

/* ---- Tables --------------------------------------------------------------------------- */

struct gpt_bpe *gpt_bpe_open(int size, bool split)
{
	struct gpt_bpe *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->size = size;
	b->split = split;
	for (b->name_bits = 9; (size_t)1 << b->name_bits < 2 * (size_t)size;)
		b->name_bits++;
	b->tokens = calloc((size_t)size, sizeof(*b->tokens));
	b->longest = calloc((size_t)size, sizeof(*b->longest));
	b->by_bytes = malloc(sizeof(*b->by_bytes) << b->name_bits);
	b->words = calloc(2 * KEPT, sizeof(*b->words));
	if (!b->tokens || !b->longest || !b->by_bytes || !b->words)
		gpt_bpe_close(&b);
	else
		memset(b->by_bytes, 0xff, sizeof(*b->by_bytes) << b->name_bits);
	if (b)
		memset(b->byte_token, 0xff, sizeof(b->byte_token));
	return b;
}

void gpt_bpe_close(struct gpt_bpe **bpe)
{
	struct gpt_bpe *b = *bpe;

	*bpe = NULL;
	if (!b)
		return;
	for (int i = 0; i < b->size && b->tokens; i++)
		free(b->tokens[i].bytes);
	for (size_t i = 0; i < 2 * KEPT && b->words; i++)
		free(b->words[i].tokens);
	free(b->tokens);
	free(b->longest);
	free(b->by_bytes);
	free(b->merges);
	free(b->ranks);
	free(b->words);
	free(b);
}

/* The place of the token with these bytes, or the free one where it would be. */
static uint32_t *named(const struct gpt_bpe *b, const uint8_t *bytes, size_t len_bytes)
{
	const size_t mask = ((size_t)1 << b->name_bits) - 1;

	for (size_t i = gpt_bpe_hash(bytes, len_bytes) & mask;; i = (i + 1) & mask) {
		const uint32_t id = b->by_bytes[i];

		if (id == NONE ||
		    (b->tokens[id].len_bytes == len_bytes && !memcmp(b->tokens[id].bytes, bytes, len_bytes)))
			return &b->by_bytes[i];
	}
}

static void add_special(struct gpt_bpe *b, uint32_t token)
{
	size_t i = b->special_count++;

	for (; i > 0 && b->tokens[b->longest[i - 1]].len_bytes < b->tokens[token].len_bytes; i--)
		b->longest[i] = b->longest[i - 1];
	b->longest[i] = token;
	b->begins[b->tokens[token].bytes[0]] = true;
}

int gpt_bpe_set(struct gpt_bpe *b, int token, const uint8_t *bytes, size_t len_bytes, bool special)
{
	struct token *t = token >= 0 && token < b->size ? &b->tokens[token] : NULL;
	uint32_t *place = named(b, bytes, len_bytes);

	if (!t || t->bytes || *place != NONE || len_bytes == 0 || !(t->bytes = malloc(len_bytes)))
		return -1;
	memcpy(t->bytes, bytes, len_bytes);
	t->len_bytes = len_bytes;
	t->special = special;
	*place = (uint32_t)token;
	if (special)
		add_special(b, (uint32_t)token);
	else if (len_bytes == 1)
		b->byte_token[*bytes] = (uint32_t)token;
	return 0;
}

static struct merge *merge_place(const struct gpt_bpe *b, uint32_t left, uint32_t right)
{
	const size_t mask = ((size_t)1 << b->merge_bits) - 1;
	size_t i = gpt_bpe_mix((uint64_t)left << 32 | right) & mask;

	while (b->merges[i].left != NONE && (b->merges[i].left != left || b->merges[i].right != right))
		i = (i + 1) & mask;
	return &b->merges[i];
}

/* NULL: these two stay apart. */
static const struct merge *merge_of(const struct gpt_bpe *b, uint32_t left, uint32_t right)
{
	const struct merge *m = b->merges ? merge_place(b, left, right) : NULL;

	return m && m->left != NONE ? m : NULL;
}

/* Half of the places stay free. */
static int grow_merges(struct gpt_bpe *b)
{
	struct gpt_bpe old = *b;

	if (b->merges && 2 * (b->merge_count + 1) <= (size_t)1 << b->merge_bits)
		return 0;
	b->merge_bits = b->merges ? b->merge_bits + 1 : 10;
	b->merges = malloc(sizeof(*b->merges) << b->merge_bits);
	if (!b->merges) {
		b->merges = old.merges;
		b->merge_bits = old.merge_bits;
		return -1;
	}
	memset(b->merges, 0xff, sizeof(*b->merges) << b->merge_bits);
	for (size_t i = 0; old.merges && i < (size_t)1 << old.merge_bits; i++)
		if (old.merges[i].left != NONE)
			*merge_place(b, old.merges[i].left, old.merges[i].right) = old.merges[i];
	free(old.merges);
	return 0;
}

int gpt_bpe_add_merge(struct gpt_bpe *b, int left, int right)
{
	const struct token *l = &b->tokens[left], *r = &b->tokens[right];
	uint8_t *both = malloc(l->len_bytes + r->len_bytes + 1);
	int joined = -1;

	if (both && l->bytes && r->bytes) {
		memcpy(both, l->bytes, l->len_bytes);
		memcpy(both + l->len_bytes, r->bytes, r->len_bytes);
		joined = gpt_bpe_find(b, both, l->len_bytes + r->len_bytes);
	}
	free(both);
	if (joined < 0 || grow_merges(b))
		return -1;
	if (b->merge_count == b->rank_room) {
		const size_t room = b->rank_room ? 2 * b->rank_room : 1024;
		uint32_t(*grown)[2] = realloc(b->ranks, room * sizeof(*grown));

		if (!grown)
			return -1;
		b->ranks = grown;
		b->rank_room = room;
	}
	b->ranks[b->merge_count][0] = (uint32_t)left;
	b->ranks[b->merge_count][1] = (uint32_t)right;
	*merge_place(b, (uint32_t)left, (uint32_t)right) =
	        (struct merge){(uint32_t)left, (uint32_t)right, (uint32_t)b->merge_count, (uint32_t)joined};
	b->merge_count++;
	return 0;
}

int gpt_bpe_size(const struct gpt_bpe *b)
{
	return b->size;
}

bool gpt_bpe_splits(const struct gpt_bpe *b)
{
	return b->split;
}

int gpt_bpe_find(const struct gpt_bpe *b, const uint8_t *bytes, size_t len_bytes)
{
	const uint32_t id = *named(b, bytes, len_bytes);

	return id == NONE ? -1 : (int)id;
}

const uint8_t *gpt_bpe_bytes(const struct gpt_bpe *b, int token, size_t *len_bytes)
{
	*len_bytes = b->tokens[token].len_bytes;
	return b->tokens[token].bytes;
}

bool gpt_bpe_is_special(const struct gpt_bpe *b, int token)
{
	return b->tokens[token].special;
}

size_t gpt_bpe_merge_count(const struct gpt_bpe *b)
{
	return b->merge_count;
}

void gpt_bpe_merge(const struct gpt_bpe *b, size_t rank, int *left, int *right)
{
	*left = (int)b->ranks[rank][0];
	*right = (int)b->ranks[rank][1];
}

/* ---- One piece ------------------------------------------------------------------------------ */

/* The tokens of its bytes; those without one are left out. */
static size_t begin_piece(const struct gpt_bpe *b, const uint8_t *p, size_t n, uint32_t *ids)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		if (b->byte_token[p[i]] != NONE)
			ids[count++] = b->byte_token[p[i]];
	return count;
}

static void look_up(const struct gpt_bpe *b, const uint32_t *ids, size_t i, uint32_t *rank, uint32_t *into)
{
	const struct merge *m = merge_of(b, ids[i], ids[i + 1]);

	rank[i] = m ? m->rank : NONE;
	into[i] = m ? m->token : 0;
}

static size_t merge_small(const struct gpt_bpe *b, const uint8_t *p, size_t len_bytes, uint32_t *out)
{
	uint32_t ids[SMALL + 1], rank[SMALL + 1], into[SMALL + 1];
	size_t n = begin_piece(b, p, len_bytes, ids);

	for (size_t i = 0; i + 1 < n; i++)
		look_up(b, ids, i, rank, into);
	while (n > 1) {
		size_t at = 0;

		for (size_t i = 1; i + 1 < n; i++)
			at = rank[i] < rank[at] ? i : at;
		if (rank[at] == NONE)
			break;
		ids[at] = into[at];
		n--;
		memmove(ids + at + 1, ids + at + 2, (n - at - 1) * sizeof(*ids));
		memmove(rank + at, rank + at + 1, (n - at) * sizeof(*rank));
		memmove(into + at, into + at + 1, (n - at) * sizeof(*into));
		if (at + 1 < n)
			look_up(b, ids, at, rank, into);
		if (at)
			look_up(b, ids, at - 1, rank, into);
	}
	memcpy(out, ids, n * sizeof(*ids));
	return n;
}

/* A piece as a list of places: next of the last one is count. */
struct chain {
	uint32_t *ids;
	size_t *next, *prev, count;
};

/* By rank, then by place. False: no memory. */
static bool push_pair(const struct gpt_bpe *b, const struct chain *c, struct gpt_bpe_heap *h, size_t i)
{
	const struct merge *m = merge_of(b, c->ids[i], c->ids[c->next[i]]);

	return !m || gpt_bpe_push(h, (struct gpt_bpe_entry){m->rank, i});
}

/* Merge the pair at i, and note the pairs beside it. */
static bool merge_at(const struct gpt_bpe *b, struct chain *c, struct gpt_bpe_heap *h, size_t i, uint32_t token)
{
	const size_t other = c->next[i];

	c->ids[i] = token;
	c->ids[other] = NONE;
	c->next[i] = c->next[other];
	if (c->next[i] < c->count) {
		c->prev[c->next[i]] = i;
		if (!push_pair(b, c, h, i))
			return false;
	}
	return i == 0 || push_pair(b, c, h, c->prev[i]);
}

static bool merge_all(const struct gpt_bpe *b, struct chain *c, struct gpt_bpe_heap *h)
{
	for (size_t i = 0; i < c->count; i++) {
		c->next[i] = i + 1;
		c->prev[i] = i - 1;
		if (i + 1 < c->count && !push_pair(b, c, h, i))
			return false;
	}
	while (h->count) {
		const struct gpt_bpe_entry x = gpt_bpe_pop(h);
		const uint32_t left = b->ranks[x.first][0], right = b->ranks[x.first][1];
		const size_t i = x.second, other = c->next[i];

		/* Another merge took one of both. */
		if (c->ids[i] != left || other >= c->count || c->ids[other] != right)
			continue;
		if (!merge_at(b, c, h, i, merge_of(b, left, right)->token))
			return false;
	}
	return true;
}

static long merge_long(const struct gpt_bpe *b, const uint8_t *p, size_t n, uint32_t *out)
{
	struct chain c = {malloc(n * sizeof(*c.ids)), malloc(n * sizeof(*c.next)), malloc(n * sizeof(*c.prev)), 0};
	struct gpt_bpe_heap h = {0};
	long count = -1;

	if (c.ids && c.next && c.prev)
		c.count = begin_piece(b, p, n, c.ids);
	if (c.ids && c.next && c.prev && merge_all(b, &c, &h)) {
		count = 0;
		for (size_t i = 0; i < c.count; i = c.next[i])
			out[count++] = c.ids[i];
	}
	free(c.ids);
	free(c.next);
	free(c.prev);
	free(h.at);
	return count;
}

/* Without memory to keep it the piece is encoded all the same. */
static void keep(struct gpt_bpe *b, struct word *w, uint64_t hash, const uint8_t *p, size_t n, const uint32_t *ids,
                 size_t count)
{
	uint32_t *tokens = b->word_count < KEPT ? malloc((count + 1) * sizeof(*tokens)) : NULL;

	if (!tokens)
		return;
	memcpy(tokens, ids, count * sizeof(*ids));
	*w = (struct word){.hash = hash, .len_bytes = (uint32_t)n, .count = (uint32_t)count, .tokens = tokens};
	memcpy(w->bytes, p, n);
	b->word_count++;
}

static long encode_piece(struct gpt_bpe *b, const uint8_t *p, size_t n, uint32_t *out)
{
	struct word *w;
	uint64_t hash;
	size_t count;

	if (n > KEPT_BYTES)
		return n > SMALL ? merge_long(b, p, n, out) : (long)merge_small(b, p, n, out);
	hash = gpt_bpe_hash(p, n);
	for (size_t i = hash & (2 * KEPT - 1);; i = (i + 1) & (2 * KEPT - 1)) {
		w = &b->words[i];
		if (!w->len_bytes)
			break;
		if (w->hash == hash && w->len_bytes == n && !memcmp(w->bytes, p, n)) {
			memcpy(out, w->tokens, w->count * sizeof(*out));
			return (long)w->count;
		}
	}
	count = merge_small(b, p, n, out);
	keep(b, w, hash, p, n, out, count);
	return (long)count;
}

/* ---- A text ------------------------------------------------------------------------------------ */

static long encode_plain(struct gpt_bpe *b, const uint8_t *p, const uint8_t *end, int32_t *tokens)
{
	long count = 0;

	while (p < end) {
		const uint8_t *to = b->split ? gpt_bpe_piece_end(p, end) : end;
		const long n = encode_piece(b, p, (size_t)(to - p), (uint32_t *)tokens + count);

		if (n < 0)
			return -1;
		count += n;
		p = to;
	}
	return count;
}

/* The special token that stands at p; NONE: there is none. */
static uint32_t special_at(const struct gpt_bpe *b, const uint8_t *p, const uint8_t *end)
{
	for (size_t i = 0; i < b->special_count && b->begins[*p]; i++) {
		const struct token *t = &b->tokens[b->longest[i]];

		if (t->len_bytes <= (size_t)(end - p) && !memcmp(t->bytes, p, t->len_bytes))
			return b->longest[i];
	}
	return NONE;
}

long gpt_bpe_encode(struct gpt_bpe *b, const uint8_t *text, size_t len_bytes, bool special, int32_t *tokens)
{
	const uint8_t *end = text + len_bytes, *from = text;
	long count = 0, n;

	for (const uint8_t *p = text; p < end && special; p++) {
		const uint32_t id = special_at(b, p, end);

		if (id == NONE)
			continue;
		n = encode_plain(b, from, p, tokens + count);
		if (n < 0)
			return -1;
		count += n;
		tokens[count++] = (int32_t)id;
		from = p + b->tokens[id].len_bytes;
		p = from - 1;
	}
	n = encode_plain(b, from, end, tokens + count);
	return n < 0 ? -1 : count + n;
}
