/*
 * The first line of a file: see first_line.h.
 */
#include "base/first_line.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool coll_first_line(char *buf, size_t cap, const char *format, ...)
{
	char path[PATH_MAX];
	va_list ap;
	FILE *f;
	bool got;

	va_start(ap, format);
	f = vsnprintf(path, sizeof(path), format, ap) < (int)sizeof(path) ? fopen(path, "re") : NULL;
	va_end(ap);
	got = f && fgets(buf, (int)cap, f);
	if (f)
		fclose(f);
	if (got)
		buf[strcspn(buf, "\n")] = 0;
	else
		buf[0] = 0;
	return got;
}
