/*
 * Links and channels: opening in any order, many at once, closing in the middle,
 * and strangers.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/conform/conform.h"
#include "tests/holdings.h"

TEST(life, open_and_fini)
{
	struct world w;

	conform_table->fini(NULL);
	for (int i = 0; i < 20; i++) {
		if (!world_open(&w, 2, false))
			return;
		world_close(&w);
	}
}

TEST_IN_WORLD(life, an_address_of_garbage_is_not_reachable, 2, false)
{
	char junk[64], why[100] = "";

	memset(junk, 0xa5, sizeof(junk));
	for (size_t len = 0; len <= sizeof(junk); len++)
		CHECK(!w->t->reachable(w->node[0]->inst, junk, len, why, sizeof(why)));
	CHECK(why[0] != 0);
	/* Both ends decide alike. */
	CHECK(w->t->reachable(w->node[0]->inst, w->node[1]->address, w->node[1]->address_len, NULL, 0));
	CHECK(w->t->reachable(w->node[1]->inst, w->node[0]->address, w->node[0]->address_len, NULL, 0));
}

TEST_IN_WORLD(life, a_path_is_the_same_for_both_ends, 2, false)
{
	struct coll_transport_path p = {0}, q = {0};
	char junk[64];

	w->t->path(w->node[0]->inst, w->node[0]->address, w->node[0]->address_len, w->node[1]->address,
	           w->node[1]->address_len, &p);
	w->t->path(w->node[1]->inst, w->node[1]->address, w->node[1]->address_len, w->node[0]->address,
	           w->node[0]->address_len, &q);
	CHECK(p.rails >= 1 && p.rails <= COLL_RAILS_MAX && p.rails == q.rails);
	for (uint32_t i = 0; i < p.rails && i < q.rails; i++)
		CHECK(p.rail[i].network == q.rail[i].network && p.rail[i].mbps == q.rail[i].mbps &&
		      p.rail[i].distance[0] == q.rail[i].distance[1] && p.rail[i].distance[1] == q.rail[i].distance[0]);
	memset(junk, 0xa5, sizeof(junk));
	for (size_t len = 0; len <= sizeof(junk); len++) {
		w->t->path(w->node[0]->inst, w->node[0]->address, w->node[0]->address_len, junk, len, &p);
		CHECK(p.rails == 1 && p.rail[0].mbps == 0);
		w->t->path(w->node[0]->inst, junk, len, w->node[0]->address, w->node[0]->address_len, &p);
		CHECK(p.rails == 1 && p.rail[0].mbps == 0);
	}
}

TEST_IN_WORLD(life, links_come_up, 3, true)
{
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			if (i == j)
				continue;
			CHECK(AWAIT(w, w->t->link_status(w->link[i][j]) != COLL_AGAIN));
			CHECK(w->t->link_status(w->link[i][j]) == COLL_OK);
		}
	}
	for (int i = 0; i < 3; i++)
		CHECK(atomic_load(&w->node[i]->downs) == 0);
}

/* One end opens long before the other, with its channel and first wish already there. */
TEST(life, the_other_end_comes_late)
{
	struct world w;
	void *a, *b, *p;

	for (int first = 0; first < 2; first++) {
		for (int sender = 0; sender < 2; sender++) {
			if (!world_open(&w, 2, false))
				return;
			world_link(&w, first, !first);
			a = channel(&w, first, !first, first == sender ? COLL_DIR_SEND : COLL_DIR_RECV, key_of(1, 2, 3),
			            100, 2);
			for (int i = 0; i < 300; i++) {
				world_progress(&w);
				if (first == sender)
					CHECK(w.t->slot(a, 10, &p) == COLL_AGAIN);
				sched_yield();
			}
			world_link(&w, !first, first);
			b = channel(&w, !first, first, first == sender ? COLL_DIR_RECV : COLL_DIR_SEND, key_of(1, 2, 3),
			            100, 2);
			for (uint64_t i = 0; i < 10; i++) {
				send_one(&w, first == sender ? a : b, 1, i, 77);
				recv_one(&w, first == sender ? b : a, 1, i, 77);
			}
			w.t->channel_close(a);
			w.t->channel_close(b);
			world_close(&w);
		}
	}
}

