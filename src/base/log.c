/*
 * Log lines: formatted whole, written with one call so that lines of several
 * processes do not mix.
 */
#include "base/log.h"

#include <string.h>
#include <unistd.h>

#include "base/messages.h"

/* Room in a line for an id and the newline. */
enum { LINE_BYTES = 1024, TAIL_BYTES = 20 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

int coll_log_level_from_name(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (strcmp(name, level_names[i]) == 0)
			return i;
	return -1;
}

void coll_log_path(const char *pattern, int rank, char *path, size_t len_bytes)
{
	size_t used = 0;

	for (const char *p = pattern; *p && used + 16 < len_bytes; p++) {
		if (p[0] == '%' && (p[1] == 'r' || p[1] == 'p'))
			used += (size_t)sprintf(path + used, "%d", *++p == 'r' ? rank : (int)getpid());
		else
			path[used++] = *p;
	}
	path[used] = 0;
}

static int prefix(const struct coll_logger *l, int level, char *buf, size_t len_bytes)
{
	int n;

	if (l && l->rank >= 0)
		n = snprintf(buf, len_bytes, "coll[%d/%d] %s: ", l->rank, l->size, level_names[level & 3]);
	else
		n = snprintf(buf, len_bytes, "coll[pid %d] %s: ", (int)getpid(), level_names[level & 3]);
	return n < (int)len_bytes ? n : (int)len_bytes - 1;
}

void coll_log_v(const struct coll_logger *l, int level, const char *format, va_list ap)
{
	char line[LINE_BYTES], text[LINE_BYTES];
	struct coll_message m;
	int n;

	if (level > (l ? (int)l->level : COLL_LOG_WARN))
		return;
	n = prefix(l, level, line, sizeof(line));
	vsnprintf(text, sizeof(text) - (size_t)n - TAIL_BYTES, format, ap);
	m = coll_message_split(COLL_OK, text);
	n += snprintf(line + n, sizeof(line) - (size_t)n - 1, "%s%s", m.text, m.tag);
	if (l && l->fn) {
		l->fn(l->arg, level, line);
		return;
	}
	strcpy(line + n, "\n");
	fputs(line, l && l->file ? l->file : stderr);
}

void coll_log(const struct coll_logger *l, int level, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	coll_log_v(l, level, format, ap);
	va_end(ap);
}
