/*
 * Reading states: which ranges the parts have, and whether together they are everything once.
 */
#include "gpt/formats/state.h"
#include "gpt/formats/crc32c.h"
#include "gpt/formats/json.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JSON_MAX (256 << 20)

static const char *const arrays[] = {"weights", "adam.m", "adam.v"};

/* Is t a range of this array, and where does it begin? */
static bool range_of(const struct gpt_st_tensor *t, enum gpt_state_array array, uint64_t *first)
{
	const size_t len = strlen(arrays[array]);
	char *end;

	if (strncmp(t->name, arrays[array], len) != 0 || t->name[len] != '@' || t->name[len + 1] < '0' ||
	    t->name[len + 1] > '9')
		return false;
	*first = strtoull(t->name + len + 1, &end, 10);
	return !*end && t->dtype == GPT_F32 && t->dims == 1;
}

/* ---- Coverage ------------------------------------------------------------------ */

struct span {
	uint64_t first, end;
};

static int by_first(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

static int check_array(const struct gpt_state *s, enum gpt_state_array array, struct span *spans, char *why,
                       size_t why_bytes)
{
	size_t count = 0, next = 0;
	uint64_t at = 0;

	for (size_t p = 0; p < s->part_count; p++) {
		for (size_t i = 0; i < s->parts[p].count; i++) {
			const struct gpt_st_tensor *t = &s->parts[p].tensors[i];

			if (range_of(t, array, &spans[count].first) && t->to > t->from) {
				spans[count].end = spans[count].first + gpt_st_count(t);
				count++;
			}
		}
	}
	qsort(spans, count, sizeof(*spans), by_first);
	for (; next < count && spans[next].first == at && spans[next].end > at; next++)
		at = spans[next].end;
	if (at == s->params && next == count)
		return 0;
	if (next < count && spans[next].first < at)
		return gpt_explain(why, why_bytes, s->path, "%s: an overlap at element %" PRIu64, arrays[array],
		                   spans[next].first);
	return gpt_explain(why, why_bytes, s->path, "%s: %s at element %" PRIu64, arrays[array],
	                   at < s->params ? "a hole" : "more than there should be", at);
}

static int check_ranges(const struct gpt_state *s, char *why, size_t why_bytes)
{
	struct span *spans;
	size_t most = 1;
	int rc = 0;

	for (size_t p = 0; p < s->part_count; p++)
		most += s->parts[p].count;
	spans = malloc(most * sizeof(*spans));
	if (!spans)
		return gpt_explain(why, why_bytes, s->path, "not enough memory");
	for (int a = 0; a < GPT_STATE_ARRAYS && !rc; a++)
		rc = check_array(s, (enum gpt_state_array)a, spans, why, why_bytes);
	free(spans);
	return rc;
}

/* ---- Opening --------------------------------------------------------------------- */

static int path_of(const struct gpt_state *s, const json_t *part, char *path)
{
	const char *file = json_string_value(json_object_get(part, "file"));

	return !file || strchr(file, '/') || gpt_path(path, s->path, file) ? -1 : 0;
}

/* Is the file of a part there, with its length? */
static int check_length(const struct gpt_state *s, const json_t *part, char *path, char *why, size_t why_bytes)
{
	struct stat st;
	uint64_t len_bytes;

	if (path_of(s, part, path) || !gpt_json_get_u64(part, "bytes", &len_bytes))
		return gpt_explain(why, why_bytes, s->path, "state.json: a part without a file or length");
	if (stat(path, &st))
		return gpt_explain(why, why_bytes, path, "%s", strerror(errno));
	if ((uint64_t)st.st_size != len_bytes)
		return gpt_explain(why, why_bytes, path, "%lld bytes, and state.json says %" PRIu64,
		                   (long long)st.st_size, len_bytes);
	return 0;
}

static int open_parts(struct gpt_state *s, char *why, size_t why_bytes)
{
	const json_t *parts = json_object_get(s->root, "parts");
	const size_t count = json_array_size(parts);
	char path[GPT_PATH_MAX];

	s->parts = calloc(count + 1, sizeof(*s->parts));
	if (!s->parts)
		return gpt_explain(why, why_bytes, s->path, "not enough memory");
	for (size_t i = 0; i < count; i++) {
		if (check_length(s, json_array_get(parts, i), path, why, why_bytes) ||
		    gpt_st_open(&s->parts[i], path, why, why_bytes))
			return -1;
		s->part_count++;
	}
	return check_ranges(s, why, why_bytes);
}

int gpt_state_open(struct gpt_state *s, const char *path, char *why, size_t why_bytes)
{
	const char *format;
	char name[GPT_PATH_MAX];

	*s = (struct gpt_state){0};
	snprintf(s->path, sizeof(s->path), "%s", path);
	if (gpt_path(name, path, "state.json"))
		return gpt_explain(why, why_bytes, path, "the name is too long");
	s->root = gpt_json_read_sealed(name, JSON_MAX, why, why_bytes);
	if (!s->root)
		return -1;
	format = json_string_value(json_object_get(s->root, "format"));
	if (!format || strcmp(format, "coll-gpt-state") != 0 ||
	    json_integer_value(json_object_get(s->root, "version")) != 1)
		gpt_explain(why, why_bytes, name, "not a state of version 1");
	else if (!gpt_json_get_u64(s->root, "params", &s->params))
		gpt_explain(why, why_bytes, name, "has no number of params");
	else if (open_parts(s, why, why_bytes) == 0)
		return 0;
	gpt_state_close(s);
	return -1;
}

void gpt_state_close(struct gpt_state *s)
{
	for (size_t i = 0; i < s->part_count; i++)
		gpt_st_close(&s->parts[i]);
	free(s->parts);
	json_decref(s->root);
	*s = (struct gpt_state){0};
}

/* ---- Checksums ------------------------------------------------------------------- */

static int sum_of(const char *path, uint32_t *crc)
{
	const size_t room = 1 << 20;
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *buffer = malloc(room);
	ssize_t n = -1;

	*crc = 0;
	if (fd >= 0 && buffer)
		while ((n = read(fd, buffer, room)) > 0)
			*crc = gpt_crc32c(*crc, buffer, (size_t)n);
	free(buffer);
	if (fd >= 0)
		close(fd);
	return n < 0 ? -1 : 0;
}

static int check_sum(const struct gpt_state *s, const json_t *part, char *why, size_t why_bytes)
{
	const char *says = json_string_value(json_object_get(part, "crc32c"));
	char path[GPT_PATH_MAX], is[16];
	uint32_t crc;

	if (check_length(s, part, path, why, why_bytes))
		return -1;
	if (sum_of(path, &crc))
		return gpt_explain(why, why_bytes, path, "%s", strerror(errno));
	snprintf(is, sizeof(is), "%08" PRIx32, crc);
	if (!says || strcmp(says, is) != 0)
		return gpt_explain(why, why_bytes, path, "damaged: its checksum is %s, and state.json says %s", is,
		                   says ? says : "none");
	return 0;
}

int gpt_state_check(const struct gpt_state *s, char *why, size_t why_bytes)
{
	const json_t *const lists[] = {json_object_get(s->root, "parts"),
	                               json_object_get(json_object_get(s->root, "owed"), "files")};

	for (size_t l = 0; l < 2; l++)
		for (size_t i = 0; i < json_array_size(lists[l]); i++)
			if (check_sum(s, json_array_get(lists[l], i), why, why_bytes))
				return -1;
	return 0;
}

/* ---- Reading ----------------------------------------------------------------------- */

int gpt_state_read(const struct gpt_state *s, enum gpt_state_array array, uint64_t first, uint64_t count, float *to)
{
	for (size_t p = 0; p < s->part_count; p++) {
		for (size_t i = 0; i < s->parts[p].count; i++) {
			const struct gpt_st_tensor *t = &s->parts[p].tensors[i];
			uint64_t begin, from, end;

			if (!range_of(t, array, &begin))
				continue;
			from = begin > first ? begin : first;
			end = begin + gpt_st_count(t) < first + count ? begin + gpt_st_count(t) : first + count;
			if (from < end && gpt_st_read(&s->parts[p], t, from - begin, end - from, to + (from - first)))
				return -1;
		}
	}
	return 0;
}

int gpt_state_read_bytes(const struct gpt_state *s, int index, void *to, uint64_t len_bytes)
{
	const json_t *files = json_object_get(json_object_get(s->root, "owed"), "files");
	char path[GPT_PATH_MAX], why[256];
	const struct gpt_st_tensor *t;
	struct gpt_st st;
	int rc = -1;

	errno = EINVAL;
	if (path_of(s, json_array_get(files, (size_t)index), path) || gpt_st_open(&st, path, why, sizeof(why)))
		return -1;
	t = gpt_st_find(&st, "owed");
	if (t && t->dtype == GPT_U8 && gpt_st_count(t) == len_bytes)
		rc = gpt_st_read(&st, t, 0, len_bytes, to);
	gpt_st_close(&st);
	return rc;
}