static void open_at_once(struct world *w, void *arg)
{
	void *tx = channel(w, w->me, !w->me, COLL_DIR_SEND, key_of(1, 0, 0), 64, 2);
	void *rx = channel(w, w->me, !w->me, COLL_DIR_RECV, key_of(1, 0, 0), 64, 2);

	for (uint64_t i = 0; i < 5; i++) {
		send_one(w, tx, (uint64_t)w->me, i, 50);
		recv_one(w, rx, (uint64_t)!w->me, i, 50);
	}
	/* Other rails of the link may still be connecting. */
	CHECK(AWAIT(w, w->t->link_status(w->link[w->me][!w->me]) != COLL_AGAIN));
	CHECK(w->t->link_status(w->link[w->me][!w->me]) == COLL_OK);
	CHECK(atomic_load(&w->node[w->me]->downs) == 0);
	world_barrier(w);
	w->t->channel_close(tx);
	w->t->channel_close(rx);
}

/* world_threads opens the links from the nodes' own threads, at the same time. */
TEST(life, both_ends_open_at_once)
{
	for (int i = 0; i < 40; i++)
		world_threads(2, open_at_once, NULL);
}

TEST_IN_WORLD(life, two_communicators_do_not_block_each_other, 2, true)
{
	void *tx[2], *rx[2], *p;

	for (unsigned c = 0; c < 2; c++) {
		tx[c] = channel(w, 0, 1, COLL_DIR_SEND, key_of(1000 + c, 0, 0), 4096, 2);
		rx[c] = channel(w, 1, 0, COLL_DIR_RECV, key_of(1000 + c, 0, 0), 4096, 2);
	}
	send_one(w, tx[0], 1, 0, 4096);
	send_one(w, tx[0], 1, 1, 4096);
	for (uint64_t i = 0; i < 500; i++) {
		send_one(w, tx[1], 2, i, 1 + i * 8);
		recv_one(w, rx[1], 2, i, 1 + i * 8);
	}
	CHECK(w->t->slot(tx[0], 1, &p) == COLL_AGAIN);
	recv_one(w, rx[0], 1, 0, 4096);
	recv_one(w, rx[0], 1, 1, 4096);
	for (unsigned c = 0; c < 2; c++) {
		w->t->channel_close(tx[c]);
		w->t->channel_close(rx[c]);
	}
}

enum { MANY = 96 };

TEST_IN_WORLD(life, many_channels, 3, true)
{
	static void *tx[3][3][MANY], *rx[3][3][MANY];

	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			for (unsigned k = 0; i != j && k < MANY; k++) {
				/* Equal keys both ways, and the receiver's in another order. */
				tx[i][j][k] = channel(w, i, j, COLL_DIR_SEND, key_of(k % 3, k / 6, k % 6), 300, 2);
				rx[i][j][MANY - 1 - k] = channel(
				        w, i, j, COLL_DIR_RECV,
				        key_of((MANY - 1 - k) % 3, (MANY - 1 - k) / 6, (MANY - 1 - k) % 6), 300, 2);
			}
		}
	}
	for (uint64_t f = 0; f < 4; f++) {
		for (int i = 0; i < 3; i++) {
			for (int j = 0; j < 3; j++) {
				for (unsigned k = 0; i != j && k < MANY; k++)
					send_one(w, tx[i][j][k], (uint64_t)(i * 3 + j) * MANY + k, f, 100 + k);
			}
		}
		for (int i = 0; i < 3; i++) {
			for (int j = 0; j < 3; j++) {
				for (unsigned k = 0; i != j && k < MANY; k++)
					recv_one(w, rx[j][i][k], (uint64_t)(i * 3 + j) * MANY + k, f, 100 + k);
			}
		}
	}
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			for (unsigned k = 0; i != j && k < MANY; k++) {
				w->t->channel_close(tx[i][j][k]);
				w->t->channel_close(rx[i][j][k]);
			}
		}
	}
}

/* Channels come and go on one link. */
TEST_IN_WORLD(life, channels_open_and_close_again, 2, true)
{
	for (unsigned c = 0; c < 200; c++) {
		void *tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(c, 0, 0), 100000, 2);
		void *rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(c, 0, 0), 100000, 2);

		send_one(w, tx, c, 0, 90000);
		recv_one(w, rx, c, 0, 90000);
		w->t->channel_close(c % 2 ? tx : rx);
		w->t->channel_close(c % 2 ? rx : tx);
	}
}

