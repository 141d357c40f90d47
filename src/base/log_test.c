/*
 * Log lines: where they go, what a line is made of, what happens when a file is full.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/plain.h"

static void pattern(const char *text, const char *wanted)
{
	char path[128];

	coll_log_path(text, 7, path, sizeof(path));
	CHECK(strcmp(path, wanted) == 0, "%s became %s, not %s", text, path, wanted);
}

TEST(log, names_of_files)
{
	char wanted[128], host[65] = "", tight[8];

	gethostname(host, sizeof(host) - 1);
	pattern("/tmp/log.%r", "/tmp/log.7");
	pattern("%r-%%-%r", "7-%-7");
	pattern("100%", "100%");
	pattern("%x%", "%x%");
	snprintf(wanted, sizeof(wanted), "a.%s.%d", host, (int)getpid());
	pattern("a.%h.%p", wanted);
	coll_log_path("123456%r%r%r", 7, tight, sizeof(tight));
	CHECK(strcmp(tight, "1234567") == 0, "%s", tight);
}

struct heard {
	int level, lines;
	char line[2048];
};

static void hear(void *arg, int level, const char *line)
{
	struct heard *h = arg;

	h->level = level;
	h->lines++;
	snprintf(h->line, sizeof(h->line), "%s", line);
}

TEST(log, an_id_goes_behind)
{
	struct heard h = {0};
	const struct coll_logger l = {.level = COLL_LOG_INFO, .rank = 2, .size = 4, .fn = hear, .arg = &h};
	char large[4000];

	coll_log(&l, COLL_LOG_WARN, "[COLL-5101] waiting 3 s for rank %d", 1);
	CHECK(strcmp(h.line, "coll[2/4] warn: waiting 3 s for rank 1 [COLL-5101]") == 0, "%s", h.line);
	coll_log(&l, COLL_LOG_INFO, "plain");
	CHECK(strcmp(h.line, "coll[2/4] info: plain") == 0 && h.level == COLL_LOG_INFO, "%s", h.line);
	coll_log(&l, COLL_LOG_INFO, "[COLL-51] [COLL-5101]");
	CHECK(strcmp(h.line, "coll[2/4] info: [COLL-51] [COLL-5101]") == 0, "%s", h.line);
	coll_log(&l, COLL_LOG_INFO, "two\nlines\tand a \x1b[31mcolour");
	CHECK(strcmp(h.line, "coll[2/4] info: two lines and a  [31mcolour") == 0, "%s", h.line);
	coll_log(&l, COLL_LOG_DEBUG, "too fine");
	CHECK(h.lines == 4);
	memset(large, 'x', sizeof(large) - 1);
	large[sizeof(large) - 1] = 0;
	coll_log(&l, COLL_LOG_ERROR, "[COLL-5101] %s", large);
	CHECK(strlen(h.line) < 1024 && strcmp(h.line + strlen(h.line) - 13, "x [COLL-5101]") == 0, "%s", h.line);
}

TEST(log, levels_are_named_in_any_case)
{
	CHECK(coll_log_level_from_name("info") == COLL_LOG_INFO && coll_log_level_from_name("INFO") == COLL_LOG_INFO);
	CHECK(coll_log_level_from_name("Debug") == COLL_LOG_DEBUG && coll_log_level_from_name("infos") == -1);
}

/* Write two lines with stderr and the log in files; what each has then. */
static void written(const char *log_path, char *log_text, char *err_text, size_t cap)
{
	FILE *err = tmpfile();
	const int saved = dup(STDERR_FILENO);
	struct coll_logger l = {.level = COLL_LOG_INFO, .rank = 0, .size = 1};
	int fd;
	ssize_t n;

	REQUIRE(err && saved >= 0);
	l.file = log_path ? coll_log_open(log_path) : 0;
	REQUIRE(l.file >= 0, "%s", log_path);
	dup2(fileno(err), STDERR_FILENO);
	coll_log(&l, COLL_LOG_INFO, "first");
	coll_log(&l, COLL_LOG_INFO, "second");
	dup2(saved, STDERR_FILENO);
	close(saved);
	n = pread(fileno(err), err_text, cap - 1, 0);
	err_text[n > 0 ? n : 0] = 0;
	fclose(err);
	fd = log_path ? open(log_path, O_RDONLY | O_NONBLOCK) : -1;
	n = fd >= 0 && log_text ? read(fd, log_text, cap - 1) : 0;
	if (log_text)
		log_text[n > 0 ? n : 0] = 0;
	if (fd >= 0)
		close(fd);
	if (l.file)
		close(l.file);
}

TEST(log, files_and_full_files)
{
	static const char both[] = "coll[0/1] info: first\ncoll[0/1] info: second\n";
	char path[] = "/tmp/coll-log-XXXXXX", log_text[512], err_text[512];
	const int fd = mkstemp(path);
	const char *line = log_text;

	REQUIRE(fd >= 0);
	close(fd);
	written(NULL, NULL, err_text, sizeof(err_text));
	CHECK(strcmp(err_text, both) == 0, "%s", err_text);
	written(path, log_text, err_text, sizeof(err_text));
	CHECK(!err_text[0], "%s", err_text);
	for (int i = 0; i < 2; i++) {
		int year, n = 0;

		CHECK(sscanf(line, "%d-%*2d-%*2dT%*2d:%*2d:%*2d.%*6dZ%n", &year, &n) == 1 && n == 27, "%s", line);
		CHECK(strncmp(line + n, i ? " coll[0/1] info: second\n" : " coll[0/1] info: first\n", i ? 24 : 23) == 0,
		      "%s", line);
		line = strchr(line, '\n') ? strchr(line, '\n') + 1 : line;
	}
	unlink(path);
	written("/dev/full", NULL, err_text, sizeof(err_text));
	CHECK(strcmp(err_text, both) == 0, "%s", err_text);
	CHECK(coll_log_open("/nowhere/at/all") == -1);
	REQUIRE(mkfifo(path, 0600) == 0);
	CHECK(coll_log_open(path) == -1, "a pipe that nobody reads");
	unlink(path);
}

/* In a folder where the kernel follows links of anybody. */
TEST(log, links_of_other_users_are_not_followed)
{
	char folder[] = "/tmp/coll-log-XXXXXX", file[40], name[40];
	int fd;

	REQUIRE(mkdtemp(folder));
	snprintf(file, sizeof(file), "%s/file", folder);
	snprintf(name, sizeof(name), "%s/link", folder);
	REQUIRE(symlink(file, name) == 0);
	fd = coll_log_open(name);
	CHECK(fd >= 0, "a link of this user, as /dev/stderr is one of root");
	close(fd);
	if (geteuid() == 0)
		CHECK(lchown(name, 12345, 12345) == 0 && coll_log_open(name) == -1 && errno == ELOOP);
	unlink(name);
	unlink(file);
	rmdir(folder);
}

TEST(log, standard_descriptors_are_left_alone)
{
	const int saved = dup(STDIN_FILENO);
	int fd;

	close(STDIN_FILENO);
	fd = coll_log_open("/dev/null");
	if (saved >= 0)
		dup2(saved, STDIN_FILENO);
	CHECK(fd > STDERR_FILENO, "%d", fd);
	close(fd);
	close(saved);
}
