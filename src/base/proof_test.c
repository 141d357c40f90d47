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

TEST(proof, is_the_hash_of_its_parts)
{
	unsigned char said[33];
	uint64_t nonce[2], other[2];

	for (int i = 0; i < 33; i++)
		said[i] = (unsigned char)i;
	memcpy(nonce, said + 1, 16);
	memcpy(other, said + 17, 16);
	CHECK(COLL_PROOF(key, {said, 1}, COLL_SAID(nonce), {other, 16}) == coll_siphash24(key, said, sizeof(said)));
	/* The reference's vector of 15 bytes. */
	CHECK(COLL_PROOF(key, {said, 7}, {said + 7, 8}) == 0xa129ca6149be45e5u);
	CHECK(coll_proof(key, NULL, 0) == coll_siphash24(key, said, 0));
}

TEST(proof, depends_on_every_bit)
{
	uint64_t said[4] = {1, 2, 3, 4}, k[2] = {key[0], key[1]};
	const uint64_t right = COLL_PROOF(key, {said, 16}, {said + 2, 16});

	for (int i = 0; i < 256; i++) {
		said[i / 64] ^= 1ull << i % 64;
		CHECK(COLL_PROOF(key, {said, 16}, {said + 2, 16}) != right, "bit %d of what is said", i);
		said[i / 64] ^= 1ull << i % 64;
	}
	for (int i = 0; i < 128; i++) {
		k[i / 64] ^= 1ull << i % 64;
		CHECK(COLL_PROOF(k, {said, 16}, {said + 2, 16}) != right, "bit %d of the key", i);
		k[i / 64] ^= 1ull << i % 64;
	}
	CHECK(COLL_PROOF(key, {said + 2, 16}, {said, 16}) != right, "the order of the parts");
	CHECK(COLL_PROOF(key, {said, 16}, {said + 2, 15}) != right, "a byte less");
}

TEST(proof, random_bytes_differ)
{
	unsigned char a[600] = {0}, b[600] = {0};

	coll_random(a, sizeof(a));
	coll_random(b, sizeof(b));
	CHECK(memcmp(a, b, sizeof(a)) != 0 && memcmp(a, a + 300, 300) != 0);
	CHECK(memcmp(a + 584, (unsigned char[16]){0}, 16) != 0, "up to the end");
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
	unsigned char a[21] = {0}, b[21] = {0};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
		return 2;
	if (coll_random(a, sizeof(a)) || errno != EPERM || coll_random(b, sizeof(b)))
		return 1;
	return memcmp(a, b, 8) == 0 || memcmp(a, a + 8, 8) == 0 || memcmp(a + 16, (unsigned char[5]){0}, 5) == 0;
}

TEST(proof, a_kernel_without_random_bytes_is_no_abort)
{
	const pid_t child = fork();
	int status = -1;

	if (child == 0)
		_exit(without_getrandom());
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) != 1, "%#x", (unsigned)status);
}