/* The sender closes at once behind its frames: they arrive, then an end is seen. */
TEST(life, closing_behind_posted_frames)
{
	struct world w;
	void *tx, *rx;
	const void *p;
	struct coll_frame f;
	coll_status status = COLL_AGAIN;

	for (uint64_t c = 0; c < 10; c++) {
		if (!world_open(&w, 2, true))
			return;
		tx = channel(&w, 0, 1, COLL_DIR_SEND, key_of(c, 0, 0), 100000, 4);
		rx = channel(&w, 1, 0, COLL_DIR_RECV, key_of(c, 0, 0), 100000, 4);
		for (uint64_t i = 0; i < 4; i++)
			send_one(&w, tx, c, i, i * 30000);
		w.t->channel_close(tx);
		w.t->link_close(w.link[0][1]);
		w.link[0][1] = NULL;
		for (uint64_t i = 0; i < 4; i++)
			recv_one(&w, rx, c, i, i * 30000);
		CHECK(AWAIT_S(&w,
		              (status = w.t->view(rx, &p, &f)) != COLL_AGAIN ||
		                      (status = w.t->link_status(w.link[1][0])) > COLL_AGAIN,
		              5));
		CHECK(status == COLL_ERR_PEER_DEAD, "%s", coll_status_string(status));
		CHECK(w.t->link_status(w.link[1][0]) == COLL_ERR_PEER_DEAD);
		w.t->channel_close(rx);
		world_close(&w);
	}
}

/* Either end closes its channel in the middle; others on the link go on. */
TEST(life, closing_in_the_middle)
{
	struct world w;
	void *tx[2], *rx[2];
	void *p;

	for (int who = 0; who < 2; who++) {
		if (!world_open(&w, 2, true))
			return;
		for (unsigned c = 0; c < 2; c++) {
			tx[c] = channel(&w, 0, 1, COLL_DIR_SEND, key_of(1, c, 0), 70000, 2);
			rx[c] = channel(&w, 1, 0, COLL_DIR_RECV, key_of(1, c, 0), 70000, 2);
		}
		send_one(&w, tx[0], 1, 0, 70000);
		send_one(&w, tx[1], 2, 0, 70000);
		CHECK(AWAIT(&w, ({
			const void *q;
			struct coll_frame f;
			w.t->view(rx[0], &q, &f) == COLL_OK;
		})));
		send_one(&w, tx[0], 1, 1, 100);
		w.t->channel_close(who ? rx[0] : tx[0]);
		if (who) {
			for (int i = 0; i < 100; i++) {
				world_progress(&w);
				CHECK(w.t->slot(tx[0], 1, &p) != COLL_ERR_CORRUPT);
			}
		}
		recv_one(&w, rx[1], 2, 0, 70000);
		for (uint64_t i = 1; i < 50; i++) {
			send_one(&w, tx[1], 2, i, 1000 * i);
			recv_one(&w, rx[1], 2, i, 1000 * i);
		}
		CHECK(w.t->link_status(w.link[0][1]) == COLL_OK);
		CHECK(w.t->link_status(w.link[1][0]) == COLL_OK);
		w.t->channel_close(who ? tx[0] : rx[0]);
		w.t->channel_close(tx[1]);
		w.t->channel_close(rx[1]);
		world_close(&w);
	}
}

TEST_IN_WORLD(life, a_closed_instance_refuses_links, 2, false)
{
	void *link = NULL;

	w->t->close(w->node[0]->inst);
	CHECK(w->t->link_open(w->node[0]->inst, &w->node[1]->env.self, w->node[1]->address, w->node[1]->address_len,
	                      &link) > COLL_AGAIN);
	CHECK(link == NULL);
}

/* ---- Strangers ------------------------------------------------------------------ */

/* Whether the socket is a listener of this process; its address. */
static bool listening(int fd, struct sockaddr_storage *at, socklen_t *len)
{
	int on = 0;
	socklen_t n = sizeof(on);

	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) != 0 || !on)
		return false;
	*len = sizeof(*at);
	if (getsockname(fd, (struct sockaddr *)at, len) != 0)
		return false;
	if (at->ss_family == AF_INET && ((struct sockaddr_in *)at)->sin_addr.s_addr == htonl(INADDR_ANY))
		((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (at->ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)at)->sin6_addr))
		((struct sockaddr_in6 *)at)->sin6_addr = in6addr_loopback;
	return true;
}

static int connect_to(int like, const struct sockaddr_storage *at, socklen_t len)
{
	int type = SOCK_STREAM;
	socklen_t n = sizeof(type);
	int fd;

	getsockopt(like, SOL_SOCKET, SO_TYPE, &type, &n);
	fd = socket(at->ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)at, len) != 0 && errno != EINPROGRESS) {
		close(fd);
		return -1;
	}
	return fd;
}

enum { LISTENERS_MAX = 16, SILENT = 20, GARBAGE = 300 };

static int find_listeners(int *fds)
{
	struct sockaddr_storage at;
	socklen_t len;
	int n = 0;

	for (int fd = 0; fd < 1024 && n < LISTENERS_MAX; fd++) {
		if (listening(fd, &at, &len))
			fds[n++] = fd;
	}
	return n;
}

