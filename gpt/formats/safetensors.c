/*
 * Reading safetensors: the header is parsed by jansson and checked against the file before any of the data is read.
 */
#include "gpt/formats/safetensors.h"
#include "gpt/formats/json.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX 100000000

/* All that the format has; bits of an element. */
static const struct {
	const char *name;
	unsigned bits;
	enum gpt_dtype dtype;
} types[] = {
        {"F32", 32, GPT_F32},          {"F16", 16, GPT_F16},
        {"BF16", 16, GPT_BF16},        {"U8", 8, GPT_U8},
        {"BOOL", 8, GPT_OTHER},        {"I8", 8, GPT_OTHER},
        {"F8_E5M2", 8, GPT_OTHER},     {"F8_E4M3", 8, GPT_OTHER},
        {"F8_E8M0", 8, GPT_OTHER},     {"F6_E2M3", 6, GPT_OTHER},
        {"F6_E3M2", 6, GPT_OTHER},     {"F4", 4, GPT_OTHER},
        {"I16", 16, GPT_OTHER},        {"U16", 16, GPT_OTHER},
        {"I32", 32, GPT_OTHER},        {"U32", 32, GPT_OTHER},
        {"F64", 64, GPT_OTHER},        {"I64", 64, GPT_OTHER},
        {"U64", 64, GPT_OTHER},        {"C64", 64, GPT_OTHER},
        {"F8_E5M2FNUZ", 8, GPT_OTHER}, {"F8_E4M3FNUZ", 8, GPT_OTHER},
};

#define TYPE_COUNT (sizeof(types) / sizeof(*types))

struct reading {
	struct gpt_st *st;
	char *why;
	size_t why_bytes;
};

#define refuse(r, ...) gpt_explain((r)->why, (r)->why_bytes, (r)->st->path, __VA_ARGS__)

/* A whole number that is not negative. */
static bool whole(const json_t *value, uint64_t *x)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return false;
	*x = (uint64_t)json_integer_value(value);
	return true;
}

/* Elements of the shape; false: a number that is none, or too many. */
static bool read_shape(const json_t *shape, struct gpt_st_tensor *t, uint64_t *count)
{
	size_t i;
	json_t *value;

	if (!json_is_array(shape))
		return false;
	*count = 1;
	t->dims = (int)json_array_size(shape);
	json_array_foreach(shape, i, value)
	{
		uint64_t n;

		if (!whole(value, &n) || __builtin_mul_overflow(*count, n, count))
			return false;
		if (i < 2)
			t->shape[i] = n;
	}
	return true;
}

static int read_entry(const struct reading *r, struct gpt_st_tensor *t, const json_t *entry)
{
	const char *type = json_string_value(json_object_get(entry, "dtype"));
	const json_t *offsets = json_object_get(entry, "data_offsets");
	uint64_t count, bits;
	size_t k = 0;

	if (!json_is_object(entry) || !type || json_array_size(offsets) != 2)
		return refuse(r, "tensor %s: needs dtype, shape and two data_offsets", t->name);
	while (k < TYPE_COUNT && strcmp(types[k].name, type) != 0)
		k++;
	if (k == TYPE_COUNT)
		return refuse(r, "tensor %s: unknown dtype %.40s", t->name, type);
	t->dtype = types[k].dtype;
	snprintf(t->type, sizeof(t->type), "%s", type);
	if (!read_shape(json_object_get(entry, "shape"), t, &count))
		return refuse(r, "tensor %s: the shape must be a list of whole numbers", t->name);
	if (!whole(json_array_get(offsets, 0), &t->from) || !whole(json_array_get(offsets, 1), &t->to) ||
	    t->to < t->from)
		return refuse(r, "tensor %s: the data_offsets must be two whole numbers in order", t->name);
	if (__builtin_mul_overflow(count, (uint64_t)types[k].bits, &bits) || bits % 8 || bits / 8 != t->to - t->from)
		return refuse(r, "tensor %s: %llu bytes do not fit its shape", t->name,
		              (unsigned long long)(t->to - t->from));
	return 0;
}

static int check_metadata(const struct reading *r, json_t *metadata)
{
	const char *key;
	json_t *value;

	if (json_is_null(metadata))
		return 0;
	if (!json_is_object(metadata))
		return refuse(r, "__metadata__ must be an object of strings");
	json_object_foreach(metadata, key, value) if (!json_is_string(value)) return refuse(
	        r, "__metadata__: %.80s is no string", key);
	return 0;
}

static int read_entries(const struct reading *r, json_t *root)
{
	struct gpt_st *st = r->st;
	const char *key;
	json_t *value;

	if (!json_is_object(root))
		return refuse(r, "byte 8: the header is no JSON object");
	st->tensors = calloc(json_object_size(root) + 1, sizeof(*st->tensors));
	if (!st->tensors)
		return refuse(r, "not enough memory for the header");
	json_object_foreach(root, key, value)
	{
		struct gpt_st_tensor *t = &st->tensors[st->count];

		if (strcmp(key, "__metadata__") == 0) {
			if (check_metadata(r, value))
				return -1;
			continue;
		}
		st->count++;
		t->name = strdup(key);
		if (!t->name)
			return refuse(r, "not enough memory for the header");
		if (read_entry(r, t, value))
			return -1;
	}
	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct gpt_st_tensor *x = a, *y = b;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	return (x->to > y->to) - (x->to < y->to);
}

