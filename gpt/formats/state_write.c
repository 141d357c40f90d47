/*
 * Parts of states, and the names of states.
 */
#include "gpt/formats/state.h"
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const arrays[] = {"weights", "adam.m", "adam.v"};

/* What the header of a part lists; free() it. */
static struct gpt_st_item *items_of(const struct gpt_state_range *ranges, size_t count)
{
	struct gpt_st_item *items = calloc(count + 1, sizeof(*items));

	for (size_t i = 0; items && i < count; i++) {
		items[i] = (struct gpt_st_item){.dtype = GPT_F32, .dims = 1, .shape = {ranges[i].count}};
		snprintf(items[i].name, sizeof(items[i].name), "%s@%" PRIu64, arrays[ranges[i].array], ranges[i].first);
	}
	return items;
}

int gpt_state_put_part(struct gpt_sink *sink, const struct gpt_state_range *ranges, size_t count)
{
	struct gpt_st_item *items = items_of(ranges, count);
	int rc = items ? gpt_st_put_header(sink, items, count) : -1;

	for (size_t i = 0; i < count && !rc; i++)
		rc = gpt_put(sink, ranges[i].data, ranges[i].count * sizeof(float));
	free(items);
	return rc;
}

uint64_t gpt_state_part_bytes(const struct gpt_state_range *ranges, size_t count)
{
	struct gpt_st_item *items = items_of(ranges, count);
	const uint64_t len_bytes = items ? gpt_st_bytes(items, count) : 0;

	free(items);
	return len_bytes;
}

int gpt_state_put_bytes(struct gpt_sink *sink, const void *data, uint64_t len_bytes)
{
	const struct gpt_st_item item = {.name = "owed", .dtype = GPT_U8, .dims = 1, .shape = {len_bytes}};

	return gpt_st_put_header(sink, &item, 1) || gpt_put(sink, data, len_bytes) ? -1 : 0;
}

uint64_t gpt_state_bytes_bytes(uint64_t len_bytes)
{
	const struct gpt_st_item item = {.name = "owed", .dtype = GPT_U8, .dims = 1, .shape = {len_bytes}};

	return gpt_st_bytes(&item, 1);
}

static uint64_t cut(uint64_t total, int index, int count)
{
	return index == count ? total : total / 16 * (uint64_t)index / (uint64_t)count * 16;
}

void gpt_state_share(uint64_t total, int index, int count, uint64_t *first, uint64_t *end)
{
	*first = cut(total, index, count);
	*end = cut(total, index + 1, count);
}

void gpt_state_format(const struct gpt_state_name *name, char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "step-%08ld-%ld.%ld", name->step, name->start, name->epoch);
}

bool gpt_state_parse(const char *text, struct gpt_state_name *name)
{
	char again[96];

	if (sscanf(text, "step-%ld-%ld.%ld", &name->step, &name->start, &name->epoch) != 3 || name->step < 0)
		return false;
	gpt_state_format(name, again, sizeof(again));
	return strcmp(text, again) == 0;
}

static int newest_first(const void *a, const void *b)
{
	const struct gpt_state_name *x = a, *y = b;

	if (x->start != y->start)
		return x->start > y->start ? -1 : 1;
	if (x->epoch != y->epoch)
		return x->epoch > y->epoch ? -1 : 1;
	return (x->step < y->step) - (x->step > y->step);
}

int gpt_state_list(const char *directory, struct gpt_state_name **names, size_t *count)
{
	DIR *d = opendir(directory);
	struct gpt_state_name name, *grown;
	struct dirent *e;

	*names = NULL;
	*count = 0;
	if (!d)
		return errno == ENOENT ? 0 : -1;
	while ((e = readdir(d))) {
		if (!gpt_state_parse(e->d_name, &name))
			continue;
		grown = realloc(*names, (*count + 1) * sizeof(*grown));
		if (!grown) {
			free(*names);
			closedir(d);
			return -1;
		}
		*names = grown;
		grown[(*count)++] = name;
	}
	closedir(d);
	if (*count)
		qsort(*names, *count, sizeof(**names), newest_first);
	return 0;
}

void gpt_state_sweep(const char *directory)
{
	DIR *d = opendir(directory);
	char path[GPT_PATH_MAX];
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strstr(e->d_name, ".part-") && gpt_path(path, directory, e->d_name) == 0)
			gpt_directory_remove(path);
		else if (strncmp(e->d_name, ".see-", 5) == 0)
			unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
}
