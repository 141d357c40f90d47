/*
 * Reading a model directory: config.json says what the model is, the tensors are found by name, in one file or in
 * shards.
 */
#include "gpt/formats/hf.h"
#include "gpt/formats/json.h"
#include "gpt/formats/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_MAX (16 << 20)
#define SHARDS     256

struct reading {
	const char *directory;
	char path[GPT_PATH_MAX]; /* of the file that is being read */
	char *why;
	size_t why_bytes;
};

#define refuse(r, ...) gpt_explain((r)->why, (r)->why_bytes, (r)->path, __VA_ARGS__)

bool gpt_hf_is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- config.json ----------------------------------------------------------- */

static int get_size(struct reading *r, const json_t *config, const char *key, int otherwise, int *x)
{
	const json_t *value = json_object_get(config, key);
	const json_int_t n = json_integer_value(value);

	*x = otherwise;
	if (!value)
		return 0;
	if (!json_is_integer(value) || n < 1 || n > 1 << 20)
		return refuse(r, "%s must be a whole number from 1 to %d", key, 1 << 20);
	*x = (int)n;
	return 0;
}

static bool is_one_of(const json_t *value, const char *a, const char *b)
{
	const char *text = json_string_value(value);

	return !value || (text && (strcmp(text, a) == 0 || strcmp(text, b) == 0));
}

static int check_kind(struct reading *r, const json_t *config, int width)
{
	static const char *const off[] = {"scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn",
	                                  "add_cross_attention"};
	const json_t *model = json_object_get(config, "model_type"), *inner = json_object_get(config, "n_inner");
	const json_t *epsilon = json_object_get(config, "layer_norm_epsilon");
	const double difference = json_number_value(epsilon) - 1e-5;

	if (!model || !is_one_of(model, "gpt2", "gpt2"))
		return refuse(r, "model_type must be gpt2, not %s",
		              model && json_is_string(model) ? json_string_value(model) : "absent");
	if (!is_one_of(json_object_get(config, "activation_function"), "gelu_new", "gelu_pytorch_tanh"))
		return refuse(r, "activation_function must be gelu_new or gelu_pytorch_tanh");
	if (inner && !json_is_null(inner) && json_integer_value(inner) != 4 * (json_int_t)width)
		return refuse(r, "n_inner must be null or four times n_embd");
	if (epsilon && (difference > 1e-12 || difference < -1e-12))
		return refuse(r, "layer_norm_epsilon must be 1e-5");
	for (size_t i = 0; i < sizeof(off) / sizeof(*off); i++)
		if (json_is_true(json_object_get(config, off[i])))
			return refuse(r, "%s must be false", off[i]);
	if (json_is_false(json_object_get(config, "scale_attn_weights")) ||
	    json_is_false(json_object_get(config, "tie_word_embeddings")))
		return refuse(r, "scale_attn_weights and tie_word_embeddings must be true");
	return 0;
}

static int read_config(struct reading *r, struct gpt_hf *hf)
{
	struct gpt_shape *s = &hf->shape;
	const char *problem;
	json_t *config;
	int rc;

	if (gpt_path(r->path, r->directory, "config.json"))
		return gpt_explain(r->why, r->why_bytes, r->directory, "the name is too long");
	config = gpt_json_read(r->path, CONFIG_MAX, r->why, r->why_bytes);
	if (!config)
		return -1;
	rc = get_size(r, config, "vocab_size", 50257, &s->vocab) ||
	     get_size(r, config, "n_positions", 1024, &s->context) || get_size(r, config, "n_layer", 12, &s->layers) ||
	     get_size(r, config, "n_head", 12, &s->heads) || get_size(r, config, "n_embd", 768, &s->width) ||
	     check_kind(r, config, s->width);
	hf->dropout = json_number_value(json_object_get(config, "resid_pdrop"));
	problem = rc ? NULL : gpt_shape_problem(s);
	if (problem)
		rc = refuse(r, "%s", problem);
	json_decref(config);
	return rc ? -1 : 0;
}

