/*
 * A seal depends on each bit of the message, on its length, on its number and on the key.
 */
#include "base/seal.h"

#include <string.h>

#include "tests/plain.h"

static bool differ(const struct coll_proof *a, struct coll_proof b)
{
	return !coll_proof_same(a, &b);
}

static struct coll_seal at(uint64_t key, uint64_t number)
{
	return (struct coll_seal){.key = {{key, 7}}, .number = number};
}

TEST(seal, depends_on_all_of_it)
{
	unsigned char message[1001] = {1, 2, 3};
	struct coll_seal one = at(5, 0), other;
	struct coll_proof right;

	for (size_t n = 0; n <= sizeof(message); n += n < 40 ? 1 : 137) {
		other = one;
		right = coll_seal_next(&one, message, n);
		CHECK(one.number == other.number + 1);
		CHECK(differ(&right, coll_seal_next(&one, message, n)), "%zu bytes, the next number", n);
		for (size_t bit = 0; bit < 8 * n; bit += n < 40 ? 1 : 61) {
			struct coll_seal again = other;

			message[bit / 8] ^= (unsigned char)(1 << bit % 8);
			CHECK(differ(&right, coll_seal_next(&again, message, n)), "%zu bytes, bit %zu", n, bit);
			message[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
		CHECK(!differ(&right, coll_seal_next(&other, message, n)), "%zu bytes, the same again", n);
		if (n < sizeof(message)) {
			other = at(5, one.number - 2);
			CHECK(differ(&right, coll_seal_next(&other, message, n + 1)), "%zu bytes, one more", n);
		}
		other = at(6, one.number - 2);
		CHECK(differ(&right, coll_seal_next(&other, message, n)), "%zu bytes, another key", n);
	}
}
