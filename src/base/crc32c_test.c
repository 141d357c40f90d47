/*
 * The CRC: the vectors of RFC 3720 (B.4) and the check value of the catalogues; each level beside an oracle that takes
 * one bit at a time, over all short lengths, odd long ones, misaligned starts, and cut in two.
 */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "tests/plain.h"

static uint32_t oracle(uint32_t crc, const unsigned char *p, size_t len_bytes)
{
	crc = ~crc;
	for (; len_bytes > 0; len_bytes--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

static const struct level {
	const char *name;
	coll_crc32c_fn (*get)(void);
} levels[] = {{"table", coll_crc32c_table},
              {"hardware", coll_crc32c_hardware},
              {"wide", coll_crc32c_wide},
              {"best", coll_crc32c_best}};

enum { LEVELS = sizeof(levels) / sizeof(levels[0]), BYTES = 2 * 256 * 1024 + 777 };

TEST(crc32c, agrees_with_the_standard)
{
	unsigned char m[48];

	for (int i = 0; i < LEVELS; i++) {
		const coll_crc32c_fn crc = levels[i].get();

		if (!crc)
			continue;
		CHECK(crc(0, "123456789", 9) == 0xe3069283, "%s", levels[i].name);
		CHECK(crc(0, memset(m, 0, 32), 32) == 0x8a9136aa, "%s", levels[i].name);
		CHECK(crc(0, memset(m, 255, 32), 32) == 0x62a8ab43, "%s", levels[i].name);
		for (int k = 0; k < 32; k++)
			m[k] = (unsigned char)k;
		CHECK(crc(0, m, 32) == 0x46dd794e, "%s", levels[i].name);
		for (int k = 0; k < 32; k++)
			m[k] = (unsigned char)(31 - k);
		CHECK(crc(0, m, 32) == 0x113fdb5c, "%s", levels[i].name);
		CHECK(crc(0, m, 0) == 0, "%s", levels[i].name);
	}
}

static void compare(const struct level *level, uint32_t before, const unsigned char *p, size_t len_bytes, size_t cut)
{
	const coll_crc32c_fn crc = level->get();
	const uint32_t expected = oracle(before, p, len_bytes);

	if (!crc)
		return;
	CHECK(crc(before, p, len_bytes) == expected, "%s: %zu bytes at %zu", level->name, len_bytes, (size_t)p % 64);
	CHECK(crc(crc(before, p, cut), p + cut, len_bytes - cut) == expected, "%s: %zu bytes cut at %zu", level->name,
	      len_bytes, cut);
}

TEST(crc32c, every_level_agrees_with_one_bit_at_a_time)
{
	unsigned char *p = malloc(BYTES + 64);
	struct coll_rng rng = {coll_clock_ns()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	for (size_t i = 0; i < BYTES + 64; i++)
		p[i] = (unsigned char)coll_rng_next(&rng);
	for (int i = 0; i < LEVELS; i++) {
		const uint32_t before = (uint32_t)coll_rng_next(&rng);

		for (size_t n = 0; n < 100; n++)
			compare(&levels[i], before, p + n % 8, n, n / 3);
		for (size_t n = 504; n < 520; n++)
			compare(&levels[i], before, p + n % 8, n, n / 2);
		for (size_t n = 760; n < 776; n++)
			compare(&levels[i], before, p + n % 8, n, n / 2);
		for (int k = 0; k < 30; k++) {
			const uint32_t n = coll_rng_below(&rng, k < 20 ? 20000 : BYTES);

			compare(&levels[i], before, p + coll_rng_below(&rng, 64), n, coll_rng_below(&rng, n + 1));
		}
		compare(&levels[i], 0, p + 1, BYTES, 3 * 4096);
	}
	free(p);
}

TEST(crc32c, one_changed_bit_shows)
{
	unsigned char *p = calloc(1, BYTES);
	struct coll_rng rng = {77};

	for (int i = 0; i < 40; i++) {
		const uint32_t bit = coll_rng_below(&rng, 8 * BYTES);
		const uint32_t before = coll_crc32c_best()(0, p, BYTES);

		p[bit / 8] ^= (unsigned char)(1 << bit % 8);
		CHECK(coll_crc32c_best()(0, p, BYTES) != before);
	}
	free(p);
}
