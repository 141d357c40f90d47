/*
 * Requests and answers of a connection: who has the key of the session reads them, as they were sent and for whom they
 * are meant; all others learn nothing from them and make none.
 */
#include "transports/rdma/hello.h"

#include <string.h>

#include "tests/plain.h"

static const uint64_t key[2] = {1, 2}, zero[2], nonce[2] = {5, 6}, other[2] = {7, 8};
static const struct coll_process_id server = {{0x7365727665722020, 0x6f6e65206f6e6520}},
                                    client = {{0x636c69656e742020, 0x74776f2074776f20}};

static struct rdma_inst inst[3]; /* the server, the client, a stranger */
static struct rdma_link line;

static void begin(void)
{
	memset(inst, 0, sizeof(inst));
	inst[0].env = (struct coll_transport_env){.self = server, .job_key = key};
	inst[1].env = (struct coll_transport_env){.self = client, .job_key = key};
	inst[2].env = (struct coll_transport_env){.self = client, .job_key = zero};
	line = (struct rdma_link){.at = 3, .items_in = 77};
}

static const char *heard(const struct coll_rdma_hello *m, size_t len_bytes, int by, enum coll_rdma_hello_type type,
                         const uint64_t *answers, struct coll_rdma_hello *out)
{
	return coll_rdma_hello_check(m, len_bytes, &inst[by], type, NULL, answers, out);
}

TEST(rdma_hello, a_request_is_read_by_the_one_it_is_for)
{
	struct coll_rdma_hello m, got;
	unsigned char *bytes = (unsigned char *)&m;

	begin();
	coll_rdma_hello_make(&m, &inst[1], COLL_RDMA_ASK, &server, nonce, NULL, &line);
	CHECK(coll_rdma_hello_bytes(&m) == 56);
	CHECK(!memmem(&m, sizeof(m), &client.word[0], 8) && !memmem(&m, sizeof(m), &client.word[1], 8), "who asks");
	CHECK(heard(&m, 56, 0, COLL_RDMA_ASK, NULL, &got) == NULL);
	CHECK(coll_same_process(&got.from, &client) && got.way == 3 && memcmp(got.nonce, nonce, 16) == 0);
	CHECK(heard(&m, 55, 0, COLL_RDMA_ASK, NULL, &got), "cut short");
	CHECK(heard(&m, 56, 1, COLL_RDMA_ASK, NULL, &got), "sent back to who asked");
	CHECK(heard(&m, 64, 0, COLL_RDMA_ANSWER, NULL, &got), "as an answer");
	for (size_t i = 0; i < 8 * 56; i++) {
		bytes[i / 8] ^= (unsigned char)(1 << i % 8);
		CHECK(heard(&m, 56, 0, COLL_RDMA_ASK, NULL, &got), "bit %zu", i);
		bytes[i / 8] ^= (unsigned char)(1 << i % 8);
	}
	coll_rdma_hello_make(&m, &inst[2], COLL_RDMA_ASK, &server, nonce, NULL, &line);
	CHECK(heard(&m, 56, 0, COLL_RDMA_ASK, NULL, &got), "key 0");
}

TEST(rdma_hello, an_answer_is_to_one_request)
{
	struct coll_rdma_hello m, got;

	begin();
	coll_rdma_hello_make(&m, &inst[0], COLL_RDMA_ANSWER, &client, other, nonce, &line);
	CHECK(coll_rdma_hello_bytes(&m) == 64);
	CHECK(heard(&m, 64, 1, COLL_RDMA_ANSWER, nonce, &got) == NULL && got.items == 77);
	CHECK(heard(&m, 56, 1, COLL_RDMA_ANSWER, nonce, &got), "cut short");
	CHECK(heard(&m, 64, 1, COLL_RDMA_ANSWER, other, &got), "recorded");
	m.items++;
	CHECK(heard(&m, 64, 1, COLL_RDMA_ANSWER, nonce, &got), "altered");
}

TEST(rdma_hello, the_last_proof_is_of_the_client_and_of_its_items)
{
	struct coll_proof right, wrong[5];

	begin();
	right = coll_rdma_hello_proof(&inst[0], &client, nonce, other, 9);
	wrong[0] = coll_rdma_hello_proof(&inst[2], &client, nonce, other, 9);
	wrong[1] = coll_rdma_hello_proof(&inst[0], &server, nonce, other, 9);
	wrong[2] = coll_rdma_hello_proof(&inst[0], &client, other, other, 9);
	wrong[3] = coll_rdma_hello_proof(&inst[0], &client, nonce, nonce, 9);
	wrong[4] = coll_rdma_hello_proof(&inst[0], &client, nonce, other, 10);
	for (int i = 0; i < 5; i++)
		CHECK(!coll_proof_same(&right, &wrong[i]), "%d", i);
	wrong[0] = coll_rdma_hello_proof(&inst[1], &client, nonce, other, 9);
	CHECK(coll_proof_same(&right, &wrong[0]), "both ends");
}
