/*
 * What a program prints arrives, or the program fails.
 */
#include "tools/common/last_flush.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name;

static void last_flush(void)
{
	const bool failed = ferror(stdout) != 0;

	errno = 0;
	if (fflush(stdout) == 0 && !failed)
		return;
	fprintf(stderr, "%s: cannot write standard output%s%s\n", name, errno ? ": " : "",
	        errno ? strerror(errno) : "");
	_exit(1);
}

void last_flush_check(const char *program)
{
	name = program;
	atexit(last_flush);
}
