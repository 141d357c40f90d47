/*
 * The CRC by tables (slicing by 8: Kounavis and Berry, 2005), the tables of all levels, and the choice between them.
 * Tables are made once, before the first function is handed out, and only read afterwards.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/cpu.h"
#include "base/crc32c_internal.h"

enum { POLYNOMIAL = 0x82f63b78 }; /* 0x1edc6f41, bits reversed */

static uint32_t slice[8][256];
struct coll_crc32c_shift coll_crc32c_long, coll_crc32c_short;
uint64_t coll_crc32c_fold[4][2];

static uint32_t one_byte(uint32_t crc, uint8_t byte)
{
	return crc >> 8 ^ slice[0][(crc ^ byte) & 255];
}

static uint32_t by_table(uint32_t crc, const void *bytes, size_t len_bytes)
{
	const unsigned char *p = bytes;

	crc = ~crc;
	for (; len_bytes >= 8; p += 8, len_bytes -= 8) {
		const uint32_t low =
		        crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);

		crc = slice[7][low & 255] ^ slice[6][low >> 8 & 255] ^ slice[5][low >> 16 & 255] ^ slice[4][low >> 24] ^
		      slice[3][p[4]] ^ slice[2][p[5]] ^ slice[1][p[6]] ^ slice[0][p[7]];
	}
	for (; len_bytes > 0; len_bytes--)
		crc = one_byte(crc, *p++);
	return ~crc;
}

/* A CRC is linear: what a value becomes is the sum of what its bits become. */
static void make_shift(struct coll_crc32c_shift *shift, size_t zeros)
{
	for (int bit = 0; bit < 32; bit++) {
		uint32_t value = 1u << bit;

		for (size_t i = 0; i < zeros; i++)
			value = one_byte(value, 0);
		for (int b = 0; b < 256; b++)
			if (b >> bit % 8 & 1)
				shift->at[bit / 8][b] ^= value;
	}
}

/* Of polynomials, bits reversed. */
static uint32_t product(uint32_t a, uint32_t b)
{
	uint32_t sum = 0;

	for (; a != 0; a <<= 1) {
		if (a >> 31)
			sum ^= b;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return sum;
}

static uint64_t power_of_x(int n)
{
	uint32_t value = 1u << 31, square = 1u << 30;

	for (; n > 0; n >>= 1) {
		if (n & 1)
			value = product(value, square);
		square = product(square, square);
	}
	return (uint64_t)value << 1;
}

static void make_tables(void)
{
	static const int distance[] = {256 * 8, 64 * 8, 16 * 8, COLL_CRC32C_QUARTER * 8};

	for (int i = 0; i < 4; i++) {
		coll_crc32c_fold[i][0] = power_of_x(distance[i] + 32);
		coll_crc32c_fold[i][1] = power_of_x(distance[i] - 32);
	}
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t crc = b;

		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		slice[0][b] = crc;
	}
	for (int b = 0; b < 256; b++)
		for (int k = 1; k < 8; k++)
			slice[k][b] = one_byte(slice[k - 1][b], 0);
	make_shift(&coll_crc32c_long, COLL_CRC32C_LONG);
	make_shift(&coll_crc32c_short, COLL_CRC32C_SHORT);
}

static pthread_once_t made = PTHREAD_ONCE_INIT;

coll_crc32c_fn coll_crc32c_table(void)
{
	pthread_once(&made, make_tables);
	return by_table;
}

coll_crc32c_fn coll_crc32c_hardware(void)
{
	pthread_once(&made, make_tables);
#if defined(__x86_64__)
	if (coll_cpu_has(COLL_CPU_SSE42))
		return coll_crc32c_instruction;
#elif defined(__aarch64__)
	if (getauxval(AT_HWCAP) & HWCAP_CRC32)
		return coll_crc32c_instruction;
#endif
	return NULL;
}

coll_crc32c_fn coll_crc32c_wide(void)
{
	pthread_once(&made, make_tables);
#if defined(__x86_64__)
	if (coll_cpu_has(COLL_CPU_AVX512F | COLL_CPU_VPCLMULQDQ | COLL_CPU_PCLMUL))
		return coll_crc32c_vectors;
#endif
	return NULL;
}

coll_crc32c_fn coll_crc32c_best(void)
{
	const coll_crc32c_fn wide = coll_crc32c_wide(), hardware = coll_crc32c_hardware();

	return wide ? wide : hardware ? hardware : coll_crc32c_table();
}
