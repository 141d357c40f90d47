/*
 * Log lines: a level, a sink, one line each. An error or a warning begins with its id,
 * "[COLL-5101] waiting ..." (messages.h). A logger belongs to a context; NULL means
 * stderr at level warn.
 */
#ifndef COLL_BASE_LOG_H
#define COLL_BASE_LOG_H

#include <stdarg.h>
#include <stddef.h>

#include "coll/coll.h"

enum coll_log_level { COLL_LOG_ERROR, COLL_LOG_WARN, COLL_LOG_INFO, COLL_LOG_DEBUG };

struct coll_logger {
	enum coll_log_level level;
	int rank; /* -1 unknown */
	int size;
	coll_log_fn fn; /* NULL: write */
	void *arg;
	int file; /* descriptor; 0: stderr */
};

/* "info" -> COLL_LOG_INFO; -1 for an unknown name. */
int coll_log_level_from_name(const char *name);

/* The name of a file from a pattern: %r becomes the rank, %p the process, %h the host,
 * %% one %. Cut to fit. */
void coll_log_path(const char *pattern, int rank, char *path, size_t len_bytes);

/* Open a file for lines of several processes, made if it is not there, never one of the
 * standard descriptors; -1 and errno. Never waits, nor does writing: a pipe without a
 * reader is an error, and so is a link of another user. */
int coll_log_open(const char *path);

/* A program's function may run in it, with whatever lock is held here. */
void coll_log_v(const struct coll_logger *l, int level, const char *format, va_list ap);
void coll_log(const struct coll_logger *l, int level, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
