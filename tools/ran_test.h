/*
 * For collrun's tests: run it by a shell, keep what it says, find the processes it
 * started by a marker in their arguments, wait for conditions.
 */
#ifndef RAN_TEST_H
#define RAN_TEST_H

#include "tests/plain.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const char *collrun, *rank_probe;
static char dir[64]; /* of this test's files */
static char marker[80];

struct ran {
	int status;
	char *out, *err;
};

static inline char *text_of(size_t len_bytes)
{
	char *text = calloc(1, len_bytes + 1);

	if (!text)
		exit(1);
	return text;
}

static inline char *slurp(const char *name)
{
	char path[128], *text;
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	if (!f || fstat(fileno(f), &st) < 0)
		return text_of(0);
	text = text_of((size_t)st.st_size);
	(void)!fread(text, 1, (size_t)st.st_size, f);
	fclose(f);
	return text;
}

/* Start "collrun ARGS" by the shell, which is replaced by it: $C is collrun, $P
 * rank_probe, $D the directory of the test, $M the marker. */
static inline pid_t start(const char *args)
{
	char command[8192], path[128];
	pid_t pid;

	/* What an earlier run left must not be taken for this one's. */
	snprintf(path, sizeof(path), "%s/out", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/err", dir);
	unlink(path);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGHUP, SIG_DFL); /* under nohup collrun leaves it alone */
	setenv("C", collrun, 1);
	setenv("P", rank_probe, 1);
	setenv("D", dir, 1);
	setenv("M", marker, 1);
	snprintf(path, sizeof(path), "%s/out", dir);
	close(1);
	open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	snprintf(path, sizeof(path), "%s/err", dir);
	close(2);
	open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	snprintf(command, sizeof(command), "exec $C %s", args);
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(126);
}

static inline struct ran finish(pid_t pid)
{
	struct ran r;
	int status = 0;

	waitpid(pid, &status, 0);
	r.status = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	r.out = slurp("out");
	r.err = slurp("err");
	return r;
}

static inline struct ran run(const char *args)
{
	return finish(start(args));
}

static inline void forget(struct ran *r)
{
	free(r->out);
	free(r->err);
}

static inline void expect(const char *args, int status, const char *err)
{
	struct ran r = run(args);

	CHECK(r.status == status, "%s: status %d, expected %d; says %s", args, r.status, status, r.err);
	CHECK(!*err || strstr(r.err, err) != NULL, "%s: says \"%s\", expected \"%s\"", args, r.err, err);
	forget(&r);
}

/* By strchr: under AddressSanitizer every strstr reads to the end of the text. */
static inline int count_lines(const char *text, const char *with)
{
	const size_t length = strlen(with);
	int n = 0;

	for (const char *p = text; (p = strchr(p, with[0])); p++)
		n += strncmp(p, with, length) == 0;
	return n;
}

/* Processes with the marker in their arguments, this one's excepted. */
static inline int marked(void)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d))) {
		char path[300], text[4096];
		size_t len;
		FILE *f;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		f = fopen(path, "r");
		len = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
		if (f)
			fclose(f);
		n += len > 0 && memmem(text, len, marker, strlen(marker)) != NULL;
	}
	closedir(d);
	return n;
}

/* Wait until marked() is as wanted; false after 20 s. */
static inline bool wait_marked(int least, int most)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;
	const struct timespec nap = {0, 5000000};

	while (coll_clock_ns() < until) {
		const int n = marked();

		if (n >= least && n <= most)
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

/* Wait for a line in the output; false after 20 s. */
static inline bool wait_output(const char *text, int times)
{
	const uint64_t until = coll_clock_ns() + 20000000000u;
	const struct timespec nap = {0, 5000000};

	while (coll_clock_ns() < until) {
		char *out = slurp("out");
		const bool there = count_lines(out, text) >= times;

		free(out);
		if (there)
			return true;
		nanosleep(&nap, NULL);
	}
	return false;
}

static inline void write_file(const char *name, const char *text, mode_t mode)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	if (!f)
		exit(1);
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
}

/* What a main() begins with: collrun, the directory of the test, the marker. */
static inline bool ran_begin(int argc, char **argv, const char *name)
{
	if (argc < 2)
		return false;
	collrun = argv[1];
	rank_probe = argc > 2 ? argv[2] : "";
	snprintf(dir, sizeof(dir), "/tmp/%s_XXXXXX", name);
	if (!mkdtemp(dir))
		return false;
	snprintf(marker, sizeof(marker), "marker_%s", dir + strlen(dir) - 6);
	return true;
}

static inline int ran_end(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	(void)!system(command);
	return plain_summary();
}

#endif
