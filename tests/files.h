/*
 * Files of a directory made for a test, such as a part of /sys.
 */
#ifndef COLL_TESTS_FILES_H
#define COLL_TESTS_FILES_H

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/plain.h"

/* Write text to the file `path` below root, and make the directories that it is in. */
static inline void put_file(const char *root, const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0755);
		*slash = '/';
	}
	f = fopen(full, "w");
	REQUIRE(f, "%s", full);
	fputs(text, f);
	fclose(f);
}

#endif
