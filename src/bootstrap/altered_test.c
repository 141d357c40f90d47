/*
 * Somebody on the path of a rendezvous: a relay between the ranks and rank 0 flips one byte of one kind of frame behind
 * the handshake. No rank uses any of it: all are refused, and the message names the address and what the frame was for.
 */
#include <poll.h>
#include <sys/socket.h>

#include "base/fork.h"
#include "bootstrap/job_test.h"
#include "bootstrap/rendezvous_state.h"
#include "bootstrap/wire.h"
#include "tests/plain.h"

enum { HELLO = 24, ANSWER = 40, PROOF = 16, HEAD = 40, HOLDS = 64 << 10 };

/* Which byte: of type, length, seal of the body, seal of the head, body. */
static const size_t places[] = {0, 5, 8 + 3, 24 + 9, HEAD};
static const char *const parts[] = {"type", "length", "seal of the body", "seal of the head", "body"};
enum { PLACES = sizeof(places) / sizeof(places[0]) };

/* One direction. */
struct stream {
	int from, to;
	size_t handshake; /* bytes of it that are still to come */
	unsigned char held[HOLDS];
	size_t len;
};

static bool pass(int fd, const unsigned char *p, size_t n)
{
	while (n > 0) {
		const ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		p += sent;
		n -= (size_t)sent;
	}
	return true;
}

static void consume(struct stream *s, size_t n)
{
	s->len -= n;
	memmove(s->held, s->held + n, s->len);
}

/* Whole frames go on, those of the types, a bit for each, with one byte flipped. */
static bool go_on(struct stream *s, uint32_t types, size_t place)
{
	const size_t shake = s->len < s->handshake ? s->len : s->handshake;
	uint32_t head[2];

	if (!pass(s->to, s->held, shake))
		return false;
	consume(s, shake);
	s->handshake -= shake;
	while (s->handshake == 0 && s->len >= HEAD) {
		size_t whole;

		memcpy(head, s->held, sizeof(head));
		whole = HEAD + head[1];
		if (s->len < whole)
			return whole <= HOLDS;
		if (head[0] < 32 && (types >> head[0] & 1) && place < whole)
			s->held[place] ^= 0x20;
		if (!pass(s->to, s->held, whole))
			return false;
		consume(s, whole);
	}
	return true;
}

static _Noreturn void relay_one(int client, int server, uint32_t types, size_t place)
{
	static struct stream s[2];

	s[0] = (struct stream){.from = client, .to = server, .handshake = HELLO + PROOF};
	s[1] = (struct stream){.from = server, .to = client, .handshake = ANSWER};
	for (int open = 2; open > 0;) {
		struct pollfd p[2] = {{.fd = s[0].from, .events = POLLIN}, {.fd = s[1].from, .events = POLLIN}};

		poll(p, 2, -1);
		for (int i = 0; i < 2; i++) {
			ssize_t n = 1;

			if (!p[i].revents)
				continue;
			n = recv(s[i].from, s[i].held + s[i].len, HOLDS - s[i].len, 0);
			if (n > 0)
				s[i].len += (size_t)n;
			if (n > 0 && go_on(&s[i], types, place))
				continue;
			shutdown(s[i].to, SHUT_WR);
			s[i].from = -1;
			open--;
		}
	}
	_exit(0);
}

/* A process for each connection; those that find nobody behind it are closed, and come again. */
static _Noreturn void relay(int listener, const struct coll_address *to, uint32_t types, size_t place)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	alarm(100);
	for (;;) {
		const int client = accept(listener, NULL, NULL);
		const int server = socket(to->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

		if (connect(server, (const struct sockaddr *)&to->at, to->len) == 0 && fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			relay_one(client, server, types, place);
		}
		close(client);
		close(server);
	}
}

