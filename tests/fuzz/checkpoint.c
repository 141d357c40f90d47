/*
 * Target: checkpoints of the GPT example. The checksum at the end is made right, so that what stands before it is read.
 */
#include <string.h>
#include <unistd.h>

#include "gpt/checkpoint.h"
#include "tests/fuzz/fuzz.h"

void fuzz_checkpoint(const uint8_t *data, size_t len_bytes);

/* Of the header, then of each array, then of the rest: where each begins is what the header says. */
enum { HEADER_BYTES = 8 + 8 * 4 + 5 * 8 + 256, ARRAYS_AT = 8 + 7 * 4, COUNT_AT = 8 + 8 * 4 + 8 };

static uint64_t checksum(const uint8_t *data, size_t len_bytes)
{
	uint64_t sum = gpt_checksum(0, data, HEADER_BYTES), count;
	size_t at = HEADER_BYTES;
	uint32_t arrays;

	memcpy(&arrays, data + ARRAYS_AT, sizeof(arrays));
	memcpy(&count, data + COUNT_AT, sizeof(count));
	for (uint32_t i = 0; i < arrays && i < 3 && count <= (len_bytes - at) / sizeof(float); i++) {
		sum = gpt_checksum(sum, data + at, count * sizeof(float));
		at += count * sizeof(float);
	}
	return gpt_checksum(sum, data + at, len_bytes - at);
}

void fuzz_checkpoint(const uint8_t *data, size_t len_bytes)
{
	struct gpt_checkpoint c = {0};
	uint64_t sum = 0;
	char path[64];
	int fd;

	if (len_bytes >= HEADER_BYTES)
		sum = checksum(data, len_bytes);
	fd = fuzz_file(data, len_bytes, path);
	FUZZ_HOLDS(write(fd, &sum, sizeof(sum)) == sizeof(sum));
	if (gpt_checkpoint_read(path, &c) == 0)
		gpt_checkpoint_free(&c);
	close(fd);
}
