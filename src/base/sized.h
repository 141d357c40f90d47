/*
 * Structs of the public headers that begin with struct_size: a program and the library may have been compiled
 * with different versions of them. One rule for all, that of Linux's copy_struct_from_user():
 *
 *  - Every size from that of the first version on is accepted. What a shorter struct lacks is taken for zero.
 *  - A longer one is accepted if all that this library does not have is zero. Otherwise the program asks for
 *    something that this library cannot do, and is refused.
 *  - A struct that the library fills gets what both have. The rest of a longer one is set to zero.
 *
 * New members stand at the end, and never in padding of an earlier version: there old programs have any bytes. The
 * size of a struct is a multiple of its alignment; any other size is a mistake and refused, as one beyond a page.
 */
#ifndef COLL_BASE_SIZED_H
#define COLL_BASE_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { COLL_SIZED_MOST = 4096 };

/* The size of the first version of a struct: up to the end of its member `last`, and padding. */
#define COLL_SIZED_FIRST(type, last) \
	((offsetof(type, last) + sizeof(((type *)0)->last) + _Alignof(type) - 1) / _Alignof(type) * _Alignof(type))

/* The struct_size of *given, which is its first member; 0: no version of the struct has it. */
static inline size_t coll_sized_of(const void *given, size_t first_bytes)
{
	size_t bytes;

	memcpy(&bytes, given, sizeof(bytes));
	return bytes >= first_bytes && bytes <= COLL_SIZED_MOST && bytes % sizeof(size_t) == 0 ? bytes : 0;
}

/* Copy *given into *whole, of len_bytes and of this version, by the rule above. False: refused, and *whole is as it
 * was. */
static inline bool coll_sized_read(void *whole, size_t len_bytes, const void *given, size_t first_bytes)
{
	const size_t bytes = coll_sized_of(given, first_bytes);
	const char *from = given;

	if (bytes == 0)
		return false;
	for (size_t i = len_bytes; i < bytes; i++)
		if (from[i])
			return false;
	memset(whole, 0, len_bytes);
	memcpy(whole, given, bytes < len_bytes ? bytes : len_bytes);
	memcpy(whole, &len_bytes, sizeof(len_bytes));
	return true;
}

/* Fill *given, whose struct_size stays, from *whole. False: refused, and *given is as it was. */
static inline bool coll_sized_write(void *given, const void *whole, size_t len_bytes, size_t first_bytes)
{
	const size_t bytes = coll_sized_of(given, first_bytes);
	const size_t both = bytes < len_bytes ? bytes : len_bytes;

	if (bytes == 0)
		return false;
	memcpy((char *)given + sizeof(bytes), (const char *)whole + sizeof(bytes), both - sizeof(bytes));
	memset((char *)given + both, 0, bytes - both);
	return true;
}

#endif
