/*
 * The table of kinds: host is what no other kind claims.
 */
#include <string.h>

#include "device/device.h"
#include "tests/plain.h"

static char field[64];

static bool in_field(void *arg, const void *ptr, size_t len_bytes)
{
	const char *p = ptr;

	return p < field + sizeof(field) && p + len_bytes > field;
}

TEST(device, host_is_the_rest)
{
	char other[8];

	CHECK(!coll_device_any());
	CHECK(coll_device_identify(field, 1) == COLL_DEVICE_HOST);
	CHECK(coll_device_identify(other, sizeof(other)) == COLL_DEVICE_HOST);
	CHECK(strcmp(coll_device_name(COLL_DEVICE_HOST), "host") == 0);
	CHECK(coll_device_name(COLL_DEVICE_HOST + 1) == NULL && coll_device_name(-1) == NULL);
	CHECK(coll_device_memory(COLL_DEVICE_HOST)->kind == COLL_DEVICE_HOST);
}

TEST(device, a_kind_claims_its_range)
{
	const struct coll_device test = {.name = "test", .owns = in_field};
	int kind = -1;

	REQUIRE(coll_device_add(&test, &kind) == COLL_OK);
	CHECK(coll_device_any() && kind > COLL_DEVICE_HOST);
	CHECK(strcmp(coll_device_name(kind), "test") == 0);
	CHECK(coll_device_identify(field, 1) == kind);
	CHECK(coll_device_identify(field + 63, 100) == kind, "one byte of it is enough");
	CHECK(coll_device_identify(field + 64, 1) == COLL_DEVICE_HOST);
	CHECK(coll_device_memory(kind)->kind == kind);
	coll_device_remove(kind);
	CHECK(!coll_device_any() && coll_device_identify(field, 1) == COLL_DEVICE_HOST);
}

TEST(device, a_full_table_says_so)
{
	const struct coll_device test = {.name = "test", .owns = in_field};
	int kinds[COLL_DEVICE_KINDS_MAX] = {0}, n = 0;

	while (n < COLL_DEVICE_KINDS_MAX && coll_device_add(&test, &kinds[n]) == COLL_OK)
		n++;
	CHECK(n == COLL_DEVICE_KINDS_MAX - 1, "%d", n);
	while (n > 0)
		coll_device_remove(kinds[--n]);
	CHECK(!coll_device_any());
}
