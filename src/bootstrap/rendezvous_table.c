/*
 * The table on the wire: what each rank brings, without the zeros at its end, behind its length. Most of a peer info is
 * room for addresses that few hosts have, and the table goes to every rank: it is hashed, sent and received there.
 * Nothing is believed of a frame but that its lengths add up.
 */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/rendezvous.h"
#include "bootstrap/wire.h"

static size_t without_zeros(const unsigned char *bytes, size_t len_bytes)
{
	uint64_t word;

	while (len_bytes >= sizeof(word)) {
		memcpy(&word, bytes + len_bytes - sizeof(word), sizeof(word));
		if (word)
			break;
		len_bytes -= sizeof(word);
	}
	while (len_bytes > 0 && !bytes[len_bytes - 1])
		len_bytes--;
	return len_bytes;
}

unsigned char *pack_table(const struct coll_rendezvous_point *how, size_t *packed_bytes)
{
	unsigned char *packed = malloc(table_bytes_max(how)), *to = packed;
	const unsigned char *from = how->all;

	for (int r = 0; packed && r < how->size; r++, from += how->len_bytes) {
		const uint32_t n = (uint32_t)without_zeros(from, how->len_bytes);

		memcpy(to, &n, sizeof(n));
		memcpy(to + sizeof(n), from, n);
		to += sizeof(n) + n;
	}
	*packed_bytes = packed ? (size_t)(to - packed) : 0;
	return packed;
}

bool unpack_table(const struct coll_rendezvous_point *how, const struct coll_wire_frame *f)
{
	const unsigned char *from = f->body, *end = from + f->len_bytes;
	unsigned char *to = how->all;

	for (int r = 0; r < how->size; r++, to += how->len_bytes) {
		uint32_t n;

		if ((size_t)(end - from) < sizeof(n))
			return false;
		memcpy(&n, from, sizeof(n));
		from += sizeof(n);
		if (n > how->len_bytes || n > (size_t)(end - from))
			return false;
		memcpy(to, from, n);
		memset(to + n, 0, how->len_bytes - n);
		from += n;
	}
	return from == end;
}
