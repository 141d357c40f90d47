/*
 * A job without a launcher whose ranks know a folder that all of them can read: MEET_BY=exchange:FOLDER:RANK:SIZE gives
 * coll_config an all-gather through files, MEET_BY=id:FOLDER:RANK:SIZE a unique id that rank 0 makes.
 */
#ifndef COLL_TESTS_MULTI_BY_FILES_H
#define COLL_TESTS_MULTI_BY_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"

struct by_files {
	char kind[16], folder[200];
	int rank, size;
	coll_unique_id id;
};

/* The file appears whole. */
static inline void by_files_put(const struct by_files *f, int rank, const void *bytes, size_t len_bytes)
{
	char part[260], path[260];
	FILE *out;

	snprintf(path, sizeof(path), "%s/of-%d", f->folder, rank);
	snprintf(part, sizeof(part), "%s/part-%d", f->folder, rank);
	out = fopen(part, "w");
	if (!out || fwrite(bytes, 1, len_bytes, out) != len_bytes || fclose(out) != 0 || rename(part, path) != 0)
		exit(3);
}

static inline void by_files_get(const struct by_files *f, int rank, void *bytes, size_t len_bytes)
{
	char path[260];
	FILE *in;

	snprintf(path, sizeof(path), "%s/of-%d", f->folder, rank);
	while (!(in = fopen(path, "r")))
		usleep(5000);
	if (fread(bytes, 1, len_bytes, in) != len_bytes)
		exit(3);
	fclose(in);
}

static inline int by_files_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const struct by_files *f = arg;

	by_files_put(f, f->rank, mine, len_bytes);
	for (int r = 0; r < f->size; r++)
		by_files_get(f, r, (char *)all + (size_t)r * len_bytes, len_bytes);
	return 0;
}

/* Complete cfg if MEET_BY is set; false: it is not. */
static inline bool by_files(struct by_files *f, coll_config *cfg)
{
	const char *how = getenv("MEET_BY");

	if (!how || sscanf(how, "%15[a-z]:%199[^:]:%d:%d", f->kind, f->folder, &f->rank, &f->size) != 4)
		return false;
	cfg->rank = f->rank;
	cfg->size = f->size;
	if (strcmp(f->kind, "exchange") == 0) {
		cfg->exchange = by_files_exchange;
		cfg->exchange_arg = f;
		return true;
	}
	if (f->rank == 0 && coll_unique_id_create(&f->id) == COLL_OK)
		by_files_put(f, 0, &f->id, sizeof(f->id));
	by_files_get(f, 0, &f->id, sizeof(f->id));
	cfg->id = &f->id;
	return true;
}

#endif
