/*
 * Sockets of a link that has ended because one of its rails is lost. Outsiders see that end at once, but each of the
 * other sockets stays open here until the peer has read LOST, the frame that names the rail. The frame may have to wait
 * behind a full socket. And a socket that is closed while the peer still sends answers with a reset, which discards
 * what is under way to the peer. So our end of the stream is announced behind LOST, and what comes is read and dropped
 * until the peer closes, too.
 *
 * Invariant: nothing here refers to a link, a channel or memory of a user. What a frame that is half sent still lacks
 * is a copy: the stream stays whole. Each socket is closed within TCP_UNACKNOWLEDGED, when a host that answers nothing
 * counts as out of reach, by whoever serves: the service thread, calls that make progress, or the end of the transport.
 * The list is guarded by links.lock.
 */
#include "transports/tcp/closing.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/fork.h"
#include "transports/tcp/link.h"
#include "transports/tcp/tx.h"

enum { DISCARD_BYTES = 16 * 1024, DISCARDS = 64 /* of one turn */ };

struct tcp_closing {
	struct tcp_closing *next;
	int fd;
	uint64_t deadline_ns;
	size_t sent, len_bytes;
	char bytes[];
};

/* What the queue must still send so that the stream is whole: the rest of its first frame, if that is half sent. */
static size_t rest_of_first(const struct tcp_link *l, char *to)
{
	const struct tcp_entry *e = &l->queue[l->queue_first & (l->queue_cap - 1)];
	const size_t head = sizeof(e->head);
	size_t whole;

	if (l->queue_count == 0 || l->sent == 0)
		return 0;
	whole = head + e->len_bytes;
	if (to && l->sent < head)
		memcpy(to, (const char *)&e->head + l->sent, head - l->sent);
	if (to && whole > head && l->sent < head)
		memcpy(to + head - l->sent, e->payload, e->len_bytes);
	else if (to && l->sent >= head)
		memcpy(to, e->payload + (l->sent - head), whole - l->sent);
	return whole - l->sent;
}

static bool only_later(int error)
{
	return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS || error == ENOMEM;
}

/* False: the connection is broken. */
static bool deliver(struct tcp_closing *c)
{
	ssize_t n;

	if (c->sent == c->len_bytes)
		return true;
	n = send(c->fd, c->bytes + c->sent, c->len_bytes - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0)
		return only_later(errno);
	c->sent += (size_t)n;
	return c->sent < c->len_bytes || shutdown(c->fd, SHUT_WR) == 0;
}

/* The service thread looks at the list at each tick, and so does each progress. The first socket makes it set its
 * timer: it takes the kick after the count, which was written before, and reads the count when it sets the timer. The
 * list itself is behind the lock. So nothing rests on the order of the count beside other memory. */
void coll_tcp_closing_begin(struct tcp_link *l, const struct coll_tcp_head *last)
{
	struct coll_tcp_head head = *last;
	struct tcp_inst *in = l->inst;
	struct tcp_closing *c;
	size_t rest;

	coll_tcp_tx_flush(l);
	rest = rest_of_first(l, NULL);
	c = malloc(sizeof(*c) + rest + sizeof(head));
	if (!c)
		return;
	rest_of_first(l, c->bytes);
	head.credit_channel = COLL_TCP_NO_CHANNEL;
	coll_tcp_tx_seal(l, &head);
	memcpy(c->bytes + rest, &head, sizeof(head));
	c->fd = coll_tcp_link_detach(l);
	c->deadline_ns = coll_clock_ns() + COLL_DELAY_NS(TCP_UNACKNOWLEDGED);
	c->sent = 0;
	c->len_bytes = rest + sizeof(head);
	(void)deliver(c); /* a broken connection is found again when the list is served */
	c->next = in->closing;
	in->closing = c;
	if (atomic_fetch_add(&in->closing_count, 1) == 0)
		coll_reactor_kick(&in->service);
}

/* False: the connection is broken. *ended: the peer has closed its end. */
static bool discard(struct tcp_closing *c, bool *ended)
{
	char bytes[DISCARD_BYTES];
	ssize_t n = 1;

	for (int i = 0; i < DISCARDS && n > 0; i++)
		n = recv(c->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
	*ended = n == 0;
	return n >= 0 || only_later(errno);
}

static bool owes(const struct tcp_closing *c)
{
	int unsent = 0;

	return c->sent < c->len_bytes || (ioctl(c->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0);
}

static void forget(struct tcp_inst *in, struct tcp_closing **at)
{
	struct tcp_closing *c = *at;

	*at = c->next;
	coll_fd_close(c->fd);
	free(c);
	atomic_fetch_sub(&in->closing_count, 1);
}

bool coll_tcp_closing_serve(struct tcp_inst *in)
{
	const uint64_t now = coll_clock_ns();
	bool more = false;

	if (atomic_load(&in->closing_count) == 0)
		return false;
	pthread_mutex_lock(&in->links.lock);
	for (struct tcp_closing **at = &in->closing; *at;) {
		bool ended = false;

		if (!deliver(*at) || !discard(*at, &ended) || now >= (*at)->deadline_ns || (ended && !owes(*at))) {
			forget(in, at);
			continue;
		}
		more |= owes(*at);
		at = &(*at)->next;
	}
	pthread_mutex_unlock(&in->links.lock);
	return more;
}

void coll_tcp_closing_fini(struct tcp_inst *in)
{
	while (in->closing)
		forget(in, &in->closing);
}