/* ---- Tensors ----------------------------------------------------------------- */

struct shards {
	struct gpt_st st[SHARDS];
	char name[SHARDS][64]; /* of the file */
	size_t count;
};

static int open_shard(struct reading *r, struct shards *s, const char *name)
{
	for (size_t i = 0; i < s->count; i++)
		if (strcmp(s->name[i], name) == 0)
			return 0;
	if (s->count == SHARDS || strlen(name) >= sizeof(s->name[0]) || strchr(name, '/'))
		return refuse(r, "weight_map: too many files, or a strange name: %.80s", name);
	if (gpt_path(r->path, r->directory, name))
		return gpt_explain(r->why, r->why_bytes, r->directory, "the name is too long");
	if (gpt_st_open(&s->st[s->count], r->path, r->why, r->why_bytes))
		return -1;
	snprintf(s->name[s->count++], sizeof(s->name[0]), "%s", name);
	return 0;
}

/* model.safetensors, or the files of the index. */
static int open_shards(struct reading *r, struct shards *s)
{
	struct stat st;
	json_t *index, *file;
	const char *key;
	int rc = 0;

	if (gpt_path(r->path, r->directory, "model.safetensors") == 0 && stat(r->path, &st) == 0)
		return open_shard(r, s, "model.safetensors");
	gpt_path(r->path, r->directory, "model.safetensors.index.json");
	if (stat(r->path, &st))
		return gpt_explain(r->why, r->why_bytes, r->directory, "has neither model.safetensors nor its index");
	index = gpt_json_read(r->path, CONFIG_MAX, r->why, r->why_bytes);
	if (!index)
		return -1;
	if (!json_object_size(json_object_get(index, "weight_map")))
		rc = refuse(r, "has no weight_map");
	json_object_foreach(json_object_get(index, "weight_map"), key, file)
	{
		gpt_path(r->path, r->directory, "model.safetensors.index.json");
		if (!rc && !json_is_string(file))
			rc = refuse(r, "weight_map: %.80s names no file", key);
		if (!rc)
			rc = open_shard(r, s, json_string_value(file));
	}
	json_decref(index);
	return rc;
}

/* With or without the prefix. */
static const struct gpt_st_tensor *find(const struct shards *s, const char *name, const struct gpt_st **st)
{
	const char *bare = strncmp(name, "transformer.", 12) == 0 ? name + 12 : name;

	for (size_t i = 0; i < s->count; i++) {
		const struct gpt_st_tensor *t = gpt_st_find(&s->st[i], name);

		*st = &s->st[i];
		if (t || (t = gpt_st_find(&s->st[i], bare)))
			return t;
	}
	return NULL;
}

static int read_tensor(struct reading *r, const struct shards *s, const struct gpt_tensor *t, float *weights)
{
	char name[64];
	const bool turned = gpt_hf_name(t->name, name, sizeof(name));
	const bool matrix = t->rows > 1 || strcmp(t->name, "wpe") == 0;
	const uint64_t rows = t->rows, columns = t->count / t->rows;
	const struct gpt_st *st;
	const struct gpt_st_tensor *found = find(s, name, &st);
	float *other;
	int rc;

	if (!found)
		return gpt_explain(r->why, r->why_bytes, r->directory, "has no tensor %s", name);
	snprintf(r->path, sizeof(r->path), "%s", st->path);
	if (found->dtype == GPT_OTHER || found->dtype == GPT_U8)
		return refuse(r, "tensor %s: %s is not read, only F32, F16 and BF16", name, found->type);
	if (found->dims != (matrix ? 2 : 1) || found->shape[0] != (!matrix || turned ? columns : rows) ||
	    (matrix && found->shape[1] != (turned ? rows : columns)))
		return refuse(r, "tensor %s: its shape does not fit config.json", name);
	other = turned ? malloc(t->count * sizeof(*other)) : NULL;
	if (turned && !other)
		return refuse(r, "not enough memory");
	rc = gpt_st_read(st, found, 0, t->count, turned ? other : weights + t->offset);
	if (rc)
		refuse(r, "%s", strerror(errno));
	else if (turned)
		gpt_transpose(weights + t->offset, other, columns, rows);
	free(other);
	return rc;
}

