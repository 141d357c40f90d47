/* For the test: the way without an instruction. */
#ifndef GPT_FORMATS_CRC32C_INNER_H
#define GPT_FORMATS_CRC32C_INNER_H

#include <stddef.h>
#include <stdint.h>

uint32_t gpt_crc32c_table(uint32_t crc, const uint8_t *p, size_t len_bytes);

#endif
