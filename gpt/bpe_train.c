/*
 * Learning merges. Equal pieces are counted once; a merge visits the pieces that hold its pair and changes the counts
 * of the pairs beside it. A heap gives the most frequent pair: an entry whose count is no longer true goes back with
 * the true one.
 */
#include "gpt/bpe.h"
#include "gpt/bpe_heap.h"
#include "gpt/bpe_inner.h"
#include <stdlib.h>

#define BYTES 256

struct piece {
	const uint8_t *text;
	uint32_t len_bytes, count; /* count: tokens */
	uint64_t times, hash;
	uint32_t *ids;
};

struct pair {
	uint64_t key; /* left << 32 | right */
	uint64_t times;
	uint32_t *pieces; /* those that hold it, or held it once */
	uint32_t count, room;
};

struct training {
	struct piece *pieces;
	size_t piece_count, piece_room;
	struct pair *pairs; /* open addressing; free: key UINT64_MAX */
	size_t pair_count, pair_room;
	struct gpt_bpe_heap heap;
	bool failed; /* memory */
};

/* ---- Pieces ------------------------------------------------------------------------- */

static struct piece *piece_place(struct piece *in, size_t room, const uint8_t *p, size_t n, uint64_t hash)
{
	size_t i = hash & (room - 1);

	while (in[i].text && (in[i].hash != hash || in[i].len_bytes != n || memcmp(in[i].text, p, n) != 0))
		i = (i + 1) & (room - 1);
	return &in[i];
}

static bool grow_pieces(struct training *t)
{
	const size_t room = t->piece_room ? 2 * t->piece_room : 1 << 12;
	struct piece *grown;

	if (2 * t->piece_count < t->piece_room)
		return true;
	grown = calloc(room, sizeof(*grown));
	for (size_t i = 0; grown && i < t->piece_room; i++)
		if (t->pieces[i].text)
			*piece_place(grown, room, t->pieces[i].text, t->pieces[i].len_bytes, t->pieces[i].hash) =
			        t->pieces[i];
	if (!grown)
		return false;
	free(t->pieces);
	t->pieces = grown;
	t->piece_room = room;
	return true;
}

/* Pieces longer than 2^31 bytes cannot be: callers refuse such texts. */
static void count_pieces(struct training *t, const uint8_t *p, const uint8_t *end)
{
	while (p < end && !t->failed) {
		const uint8_t *to = gpt_bpe_piece_end(p, end);
		const size_t n = (size_t)(to - p);
		const uint64_t hash = gpt_bpe_hash(p, n);
		struct piece *piece;

		if (!grow_pieces(t)) {
			t->failed = true;
			return;
		}
		piece = piece_place(t->pieces, t->piece_room, p, n, hash);
		if (!piece->text) {
			*piece = (struct piece){.text = p, .len_bytes = (uint32_t)n, .hash = hash};
			t->piece_count++;
		}
		piece->times++;
		p = to;
	}
}

static int by_text(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	return x->text < y->text ? -1 : x->text > y->text;
}

/* From now on a plain list, in the order of the text. */
static void list_pieces(struct training *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->piece_room; i++)
		if (t->pieces[i].text)
			t->pieces[n++] = t->pieces[i];
	qsort(t->pieces, n, sizeof(*t->pieces), by_text);
	for (size_t i = 0; i < n && !t->failed; i++) {
		struct piece *p = &t->pieces[i];

		p->count = p->len_bytes;
		p->ids = malloc(p->len_bytes * sizeof(*p->ids));
		t->failed = !p->ids;
		for (uint32_t k = 0; p->ids && k < p->len_bytes; k++)
			p->ids[k] = p->text[k];
	}
}

/* ---- Pairs ---------------------------------------------------------------------------- */

static uint64_t key_of(uint32_t left, uint32_t right)
{
	return (uint64_t)left << 32 | right;
}

static struct pair *pair_place(struct pair *in, size_t room, uint64_t key)
{
	size_t i = gpt_bpe_mix(key) & (room - 1);

	while (in[i].key != UINT64_MAX && in[i].key != key)
		i = (i + 1) & (room - 1);
	return &in[i];
}

