/*
 * What the text of a device asks for.
 */
#include "device/device.h"

#include <string.h>

#include "tests/plain.h"

static bool parses(const char *text, struct coll_device_choice *choice)
{
	struct coll_error_box err;
	coll_status st;

	coll_error_clear(&err);
	st = coll_device_parse(text, choice, &err);
	CHECK(st == COLL_OK || (st == COLL_ERR_CONFIG && strstr(err.message, "[COLL-1106] device ")), "%s: %s", text,
	      err.message);
	return st == COLL_OK;
}

TEST(device, parse_accepts)
{
	struct coll_device_choice c;
	char text[512] = "cuda:0";

	CHECK(parses("host", &c) && !c.wanted && c.n == 0);
	CHECK(parses("cuda", &c) && c.wanted && c.ordinal == -1 && c.n == 0);
	CHECK(parses("cuda:2", &c) && c.wanted && c.ordinal == 2 && c.n == 1 && c.list[0] == 2);
	CHECK(parses("cuda:0,1,2,3", &c) && c.wanted && c.ordinal == -1 && c.n == 4);
	CHECK(c.list[0] == 0 && c.list[1] == 1 && c.list[2] == 2 && c.list[3] == 3);
	CHECK(parses("cuda:7,7", &c) && c.n == 2 && c.list[0] == 7 && c.list[1] == 7);
	for (int i = 1; i < 64; i++)
		strcat(text, ",5");
	CHECK(parses(text, &c) && c.n == 64 && c.list[0] == 0 && c.list[63] == 5);
	strcat(text, ",5");
	CHECK(!parses(text, &c));
	CHECK(c.n == 64, "a malformed text changes nothing");
}

TEST(device, parse_refuses)
{
	static const char *const wrong[] = {"",         "cud",     "cudax",   "CUDA",      "host:0",
	                                    "hosts",    "gpu",     "cuda:",   "cuda:x",    "cuda:-1",
	                                    "cuda: 1",  "cuda:1,", "cuda:,1", "cuda:1,,2", "cuda:0x1",
	                                    "cuda:1:2", "cuda,1",  "cuda:+1", "cuda:1024", "cuda:12345678901",
	                                    " cuda"};
	struct coll_device_choice c;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!parses(wrong[i], &c), "'%s'", wrong[i]);
}

TEST(device, host_memory_has_a_kind)
{
	CHECK(coll_device_memory(COLL_DEVICE_HOST)->kind == COLL_DEVICE_HOST);
	CHECK(coll_device_memory(COLL_DEVICE_CUDA)->kind == COLL_DEVICE_CUDA);
	CHECK(coll_device_memory(COLL_DEVICE_CUDA)->size == sizeof(struct coll_memory));
}

/* Nothing is loaded for a rank without a device. */
TEST(device, host_needs_no_driver)
{
	struct coll_device_choice c;
	struct coll_error_box err;

	coll_error_clear(&err);
	REQUIRE(parses("host", &c));
	CHECK(coll_device_probe(&c, "/nowhere/libcuda.so.1", &err) == COLL_OK);
}
