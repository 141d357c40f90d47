/*
 * The handshake of the rendezvous over a real socket, one end of it by hand: a proof that is guessed, reflected, or
 * recorded opens nothing, and the right one does.
 */
#include "bootstrap/wire.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/proof.h"
#include "tests/plain.h"

static const uint64_t key[2] = {11, 12}, zero[2], guess[2] = {11, 13};
static const char hello[24] = "COLLmee20123456789abcdef";

struct answer {
	char magic[8];
	unsigned char nonce[16];
	struct coll_proof proof;
};

static struct coll_proof prove(const uint64_t with[2], char side, const void *client_nonce, const void *server_nonce)
{
	return COLL_PROOF(with, COLL_SAID(side), {client_nonce, 16}, {server_nonce, 16});
}

static void pump(struct coll_wire *w, enum coll_wire_state until)
{
	for (int i = 0; i < 200 && w->state != COLL_WIRE_CLOSED && w->state != until; i++) {
		struct pollfd p = {w->fd, coll_wire_events(w), 0};

		poll(&p, 1, 10);
		coll_wire_pump(w, p.revents);
	}
}

enum trick { RIGHT, KEY_0, GUESSED, REFLECTED, RECORDED, TRICKS };

/* The server is real. */
static void try_server(enum trick trick, struct coll_proof *record)
{
	struct coll_wire w;
	struct answer a;
	struct coll_proof p;
	int fd[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
	coll_wire_accept(&w, COLL_FD(fd[0]), key);
	CHECK(send(fd[1], hello, sizeof(hello), 0) == sizeof(hello));
	pump(&w, COLL_WIRE_PROVING);
	coll_wire_pump(&w, POLLOUT);
	REQUIRE(recv(fd[1], &a, sizeof(a), 0) == sizeof(a));
	switch (trick) {
	case RIGHT: p = *record = prove(key, 'C', hello + 8, a.nonce); break;
	case KEY_0: p = prove(zero, 'C', hello + 8, a.nonce); break;
	case GUESSED: p = prove(guess, 'C', hello + 8, a.nonce); break;
	case REFLECTED: p = a.proof; break;
	default: p = *record;
	}
	CHECK(send(fd[1], &p, sizeof(p), 0) == sizeof(p));
	pump(&w, COLL_WIRE_OPEN);
	CHECK(w.state == (trick == RIGHT ? COLL_WIRE_OPEN : COLL_WIRE_CLOSED), "trick %d", trick);
	CHECK(trick == RIGHT || strstr(w.cause, "wrong key"), "%s", w.cause);
	coll_wire_close(&w);
	close(fd[1]);
}

/* The client is real. */
static void try_client(enum trick trick, struct coll_proof *record)
{
	struct answer a = {"COLLmee2", "0123456789abcde", {{0}}};
	struct coll_address at;
	struct coll_wire w;
	char greeting[24];
	int listener, fd = -1;

	listener = coll_listen_unix(NULL, &at);
	REQUIRE(listener >= 0 && coll_wire_connect(&w, &at, key));
	for (int i = 0; i < 200 && fd < 0; i++) {
		coll_wire_pump(&w, POLLOUT);
		fd = accept(listener, NULL, NULL);
	}
	REQUIRE(fd >= 0 && recv(fd, greeting, sizeof(greeting), MSG_WAITALL) == sizeof(greeting));
	switch (trick) {
	case RIGHT: a.proof = *record = prove(key, 'S', greeting + 8, a.nonce); break;
	case KEY_0: a.proof = prove(zero, 'S', greeting + 8, a.nonce); break;
	case GUESSED: a.proof = prove(guess, 'S', greeting + 8, a.nonce); break;
	case REFLECTED: a.proof = prove(key, 'C', greeting + 8, a.nonce); break;
	default: a.proof = *record;
	}
	CHECK(send(fd, &a, sizeof(a), 0) == sizeof(a));
	pump(&w, COLL_WIRE_OPEN);
	CHECK(w.state == (trick == RIGHT ? COLL_WIRE_OPEN : COLL_WIRE_CLOSED), "trick %d", trick);
	CHECK(w.stranger == (trick != RIGHT));
	coll_wire_close(&w);
	close(fd);
	coll_fd_close(listener);
}

TEST(wire, a_server_believes_the_key_alone)
{
	struct coll_proof record = {{0}};

	for (enum trick trick = RIGHT; trick < TRICKS; trick++)
		try_server(trick, &record);
}

TEST(wire, a_client_believes_the_key_alone)
{
	struct coll_proof record = {{0}};

	for (enum trick trick = RIGHT; trick < TRICKS; trick++)
		try_client(trick, &record);
}