static bool grow_pairs(struct training *t)
{
	const size_t room = t->pair_room ? 2 * t->pair_room : 1 << 12;
	struct pair *grown;

	if (2 * t->pair_count < t->pair_room)
		return true;
	grown = calloc(room, sizeof(*grown));
	for (size_t i = 0; grown && i < room; i++)
		grown[i].key = UINT64_MAX;
	for (size_t i = 0; grown && i < t->pair_room; i++)
		if (t->pairs[i].key != UINT64_MAX)
			*pair_place(grown, room, t->pairs[i].key) = t->pairs[i];
	if (!grown)
		return false;
	free(t->pairs);
	t->pairs = grown;
	t->pair_room = room;
	return true;
}

/* The most frequent first, then the smaller pair. */
static void push(struct training *t, uint64_t times, uint64_t key)
{
	t->failed |= !gpt_bpe_push(&t->heap, (struct gpt_bpe_entry){UINT64_MAX - times, key});
}

/* The pair stands once more in a piece. */
static void add_pair(struct training *t, uint64_t key, uint32_t piece)
{
	struct pair *p;

	if (!grow_pairs(t)) {
		t->failed = true;
		return;
	}
	p = pair_place(t->pairs, t->pair_room, key);
	if (p->key == UINT64_MAX) {
		p->key = key;
		t->pair_count++;
	}
	p->times += t->pieces[piece].times;
	if (p->count && p->pieces[p->count - 1] == piece)
		return;
	if (p->count == p->room) {
		const uint32_t room = p->room ? 2 * p->room : 4;
		uint32_t *grown = realloc(p->pieces, room * sizeof(*grown));

		if (!grown) {
			t->failed = true;
			return;
		}
		p->pieces = grown;
		p->room = room;
	}
	p->pieces[p->count++] = piece;
}

static void remove_pair(struct training *t, uint64_t key, uint32_t piece)
{
	pair_place(t->pairs, t->pair_room, key)->times -= t->pieces[piece].times;
}

static void count_pairs(struct training *t)
{
	for (size_t i = 0; i < t->piece_count && !t->failed; i++)
		for (uint32_t k = 0; k + 1 < t->pieces[i].count && !t->failed; k++)
			add_pair(t, key_of(t->pieces[i].ids[k], t->pieces[i].ids[k + 1]), (uint32_t)i);
	for (size_t i = 0; i < t->pair_room && !t->failed; i++)
		if (t->pairs[i].key != UINT64_MAX)
			push(t, t->pairs[i].times, t->pairs[i].key);
}

/* ---- Merging ------------------------------------------------------------------------------- */

static void add_joined(struct training *t, uint64_t key, uint32_t piece)
{
	add_pair(t, key, piece);
	if (!t->failed)
		push(t, pair_place(t->pairs, t->pair_room, key)->times, key);
}

/* Everywhere in a piece, from its beginning; only the pairs beside a merge change. */
static void merge_in(struct training *t, uint32_t index, uint32_t left, uint32_t right, uint32_t joined)
{
	struct piece *p = &t->pieces[index];
	uint32_t n = 0;

	for (uint32_t k = 0; k < p->count && !t->failed; n++) {
		if (k + 1 == p->count || p->ids[k] != left || p->ids[k + 1] != right) {
			p->ids[n] = p->ids[k++];
			continue;
		}
		if (n > 0) {
			remove_pair(t, key_of(p->ids[n - 1], left), index);
			add_joined(t, key_of(p->ids[n - 1], joined), index);
		}
		if (k + 2 < p->count && !t->failed) {
			remove_pair(t, key_of(right, p->ids[k + 2]), index);
			add_joined(t, key_of(joined, p->ids[k + 2]), index);
		}
		p->ids[n] = joined;
		k += 2;
	}
	p->count = n;
}

/* The most frequent pair; false: there is none. Counts only fall after an entry was made, but for pairs of a new token,
 * which get one for each change. */
static bool most_frequent(struct training *t, uint64_t *key)
{
	while (t->heap.count) {
		const struct gpt_bpe_entry e = gpt_bpe_pop(&t->heap);
		const uint64_t was = UINT64_MAX - e.first, times = pair_place(t->pairs, t->pair_room, e.second)->times;

		if (times == was && times > 0) {
			*key = e.second;
			return true;
		}
		if (times > 0 && times < was)
			push(t, times, e.second);
	}
	return false;
}

