/*
 * The way out of a link: one queue per socket, first in first out. A frame that
 * finds the queue empty goes to the kernel at once, head and payload in one
 * call; what the kernel does not take waits here. DATA enters only with credit,
 * so the queue is bounded by the slots of the open channels and never grows on
 * the data path. Everything runs under link's lock; nothing blocks.
 */
#include "transports/tcp/tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "tcp.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/check.h"
#include "transports/tcp/grant.h"
#include "transports/tcp/link.h"

enum { TX_BATCH = 16 };

static bool grow(struct tcp_link *l, uint32_t entries)
{
	uint32_t cap = l->queue_cap ? l->queue_cap : 16;
	struct tcp_entry *queue;

	while (cap < entries)
		cap *= 2;
	if (cap == l->queue_cap)
		return true;
	queue = malloc(cap * sizeof(*queue));
	if (queue == NULL)
		return false;
	for (uint32_t i = 0; i < l->queue_count; i++)
		queue[i] = *tcp_queue_at(l, i);
	free(l->queue);
	l->queue = queue;
	l->queue_cap = cap;
	l->queue_first = 0;
	return true;
}

coll_status coll_tcp_tx_reserve(struct tcp_link *l, uint32_t entries)
{
	if (!grow(l, l->queue_need + entries))
		return COLL_ERR_MEMORY;
	l->queue_need += entries;
	return COLL_OK;
}

void coll_tcp_tx_release(struct tcp_link *l, uint32_t entries)
{
	assert(l->queue_need >= entries);
	l->queue_need -= entries;
}

void coll_tcp_tx_seal(struct tcp_link *l, struct coll_tcp_head *head)
{
	head->magic = COLL_TCP_HEAD_MAGIC;
	head->check = coll_tcp_head_check(head, &l->key, l->number_out++);
}

static void piggyback(struct tcp_link *l, struct coll_tcp_head *head)
{
	if (!coll_tcp_channel_take_credit(l, false, &head->credit_channel, &head->credits)) {
		head->credit_channel = COLL_TCP_NO_CHANNEL;
		head->credits = 0;
	}
}

/* Bytes taken, 0 when the kernel wants none now; errors wait in out_errno for
 * the reading side, which may still find frames and a BYE. */
static size_t to_kernel(struct tcp_link *l, struct iovec *iov, int pieces)
{
	const struct msghdr m = {.msg_iov = iov, .msg_iovlen = (size_t)pieces};
	ssize_t n;

	if (l->state != LINK_UP || l->out_errno != 0)
		return 0;
	n = pieces == 1 ? send(l->fd, iov->iov_base, iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
	                : sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0) {
		if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR && errno != ENOBUFS && errno != ENOMEM)
			l->out_errno = errno;
		return 0;
	}
	l->moved += (uint64_t)n;
	l->calls_out++;
	return (size_t)n;
}

static size_t whole(const struct tcp_link *l, const struct tcp_entry *e)
{
	return sizeof(e->head) + coll_tcp_check_body(l, e->len_bytes);
}

static int gather(const struct tcp_entry *e, size_t skip, struct iovec *iov)
{
	int n = 0;

	if (skip < sizeof(e->head))
		iov[n++] = (struct iovec){(char *)(uintptr_t)&e->head + skip, sizeof(e->head) - skip};
	skip = skip < sizeof(e->head) ? 0 : skip - sizeof(e->head);
	if (e->len_bytes > skip)
		iov[n++] = (struct iovec){(char *)(uintptr_t)e->payload + skip, e->len_bytes - skip};
	return n;
}

/* A slot has room for its head in front and a check behind: one piece is cheaper for the kernel than two. */
static bool in_one_piece(struct tcp_link *l, const struct tcp_entry *e, struct iovec *iov)
{
	char *at;

	if (e->slot == UINT32_MAX)
		return false;
	at = (char *)(uintptr_t)e->payload - sizeof(e->head);
	memcpy(at, &e->head, sizeof(e->head));
	if (l->check && e->len_bytes > 0)
		memcpy((char *)(uintptr_t)e->payload + e->len_bytes, coll_tcp_check_one(l, e), TCP_TRAILER_BYTES);
	*iov = (struct iovec){at, whole(l, e)};
	return true;
}

/* What is computed on the way is kept in the queue. */
static bool through_queue(const struct tcp_link *l, const struct tcp_entry *e)
{
	return l->check && e->len_bytes > TCP_CHECK_BYTES;
}

static bool push(struct tcp_link *l, const struct tcp_entry *e)
{
	/* Control messages come with open and close, where allocating is allowed. */
	if (l->queue_count == l->queue_cap && !grow(l, 2 * l->queue_cap))
		return false;
	l->queue[(l->queue_first + l->queue_count++) & (l->queue_cap - 1)] = *e;
	return true;
}

