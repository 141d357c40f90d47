/*
 * Test helper: an instance of the transport with a service pump that the test
 * turns by hand, and a raw peer, a socket that knows the job's key and then says
 * whatever the test wants.
 */
#ifndef COLL_TRANSPORTS_TCP_RAW_PEER_H
#define COLL_TRANSPORTS_TCP_RAW_PEER_H

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "transport/transport.h"
#include "transports/tcp/address.h"
#include "transports/tcp/handshake.h"
#include "transports/tcp/tcp.h"

static const uint64_t station_key[2] = {11, 22};

struct station {
	struct coll_transport_env env;
	const struct coll_transport *t;
	struct tcp_inst *in;
	const char *timeout_ms, *unreachable_ms;
	const char *interface;
	const char *port_range;
	const char *sockets;
	const char *congestion;
	const char *check;
	const char *host;
	uint32_t mark;
	_Atomic int downs;
	coll_status why;
	char cause[200];
};

struct raw_peer {
	struct tcp_inst self; /* only what messages are made from */
	int fd;
	struct coll_tcp_key key;
	uint64_t number; /* of the next head that it sends */
};

static inline const char *station_setting(void *ctx, const char *name)
{
	const struct station *s = ctx;
	const char *v = NULL;

	if (strcmp(name, "COLL_TIMEOUT_MS") == 0)
		v = s->timeout_ms;
	if (strcmp(name, "COLL_UNREACHABLE_MS") == 0)
		v = s->unreachable_ms;
	if (strcmp(name, "COLL_INTERFACE") == 0)
		v = s->interface;
	if (strcmp(name, "COLL_PORT_RANGE") == 0)
		v = s->port_range;
	if (strcmp(name, "COLL_TCP_SOCKETS") == 0)
		v = s->sockets;
	if (strcmp(name, "COLL_TCP_CONGESTION") == 0)
		v = s->congestion;
	if (strcmp(name, "COLL_CHECK") == 0)
		v = s->check;
	return v ? v : "";
}

static inline void station_log(void *ctx, int level, const char *format, ...)
{
}

static inline void station_down(void *ctx, const struct coll_process_id *peer, coll_status why, const char *cause)
{
	struct station *s = ctx;

	s->why = why;
	snprintf(s->cause, sizeof(s->cause), "%s", cause);
	atomic_fetch_add(&s->downs, 1); /* last: whoever sees it reads the rest */
}

static inline coll_status station_open(struct station *s, uint64_t id)
{
	void *inst = NULL;
	coll_status status;

	s->t = &coll_transport_tcp;
	s->env = (struct coll_transport_env){.size = sizeof(s->env),
	                                     .self = {{id, ~id}},
	                                     .job_key = station_key,
	                                     .host_id = s->host ? s->host : "test",
	                                     .host_mark = s->mark,
	                                     .wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
	                                     .ctx = s,
	                                     .setting = station_setting,
	                                     .log = station_log,
	                                     .link_down = station_down};
	status = s->t->open(&s->env, &inst);
	s->in = inst;
	return status;
}

static inline void station_close(struct station *s)
{
	if (s->in != NULL)
		s->t->close(s->in);
	s->t->fini(s->in);
	close(s->env.wake_fd);
}

static inline void station_turn(struct station *s)
{
	s->t->service(s->in);
	s->t->progress(s->in);
}

/* Turn until cond or 20 s. */
#define UNTIL(s, cond)                                                    \
	({                                                                \
		const uint64_t until_ = coll_clock_ns() + 20000000000ull; \
		bool met_;                                                \
                                                                          \
		while (!(met_ = (cond)) && coll_clock_ns() < until_)      \
			station_turn(s);                                  \
		met_;                                                     \
	})

static inline uint16_t station_port(const struct station *s)
{
	return s->in->address.candidate[0].port;
}