/* Where the relay listens. */
static pid_t start_relay(const struct coll_address *to, uint32_t types, size_t place, uint16_t *port)
{
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* the library's own do not outlive a fork */
	struct coll_address a = {.len = sizeof(a.at)};
	pid_t pid;

	coll_address_numeric(&a, "127.0.0.1", 0);
	CHECK(bind(fd, (struct sockaddr *)&a.at, a.len) == 0 && listen(fd, 64) == 0 &&
	      getsockname(fd, (struct sockaddr *)&a.at, &a.len) == 0);
	*port = coll_address_port(&a);
	pid = fork();
	if (pid == 0)
		relay(fd, to, types, place);
	close(fd);
	return pid;
}

static void end_relay(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- Whole jobs ---- */

static coll_status gather_over_the_relay(struct job *j, int rank, struct coll_error_box *err)
{
	if (rank > 0)
		j->id.root_port = *(uint16_t *)j->arg;
	return gather(j, rank, 200, err);
}

static const struct kind {
	uint32_t type;
	const char *stage; /* a part of it */
	int ranks;
	bool absent; /* the last rank does not come */
	bool down;   /* it comes from rank 0 */
} kinds[] = {
        {FRAME_REGISTER, "(registration)", 2, false, false},
        {FRAME_STAY, "(the answer to a registration)", 2, false, true},
        {FRAME_PARENT, "(the answer to a registration)", 11, false, true},
        {FRAME_ATTACHED, "(reports of the ranks below)", 11, false, false},
        {FRAME_WAITING, "(the table of addresses)", 3, true, true},
        {FRAME_FAILED, "(the table of addresses)", 3, true, true},
        {FRAME_TABLE, "(the table of addresses)", 2, false, true},
};

static bool says(const struct job *j, int rank, const struct kind *k)
{
	const char *m = j->result[rank].message;

	return j->result[rank].status == COLL_ERR_CORRUPT && strstr(m, "was altered on its way") &&
	       strstr(m, k->stage) && strstr(m, "at 127.0.0.1:");
}

static void job_with(const struct kind *k, size_t place)
{
	int said = 0, good = 0;
	struct coll_address to;
	uint16_t port;
	struct job j;
	pid_t pid;

	job_init(&j, k->ranks, gather_over_the_relay);
	over_tcp(&j);
	j.settings.create_timeout_ms = k->absent ? 1600 : 20000;
	coll_address_numeric(&to, "127.0.0.1", j.id.root_port);
	pid = start_relay(&to, 1u << k->type, place, &port);
	j.arg = &port;
	start_all_but(&j, k->absent ? k->ranks - 1 : -1);
	job_wait(&j);
	for (int r = 0; r < j.n - k->absent; r++) {
		said += says(&j, r, k);
		good += j.result[r].status == COLL_OK;
	}
	CHECK(said > 0 && good == 0 && (k->type != FRAME_ATTACHED || said == j.n),
	      "frame %u: %d name it, %d met; rank 0: %d %s; rank 1: %d %s", k->type, said, good, j.result[0].status,
	      j.result[0].message, j.result[1].status, j.result[1].message);
	end_relay(pid);
	job_free(&j);
}

TEST(altered, a_frame_of_each_kind_is_refused_by_name)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		job_with(&kinds[i], kinds[i].type == FRAME_STAY ? 0 : HEAD);
}

/* The table and the answer that it was altered: rank 0 has sent all it has when that comes. */
TEST(altered, a_report_while_the_table_is_delivered_is_refused_by_name)
{
	struct coll_address to;
	uint16_t port;
	struct job j;
	pid_t pid;

	job_init(&j, 2, gather_over_the_relay);
	over_tcp(&j);
	j.settings.create_timeout_ms = 20000;
	coll_address_numeric(&to, "127.0.0.1", j.id.root_port);
	pid = start_relay(&to, 1u << FRAME_TABLE | 1u << FRAME_FAILED, HEAD, &port);
	j.arg = &port;
	start_all_but(&j, -1);
	job_wait(&j);
	CHECK(j.result[0].status == COLL_ERR_CORRUPT && j.result[0].culprit == 1, "%d %s", j.result[0].status,
	      j.result[0].message);
	CHECK(strstr(j.result[0].message, "from rank 1 at 127.0.0.1:") &&
	              strstr(j.result[0].message, "(reports of the ranks below)"),
	      "%s", j.result[0].message);
	end_relay(pid);
	job_free(&j);
}

