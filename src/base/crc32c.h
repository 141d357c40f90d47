/*
 * CRC-32C (Castagnoli, as of RFC 3720): the check of payloads on their way between hosts. It finds accidents, such as a
 * bit that a switch or a memory has changed; whoever changes bytes on purpose can make it fit.
 *
 * Running: coll_crc32c(coll_crc32c(0, a), b) is that of a and b side by side.
 */
#ifndef COLL_BASE_CRC32C_H
#define COLL_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

typedef uint32_t (*coll_crc32c_fn)(uint32_t crc, const void *bytes, size_t len_bytes);

/* The fastest that this processor has. Its tables are made by the first call. */
coll_crc32c_fn coll_crc32c_best(void);

/* The levels: the table is there always, the others are NULL where the processor has no instruction for them. */
coll_crc32c_fn coll_crc32c_table(void);
coll_crc32c_fn coll_crc32c_hardware(void);
coll_crc32c_fn coll_crc32c_wide(void);

#endif
