/*
 * The connection of wire.h. Owns its descriptor and two buffers. Until the other
 * end has proved the key, at most one handshake message of it is kept; then at most one
 * frame of a length that the caller allows, or some small ones. The memory grows as bytes come.
 * The code that polls the connection ends it when it takes too long.
 */
#include "bootstrap/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/proof.h"

static const char magic[8] = {'C', 'O', 'L', 'L', 'm', 'e', 'e', '2'};

struct hello {
	char magic[8];
	unsigned char nonce[16];
};

struct answer {
	char magic[8];
	unsigned char nonce[16];
	struct coll_proof proof;
};

/* The check of the head comes before its length is believed, and covers that of the body. */
struct head {
	uint32_t type;
	uint32_t len_bytes;
	struct coll_proof body, head;
};
_Static_assert(offsetof(struct head, head) == sizeof(struct head) - sizeof(struct coll_proof), "the check is last");

enum { HANDSHAKE_MAX = sizeof(struct answer), READ_FIRST = 1 << 10, READ_CHUNK = 64 << 10 };

static void fail(struct coll_wire *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Keeps the first cause. */
static void fail(struct coll_wire *w, const char *format, ...)
{
	va_list ap;

	if (w->state == COLL_WIRE_CLOSED)
		return;
	va_start(ap, format);
	vsnprintf(w->cause, sizeof(w->cause), format, ap);
	va_end(ap);
	w->state = COLL_WIRE_CLOSED;
}

/* The kernel has given the connection up. */
static void fail_errno(struct coll_wire *w, const char *what)
{
	w->unreached = coll_errno_unreachable(errno);
	fail(w, "%s: %s", what, coll_errno_text(errno).text);
}

/* Not the other end's doing: whoever owns the wire has no memory either. */
static void fail_memory(struct coll_wire *w)
{
	w->memory = w->state != COLL_WIRE_CLOSED;
	fail(w, "out of memory");
}

static void fail_stranger(struct coll_wire *w, const char *text)
{
	w->stranger = true;
	fail(w, "%s", text);
}

static struct coll_proof proof(const struct coll_wire *w, char side)
{
	return COLL_PROOF(w->key, COLL_SAID(side), COLL_SAID(w->client_nonce), COLL_SAID(w->server_nonce));
}

static bool grow(unsigned char **buf, size_t *cap, size_t need)
{
	size_t to = *cap ? *cap : 256;
	unsigned char *p;

	if (need <= *cap)
		return true;
	while (to < need)
		to *= 2;
	p = realloc(*buf, to);
	if (!p)
		return false;
	*buf = p;
	*cap = to;
	return true;
}

static bool queue(struct coll_wire *w, const void *data, size_t len_bytes)
{
	if (!grow(&w->out, &w->out_cap, w->out_len + len_bytes))
		return false;
	if (len_bytes)
		memcpy(w->out + w->out_len, data, len_bytes);
	w->out_len += len_bytes;
	return true;
}

static bool start(struct coll_wire *w, int fd, const uint64_t key[2], bool server)
{
	memset(w, 0, sizeof(*w));
	w->fd = fd;
	w->server = server;
	w->key[0] = key[0];
	w->key[1] = key[1];
	w->born_ns = coll_clock_ns();
	w->in_max = HANDSHAKE_MAX;
	w->state = server ? COLL_WIRE_GREETING : COLL_WIRE_CONNECTING;
	if (coll_random(server ? w->server_nonce : w->client_nonce, 16))
		return true;
	fail(w, "no random bytes for a handshake: getrandom: %s", coll_errno_text(errno).text);
	return false;
}

void coll_wire_accept(struct coll_wire *w, int fd, const uint64_t key[2])
{
	start(w, fd, key, true); /* one that failed is closed */
}

static void say_hello(struct coll_wire *w)
{
	struct hello h;

	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.nonce, w->client_nonce, sizeof(h.nonce));
	w->state = COLL_WIRE_GREETING;
	if (!queue(w, &h, sizeof(h)))
		fail_memory(w);
}

