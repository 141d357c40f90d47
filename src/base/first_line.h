/*
 * Small files of the system, such as those of sysfs: their first line.
 */
#ifndef COLL_BASE_FIRST_LINE_H
#define COLL_BASE_FIRST_LINE_H

#include <stdbool.h>
#include <stddef.h>

/* The first line of a file, without its end, cut to cap - 1 bytes; the name is given like printf's. false: the file has
 * none or cannot be read, and buf is empty. */
bool coll_first_line(char *buf, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
