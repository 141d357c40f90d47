/*
 * Structs of other versions: shorter, longer with zeros, longer with what this library does not have.
 */
#include <stdint.h>

#include "base/sized.h"
#include "tests/plain.h"

/* A struct after two versions that added members, and its next version. */
struct now {
	size_t struct_size;
	int first;
	int second;
	uint64_t third;
	uint64_t fourth;
};
struct next {
	struct now old;
	uint64_t fifth;
	uint64_t sixth;
};

enum { FIRST = COLL_SIZED_FIRST(struct now, second) };

static struct next made(size_t bytes)
{
	return (struct next){.old = {bytes, 1, 2, 3, 4}};
}

TEST(sized, the_first_size_ends_at_a_member_and_is_padded)
{
	CHECK(FIRST == 16);
	CHECK(COLL_SIZED_FIRST(struct now, first) == 16, "padding");
	CHECK(COLL_SIZED_FIRST(struct now, fourth) == sizeof(struct now));
}

TEST(sized, what_a_shorter_struct_lacks_is_zero)
{
	struct next given = made(24);
	struct now whole = {.fourth = 99};

	CHECK(coll_sized_read(&whole, sizeof(whole), &given, FIRST));
	CHECK(whole.struct_size == sizeof(whole) && whole.first == 1 && whole.second == 2 && whole.third == 3);
	CHECK(whole.fourth == 0);
}

TEST(sized, a_longer_struct_is_accepted_if_the_rest_is_zero)
{
	struct next given = made(sizeof(given));
	struct now whole = {0};

	CHECK(coll_sized_read(&whole, sizeof(whole), &given, FIRST));
	CHECK(whole.struct_size == sizeof(whole) && whole.fourth == 4);
	given.sixth = (uint64_t)1 << 63; /* its last byte alone */
	CHECK(!coll_sized_read(&whole, sizeof(whole), &given, FIRST));
	given.sixth = 0;
	given.fifth = 1;
	whole.first = 7;
	CHECK(!coll_sized_read(&whole, sizeof(whole), &given, FIRST) && whole.first == 7);
}

TEST(sized, impossible_sizes_are_refused)
{
	static const size_t sizes[] = {0, 8, 15, 17, 33, COLL_SIZED_MOST + 8, SIZE_MAX};
	struct now whole = {0};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct next given = made(sizes[i]);

		CHECK(!coll_sized_read(&whole, sizeof(whole), &given, FIRST), "%zu", sizes[i]);
		CHECK(!coll_sized_write(&given, &whole, sizeof(whole), FIRST), "%zu", sizes[i]);
		CHECK(given.old.first == 1, "%zu", sizes[i]);
	}
}

TEST(sized, filling_keeps_to_the_size_of_the_program)
{
	const struct now whole = {sizeof(whole), 11, 12, 13, 14};
	struct next given = made(24);

	CHECK(coll_sized_write(&given, &whole, sizeof(whole), FIRST));
	CHECK(given.old.struct_size == 24 && given.old.first == 11 && given.old.third == 13);
	CHECK(given.old.fourth == 4, "beyond the end");
	given = made(sizeof(given));
	given.fifth = given.sixth = 5;
	CHECK(coll_sized_write(&given, &whole, sizeof(whole), FIRST));
	CHECK(given.old.struct_size == sizeof(given) && given.old.fourth == 14);
	CHECK(given.fifth == 0 && given.sixth == 0);
}
