/*
 * Writing a model directory: every file into a directory aside, which then takes the name.
 */
#include "gpt/formats/file.h"
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include "gpt/formats/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

json_t *gpt_hf_config(const struct gpt_shape *s, int vocab, double dropout, bool half)
{
	return json_pack("{s:s, s:[s], s:f, s:n, s:f, s:n, s:f, s:f, s:s, s:i, s:i, s:i, s:n, s:i, s:i, s:f, s:b, s:b, "
	                 "s:s, s:b, "
	                 "s:i}",
	                 "activation_function", "gelu_new", "architectures", "GPT2LMHeadModel", "attn_pdrop", 0.0,
	                 "bos_token_id", "embd_pdrop", dropout, "eos_token_id", "initializer_range", 0.02,
	                 "layer_norm_epsilon", 1e-5, "model_type", "gpt2", "n_ctx", s->context, "n_embd", s->width,
	                 "n_head", s->heads, "n_inner", "n_layer", s->layers, "n_positions", s->context, "resid_pdrop",
	                 dropout, "scale_attn_weights", 1, "tie_word_embeddings", 1, "torch_dtype",
	                 half ? "bfloat16" : "float32", "use_cache", 1, "vocab_size", vocab);
}

/* Round to nearest, ties to even; NaN stays one. */
static uint16_t to_bf16(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, sizeof(bits));
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 64);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static int put_values(struct gpt_sink *sink, const float *x, size_t n, bool half)
{
	uint16_t narrow[4096];

	if (!half)
		return gpt_put(sink, x, n * sizeof(*x));
	for (size_t i = 0; i < n; i += 4096) {
		const size_t part = n - i < 4096 ? n - i : 4096;

		for (size_t k = 0; k < part; k++)
			narrow[k] = to_bf16(x[i + k]);
		if (gpt_put(sink, narrow, part * sizeof(*narrow)))
			return -1;
	}
	return 0;
}

/* The rows that the file has: of the token embedding those with tokens. */
static size_t rows_of(const struct gpt_tensor *t, int vocab)
{
	return strcmp(t->name, "wte") == 0 ? (size_t)vocab : t->rows;
}

static void describe(struct gpt_st_item *item, const struct gpt_tensor *t, int vocab, bool half)
{
	const bool transposed = gpt_hf_name(t->name, item->name, sizeof(item->name));
	const size_t rows = rows_of(t, vocab), columns = t->count / t->rows;
	const bool matrix = t->rows > 1 || strcmp(t->name, "wpe") == 0;

	item->dtype = half ? GPT_BF16 : GPT_F32;
	item->dims = matrix ? 2 : 1;
	item->shape[0] = !matrix || transposed ? columns : rows;
	item->shape[1] = transposed ? rows : columns;
}

struct writing {
	const struct gpt_tensor *tensors;
	int count;
	int vocab;
	bool half;
	const float *weights;
	struct gpt_st_item *items;
	float *turned; /* room for the largest that is transposed */
};

static int put_tensors(struct gpt_sink *sink, const struct writing *w)
{
	char name[64];

	for (int i = 0; i < w->count; i++) {
		const struct gpt_tensor *t = &w->tensors[i];
		const size_t columns = t->count / t->rows;
		const float *x = w->weights + t->offset;

		if (gpt_hf_name(t->name, name, sizeof(name))) {
			gpt_transpose(w->turned, x, t->rows, columns);
			x = w->turned;
		}
		if (put_values(sink, x, rows_of(t, w->vocab) * columns, w->half))
			return -1;
	}
	return 0;
}

static int write_tensors(const char *path, const struct gpt_hf *hf, const float *weights, bool half)
{
	const size_t width = (size_t)hf->shape.width;
	struct writing w = {.vocab = hf->tokenizer.size, .half = half, .weights = weights};
	struct gpt_tensor *tensors = gpt_shape_tensors(&hf->shape, &w.count);
	struct gpt_file f;
	int rc = -1;

	if (!hf->has_tokenizer)
		w.vocab = hf->shape.vocab;
	w.tensors = tensors;
	w.items = calloc((size_t)w.count, sizeof(*w.items));
	w.turned = malloc(4 * width * width * sizeof(*w.turned));
	errno = ENOMEM;
	if (tensors && w.items && w.turned && gpt_file_create(&f, path) == 0) {
		for (int i = 0; i < w.count; i++)
			describe(&w.items[i], &tensors[i], w.vocab, half);
		rc = gpt_file_close(&f,
		                    !gpt_st_put_header(&f.sink, w.items, (size_t)w.count) && !put_tensors(&f.sink, &w));
	}
	free(w.turned);
	free(w.items);
	free(tensors);
	return rc;
}

static int write_text(const char *directory, const char *name, char *text)
{
	char path[GPT_PATH_MAX];
	struct gpt_file f;
	int rc = -1;

	errno = ENOMEM;
	if (text && gpt_path(path, directory, name) == 0 && gpt_file_create(&f, path) == 0)
		rc = gpt_file_close(&f, !gpt_put(&f.sink, text, strlen(text)));
	free(text);
	return rc;
}

static int write_files(const char *part, const struct gpt_hf *hf, const float *weights, bool half)
{
	const int vocab = hf->has_tokenizer ? hf->tokenizer.size : hf->shape.vocab;
	char path[GPT_PATH_MAX];

	if (gpt_path(path, part, "model.safetensors") || write_tensors(path, hf, weights, half) ||
	    write_text(part, "config.json", gpt_json_text(gpt_hf_config(&hf->shape, vocab, hf->dropout, half))) ||
	    write_text(part, "generation_config.json",
	               gpt_json_text(
	                       json_pack("{s:b, s:n, s:n}", "_from_model_config", 1, "bos_token_id", "eos_token_id"))))
		return -1;
	if (!hf->has_tokenizer)
		return 0;
	return write_text(part, "tokenizer.json", gpt_hf_tokenizer_text(&hf->tokenizer)) ||
	                       write_text(
	                               part, "tokenizer_config.json",
	                               gpt_json_text(json_pack("{s:s, s:i, s:b}", "tokenizer_class",
	                                                       "PreTrainedTokenizerFast", "model_max_length",
	                                                       hf->shape.context, "clean_up_tokenization_spaces", 0)))
	               ? -1
	               : 0;
}

int gpt_hf_write(const char *directory, const struct gpt_hf *hf, const float *weights, bool half)
{
	char part[GPT_PATH_MAX];
	int cause;

	if ((size_t)snprintf(part, sizeof(part), "%s.part-%ld", directory, (long)getpid()) >= sizeof(part)) {
		errno = ENAMETOOLONG;
		return -1;
	}
	if (mkdir(part, 0777) && errno != EEXIST)
		return -1;
	if (write_files(part, hf, weights, half) == 0 && gpt_directory_replace(part, directory) == 0)
		return 0;
	cause = errno;
	gpt_directory_remove(part);
	errno = cause;
	return -1;
}
