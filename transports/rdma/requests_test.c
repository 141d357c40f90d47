/*
 * Numbers of requests: each is taken once, in rising order, of each peer and rail by itself, and never again.
 */
#include "transports/rdma/requests.h"

#include <string.h>

#include "tests/plain.h"
#include "transports/rdma/hello.h"

enum { PEERS = 300, RAILS = 3 };

static const uint64_t key[2] = {1, 2};
static struct rdma_inst server, client;
static struct rdma_link line;

static void begin(void)
{
	memset(&server, 0, sizeof(server));
	memset(&client, 0, sizeof(client));
	server.env = (struct coll_transport_env){.self = {{11, 12}}, .job_key = key};
	client.env = (struct coll_transport_env){.job_key = key};
	coll_rdma_requests_init(&server.requests, 5);
	coll_rdma_requests_init(&client.requests, 5);
	line = (struct rdma_link){.inst = &client};
}

static const char *ask(uint64_t peer, unsigned rail, uint64_t number)
{
	const uint64_t nonce[2] = {77, number};
	struct coll_rdma_hello m, got;

	client.env.self = (struct coll_process_id){{peer, 3}};
	line.base.part = rail;
	coll_rdma_hello_make(&m, &client, COLL_RDMA_ASK, &server.env.self, nonce, NULL, &line);
	return coll_rdma_requests_read(&server, &m, coll_rdma_hello_bytes(&m), &got);
}

TEST(rdma_requests, a_number_is_taken_once_and_in_rising_order)
{
	begin();
	CHECK(ask(1, 0, 0), "none");
	CHECK(ask(1, 0, 9) == NULL);
	CHECK(ask(1, 0, 9), "again");
	CHECK(ask(1, 0, 8), "one before it");
	CHECK(ask(1, 1, 8) == NULL, "another rail");
	CHECK(ask(2, 0, 8) == NULL, "another peer");
	CHECK(ask(1, 0, 10) == NULL);
	CHECK(ask(1, 0, UINT64_MAX) == NULL);
	CHECK(ask(1, 0, 11), "behind the last of all");
	coll_rdma_requests_fini(&server.requests);
}

TEST(rdma_requests, every_peer_and_rail_is_kept)
{
	begin();
	for (uint64_t p = 1; p <= PEERS; p++)
		for (unsigned r = 0; r < RAILS; r++)
			CHECK(ask(p, r, 1000 * p + r) == NULL, "peer %d rail %u", (int)p, r);
	for (uint64_t p = 1; p <= PEERS; p++)
		for (unsigned r = 0; r < RAILS; r++)
			CHECK(ask(p, r, 1000 * p + r), "peer %d rail %u", (int)p, r);
	CHECK(server.requests.count == PEERS * RAILS && server.requests.cap <= 4 * PEERS * RAILS);
	coll_rdma_requests_fini(&server.requests);
}

TEST(rdma_requests, a_request_without_the_key_uses_no_number)
{
	static const uint64_t wrong[2] = {1, 3};

	begin();
	client.env.job_key = wrong;
	CHECK(ask(1, 0, 20), "no key");
	client.env.job_key = key;
	CHECK(ask(1, 0, 19) == NULL && server.requests.count == 1);
	coll_rdma_requests_fini(&server.requests);
}

TEST(rdma_requests, own_requests_rise_and_answer_the_challenge_once)
{
	struct coll_rdma_hello c;
	const uint64_t challenge[2] = {41, 6};
	uint64_t last;

	begin();
	client.env.self = (struct coll_process_id){{1, 3}};
	line.base.peer = server.env.self;
	coll_rdma_requests_nonce(&line);
	CHECK(line.nonce[1] == 6);
	coll_rdma_hello_make(&c, &server, COLL_RDMA_CHALLENGE, &client.env.self, challenge, challenge, &line);
	CHECK(!coll_rdma_requests_challenged(&line, &c, sizeof(c)), "of another request");
	coll_rdma_hello_make(&c, &server, COLL_RDMA_CHALLENGE, &client.env.self, challenge, line.nonce, &line);
	CHECK(!coll_rdma_requests_challenged(&line, &c, sizeof(c) - 1), "cut short");
	CHECK(!coll_rdma_requests_challenged(&line, NULL, 0), "a refusal without words");
	CHECK(coll_rdma_requests_challenged(&line, &c, sizeof(c)));
	coll_rdma_requests_nonce(&line);
	CHECK(line.nonce[0] == 41 && line.nonce[1] == 7);
	last = line.nonce[1];
	coll_rdma_requests_nonce(&line);
	CHECK(line.nonce[0] != 41 && line.nonce[1] == last + 1);
}
