/*
 * What the levels of the CRC share.
 */
#ifndef COLL_BASE_CRC32C_INTERNAL_H
#define COLL_BASE_CRC32C_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

/* Three chains run side by side over blocks of so many bytes each. */
enum { COLL_CRC32C_LONG = 4096, COLL_CRC32C_SHORT = 256 };

/* at[k][b]: what byte k of a CRC becomes when so many zero bytes follow. */
struct coll_crc32c_shift {
	uint32_t at[4][256];
};

extern struct coll_crc32c_shift coll_crc32c_long, coll_crc32c_short;

/* Four streams run side by side over quarters of so many bytes. */
enum { COLL_CRC32C_QUARTER = 64 * 1024 };

/* What carries 16 bytes over 256, 64, 16 and a quarter: their first and second 8 by x^(bits + 32) and x^(bits - 32),
 * bits reversed. */
extern uint64_t coll_crc32c_fold[4][2];

uint32_t coll_crc32c_instruction(uint32_t crc, const void *bytes, size_t len_bytes);
uint32_t coll_crc32c_vectors(uint32_t crc, const void *bytes, size_t len_bytes);

#endif
