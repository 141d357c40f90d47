/*
 * The proof is the keyed hash of its parts side by side, and depends on every bit of them, of their order, and of the
 * key.
 */
#include "base/proof.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/siphash.h"
#include "tests/plain.h"

static const uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};

static bool is(struct coll_proof p, const void *data, size_t len_bytes)
{
	uint64_t h[2];

	coll_siphash24_wide(key, data, len_bytes, h);
	return p.word[0] == h[0] && p.word[1] == h[1];
}

TEST(proof, is_the_hash_of_its_parts)
{
	unsigned char said[33];
	uint64_t nonce[2], other[2];

	for (int i = 0; i < 33; i++)
		said[i] = (unsigned char)i;
	memcpy(nonce, said + 1, 16);
	memcpy(other, said + 17, 16);
	CHECK(is(COLL_PROOF(key, {said, 1}, COLL_SAID(nonce), {other, 16}), said, sizeof(said)));
	/* The reference's vector of 15 bytes. */
	CHECK(COLL_PROOF(key, {said, 7}, {said + 7, 8}).word[0] == 0x11a8b03399e99354u);
	CHECK(is(coll_proof(key, NULL, 0), said, 0));
}

static bool differ(struct coll_proof a, struct coll_proof b)
{
	return !coll_proof_same(&a, &b) && a.word[0] != b.word[0] && a.word[1] != b.word[1];
}

TEST(proof, depends_on_every_bit)
{
	uint64_t said[4] = {1, 2, 3, 4}, k[2] = {key[0], key[1]};
	const struct coll_proof right = COLL_PROOF(key, {said, 16}, {said + 2, 16});

	CHECK(coll_proof_same(&right, &(struct coll_proof){{right.word[0], right.word[1]}}));
	for (int i = 0; i < 256; i++) {
		said[i / 64] ^= 1ull << i % 64;
		CHECK(differ(COLL_PROOF(key, {said, 16}, {said + 2, 16}), right), "bit %d of what is said", i);
		said[i / 64] ^= 1ull << i % 64;
	}
	for (int i = 0; i < 128; i++) {
		struct coll_proof wrong = right;

		k[i / 64] ^= 1ull << i % 64;
		wrong.word[i / 64] ^= 1ull << i % 64;
		CHECK(differ(COLL_PROOF(k, {said, 16}, {said + 2, 16}), right), "bit %d of the key", i);
		CHECK(!coll_proof_same(&wrong, &right), "bit %d of the proof", i);
		k[i / 64] ^= 1ull << i % 64;
	}
	CHECK(differ(COLL_PROOF(key, {said + 2, 16}, {said, 16}), right), "the order of the parts");
	CHECK(differ(COLL_PROOF(key, {said, 16}, {said + 2, 15}), right), "a byte less");
}

TEST(proof, random_bytes_differ)
{
	unsigned char a[600] = {0}, b[600] = {0};

	CHECK(coll_random(a, sizeof(a)) && coll_random(b, sizeof(b)));
	CHECK(memcmp(a, b, sizeof(a)) != 0 && memcmp(a, a + 300, 300) != 0);
	CHECK(memcmp(a + 584, (unsigned char[16]){0}, 16) != 0, "up to the end");
}

TEST(proof, nonces_differ)
{
	struct coll_nonces mine = {.key = {1, 2}}, copy = {.key = {1, 2}}, others = {.key = {1, 3}};
	uint64_t a[2], b[2], c[2];

	coll_nonce(&mine, a);
	coll_nonce(&mine, b);
	coll_nonce(&others, c);
	CHECK(a[0] != b[0] && a[1] != b[1] && a[0] != c[0] && b[0] != c[0]);
	coll_nonce(&copy, b);
	CHECK(a[0] != b[0], "a copy of it, later");
}

/* In a child: the filter stays. 2: no filter is allowed here. */
static int without_getrandom(void)
{
	struct sock_filter filter[] = {
	        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_getrandom, 0, 1),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};
	unsigned char a[21];

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		return 2;
	return coll_random(a, sizeof(a)) || errno != EPERM;
}

TEST(proof, a_kernel_without_random_bytes_is_an_error)
{
	const pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(without_getrandom());
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 1, "%#x", (unsigned)status);
}
