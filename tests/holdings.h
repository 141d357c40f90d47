/*
 * What a process holds, as /proc has it: to be compared with what it held before.
 */
#ifndef COLL_TESTS_HOLDINGS_H
#define COLL_TESTS_HOLDINGS_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Names in a directory that contain part; in /proc/self/fd with the one that this opens. */
static inline int holdings_entries(const char *directory, const char *part)
{
	DIR *d = opendir(directory);
	int n = 0;

	for (const struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.' && strstr(e->d_name, part);
	if (d)
		closedir(d);
	return n;
}

static inline int holdings_descriptors(void)
{
	return holdings_entries("/proc/self/fd", "");
}

static inline int holdings_threads(void)
{
	return holdings_entries("/proc/self/task", "");
}

/* Mappings whose line in /proc/self/maps contains part. */
static inline int holdings_mappings(const char *part)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4352];
	int n = 0;

	while (maps && fgets(line, sizeof(line), maps))
		n += strstr(line, part) != NULL;
	if (maps)
		fclose(maps);
	return n;
}

#endif