/* A head of its own must be the token embedding. */
static int check_head(struct reading *r, const struct shards *s, const struct gpt_tensor *wte, const float *weights)
{
	const struct gpt_st *st;
	const struct gpt_st_tensor *head = find(s, "lm_head.weight", &st);
	float *x;
	int rc = 0;

	if (!head)
		return 0;
	snprintf(r->path, sizeof(r->path), "%s", st->path);
	if (head->dtype == GPT_OTHER || head->dtype == GPT_U8 || gpt_st_count(head) != wte->count)
		return refuse(r, "the head is not tied: lm_head.weight is not wte.weight");
	x = malloc(wte->count * sizeof(*x));
	if (!x)
		return refuse(r, "not enough memory");
	if (gpt_st_read(st, head, 0, wte->count, x))
		rc = refuse(r, "%s", strerror(errno));
	else if (memcmp(x, weights + wte->offset, wte->count * sizeof(*x)) != 0)
		rc = refuse(r, "the head is not tied: lm_head.weight is not wte.weight");
	free(x);
	return rc;
}

/* Before memory is taken for what config.json promises: as gpt_param_count(), which wraps around for sizes that only a
 * forged file has. */
static bool holds(const struct shards *s, const struct gpt_shape *shape)
{
	const double c = shape->width,
	             weights = ((double)shape->vocab + shape->context + 2) * c + shape->layers * (12 * c * c + 13 * c);
	double len_bytes = 0;

	for (size_t i = 0; i < s->count; i++)
		len_bytes += s->st[i].count ? (double)s->st[i].tensors[s->st[i].count - 1].to : 0;
	return len_bytes >= 2 * weights;
}

static int read_tensors(struct reading *r, const struct shards *s, struct gpt_hf *hf)
{
	int count, rc = 0;
	struct gpt_tensor *tensors;

	if (!holds(s, &hf->shape))
		return gpt_explain(r->why, r->why_bytes, r->directory, "has fewer weights than config.json says");
	tensors = gpt_shape_tensors(&hf->shape, &count);
	hf->weights = malloc(gpt_param_count(&hf->shape) * sizeof(*hf->weights));
	if (!tensors || !hf->weights)
		rc = refuse(r, "not enough memory for the model");
	for (int i = 0; i < count && !rc; i++)
		rc = read_tensor(r, s, &tensors[i], hf->weights);
	if (!rc)
		rc = check_head(r, s, &tensors[count - 1], hf->weights);
	free(tensors);
	if (rc) {
		free(hf->weights);
		hf->weights = NULL;
	}
	return rc;
}

int gpt_hf_read(const char *directory, bool weights, struct gpt_hf *hf, char *why, size_t why_bytes)
{
	struct reading r = {.directory = directory, .why = why, .why_bytes = why_bytes};
	struct shards *s;
	int tokenizer, rc;

	*hf = (struct gpt_hf){0};
	if (read_config(&r, hf) || (tokenizer = gpt_hf_read_tokenizer(directory, &hf->tokenizer, why, why_bytes)) < 0)
		return -1;
	hf->has_tokenizer = tokenizer == 0;
	if (hf->has_tokenizer && hf->tokenizer.size > hf->shape.vocab)
		return refuse(&r, "vocab_size is %d, and the tokenizer has %d tokens", hf->shape.vocab,
		              hf->tokenizer.size);
	if (!weights)
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return refuse(&r, "not enough memory");
	rc = open_shards(&r, s) || read_tensors(&r, s, hf) ? -1 : 0;
	for (size_t i = 0; i < s->count; i++)
		gpt_st_close(&s->st[i]);
	free(s);
	return rc;
}