static bool retire(struct tcp_link *l, size_t n)
{
	const bool moved = n > 0;

	if (l->check)
		coll_tcp_check_sent(l, n);
	l->sent += n;
	while (l->queue_count > 0) {
		struct tcp_entry *e = tcp_queue_at(l, 0);
		const size_t bytes = whole(l, e);

		if (l->sent < bytes)
			break;
		l->sent -= bytes;
		l->queue_first++;
		l->queue_count--;
		coll_tcp_channel_sent(l, e);
	}
	return moved;
}

static bool flush_some(struct tcp_link *l, bool *all)
{
	const uint32_t entries = l->queue_count < TX_BATCH ? l->queue_count : TX_BATCH;
	struct iovec iov[TX_BATCH + 2 * TCP_CHECK_PIECES];
	size_t asked = 0, n;
	int pieces = 0;

	if (l->check)
		pieces = coll_tcp_check_gather(l, entries, iov, &asked);
	for (uint32_t i = 0; i < entries && !l->check; i++)
		pieces += gather(tcp_queue_at(l, i), i == 0 ? l->sent : 0, iov + pieces);
	for (int i = 0; i < pieces && !l->check; i++)
		asked += iov[i].iov_len;
	n = to_kernel(l, iov, pieces);
	*all = n == asked;
	return retire(l, n);
}

static bool flush(struct tcp_link *l)
{
	bool moved = false;
	bool all = true;

	while (l->queue_count > 0 && all && l->state == LINK_UP)
		moved |= flush_some(l, &all);
	return moved;
}

void coll_tcp_tx(struct tcp_link *l, const struct tcp_entry *entry, bool *gone)
{
	struct tcp_entry e = *entry;
	size_t n = 0;

	*gone = false;
	if (e.head.type == COLL_TCP_DATA)
		piggyback(l, &e.head);
	coll_tcp_tx_seal(l, &e.head);
	if (l->queue_count == 0 && l->state == LINK_UP && !through_queue(l, &e)) {
		struct iovec iov[3];
		const bool single = in_one_piece(l, &e, iov);
		int pieces = single ? 1 : gather(&e, 0, iov);

		if (l->check && !single && e.len_bytes > 0)
			iov[pieces++] = (struct iovec){coll_tcp_check_one(l, &e), TCP_TRAILER_BYTES};
		n = to_kernel(l, iov, pieces);
		if (n == whole(l, &e)) {
			l->check_count = 0;
			*gone = true;
			return;
		}
	}
	if (!push(l, &e)) {
		coll_tcp_link_fail(l, COLL_ERR_SYSTEM, "out of memory for the queue of a link");
		*gone = true;
		return;
	}
	if (l->queue_count == 1)
		l->sent = n;
	if (l->queue_count == 1 && l->state == LINK_UP && through_queue(l, &e))
		flush(l);
	if (l->state == LINK_UP && l->queue_count > 0)
		coll_reactor_soon(&l->inst->service);
}

void coll_tcp_tx_control(struct tcp_link *l, struct coll_tcp_head *head)
{
	struct tcp_entry e = {.head = *head, .slot = UINT32_MAX};
	bool gone;

	/* What a lost socket would have said is told anew on the next one. */
	if (l->again || (l->state != LINK_UP && l->state != LINK_CONNECTING))
		return;
	if (head->type != COLL_TCP_GRANT && head->type != COLL_TCP_CREDIT)
		e.head.credit_channel = COLL_TCP_NO_CHANNEL;
	coll_tcp_tx(l, &e, &gone);
}

void coll_tcp_tx_want(struct tcp_link *l, bool want)
{
	struct epoll_event e = {.events = EPOLLIN | (want ? EPOLLOUT : 0u), .data.u64 = tcp_link_tag(l)};

	if (l->watched && epoll_ctl(l->inst->data_epoll, EPOLL_CTL_MOD, l->fd, &e) == 0)
		l->want_out = want;
}

bool coll_tcp_tx_flush(struct tcp_link *l)
{
	const bool moved = flush(l);

	if (l->queue_count == 0 && l->want_out && l->state == LINK_UP)
		coll_tcp_tx_want(l, false);
	if (l->queue_count == 0 && l->base.lingering && l->state == LINK_UP && !l->shut) {
		l->shut = true;
		shutdown(l->fd, SHUT_WR);
	}
	return moved;
}

bool coll_tcp_tx_credits(struct tcp_link *l)
{
	struct coll_tcp_head head = {.type = COLL_TCP_CREDIT};
	bool moved = false;

	while (l->state == LINK_UP && coll_tcp_channel_take_credit(l, true, &head.credit_channel, &head.credits)) {
		l->credit_out++;
		coll_tcp_tx_control(l, &head);
		moved = true;
	}
	return moved;
}

void coll_tcp_tx_asked(struct tcp_link *l)
{
	if (!l->asked || l->state != LINK_UP)
		return;
	l->asked = false;
	coll_tcp_tx_credits(l);
}