bool coll_wire_connect(struct coll_wire *w, const struct coll_address *to, const uint64_t key[2])
{
	const int fd = COLL_FD(socket(to->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	const int error = errno; /* if there is none */

	if (!start(w, fd, key, false))
		return false;
	if (fd < 0) {
		w->shortage = coll_errno_is_shortage(error) ? error : 0;
		fail(w, "socket: %s", coll_errno_text(error).text);
		return false;
	}
	if (connect(fd, (const struct sockaddr *)&to->at, to->len) < 0) {
		if (errno != EINPROGRESS)
			fail(w, "connect: %s", coll_errno_text(errno).text);
	} else if (coll_unix_foreign(fd, true)) {
		fail_stranger(w, "a process of another user answers there");
	} else {
		say_hello(w);
	}
	return w->state != COLL_WIRE_CLOSED;
}

void coll_wire_close(struct coll_wire *w)
{
	if (w->fd > 0)
		coll_fd_close(w->fd);
	free(w->in);
	free(w->out);
	memset(w, 0, sizeof(*w));
	w->fd = -1;
	w->state = COLL_WIRE_CLOSED;
}

const char *coll_wire_stage(const struct coll_wire *w)
{
	switch (w->state) {
	case COLL_WIRE_CONNECTING: return "no answer";
	case COLL_WIRE_OPEN: return "connected and proved the key, then no answer";
	default: return "connected, then no answer";
	}
}

void coll_wire_from(const struct coll_wire *w, char text[80])
{
	struct coll_address a = {.len = sizeof(a.at)};

	if (w->from[0])
		memcpy(text, w->from, sizeof(w->from));
	else if (w->fd >= 0 && getpeername(w->fd, (struct sockaddr *)&a.at, &a.len) == 0)
		coll_address_text(&a, text, 80);
}

size_t coll_wire_unsent(const struct coll_wire *w)
{
	return w->out_len - w->out_at + w->tail_len;
}

short coll_wire_events(const struct coll_wire *w)
{
	if (w->fd < 0 || w->state == COLL_WIRE_CLOSED)
		return 0;
	if (w->state == COLL_WIRE_CONNECTING)
		return POLLOUT;
	return (short)((w->in_len < w->in_max ? POLLIN : 0) | (coll_wire_unsent(w) ? POLLOUT : 0));
}

/* Consume len bytes at the front of the input. */
static void drop(struct coll_wire *w, size_t len_bytes)
{
	w->in_len -= len_bytes;
	memmove(w->in, w->in + len_bytes, w->in_len);
}

static bool is_magic(const struct coll_wire *w)
{
	const size_t n = w->in_len < sizeof(magic) ? w->in_len : sizeof(magic);

	return memcmp(w->in, magic, n) == 0;
}

static struct coll_wire_seals seals(const struct coll_wire *w, bool of_server)
{
	return (struct coll_wire_seals){.head.key = proof(w, of_server ? 'D' : 'U'),
	                                .body.key = proof(w, of_server ? 'd' : 'u')};
}

/* From here on coll_wire_peek() decides how much may stand in memory. */
static void open_wire(struct coll_wire *w)
{
	w->sends = seals(w, w->server);
	w->receives = seals(w, !w->server);
	w->state = COLL_WIRE_OPEN;
	w->proved = true;
	coll_wire_from(w, w->from);
	w->in_max = READ_CHUNK;
}

static void server_greeting(struct coll_wire *w)
{
	struct answer a;

	if (!is_magic(w)) {
		fail(w, "not a process of this job: garbage");
		return;
	}
	if (w->in_len < sizeof(struct hello))
		return;
	memcpy(w->client_nonce, w->in + offsetof(struct hello, nonce), 16);
	drop(w, sizeof(struct hello));
	memcpy(a.magic, magic, sizeof(magic));
	memcpy(a.nonce, w->server_nonce, 16);
	a.proof = proof(w, 'S');
	w->state = COLL_WIRE_PROVING;
	if (!queue(w, &a, sizeof(a)))
		fail_memory(w);
}

static void server_proving(struct coll_wire *w)
{
	const struct coll_proof want = proof(w, 'C');
	struct coll_proof p;

	if (w->in_len < sizeof(p))
		return;
	memcpy(&p, w->in, sizeof(p));
	if (!coll_proof_same(&p, &want)) {
		fail(w, "not a process of this job: wrong key");
		return;
	}
	drop(w, sizeof(p));
	open_wire(w);
}

static void client_greeting(struct coll_wire *w)
{
	struct coll_proof p;
	struct answer a;

	if (!is_magic(w)) {
		fail_stranger(w, "another program answers there");
		return;
	}
	if (w->in_len < sizeof(a))
		return;
	memcpy(&a, w->in, sizeof(a));
	memcpy(w->server_nonce, a.nonce, 16);
	p = proof(w, 'S');
	if (!coll_proof_same(&a.proof, &p)) {
		fail_stranger(w, "another job, or is the key not the same on all hosts?");
		return;
	}
	drop(w, sizeof(a));
	open_wire(w);
	p = proof(w, 'C');
	if (!queue(w, &p, sizeof(p)))
		fail_memory(w);
}

static void handshake(struct coll_wire *w)
{
	if (w->in_len == 0)
		return;
	if (w->state == COLL_WIRE_GREETING && w->server)
		server_greeting(w);
	else if (w->state == COLL_WIRE_GREETING)
		client_greeting(w);
	if (w->state == COLL_WIRE_PROVING)
		server_proving(w);
}

/* One read; false when there is nothing more for now, or what is here must be taken first. */
static bool receive(struct coll_wire *w)
{
	size_t room = w->in_max - w->in_len, step = w->in_cap - w->in_len;
	ssize_t n;

	if (room == 0 && w->proved)
		return false;
	step = step < READ_FIRST ? READ_FIRST : step;
	step = step < w->in_len ? w->in_len : step;
	if (room > READ_CHUNK)
		room = READ_CHUNK;
	if (room > step) /* memory follows what comes */
		room = step;
	if (room == 0) {
		fail(w, "sends too much before it is authenticated");
		return false;
	}
	if (!grow(&w->in, &w->in_cap, w->in_len + room)) {
		if (w->state != COLL_WIRE_OPEN)
			fail_memory(w);
		w->memory = true; /* nothing more is read; what is queued still leaves */
		w->in_max = w->in_len;
		return false;
	}
	n = recv(w->fd, w->in + w->in_len, room, 0);
	if (n == 0)
		fail(w, "closed by the other end");
	else if (n < 0 && errno != EAGAIN && errno != EINTR)
		fail_errno(w, "recv");
	if (n <= 0)
		return false;
	w->in_len += (size_t)n;
	return (size_t)n == room;
}

static bool send_some(struct coll_wire *w)
{
	const bool own = w->out_at < w->out_len;
	const void *from = own ? w->out + w->out_at : w->tail;
	const size_t len_bytes = own ? w->out_len - w->out_at : w->tail_len;
	ssize_t n;

	if (len_bytes == 0)
		return false;
	n = send(w->fd, from, len_bytes, MSG_NOSIGNAL);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		fail_errno(w, "send");
	if (n <= 0)
		return false;
	if (own) {
		w->out_at += (size_t)n;
	} else {
		w->tail += n;
		w->tail_len -= (size_t)n;
	}
	if (w->state == COLL_WIRE_OPEN && w->out_at == w->out_len)
		w->out_at = w->out_len = 0;
	return true;
}

static void finish_connect(struct coll_wire *w)
{
	int e = 0;
	socklen_t len = sizeof(e);

	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
		e = errno;
	if (e)
		fail(w, "connect: %s", coll_errno_text(e).text);
	else
		say_hello(w);
}

void coll_wire_pump(struct coll_wire *w, short revents)
{
	if (w->state == COLL_WIRE_CLOSED)
		return;
	if (w->state == COLL_WIRE_CONNECTING) {
		if (!(revents & (POLLOUT | POLLERR | POLLHUP)))
			return;
		finish_connect(w);
	}
	if (revents & (POLLIN | POLLERR | POLLHUP))
		while (w->state != COLL_WIRE_CLOSED && receive(w))
			handshake(w);
	handshake(w);
	while (w->state != COLL_WIRE_CLOSED && send_some(w))
		;
}

bool coll_wire_send(struct coll_wire *w, uint32_t type, const void *body, size_t len_bytes, const void *tail,
                    size_t tail_bytes)
{
	struct head h = {.type = type, .len_bytes = (uint32_t)(len_bytes + tail_bytes)};
	const bool borrow = len_bytes == 0;
	const size_t at = w->out_len, copied = sizeof(h) + len_bytes + (borrow ? 0 : tail_bytes);

	if (w->tail_len || w->state != COLL_WIRE_OPEN || len_bytes + tail_bytes > UINT32_MAX)
		return false;
	if (!grow(&w->out, &w->out_cap, at + copied)) {
		fail_memory(w);
		return false;
	}
	queue(w, &h, sizeof(h));
	queue(w, body, len_bytes);
	if (borrow) {
		w->tail = tail;
		w->tail_len = tail_bytes;
	} else {
		queue(w, tail, tail_bytes);
	}
	h.body = coll_seal_next(&w->sends.body, borrow ? tail : w->out + at + sizeof(h), h.len_bytes);
	h.head = coll_seal_next(&w->sends.head, &h, offsetof(struct head, head));
	memcpy(w->out + at, &h, sizeof(h));
	return true;
}

/* Nothing more is read there; what is queued still leaves, so that the other end can be told. */
static bool genuine(struct coll_wire *w, struct coll_seal *seal, const void *message, size_t len_bytes,
                    const struct coll_proof *said)
{
	const struct coll_proof want = coll_seal_next(seal, message, len_bytes);

	if (coll_proof_same(said, &want))
		return true;
	w->altered = true;
	w->in_len = w->in_max = 0;
	return false;
}

bool coll_wire_peek(struct coll_wire *w, size_t max_bytes, struct coll_wire_frame *f)
{
	struct head h;

	if (w->in_len < sizeof(h) || !w->proved)
		return false;
	memcpy(&h, w->in, sizeof(h));
	if (w->checked == COLL_WIRE_NOTHING) {
		if (!genuine(w, &w->receives.head, &h, offsetof(struct head, head), &h.head))
			return false;
		w->checked = COLL_WIRE_HEAD;
	}
	if (h.len_bytes > max_bytes) {
		fail(w, "a frame of %u bytes, at most %zu allowed", h.len_bytes, max_bytes);
		w->in_len = 0;
		return false;
	}
	if (w->in_max < sizeof(h) + h.len_bytes)
		w->in_max = sizeof(h) + h.len_bytes;
	if (w->in_len < sizeof(h) + h.len_bytes)
		return false;
	if (w->checked == COLL_WIRE_HEAD) {
		if (!genuine(w, &w->receives.body, w->in + sizeof(h), h.len_bytes, &h.body))
			return false;
		w->checked = COLL_WIRE_ALL;
	}
	f->type = h.type;
	f->len_bytes = h.len_bytes;
	f->body = w->in + sizeof(h);
	return true;
}

void coll_wire_take(struct coll_wire *w, const struct coll_wire_frame *f)
{
	drop(w, sizeof(struct head) + f->len_bytes);
	w->checked = COLL_WIRE_NOTHING;
	w->in_max = READ_CHUNK; /* at least what is left: no more than one such frame was let in */
}
