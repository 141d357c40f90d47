/*
 * Commands of the system in tests and measurements: ip, tc, nsenter.
 */
#ifndef COLL_TESTS_SHELL_H
#define COLL_TESTS_SHELL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* True: the command fitted, ran, and said 0. */
__attribute__((format(printf, 1, 2))) static inline bool shell_run(const char *format, ...)
{
	char command[400];
	va_list ap;
	int len;

	va_start(ap, format);
	len = vsnprintf(command, sizeof(command), format, ap);
	va_end(ap);
	return len >= 0 && (size_t)len < sizeof(command) && system(command) == 0;
}

#endif
