/*
 * The table of kinds of memory: see device.h. A process global, since drivers are found once
 * per process. A row is published whole: its pointer is stored last, with release.
 */
#include "device/device.h"

#include <assert.h>
#include <stdatomic.h>

static bool owns_rest(void *arg, const void *ptr, size_t len_bytes)
{
	return true;
}

static const struct coll_device host = {.name = "host", .owns = owns_rest};
static _Atomic(const struct coll_device *) devices[COLL_DEVICE_KINDS_MAX] = {&host};
static atomic_int others;

coll_status coll_device_add(const struct coll_device *device, int *kind)
{
	for (int k = COLL_DEVICE_HOST + 1; k < COLL_DEVICE_KINDS_MAX; k++) {
		const struct coll_device *none = NULL;

		if (atomic_compare_exchange_strong(&devices[k], &none, device)) {
			atomic_fetch_add(&others, 1);
			*kind = k;
			return COLL_OK;
		}
	}
	return COLL_ERR_MEMORY;
}

void coll_device_remove(int kind)
{
	assert(kind > COLL_DEVICE_HOST && kind < COLL_DEVICE_KINDS_MAX);
	if (atomic_exchange(&devices[kind], NULL))
		atomic_fetch_sub(&others, 1);
}

bool coll_device_any(void)
{
	return atomic_load_explicit(&others, memory_order_acquire) > 0;
}

int coll_device_identify(const void *ptr, size_t len_bytes)
{
	for (int k = COLL_DEVICE_HOST + 1; k < COLL_DEVICE_KINDS_MAX; k++) {
		const struct coll_device *d = atomic_load_explicit(&devices[k], memory_order_acquire);

		if (d && d->owns(d->arg, ptr, len_bytes))
			return k;
	}
	return COLL_DEVICE_HOST;
}

const char *coll_device_name(int kind)
{
	const struct coll_device *d = kind >= 0 && kind < COLL_DEVICE_KINDS_MAX ? atomic_load(&devices[kind]) : NULL;

	return d ? d->name : NULL;
}

#define PLAIN(k)                                                \
	{                                                       \
		.size = sizeof(struct coll_memory), .kind = (k) \
	}

const struct coll_memory *coll_device_memory(int kind)
{
	static const struct coll_memory plain[] = {PLAIN(0), PLAIN(1), PLAIN(2), PLAIN(3)};

	static_assert(sizeof(plain) / sizeof(plain[0]) == COLL_DEVICE_KINDS_MAX, "one per kind");
	assert(kind >= 0 && kind < COLL_DEVICE_KINDS_MAX);
	return &plain[kind];
}
