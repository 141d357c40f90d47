/*
 * Kinds of memory. A buffer of the user is host memory, or memory of a device that its driver
 * tells apart. The table has a row per kind: host always; others are added when their
 * driver is found.
 *
 * The kind of a buffer is a local fact. That a communicator serves a kind is agreed at
 * creation; today every communicator serves host memory only. Calls with other memory are
 * refused before anything reads it (core/memory.c), and every extent of the engine carries
 * its kind.
 */
#ifndef COLL_DEVICE_DEVICE_H
#define COLL_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/transport.h"

enum { COLL_DEVICE_HOST = 0, COLL_DEVICE_KINDS_MAX = 4 };

struct coll_device {
	const char *name; /* as messages call the memory: "host" */
	/* Whether any byte of the range is of this kind. Never reads it. Any thread. */
	bool (*owns)(void *arg, const void *ptr, size_t len_bytes);
	void *arg;
};

/* Add a kind, before the communicators that are to tell it apart are created. device lives
 * until it is removed. OK: *kind is its number. MEMORY: the table is full. */
coll_status coll_device_add(const struct coll_device *device, int *kind);
/* No communicator that was created since the kind was added is left. */
void coll_device_remove(int kind);

/* Whether there is a kind beside host. If not, nobody has to ask: no pointer is looked at, and no
 * driver is called. */
bool coll_device_any(void);

/* The kind of a range: COLL_DEVICE_HOST if no other kind claims a byte of it. Never reads it. */
int coll_device_identify(const void *ptr, size_t len_bytes);

/* NULL: there is no such kind. */
const char *coll_device_name(int kind);

/* What the engine and the transports are told about memory of a kind of which nothing else is
 * known. Valid for good. */
const struct coll_memory *coll_device_memory(int kind);

#endif
