/*
 * The paper's test vector (appendix A: key 00..0f, message 00..0e) and the empty
 * message, which the reference implementation's list gives first.
 */
#include <criterion/criterion.h>

#include "base/siphash.h"

static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

Test(siphash, agrees_with_the_paper)
{
	unsigned char m[15];

	for (int i = 0; i < 15; i++)
		m[i] = (unsigned char)i;
	cr_assert_eq(coll_siphash24(key, m, sizeof(m)), 0xa129ca6149be45e5u);
	cr_assert_eq(coll_siphash24(key, m, 0), 0x726fdb47dd0e0e31u);
}

/* vectors_sip128 of the authors' reference implementation: 0, 1, 2 and 15 bytes. */
Test(siphash, the_wide_result_agrees_with_the_reference)
{
	static const struct {
		size_t len_bytes;
		uint64_t out[2];
	} want[] = {
	        {0, {0xe6a825ba047f81a3u, 0x930255c71472f66du}},
	        {1, {0x44af996bd8c187dau, 0x45fc229b11597634u}},
	        {2, {0xc75da4a48d227781u, 0xe4ff0af6de8ba3fcu}},
	        {15, {0x11a8b03399e99354u, 0xd9c3cf970fec087eu}},
	};
	unsigned char m[15];
	uint64_t out[2];

	for (int i = 0; i < 15; i++)
		m[i] = (unsigned char)i;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		coll_siphash24_wide(key, m, want[i].len_bytes, out);
		cr_assert_eq(out[0], want[i].out[0]);
		cr_assert_eq(out[1], want[i].out[1]);
	}
}

Test(siphash, every_byte_and_the_key_count)
{
	const uint64_t other[2] = {key[0] ^ 1, key[1]};
	unsigned char m[24] = {0};
	const uint64_t h = coll_siphash24(key, m, sizeof(m));

	for (size_t i = 0; i < sizeof(m); i++) {
		m[i] = 1;
		cr_assert_neq(coll_siphash24(key, m, sizeof(m)), h);
		m[i] = 0;
	}
	cr_assert_neq(coll_siphash24(other, m, sizeof(m)), h);
	cr_assert_neq(coll_siphash24(key, m, sizeof(m) - 1), h);
}
