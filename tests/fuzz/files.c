/*
 * The driver without clang: runs what the files of a corpus hold through its target, and damaged copies of each.
 * Without coverage: it finds again what was found once, and little else.
 *
 * usage: fuzz-files CORPUS COPIES [TARGET]    CORPUS has a folder for each target; COPIES of each file
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/hash.h"
#include "tests/fuzz/fuzz.h"

enum { INPUT_MAX = 1 << 16 };

static uint8_t bytes[INPUT_MAX + 1], copy[INPUT_MAX + 1];

static long read_input(const char *dir, const char *name)
{
	char path[4400];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	if (!f)
		return -1;
	n = fread(bytes, 1, INPUT_MAX, f);
	fclose(f);
	return (long)n;
}

/* A few changes; returns the new length. */
static size_t damage(struct coll_rng *rng, uint8_t *p, size_t n)
{
	for (uint32_t left = 1 + coll_rng_below(rng, 4); left > 0 && n > 1; left--) {
		const size_t at = coll_rng_below(rng, (uint32_t)n);

		switch (coll_rng_below(rng, 4)) {
		case 0: p[at] = (uint8_t)coll_rng_next(rng); break;
		case 1: p[at] ^= (uint8_t)(1u << coll_rng_below(rng, 8)); break;
		case 2: p[at] = coll_rng_below(rng, 2) ? 0xff : 0; break;
		default: n = at + 1; break;
		}
	}
	return n;
}

/* From memory of exactly that length, so that a sanitizer sees who reads behind it. */
static void run(const struct fuzz_target *t, const uint8_t *p, size_t n)
{
	uint8_t *exact = malloc(n ? n : 1);

	FUZZ_HOLDS(exact != NULL);
	memcpy(exact, p, n);
	t->run(exact, n);
	free(exact);
}

static bool run_all(const struct fuzz_target *t, const char *corpus, long copies)
{
	struct coll_rng rng = {1};
	char dir[4096];
	long files = 0, runs = 0;
	struct dirent *e;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/%s", corpus, t->name);
	d = opendir(dir);
	while (d && (e = readdir(d))) {
		const long n = e->d_name[0] == '.' ? -1 : read_input(dir, e->d_name);

		if (n < 0)
			continue;
		files++;
		run(t, bytes, (size_t)n);
		for (long i = 0; i < copies; i++) {
			memcpy(copy, bytes, (size_t)n);
			run(t, copy, damage(&rng, copy, (size_t)n));
		}
		runs += 1 + copies;
	}
	if (d)
		closedir(d);
	printf("%s %s: %ld files, %ld runs\n", files ? "ok  " : "FAIL", t->name, files, runs);
	fflush(stdout);
	return files > 0;
}

int main(int argc, char **argv)
{
	/* No input justifies more, but for the shadow of a sanitizer, which cannot be limited. */
	const struct rlimit most = {.rlim_cur = (rlim_t)1 << 30, .rlim_max = (rlim_t)1 << 30};
	bool good = argc >= 3, any = false;

	if (argc < 3) {
		fprintf(stderr, "usage: fuzz-files CORPUS COPIES [TARGET]\n");
		return 2;
	}
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	setrlimit(RLIMIT_AS, &most);
#else
	(void)most;
#endif
	for (const struct fuzz_target *t = fuzz_targets; t->name; t++)
		if (argc == 3 || strcmp(argv[3], t->name) == 0) {
			any = true;
			good = run_all(t, argv[1], atol(argv[2])) && good;
		}
	return good && any ? 0 : 1;
}