static void throw_garbage(int like, struct coll_rng *rng)
{
	struct sockaddr_storage at;
	socklen_t len;
	char junk[512];
	int fd;

	if (!listening(like, &at, &len))
		return;
	fd = connect_to(like, &at, len);
	if (fd < 0)
		return;
	for (size_t i = 0; i < sizeof(junk); i++)
		junk[i] = (char)coll_rng_next(rng);
	if (send(fd, junk, 1 + coll_rng_below(rng, sizeof(junk) - 1), MSG_NOSIGNAL) < 0) {
		/* It has thrown us out already. */
	}
	if (coll_rng_below(rng, 2))
		shutdown(fd, SHUT_WR);
	close(fd);
}

TEST_IN_WORLD(life, strangers_do_not_hurt, 2, false)
{
	struct coll_rng rng = {4711};
	int fds[LISTENERS_MAX], silent[LISTENERS_MAX][SILENT], n;
	struct sockaddr_storage at;
	socklen_t len;
	void *tx, *rx;

	n = find_listeners(fds);
	printf("     %d listening sockets\n", n);
	for (int k = 0; k < n; k++) {
		for (int s = 0; s < SILENT; s++)
			silent[k][s] = listening(fds[k], &at, &len) ? connect_to(fds[k], &at, len) : -1;
		for (int g = 0; g < 10; g++)
			throw_garbage(fds[k], &rng);
	}
	world_link(w, 0, 1);
	world_link(w, 1, 0);
	tx = channel(w, 0, 1, COLL_DIR_SEND, key_of(1, 0, 0), 4096, 2);
	rx = channel(w, 1, 0, COLL_DIR_RECV, key_of(1, 0, 0), 4096, 2);
	for (uint64_t i = 0; i < GARBAGE; i++) {
		for (int k = 0; k < n; k++)
			throw_garbage(fds[k], &rng);
		send_one(w, tx, 1, i, 1000);
		recv_one(w, rx, 1, i, 1000);
	}
	for (int i = 0; i < 2; i++)
		CHECK(atomic_load(&w->node[i]->downs) == 0);
	for (int k = 0; k < n; k++) {
		for (int s = 0; s < SILENT; s++) {
			if (silent[k][s] >= 0)
				close(silent[k][s]);
		}
	}
	w->t->channel_close(tx);
	w->t->channel_close(rx);
}

/* A process that does not know the job's key gets no link; the right ones still do. */
TEST(life, a_wrong_key_gets_nothing)
{
	struct world w;
	void *tx, *rx, *bad_tx, *p;

	if (strcmp(conform_name, "loop") == 0)
		SKIP("loop needs no key");
	if (!world_open(&w, 2, false))
		return;
	w.node[2] = node_open(2, 43, w.group);
	w.n = 3;
	REQUIRE(w.node[2]->inst);
	for (int i = 0; i < 3; i++) {
		for (int j = 0; j < 3; j++) {
			char why[100];

			/* The transport may tell from the address already. */
			if (i != j && w.t->reachable(w.node[i]->inst, w.node[j]->address, w.node[j]->address_len, why,
			                             sizeof(why)))
				world_link(&w, i, j);
		}
	}
	tx = channel(&w, 0, 1, COLL_DIR_SEND, key_of(1, 0, 0), 4096, 2);
	rx = channel(&w, 1, 0, COLL_DIR_RECV, key_of(1, 0, 0), 4096, 2);
	bad_tx = w.link[2][0] ? channel(&w, 2, 0, COLL_DIR_SEND, key_of(1, 0, 0), 4096, 2) : NULL;
	for (uint64_t i = 0; i < 200; i++) {
		send_one(&w, tx, 1, i, 1000);
		recv_one(&w, rx, 1, i, 1000);
		for (int k = 0; k < 2; k++) {
			if (w.link[k][2])
				CHECK(w.t->link_status(w.link[k][2]) != COLL_OK);
			if (w.link[2][k])
				CHECK(w.t->link_status(w.link[2][k]) != COLL_OK);
		}
		if (bad_tx)
			CHECK(w.t->slot(bad_tx, 8, &p) != COLL_OK);
	}
	w.t->channel_close(tx);
	w.t->channel_close(rx);
	if (bad_tx)
		w.t->channel_close(bad_tx);
	world_close(&w);
}

/* Descriptors do not grow with worlds that come and go. */
TEST(life, nothing_is_left_open)
{
	int before = 0;

	for (int i = 0; i < 6; i++) {
		world_threads(2, open_at_once, NULL);
		if (i == 0)
			before = holdings_descriptors();
	}
	CHECK(holdings_descriptors() == before, "%d descriptors, %d before", holdings_descriptors(), before);
}
