/*
 * CRC-32C by the processor's instruction where there is one, else by a table. Both give the same; a test compares them.
 */
#include "gpt/formats/crc32c.h"
#include "gpt/formats/crc32c_inner.h"
#include <string.h>

uint32_t gpt_crc32c_table(uint32_t crc, const uint8_t *p, size_t len_bytes)
{
	static uint32_t table[256];
	uint32_t c = ~crc;

	/* Threads that fill it at once write the same; entry 255 comes last. */
	for (uint32_t i = 0; !__atomic_load_n(&table[255], __ATOMIC_ACQUIRE) && i < 256; i++) {
		uint32_t x = i;

		for (int k = 0; k < 8; k++)
			x = x & 1 ? x >> 1 ^ 0x82f63b78u : x >> 1;
		__atomic_store_n(&table[i], x, __ATOMIC_RELEASE);
	}
	while (len_bytes--)
		c = table[(c ^ *p++) & 255] ^ c >> 8;
	return ~c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t len_bytes)
{
	uint64_t c = ~crc, word;

	for (; len_bytes >= sizeof(word); p += sizeof(word), len_bytes -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		c = __builtin_ia32_crc32di(c, word);
	}
	while (len_bytes--)
		c = __builtin_ia32_crc32qi((uint32_t)c, *p++);
	return ~(uint32_t)c;
}

uint32_t gpt_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
	return __builtin_cpu_supports("sse4.2") ? by_instruction(crc, data, len_bytes)
	                                        : gpt_crc32c_table(crc, data, len_bytes);
}
#else
uint32_t gpt_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
	return gpt_crc32c_table(crc, data, len_bytes);
}
#endif