static inline int dial_port(uint16_t port)
{
	struct sockaddr_in sa = {
	        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&sa, sizeof(sa)) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* A message from the station, turning it meanwhile. */
static inline bool raw_hear(struct raw_peer *p, struct station *s, void *m, size_t len)
{
	size_t got = 0;

	return UNTIL(s, ({
		             const ssize_t n = recv(p->fd, (char *)m + got, len - got, MSG_DONTWAIT);

		             got += n > 0 ? (size_t)n : 0;
		             got == len;
	             }));
}

static inline bool raw_hear_hello(struct raw_peer *p, struct station *s, struct coll_tcp_hello *m)
{
	const bool heard = raw_hear(p, s, m, sizeof(*m));

	coll_tcp_hello_mask(m, s->env.job_key);
	return heard;
}

/* A message of the handshake, of one rail of the link. */
static inline void raw_hello(struct raw_peer *p, struct station *s, enum coll_tcp_hello_type type, uint8_t rail,
                             const uint64_t nonce[2], const uint64_t other[2])
{
	struct coll_tcp_hello m;

	coll_tcp_hello_make(&m, &p->self, type, &s->env.self, nonce, other);
	m.verdict = rail;
	coll_tcp_hello_seal(&m, p->self.env.job_key, other);
	coll_tcp_say(&p->self, p->fd, &m);
}

/* Connect and shake hands as process id, for one rail of the link. */
static inline bool raw_connect_rail(struct raw_peer *p, struct station *s, uint64_t id, uint8_t rail)
{
	const uint64_t nonce[2] = {id, 99};
	struct coll_tcp_hello m, challenge;

	memset(p, 0, sizeof(*p));
	p->self.env.self = (struct coll_process_id){{id, ~id}};
	p->self.env.job_key = s->env.job_key;
	p->self.place = s->in->place;
	p->fd = dial_port(station_port(s));
	if (p->fd < 0)
		return false;
	raw_hello(p, s, COLL_TCP_HELLO, rail, nonce, coll_tcp_no_nonce);
	if (!raw_hear_hello(p, s, &challenge))
		return false;
	if (coll_tcp_hello_check(&challenge, &p->self, COLL_TCP_CHALLENGE, &s->env.self, nonce) != NULL)
		return false;
	raw_hello(p, s, COLL_TCP_PROOF, rail, nonce, challenge.nonce);
	if (!raw_hear_hello(p, s, &m) || m.verdict != COLL_TCP_ACCEPT)
		return false;
	p->number = coll_process_lower(&p->self.env.self, &s->env.self) ? 0 : COLL_TCP_NUMBER_HIGH;
	p->key = coll_tcp_hello_key(s->env.job_key, nonce, challenge.nonce);
	return true;
}

static inline bool raw_connect(struct raw_peer *p, struct station *s, uint64_t id)
{
	return raw_connect_rail(p, s, id, 0);
}

/* The address a raw peer would announce: one loopback candidate. */
static inline size_t raw_address(const struct station *s, uint64_t id, uint16_t port, void *buf, size_t cap)
{
	struct coll_tcp_address a = s->in->address;
	size_t len = 0;

	a.id = (struct coll_process_id){{id, ~id}};
	a.count = 1;
	a.candidate[0] = (struct coll_tcp_candidate){.loopback = 1, .port = port, .ip = {127, 0, 0, 1}};
	if (coll_tcp_address_encode(&a, buf, cap, &len) != COLL_OK)
		return 0;
	return len;
}

/* The station's end of the link to a raw peer. */
static inline void *raw_link(struct station *s, uint64_t id, uint16_t port)
{
	const struct coll_process_id peer = {{id, ~id}};
	char buf[128];
	const size_t len = raw_address(s, id, port, buf, sizeof(buf));
	void *link = NULL;

	CHECK(s->t->link_open(s->in, &peer, buf, len, &link) == COLL_OK);
	return link;
}

static inline void raw_seal(struct raw_peer *p, struct coll_tcp_head *h)
{
	h->magic = COLL_TCP_HEAD_MAGIC;
	h->check = coll_tcp_head_check(h, &p->key, p->number++);
}

static inline void raw_send(struct raw_peer *p, struct station *s, const void *bytes, size_t len)
{
	for (size_t at = 0; at < len;) {
		const ssize_t n = send(p->fd, (const char *)bytes + at, len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			return; /* the station has hung up: nothing more to say */
		at += n > 0 ? (size_t)n : 0;
		if (n < 0)
			station_turn(s);
	}
}

#endif
