/*
 * CRC-32C (Castagnoli, reflected 0x82f63b78), as files of states and of TensorBoard carry it.
 */
#ifndef GPT_FORMATS_CRC32C_H
#define GPT_FORMATS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of the bytes so far, whose checksum is crc (0: none), and these behind them. */
uint32_t gpt_crc32c(uint32_t crc, const void *data, size_t len_bytes);

#endif
