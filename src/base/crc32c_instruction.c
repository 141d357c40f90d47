/*
 * The CRC by the processor's instruction: SSE 4.2 on x86, the CRC extension on Arm; compiled with the flags for it. The
 * instruction takes 8 bytes each cycle, and its result is there after three: three chains over neighbouring blocks keep
 * it busy. They are joined as if the blocks behind a block were zeros (Adler, crc32c.c, 2013).
 */
#include "base/crc32c_internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define STEP8(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define STEP1(crc, byte) _mm_crc32_u8((crc), (byte))
#else
#include <arm_acle.h>
#define STEP8(crc, word) __crc32cd((crc), (word))
#define STEP1(crc, byte) __crc32cb((crc), (byte))
#endif

static uint64_t word_at(const unsigned char *p)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	return word;
}

static uint32_t shifted(const struct coll_crc32c_shift *shift, uint32_t crc)
{
	return shift->at[0][crc & 255] ^ shift->at[1][crc >> 8 & 255] ^ shift->at[2][crc >> 16 & 255] ^
	       shift->at[3][crc >> 24];
}

/* Three blocks of so many bytes. */
static inline uint32_t three(const struct coll_crc32c_shift *shift, uint32_t crc, const unsigned char *p, size_t block)
{
	uint32_t second = 0, third = 0;

	for (size_t i = 0; i < block; i += 8) {
		crc = STEP8(crc, word_at(p + i));
		second = STEP8(second, word_at(p + block + i));
		third = STEP8(third, word_at(p + 2 * block + i));
	}
	return shifted(shift, shifted(shift, crc) ^ second) ^ third;
}

uint32_t coll_crc32c_instruction(uint32_t crc, const void *bytes, size_t len_bytes)
{
	const unsigned char *p = bytes, *const end = p + len_bytes;

	crc = ~crc;
	for (; end - p >= 3 * COLL_CRC32C_LONG; p += 3 * COLL_CRC32C_LONG)
		crc = three(&coll_crc32c_long, crc, p, COLL_CRC32C_LONG);
	for (; end - p >= 3 * COLL_CRC32C_SHORT; p += 3 * COLL_CRC32C_SHORT)
		crc = three(&coll_crc32c_short, crc, p, COLL_CRC32C_SHORT);
	for (; end - p >= 8; p += 8)
		crc = STEP8(crc, word_at(p));
	for (; p < end; p++)
		crc = STEP1(crc, *p);
	return ~crc;
}
