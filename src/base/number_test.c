/*
 * Whole numbers: bounds, what stands behind them, what is none.
 */
#include <limits.h>

#include "base/number.h"
#include "tests/plain.h"

TEST(number, from_least_to_most)
{
	int value = 7;

	CHECK(coll_number_parse("1", 1, 64, &value) && value == 1);
	CHECK(coll_number_parse("64", 1, 64, &value) && value == 64);
	CHECK(coll_number_parse("-2147483648", INT_MIN, INT_MAX, &value) && value == INT_MIN);
	CHECK(coll_number_parse("2147483647", INT_MIN, INT_MAX, &value) && value == INT_MAX);
}

TEST(number, all_else_is_refused_and_leaves_the_value)
{
	static const char *const texts[] = {
	        "", "x", "5x", "5 ", "0x10", "1.5", "2147483648", "-2147483649", "99999999999999999999"};
	int value = 7;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		CHECK(!coll_number_parse(texts[i], INT_MIN, INT_MAX, &value), "\"%s\"", texts[i]);
	CHECK(!coll_number_parse("0", 1, 64, &value));
	CHECK(!coll_number_parse("65", 1, 64, &value));
	CHECK(value == 7);
}
