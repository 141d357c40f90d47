/*
 * Fuzz targets: functions that give bytes from outside to what reads them. One program holds all of them, with two
 * drivers: libfuzzer.c (clang), and files.c, which runs the files of a corpus and needs no clang.
 *
 * A target ends as it began: nothing stays open, allocated or registered, but what it makes once for all runs. Where a
 * format is sealed with a key, the target seals by the library's own functions: members of a job may be hostile.
 */
#ifndef COLL_TESTS_FUZZ_H
#define COLL_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct fuzz_target {
	const char *name;
	void (*run)(const uint8_t *data, size_t len_bytes);
};

/* Ended by a row without a name. */
extern const struct fuzz_target fuzz_targets[];
const struct fuzz_target *fuzz_find(const char *name);

/* What must hold whatever comes; else the program ends by abort(). */
#define FUZZ_HOLDS(cond) ((cond) ? (void)0 : fuzz_broken(#cond, __FILE__, __LINE__))
_Noreturn void fuzz_broken(const char *cond, const char *file, int line);

/* ---- Reading the input ---- */

struct fuzz_input {
	const uint8_t *at;
	size_t left;
};

static inline uint8_t fuzz_byte(struct fuzz_input *in)
{
	if (in->left == 0)
		return 0;
	in->left--;
	return *in->at++;
}

/* len_bytes of the input; what is missing is 0. */
static inline void fuzz_bytes(struct fuzz_input *in, void *to, size_t len_bytes)
{
	const size_t n = in->left < len_bytes ? in->left : len_bytes;

	memset(to, 0, len_bytes);
	if (n)
		memcpy(to, in->at, n);
	in->at += n;
	in->left -= n;
}

static inline uint32_t fuzz_number(struct fuzz_input *in)
{
	uint32_t n;

	fuzz_bytes(in, &n, sizeof(n));
	return n;
}

/* The rest as a text with a zero at its end, to be freed. */
char *fuzz_text(struct fuzz_input *in);

/* The same in an unnamed file, which path names. Returns a descriptor to be closed. */
int fuzz_file(const void *data, size_t len_bytes, char path[64]);

/* ---- Time ---- */

/* From here on the clock goes on by step_ns with each look at it, and by poll(), which calls turn(), waits for
 * nothing, and adds the time that it would have waited. */
void fuzz_time_begin(uint64_t step_ns, void (*turn)(void *arg), void *arg);
void fuzz_time_end(void);

#endif