/* The token that has the bytes of both: another pair may have made it, else it is the next one. -1: no memory. */
static int join(struct gpt_bpe *b, int left, int right, int next)
{
	size_t nl, nr;
	const uint8_t *l = gpt_bpe_bytes(b, left, &nl), *r = gpt_bpe_bytes(b, right, &nr);
	uint8_t *both = malloc(nl + nr);
	int token = -1;

	if (!both)
		return -1;
	memcpy(both, l, nl);
	memcpy(both + nl, r, nr);
	token = gpt_bpe_find(b, both, nl + nr);
	if (token < 0 && gpt_bpe_set(b, next, both, nl + nr, false) == 0)
		token = next;
	free(both);
	return token;
}

/* Returns the tokens that b has then. */
static int learn(struct training *t, struct gpt_bpe *b, int size)
{
	int next = BYTES;
	uint64_t key;

	while (next < size && !t->failed && most_frequent(t, &key)) {
		const uint32_t left = (uint32_t)(key >> 32), right = (uint32_t)key;
		const int token = join(b, (int)left, (int)right, next);
		struct pair *place = pair_place(t->pairs, t->pair_room, key), p = *place;

		if (token < 0 || gpt_bpe_add_merge(b, (int)left, (int)right)) {
			t->failed = true;
			break;
		}
		/* Its list is ours from here on: the table may move. */
		place->pieces = NULL;
		place->count = place->room = 0;
		for (uint32_t i = 0; i < p.count && !t->failed; i++)
			merge_in(t, p.pieces[i], left, right, (uint32_t)token);
		place = pair_place(t->pairs, t->pair_room, key);
		place->times = 0;
		free(p.pieces);
		next += token == next;
	}
	return next;
}

static void end_training(struct training *t)
{
	for (size_t i = 0; i < t->piece_count && t->pieces; i++)
		free(t->pieces[i].ids);
	for (size_t i = 0; i < t->pair_room; i++)
		free(t->pairs[i].pieces);
	free(t->pieces);
	free(t->pairs);
	free(t->heap.at);
}

/* The same with fewer tokens. */
static struct gpt_bpe *shrunk(struct gpt_bpe *from, int size)
{
	struct gpt_bpe *b = gpt_bpe_open(size, true);
	int left, right, rc = b ? 0 : -1;
	size_t n;

	for (int i = 0; i < size && !rc; i++) {
		const uint8_t *bytes = gpt_bpe_bytes(from, i, &n);

		rc = bytes ? gpt_bpe_set(b, i, bytes, n, false) : 0;
	}
	for (size_t i = 0; i < gpt_bpe_merge_count(from) && !rc; i++) {
		gpt_bpe_merge(from, i, &left, &right);
		rc = gpt_bpe_add_merge(b, left, right);
	}
	if (rc)
		gpt_bpe_close(&b);
	gpt_bpe_close(&from);
	return b;
}

struct gpt_bpe *gpt_bpe_train(const uint8_t *text, size_t len_bytes, int size, const char *end)
{
	struct training t = {0};
	struct gpt_bpe *b = gpt_bpe_open(size, true);
	int have = 0;

	for (int i = 0; b && i < BYTES; i++)
		t.failed |= gpt_bpe_set(b, i, &(uint8_t){(uint8_t)i}, 1, false) != 0;
	if (b && !t.failed)
		count_pieces(&t, text, text + len_bytes);
	if (b && !t.failed)
		list_pieces(&t);
	if (b && !t.failed)
		count_pairs(&t);
	if (b && !t.failed)
		have = learn(&t, b, size - (end != NULL)) + (end != NULL);
	end_training(&t);
	if (t.failed)
		gpt_bpe_close(&b);
	if (b && have < size)
		b = shrunk(b, have);
	if (b && end && gpt_bpe_set(b, have - 1, (const uint8_t *)end, strlen(end), true))
		gpt_bpe_close(&b);
	return b;
}
