/*
 * States: what training goes on from, in a directory that is whole or not there.
 *
 *     OUT/state/step-00000100-2.0/state.json           STEP-START.EPOCH
 *     OUT/state/step-00000100-2.0/part-00000.safetensors ...
 *
 * A part holds ranges of three arrays of equal length: the weights and both means of the optimiser. Its tensors are
 * named ARRAY@FIRST, F32. Nothing in a part depends on how many processes wrote it, so any number reads it. state.json
 * names the parts with their lengths and checksums. Names are never used twice: START counts the starts of the run.
 */
#ifndef GPT_FORMATS_STATE_H
#define GPT_FORMATS_STATE_H

#include "gpt/formats/file.h"
#include "gpt/formats/safetensors.h"
#include <jansson.h>

enum gpt_state_array { GPT_STATE_WEIGHTS, GPT_STATE_M, GPT_STATE_V, GPT_STATE_ARRAYS };

/* Elements first .. first + count of an array. */
struct gpt_state_range {
	enum gpt_state_array array;
	uint64_t first, count;
	const float *data;
};

/* A part, and what one process alone keeps besides. -1 with errno. */
int gpt_state_put_part(struct gpt_sink *sink, const struct gpt_state_range *ranges, size_t count);
uint64_t gpt_state_part_bytes(const struct gpt_state_range *ranges, size_t count);
int gpt_state_put_bytes(struct gpt_sink *sink, const void *data, uint64_t len_bytes);
uint64_t gpt_state_bytes_bytes(uint64_t len_bytes);

/* Elements [first, end) that process index of count writes of total: ends are multiples of 16. */
void gpt_state_share(uint64_t total, int index, int count, uint64_t *first, uint64_t *end);

struct gpt_state_name {
	long step, start, epoch;
};

void gpt_state_format(const struct gpt_state_name *name, char *text, size_t len_bytes);
/* false: it is the name of something else. */
bool gpt_state_parse(const char *text, struct gpt_state_name *name);
/* The states in a directory, newest first: by start, epoch, step. free() them; 0 and none if there is no directory. */
int gpt_state_list(const char *directory, struct gpt_state_name **names, size_t *count);
/* Remove what was being written when its writer ended, names with .part- in a directory. */
void gpt_state_sweep(const char *directory);

/* A state that is being read. */
struct gpt_state {
	char path[GPT_PATH_MAX];
	json_t *root; /* state.json */
	uint64_t params;
	struct gpt_st *parts;
	size_t part_count;
};

/*
 * Reads state.json and the headers of the parts. Refused, with a sentence in why: a part that is not there or of
 * another length, ranges that do not cover each array exactly once.
 */
int gpt_state_open(struct gpt_state *s, const char *path, char *why, size_t why_bytes);
void gpt_state_close(struct gpt_state *s);
/* Compare all files with their checksums: -1 with a sentence in why. */
int gpt_state_check(const struct gpt_state *s, char *why, size_t why_bytes);
/* Elements first .. first + count of an array, from the parts that have them. -1 with errno. */
int gpt_state_read(const struct gpt_state *s, enum gpt_state_array array, uint64_t first, uint64_t count, float *to);
/* What gpt_state_put_bytes() wrote as process index. -1 with errno. */
int gpt_state_read_bytes(const struct gpt_state *s, int index, void *to, uint64_t len_bytes);

#endif
