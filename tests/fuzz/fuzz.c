/*
 * What targets share (fuzz.h): the table, inputs as texts and files, and time that does not pass by itself. Owns poll()
 * of the program, which is the system's but between fuzz_time_begin() and fuzz_time_end().
 */
#include "tests/fuzz/fuzz.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

#define TARGET(name, fn) void fn(const uint8_t *data, size_t len_bytes);
#include "tests/fuzz/rows.h"
#undef TARGET

const struct fuzz_target fuzz_targets[] = {
#define TARGET(name, fn) {name, fn},
#include "tests/fuzz/rows.h"
#undef TARGET
        {0}};

const struct fuzz_target *fuzz_find(const char *name)
{
	for (const struct fuzz_target *t = fuzz_targets; t->name; t++)
		if (strcmp(t->name, name) == 0)
			return t;
	return NULL;
}

_Noreturn void fuzz_broken(const char *cond, const char *file, int line)
{
	fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, cond);
	abort();
}

char *fuzz_text(struct fuzz_input *in)
{
	char *text = malloc(in->left + 1);

	FUZZ_HOLDS(text != NULL);
	if (in->left)
		memcpy(text, in->at, in->left);
	text[in->left] = 0;
	in->at += in->left;
	in->left = 0;
	return text;
}

int fuzz_file(const void *data, size_t len_bytes, char path[64])
{
	const int fd = memfd_create("fuzz", MFD_CLOEXEC);

	FUZZ_HOLDS(fd >= 0 && write(fd, data, len_bytes) == (ssize_t)len_bytes);
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

/* ---- Time ---- */

static uint64_t now_ns, step_ns;
static void (*turn)(void *arg);
static void *turn_arg;

static uint64_t stands(void *arg)
{
	return now_ns += step_ns;
}

void fuzz_time_begin(uint64_t step, void (*fn)(void *arg), void *arg)
{
	static const struct coll_clock_source source = {.now_ns = stands};

	now_ns = 1000000000;
	step_ns = step;
	turn = fn;
	turn_arg = arg;
	coll_clock_take(&source);
}

void fuzz_time_end(void)
{
	turn = NULL;
	coll_clock_take(NULL);
}

int poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	const struct timespec none = {0}, t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
	int ready;

	if (!turn)
		return ppoll(fds, n, timeout_ms < 0 ? NULL : &t, NULL);
	turn(turn_arg);
	ready = ppoll(fds, n, &none, NULL);
	if (ready == 0)
		now_ns += (uint64_t)(timeout_ms > 0 ? timeout_ms : 1) * 1000000u;
	return ready;
}
