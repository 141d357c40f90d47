/*
 * Files that are whole or not there: written under another name, flushed, renamed. Directories alike.
 *
 * All functions return 0, or -1 with errno set.
 */
#ifndef GPT_FORMATS_FILE_H
#define GPT_FORMATS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPT_PATH_MAX 4096

/* Where bytes go: a file, or what stands for one. */
struct gpt_sink {
	/* Take all of these bytes; -1 with errno: it failed. */
	int (*put)(struct gpt_sink *sink, const void *data, size_t len_bytes);
	uint64_t bytes;  /* so far */
	uint32_t crc32c; /* of them */
};

/* Counts, sums, and hands them on. */
int gpt_put(struct gpt_sink *sink, const void *data, size_t len_bytes);

struct gpt_file {
	struct gpt_sink sink;
	int fd;
};

int gpt_file_create(struct gpt_file *f, const char *path);
/* Flush it to the disk if all went well, and close it. */
int gpt_file_close(struct gpt_file *f, bool good);

/* Write path aside, flush, rename. */
int gpt_file_replace(const char *path, const void *data, size_t len_bytes);

/* All bytes of a file of at most so many, followed by a zero byte; free() them. EFBIG: it is longer. */
int gpt_file_read(const char *path, size_t most_bytes, char **data, size_t *len_bytes);

/* Make what was renamed, created or removed in a directory last. */
int gpt_directory_sync(const char *path);
/* Remove a directory of files, if it is there. */
int gpt_directory_remove(const char *path);
/* Flush part, which is such a directory, and give it the name of final, which is removed if it is there. */
int gpt_directory_replace(const char *part, const char *final);

/* Joins both with a slash; ENAMETOOLONG. */
int gpt_path(char *path, const char *directory, const char *name);

#endif
