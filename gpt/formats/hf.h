/*
 * Models as Hugging Face's GPT-2 keeps them: a directory with config.json, model.safetensors and a tokenizer.
 *
 * Weights of products are stored [in][out] there and [out][in] here. What such a directory may have and this model has
 * not (another architecture, activation, epsilon) is refused by name.
 */
#ifndef GPT_FORMATS_HF_H
#define GPT_FORMATS_HF_H

#include "gpt/model.h"
#include "gpt/tokenizer.h"
#include <jansson.h>

struct gpt_hf {
	struct gpt_shape shape;
	struct gpt_tokenizer tokenizer;
	bool has_tokenizer;
	double dropout;
	float *weights; /* in arena order, gpt_param_count(&shape); free() them */
};

/* 0, or -1 with a sentence in why. weights false: shape and tokenizer alone. */
int gpt_hf_read(const char *directory, bool weights, struct gpt_hf *hf, char *why, size_t why_bytes);

/* Is this such a directory, or will reading say what is wrong with it? False: it is a file. */
bool gpt_hf_is_directory(const char *path);

/*
 * Write the model to directory, whole or not at all; one that is there is replaced. The rows of the token embedding
 * that the tokenizer has no tokens for are left out. half: as BF16. -1 with errno.
 */
int gpt_hf_write(const char *directory, const struct gpt_hf *hf, const float *weights, bool half);

/* The contents of config.json for a vocabulary of so many tokens; NULL: no memory. */
json_t *gpt_hf_config(const struct gpt_shape *shape, int vocab, double dropout, bool half);

/* hf_names.c: what the tensor of ours is called there, and whether it is transposed. */
bool gpt_hf_name(const char *ours, char *theirs, size_t len_bytes);
/* to[c][r] = from[r][c]. */
void gpt_transpose(float *to, const float *from, size_t rows, size_t columns);

/* hf_tokenizer.c: the text of tokenizer.json; NULL: no memory. Its CRC-32C stands for the tokenizer. */
char *gpt_hf_tokenizer_text(const struct gpt_tokenizer *t);
uint32_t gpt_hf_tokenizer_crc32c(const struct gpt_tokenizer *t);
/* Such a text; path names it in the reason. gpt_tokenizer_free() what it gives. */
int gpt_hf_parse_tokenizer(const char *path, const char *text, size_t len_bytes, struct gpt_tokenizer *t, char *why,
                           size_t why_bytes);
/* The tokenizer of directory (tokenizer.json, or vocab.json and merges.txt), or of a file like the first; 1: there is
 * none; -1 with the reason in why. */
int gpt_hf_read_tokenizer(const char *directory, struct gpt_tokenizer *t, char *why, size_t why_bytes);

#endif
