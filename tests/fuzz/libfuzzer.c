/*
 * The driver by libFuzzer: COLL_FUZZ names the target, the arguments are libFuzzer's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes);

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("COLL_FUZZ");

	target = name ? fuzz_find(name) : NULL;
	if (target)
		return 0;
	fprintf(stderr, "COLL_FUZZ=TARGET, one of:");
	for (const struct fuzz_target *t = fuzz_targets; t->name; t++)
		fprintf(stderr, " %s", t->name);
	fprintf(stderr, "\n");
	exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len_bytes)
{
	target->run(data, len_bytes);
	return 0;
}
