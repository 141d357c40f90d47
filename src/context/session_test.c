/*
 * The session key is the wide SipHash of what all ranks put in, under the launch secret: it depends on every bit of
 * these, and on their order, and what was put in is gone afterwards.
 */
#include "context/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"
#include "net/net.h"
#include "tests/plain.h"

enum { RANKS = 5 };

static const uint64_t secret[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

static struct coll_peer_info infos[RANKS];

static void fill(void)
{
	memset(infos, 0, sizeof(infos));
	for (int r = 0; r < RANKS; r++) {
		infos[r].contribution[0] = 10 + (uint64_t)r;
		infos[r].contribution[1] = ~(uint64_t)r;
	}
}

TEST(session, is_the_keyed_hash_of_what_all_put_in)
{
	uint64_t all[2 * RANKS], want[2], key[2];

	fill();
	for (int r = 0; r < RANKS; r++)
		memcpy(all + 2 * r, infos[r].contribution, 16);
	coll_siphash24_wide(secret, all, sizeof(all), want);
	coll_session_key(secret, infos, RANKS, key);
	CHECK(key[0] == want[0] && key[1] == want[1]);
	coll_session_forget(infos, RANKS);
	for (int r = 0; r < RANKS; r++)
		CHECK(infos[r].contribution[0] == 0 && infos[r].contribution[1] == 0, "rank %d: not overwritten", r);
}

TEST(session, depends_on_every_bit_and_on_the_order)
{
	uint64_t right[2], key[2], other[2] = {secret[0] ^ 1, secret[1]};
	const uint64_t none[2] = {0, 0};

	fill();
	coll_session_key(secret, infos, RANKS, right);
	for (int bit = 0; bit < 128 * RANKS; bit++) {
		fill();
		infos[bit / 128].contribution[bit / 64 % 2] ^= 1ull << bit % 64;
		coll_session_key(secret, infos, RANKS, key);
		CHECK(key[0] != right[0] && key[1] != right[1], "bit %d", bit);
	}
	fill();
	memcpy(infos[0].contribution, (uint64_t[2]){11, ~1ull}, 16);
	memcpy(infos[1].contribution, (uint64_t[2]){10, ~0ull}, 16);
	coll_session_key(secret, infos, RANKS, key);
	CHECK(key[0] != right[0] && key[1] != right[1], "the order");
	fill();
	coll_session_key(secret, infos, RANKS - 1, key);
	CHECK(key[0] != right[0] && key[1] != right[1], "a rank less");
	fill();
	coll_session_key(other, infos, RANKS, key);
	CHECK(key[0] != right[0] && key[1] != right[1], "the launch secret");
	fill();
	coll_session_key(none, infos, RANKS, key);
	CHECK(key[0] != 0 && key[1] != 0 && key[0] != right[0], "no launch secret");
}

static ssize_t refuse(void *buf, size_t len, unsigned flags)
{
	errno = EAGAIN;
	return -1;
}

TEST(session, what_a_process_puts_in_is_random_or_an_error)
{
	struct coll_net net = *coll_net;
	struct coll_error_box err;
	struct coll_peer_info a = {0}, b = {0};

	CHECK(coll_session_contribute(&a, &err) == COLL_OK && coll_session_contribute(&b, &err) == COLL_OK);
	CHECK(a.contribution[0] != b.contribution[0] && a.contribution[1] != b.contribution[1]);
	net.random = refuse;
	coll_net_take(&net);
	CHECK(coll_session_contribute(&a, &err) == COLL_ERR_SYSTEM);
	coll_net_take(NULL);
	CHECK(strstr(err.message, "getrandom: ") && strstr(err.message, strerror(EAGAIN)), "%s", err.message);
}
