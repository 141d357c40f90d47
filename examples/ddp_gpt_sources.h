/*
 * --data and --val-data: which files they are.
 */
#ifndef DDP_GPT_SOURCES_H
#define DDP_GPT_SOURCES_H

#include "ddp_gpt_options.h"
#include <stddef.h>

/* Files in the order of their names; free() each and the list. */
struct source_files {
	char **paths;
	int count;
	double weight;
};

/* NAME or NAME@WEIGHT: a file, a directory, or a pattern of the shell. -1 with the reason in why. */
int source_expand(const char *name, struct source_files *files, char *why, size_t why_bytes);
void source_free(struct source_files *files);

#endif