/* The relay works: without it the refusals above would mean nothing. */
TEST(altered, a_relay_that_alters_nothing_is_no_harm)
{
	struct coll_address to;
	uint16_t port;
	struct job j;
	pid_t pid;

	job_init(&j, 11, gather_over_the_relay);
	over_tcp(&j);
	coll_address_numeric(&to, "127.0.0.1", j.id.root_port);
	pid = start_relay(&to, 0, 0, &port);
	j.arg = &port;
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	end_relay(pid);
	job_free(&j);
}

/* ---- Two wires: each byte counts, in both directions ---- */

static const uint64_t key[2] = {21, 22};

struct ends {
	struct coll_wire client, server;
	int listener;
};

static void turn(struct ends *e)
{
	struct coll_wire *both[2] = {&e->client, &e->server};
	struct pollfd p[2];

	for (int i = 0; i < 2; i++)
		p[i] = (struct pollfd){.fd = both[i]->fd, .events = coll_wire_events(both[i])};
	poll(p, 2, 10);
	for (int i = 0; i < 2; i++)
		coll_wire_pump(both[i], p[i].revents);
}

static bool meet(struct ends *e, const struct coll_address *at)
{
	int fd = -1;

	if (!coll_wire_connect(&e->client, at, key))
		return false;
	for (int i = 0; i < 500 && fd < 0; i++) {
		usleep(1000);
		fd = accept4(e->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	}
	coll_wire_accept(&e->server, fd, key);
	for (int i = 0; i < 500 && (e->client.state != COLL_WIRE_OPEN || e->server.state != COLL_WIRE_OPEN); i++)
		turn(e);
	return e->client.state == COLL_WIRE_OPEN && e->server.state == COLL_WIRE_OPEN;
}

/* One frame before it passes, and the flipped one does not. */
static void flip(uint32_t type, bool down, int place)
{
	struct ends e = {.client = {.fd = -1}, .server = {.fd = -1}};
	struct coll_wire *from = down ? &e.server : &e.client, *to = down ? &e.client : &e.server;
	struct coll_address door, at;
	struct coll_wire_frame f;
	uint16_t port, relay_port;
	bool came = false;
	pid_t pid;

	coll_address_numeric(&door, "127.0.0.1", 0);
	e.listener = coll_listen_tcp(&door, 0, &port);
	coll_address_set_port(&door, port);
	pid = start_relay(&door, 1u << type, places[place], &relay_port);
	coll_address_numeric(&at, "127.0.0.1", relay_port);
	if (meet(&e, &at)) {
		CHECK(coll_wire_send(from, type + 100, "before", 6, NULL, 0));
		CHECK(coll_wire_send(from, type, NULL, 0, "the content", 11));
		for (int i = 0; i < 500 && !to->altered && to->state == COLL_WIRE_OPEN; i++) {
			while (coll_wire_peek(to, 1 << 20, &f)) {
				came = came || f.type != type + 100;
				coll_wire_take(to, &f);
			}
			turn(&e);
		}
		CHECK(to->altered && !came, "frame %u, %s: %s", type, parts[place], to->cause);
	} else {
		CHECK(false, "no connection: %s / %s", e.client.cause, e.server.cause);
	}
	end_relay(pid);
	coll_wire_close(&e.client);
	coll_wire_close(&e.server);
	coll_fd_close(e.listener);
}

TEST(altered, each_part_of_a_frame_counts)
{
	for (int place = 0; place < PLACES; place++)
		flip(FRAME_REGISTER, place % 2, place);
	for (uint32_t type = FRAME_STAY; type <= FRAME_TABLE; type++)
		flip(type, type % 2, (int)type % PLACES);
}
