/*
 * Log lines: formatted whole, written with one call so that lines of several processes do
 * not mix. A line that does not fit into the log file any more goes to stderr.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/messages.h"
#include "base/own_user.h"

/* Room in a line for an id, the time and the newline. */
enum { LINE_BYTES = 1024, TAIL_BYTES = 20, TIME_BYTES = 32, HOST_BYTES = 65, FIRST_FREE_FD = 3 };

static const char *const level_names[] = {"error", "warn", "info", "debug"};

int coll_log_level_from_name(const char *name)
{
	for (int i = 0; i < 4; i++)
		if (strcasecmp(name, level_names[i]) == 0)
			return i;
	return -1;
}

void coll_log_path(const char *pattern, int rank, char *path, size_t len_bytes)
{
	size_t used = 0;

	path[0] = 0;
	for (const char *p = pattern; *p; p++) {
		char piece[HOST_BYTES] = {*p};

		if (p[0] == '%' && p[1] && strchr("rph%", p[1])) {
			p++;
			if (*p == 'h')
				gethostname(piece, sizeof(piece) - 1);
			else if (*p != '%')
				snprintf(piece, sizeof(piece), "%d", *p == 'r' ? rank : (int)getpid());
		}
		if (used + strlen(piece) >= len_bytes)
			return;
		used += (size_t)snprintf(path + used, len_bytes - used, "%s", piece);
	}
}

/* Another user may put a link to a file of ours where the log is expected. */
static bool is_trusted_link(const char *path)
{
	struct stat st;
	const bool yes = lstat(path, &st) == 0 && (st.st_uid == 0 || coll_user_of(st.st_uid) == COLL_USER_OWN);

	errno = ELOOP;
	return yes;
}

int coll_log_open(const char *path)
{
	const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
	int fd = open(path, flags | O_NOFOLLOW, 0666), higher;

	if (fd < 0 && errno == ELOOP && is_trusted_link(path))
		fd = open(path, flags, 0666);
	if (fd < 0 || fd >= FIRST_FREE_FD)
		return fd;
	higher = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
	close(fd);
	return higher;
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

/* "2026-11-21T15:49:36.123456Z " */
static int print_time(char *buf, size_t len_bytes)
{
	struct timespec t;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &t);
	n = strftime(buf, len_bytes, "%FT%T", gmtime_r(&t.tv_sec, &tm));
	return (int)n + snprintf(buf + n, len_bytes - n, ".%06ldZ ", t.tv_nsec / 1000);
}

static bool write_line(int fd, const char *line, size_t len_bytes)
{
	ssize_t n;

	do
		n = write(fd, line, len_bytes);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)len_bytes;
}

void coll_log_v(const struct coll_logger *l, int level, const char *format, va_list ap)
{
	char line[TIME_BYTES + LINE_BYTES], text[LINE_BYTES];
	struct coll_message_text m;
	int begin = 0, n;

	if (level > (l ? (int)l->level : COLL_LOG_WARN))
		return;
	if (l && l->file && !l->fn)
		begin = print_time(line, TIME_BYTES);
	n = begin + prefix(l, level, line + begin, LINE_BYTES);
	vsnprintf(text, sizeof(text) - (size_t)(n - begin) - TAIL_BYTES, format, ap);
	m = coll_message_split(COLL_OK, text);
	n += snprintf(line + n, sizeof(line) - (size_t)n - 1, "%s%s", m.text, m.tag);
	/* One line, whatever a caller's text has in it. */
	for (char *p = line; *p; p++)
		if ((unsigned char)*p < ' ')
			*p = ' ';
	if (l && l->fn) {
		l->fn(l->arg, level, line);
		return;
	}
	line[n++] = '\n';
	if (!begin || !write_line(l->file, line, (size_t)n))
		write_line(STDERR_FILENO, line + begin, (size_t)(n - begin));
}

void coll_log(const struct coll_logger *l, int level, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	coll_log_v(l, level, format, ap);
	va_end(ap);
}
