#include "gpt/checkpoint.h"
#include "gpt/rng.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = "collgpt3";

struct header {
	char magic[8];
	uint32_t vocab_kind, vocab, context, layers, heads, width, tokens, arrays;
	uint64_t step, weight_count, signature, ranks, extra_bytes;
	uint8_t byte_of[256];
};

_Static_assert(sizeof(struct header) == 8 + 8 * 4 + 5 * 8 + 256, "the header is written as it lies in memory");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

/* Eight bytes at a time; the length is mixed in by the last, padded word. */
uint64_t gpt_checksum(uint64_t seed, const void *data, size_t len_bytes)
{
	const uint8_t *p = data;
	uint64_t h = gpt_mix(seed ^ len_bytes), word;

	for (; len_bytes >= sizeof(word); p += sizeof(word), len_bytes -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		h = (h ^ word) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	word = 0;
	memcpy(&word, p, len_bytes);
	return gpt_mix(h ^ word);
}

int gpt_write_all(int fd, const void *data, size_t len_bytes)
{
	const char *p = data;

	while (len_bytes) {
		ssize_t n = write(fd, p, len_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		p += n;
		len_bytes -= (size_t)n;
	}
	return 0;
}

/* As gpt_param_count(), which wraps around for shapes that only a forged file has. */
static double weights_of(const struct gpt_shape *s)
{
	const double c = s->width;

	return ((double)s->vocab + s->context + 2) * c + s->layers * (12 * c * c + 13 * c);
}

/* Does the header describe a model whose weights fill the rest of the file? */
static bool sound(const struct header *h, off_t file_bytes)
{
	const struct gpt_shape s = {(int)h->vocab, (int)h->context, (int)h->layers, (int)h->heads, (int)h->width};
	const uint32_t most = 1 << 20;

	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->vocab_kind > GPT_VOCAB_BYTE || h->tokens > 256 ||
	    h->tokens > h->vocab || (h->arrays != 1 && h->arrays != 3) || h->vocab > most || h->context > most ||
	    h->layers > most || h->heads > most || h->width > most)
		return false;
	return !gpt_shape_problem(&s) && weights_of(&s) <= (double)file_bytes &&
	       h->weight_count == gpt_param_count(&s) && h->extra_bytes < (uint64_t)file_bytes &&
	       (uint64_t)file_bytes ==
	               sizeof(*h) + h->arrays * h->weight_count * sizeof(float) + h->extra_bytes + sizeof(uint64_t);
}

/* All arrays, and what is extra, behind each other in memory of their own. */
static int read_file(FILE *f, struct header *h, float **arrays)
{
	struct stat st;
	uint64_t sum, want;
	size_t len_bytes;

	if (fstat(fileno(f), &st))
		return -1;
	errno = EILSEQ;
	if (fread(h, sizeof(*h), 1, f) != 1 || !sound(h, st.st_size))
		return -1;
	len_bytes = h->arrays * h->weight_count * sizeof(float) + h->extra_bytes;
	*arrays = malloc(len_bytes);
	if (!*arrays) {
		errno = ENOMEM;
		return -1;
	}
	want = gpt_checksum(0, h, sizeof(*h));
	if (fread(*arrays, 1, len_bytes, f) == len_bytes && fread(&sum, sizeof(sum), 1, f) == 1) {
		for (uint32_t i = 0; i < h->arrays; i++)
			want = gpt_checksum(want, *arrays + i * h->weight_count, h->weight_count * sizeof(float));
		want = gpt_checksum(want, *arrays + h->arrays * h->weight_count, h->extra_bytes);
		if (sum == want)
			return 0;
	}
	free(*arrays);
	errno = EILSEQ;
	return -1;
}

int gpt_checkpoint_read(const char *path, struct gpt_checkpoint *c)
{
	FILE *f = fopen(path, "re");
	float *arrays;
	struct header h;
	int rc;

	if (!f)
		return -1;
	rc = read_file(f, &h, &arrays);
	fclose(f);
	if (rc)
		return -1;
	c->shape = (struct gpt_shape){(int)h.vocab, (int)h.context, (int)h.layers, (int)h.heads, (int)h.width};
	gpt_tokenizer_init(&c->tokenizer, GPT_VOCAB_CHAR, h.byte_of, h.tokens);
	c->tokenizer.vocab = (enum gpt_vocab)h.vocab_kind;
	c->step = h.step;
	c->signature = h.signature;
	c->ranks = h.ranks;
	c->weights = arrays;
	c->m = h.arrays == 3 ? arrays + h.weight_count : NULL;
	c->v = h.arrays == 3 ? arrays + 2 * h.weight_count : NULL;
	c->extra = arrays + h.arrays * h.weight_count;
	c->extra_bytes = h.extra_bytes;
	return 0;
}

void gpt_checkpoint_free(struct gpt_checkpoint *c)
{
	free(c->weights);
	c->weights = c->m = c->v = NULL;
	c->extra = NULL;
}
