/*
 * Whose key the links of a job prove: over the real control socket of a running rank, with a launch secret that
 * everybody knows, since there is none. The ranks are in this process, or meet by the program's own exchange.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PLAIN_OWN_MAIN
#include "context/context.h"
#include "control/seal.h"
#include "control/socket.h"
#include "core/comm.h"
#include "net/net.h"
#include "tests/plain.h"

enum { RANKS = 3, WAIT_MS = 20000 };

/* 1: a message of rank 0 is in l->in, -1: it has closed. */
static int hear(struct coll_control_link *l)
{
	struct pollfd p = {.fd = l->fd, .events = POLLIN};
	int got;

	while ((got = coll_link_read(l)) == 0 && poll(&p, 1, WAIT_MS) == 1)
		;
	return got;
}

/* Whoever tries knows all but the key: as rank 1, at the socket of rank 0. */
static bool lets_in(const struct coll_context *ctx, const uint64_t key[2])
{
	struct coll_message m = {.type = COLL_MSG_HELLO, .u.hello = {.nonce = {5, 6}, .rank = 1}};
	struct coll_link_ends ends = {
	        .connects = ctx->peer_infos[1].id, .accepts = ctx->peer_infos[0].id, .answered = {5, 6}, .size = RANKS};
	struct coll_control_link *l = calloc(1, sizeof(*l));
	bool in_progress, in = false;

	l->fd = coll_link_connect(&ctx->peer_infos[0], NULL, 1000, &in_progress);
	CHECK(hear(l) == 1 && l->in.type == COLL_MSG_CHALLENGE, "no challenge");
	memcpy(ends.asked, l->in.u.hello.nonce, sizeof(ends.asked));
	m.u.hello.proof = coll_link_proof(key, COLL_LINK_CONNECTS, &ends);
	CHECK(coll_link_queue(l, &m) && coll_link_flush(l));
	in = hear(l) == 1 && l->in.type == COLL_MSG_WELCOME;
	if (in) {
		/* In order, so that nobody doubts that rank 1 lives. */
		coll_link_seal_begin(&l->seal_out, key, COLL_LINK_SENDS_UP, &ends);
		m.type = COLL_MSG_CLOSE;
		CHECK(coll_link_queue(l, &m) && coll_link_flush(l));
	}
	close(l->fd);
	free(l);
	return in;
}

static void check_keys(coll_comm *const comms[RANKS], uint64_t key[2])
{
	static const uint64_t zero[2], last[2] = {7, 8};

	for (int r = 0; r < RANKS; r++) {
		const struct coll_context *ctx = comms[r]->ctx;

		CHECK(memcmp(ctx->session_key, comms[0]->ctx->session_key, 16) == 0, "rank %d has another key", r);
		for (int i = 0; i < RANKS; i++)
			CHECK(!ctx->peer_infos[i].contribution[0] && !ctx->peer_infos[i].contribution[1]);
	}
	memcpy(key, comms[0]->ctx->session_key, 16);
	CHECK(!lets_in(comms[0]->ctx, zero), "key 0");
	CHECK(!lets_in(comms[0]->ctx, last), "a guess");
	CHECK(lets_in(comms[0]->ctx, key), "the key of the session");
}

/* ---- Ranks of one process ---- */

static void the_ranks_of_a_process_have_a_key_of_their_own(void)
{
	uint64_t key[2][2];
	coll_comm *comms[RANKS];

	for (int i = 0; i < 2; i++) {
		REQUIRE(coll_comm_create_all(comms, RANKS, NULL) == COLL_OK);
		check_keys(comms, key[i]);
		for (int r = 0; r < RANKS; r++)
			coll_comm_destroy(&comms[r]);
	}
	CHECK(key[0][0] != key[1][0] && key[0][1] != key[1][1], "twice the same");
}

/* ---- The program's own exchange ---- */

static pthread_barrier_t all_here;
static char *table;

struct member {
	pthread_t thread;
	int rank;
	coll_comm *comm;
};

static int exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	const struct member *m = arg;

	if (m->rank == 0)
		table = malloc(RANKS * len_bytes);
	pthread_barrier_wait(&all_here);
	memcpy(table + (size_t)m->rank * len_bytes, mine, len_bytes);
	pthread_barrier_wait(&all_here);
	memcpy(all, table, RANKS * len_bytes);
	pthread_barrier_wait(&all_here);
	if (m->rank == 0)
		free(table);
	return 0;
}

static void *create(void *arg)
{
	struct member *m = arg;
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = m->rank;
	cfg.size = RANKS;
	cfg.exchange = exchange;
	cfg.exchange_arg = m;
	CHECK(coll_comm_create(&m->comm, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	return NULL;
}

static void an_exchange_makes_a_key_as_private_as_itself(void)
{
	struct member m[RANKS] = {{0}};
	coll_comm *comms[RANKS];
	uint64_t key[2];

	pthread_barrier_init(&all_here, NULL, RANKS);
	for (int r = 0; r < RANKS; r++) {
		m[r].rank = r;
		pthread_create(&m[r].thread, NULL, create, &m[r]);
	}
	for (int r = 0; r < RANKS; r++) {
		pthread_join(m[r].thread, NULL);
		comms[r] = m[r].comm;
	}
	REQUIRE(comms[0] && comms[1] && comms[2]);
	check_keys(comms, key);
	for (int r = 0; r < RANKS; r++)
		coll_comm_destroy(&comms[r]);
	pthread_barrier_destroy(&all_here);
}

/* ---- No random bytes ---- */

static int left;

static ssize_t run_dry(void *buf, size_t len, unsigned flags)
{
	if (left-- > 0)
		return (ssize_t)len;
	errno = EPERM;
	return -1;
}

/* At each place that asks for them. */
static void without_random_bytes_nothing_is_created(void)
{
	struct coll_net net = *coll_net;
	coll_comm *comms[RANKS];

	net.random = run_dry;
	for (int i = 0; i < 3; i++) {
		const struct coll_error *e;
		coll_status st;

		left = i;
		coll_net_take(&net);
		st = coll_comm_create_all(comms, RANKS, NULL);
		coll_net_take(NULL);
		e = coll_last_error(NULL);
		CHECK(st == COLL_ERR_SYSTEM && strstr(e->message, "getrandom: Operation not permitted"), "%d: %d %s", i,
		      (int)st, e->message);
	}
}

int main(void)
{
	PLAIN_RUN(the_ranks_of_a_process_have_a_key_of_their_own);
	PLAIN_RUN(an_exchange_makes_a_key_as_private_as_itself);
	PLAIN_RUN(without_random_bytes_nothing_is_created);
	return plain_summary();
}