/* Tensors side by side from the first byte of the data to the last. */
static int check_places(const struct reading *r, uint64_t data_bytes)
{
	struct gpt_st *st = r->st;
	uint64_t at = 0;

	qsort(st->tensors, st->count, sizeof(*st->tensors), by_place);
	for (size_t i = 0; i < st->count; i++) {
		const struct gpt_st_tensor *t = &st->tensors[i];

		if (t->from != at)
			return refuse(r, "byte %llu: %s before tensor %s", (unsigned long long)(st->data_at + at),
			              t->from > at ? "a hole" : "an overlap", t->name);
		at = t->to;
	}
	if (at != data_bytes)
		return refuse(r, "byte %llu: the data %s",
		              (unsigned long long)(st->data_at + (at < data_bytes ? at : data_bytes)),
		              at > data_bytes ? "end early" : "go on behind the last tensor");
	return 0;
}

static int parse(const struct reading *r, const char *header, uint64_t header_bytes, uint64_t data_bytes)
{
	json_t *root;
	json_error_t e;
	int rc;

	if (!header_bytes || header[0] != '{')
		return refuse(r, "byte 8: the header is no JSON object");
	root = json_loadb(header, header_bytes, GPT_JSON_FLAGS, &e);
	if (!root)
		return refuse(r, "byte %lld: %s", (long long)e.position + 8, e.text);
	rc = read_entries(r, root) || check_places(r, data_bytes) ? -1 : 0;
	json_decref(root);
	return rc;
}

static int read_bytes(int fd, void *to, uint64_t len_bytes, uint64_t at)
{
	char *p = to;

	while (len_bytes) {
		const ssize_t n = pread(fd, p, len_bytes < 1 << 30 ? len_bytes : 1 << 30, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n ? errno : EIO;
			return -1;
		}
		p += n;
		at += (uint64_t)n;
		len_bytes -= (uint64_t)n;
	}
	return 0;
}

static int read_header(const struct reading *r)
{
	struct gpt_st *st = r->st;
	uint64_t header_bytes;
	struct stat info;
	char *header;
	int rc;

	st->fd = open(st->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (st->fd < 0 || fstat(st->fd, &info))
		return refuse(r, "%s", strerror(errno));
	if (!S_ISREG(info.st_mode))
		return refuse(r, "not a file");
	if (info.st_size < 8)
		return refuse(r, "byte %lld: the file ends before its header", (long long)info.st_size);
	if (read_bytes(st->fd, &header_bytes, sizeof(header_bytes), 0))
		return refuse(r, "%s", strerror(errno));
	if (header_bytes > HEADER_MAX)
		return refuse(r, "a header of %llu bytes: at most 100000000", (unsigned long long)header_bytes);
	if (8 + header_bytes > (uint64_t)info.st_size)
		return refuse(r, "byte %lld: the file ends within its header", (long long)info.st_size);
	st->data_at = 8 + header_bytes;
	header = malloc(header_bytes + 1);
	if (!header)
		return refuse(r, "not enough memory for the header");
	rc = read_bytes(st->fd, header, header_bytes, 8)
	             ? refuse(r, "%s", strerror(errno))
	             : parse(r, header, header_bytes, (uint64_t)info.st_size - st->data_at);
	free(header);
	return rc;
}

int gpt_st_open(struct gpt_st *st, const char *path, char *why, size_t why_bytes)
{
	const struct reading r = {st, why, why_bytes};

	*st = (struct gpt_st){.fd = -1};
	if ((size_t)snprintf(st->path, sizeof(st->path), "%s", path) >= sizeof(st->path))
		refuse(&r, "the path is too long");
	else if (read_header(&r) == 0)
		return 0;
	gpt_st_close(st);
	return -1;
}

void gpt_st_close(struct gpt_st *st)
{
	for (size_t i = 0; i < st->count; i++)
		free(st->tensors[i].name);
	free(st->tensors);
	if (st->fd >= 0)
		close(st->fd);
	st->tensors = NULL;
	st->count = 0;
	st->fd = -1;
}

const struct gpt_st_tensor *gpt_st_find(const struct gpt_st *st, const char *name)
{
	for (size_t i = 0; i < st->count; i++)
		if (strcmp(st->tensors[i].name, name) == 0)
			return &st->tensors[i];
	return NULL;
}

static unsigned size_of(enum gpt_dtype dtype)
{
	return dtype == GPT_F32 ? 4 : dtype == GPT_U8 ? 1 : 2;
}

uint64_t gpt_st_count(const struct gpt_st_tensor *t)
{
	return (t->to - t->from) / size_of(t->dtype);
}

static float from_half(uint16_t h)
{
	const uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;
	uint32_t bits = sign | fraction << 13;
	float x;

	if (!exponent)
		return (sign ? -1.0f : 1.0f) * (float)fraction / 16777216;
	bits |= (exponent == 31 ? 255 : exponent + 112) << 23;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* F16 or BF16. */
static void widen(float *x, const uint16_t *from, uint64_t count, bool half)
{
	for (uint64_t i = 0; i < count; i++) {
		const uint32_t bits = (uint32_t)from[i] << 16;

		if (half)
			x[i] = from_half(from[i]);
		else
			memcpy(&x[i], &bits, sizeof(bits));
	}
}

int gpt_st_read(const struct gpt_st *st, const struct gpt_st_tensor *t, uint64_t first, uint64_t count, void *to)
{
	const unsigned size = size_of(t->dtype);
	const uint64_t at = st->data_at + t->from + first * size;
	uint16_t narrow[4096];

	if (t->dtype == GPT_F32 || t->dtype == GPT_U8)
		return read_bytes(st->fd, to, count * size, at);
	for (uint64_t i = 0; i < count; i += 4096) {
		const uint64_t n = count - i < 4096 ? count - i : 4096;

		if (read_bytes(st->fd, narrow, n * 2, at + i * 2))
			return -1;
		widen((float *)to + i, narrow, n, t->dtype == GPT_F16);
	}
	return 0;
}
