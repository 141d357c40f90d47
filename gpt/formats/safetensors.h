/*
 * Files of the format safetensors, read and written as its owner does.
 *
 * u64 length of the header H; H bytes of JSON that begin with {; the data. What the owner's library refuses is refused:
 * see gpt_st_open(). Little-endian.
 */
#ifndef GPT_FORMATS_SAFETENSORS_H
#define GPT_FORMATS_SAFETENSORS_H

#include "gpt/formats/file.h"

enum gpt_dtype {
	GPT_U8,
	GPT_F16,
	GPT_BF16,
	GPT_F32,
	GPT_OTHER /* of a type that is known, and not read here */
};

struct gpt_st_tensor {
	char *name;
	enum gpt_dtype dtype;
	char type[16]; /* as the file has it */
	int dims;
	uint64_t shape[2]; /* the first two */
	uint64_t from, to; /* bytes of the data */
};

struct gpt_st {
	char path[GPT_PATH_MAX];
	int fd;
	uint64_t data_at;
	size_t count;
	struct gpt_st_tensor *tensors; /* in the order of the data */
};

/*
 * 0; or -1 with a sentence in why that names file and offset. Refused: a file shorter than its header says, a header of
 * more than 100,000,000 bytes or one that is no JSON object, a name twice, metadata that are no strings, an unknown
 * type, an offset that is no whole number, bytes that do not fit the shape, a hole or an overlap between tensors, data
 * that end early or go on.
 */
int gpt_st_open(struct gpt_st *st, const char *path, char *why, size_t why_bytes);
void gpt_st_close(struct gpt_st *st);

/* NULL: there is none. */
const struct gpt_st_tensor *gpt_st_find(const struct gpt_st *st, const char *name);
/* Elements first .. first + count of a tensor of U8, F16, BF16 or F32; the last three become floats. -1 with errno. */
int gpt_st_read(const struct gpt_st *st, const struct gpt_st_tensor *t, uint64_t first, uint64_t count, void *to);
uint64_t gpt_st_count(const struct gpt_st_tensor *t);

/* What a file is going to hold, in this order; the data follow the header. */
struct gpt_st_item {
	char name[64]; /* printable ASCII */
	enum gpt_dtype dtype;
	int dims;
	uint64_t shape[2];
};

/* The header, padded with spaces so that the data begin at a multiple of 64 bytes. -1 with errno. */
int gpt_st_put_header(struct gpt_sink *sink, const struct gpt_st_item *items, size_t count);
/* What header and data will be together. */
uint64_t gpt_st_bytes(const struct gpt_st_item *items, size_t count);

#endif
