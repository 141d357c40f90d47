/*
 * The way in of a link: bytes become frames. Heads and small payloads come
 * through a staging buffer, many per system call; a large payload is read
 * straight into its slot or into user memory. Every frame read was granted, so
 * reading never has to stop: no channel holds up another. Nothing from the peer
 * is trusted: a head that fails any check ends the link as corrupt.
 * Everything runs under link's lock.
 */
#include "transports/tcp/rx.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/errno_text.h"
#include "tcp.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/check.h"
#include "transports/tcp/grant.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/link.h"

static void corrupt(struct tcp_link *l, const char *what)
{
	coll_tcp_link_fail(l, COLL_ERR_CORRUPT, "corrupt stream: %s", what);
}

/* ---- one DATA ----------------------------------------------------------- */

static struct coll_frame frame_of(const struct coll_tcp_head *head)
{
	return (struct coll_frame){head->sequence, head->signature, head->len_bytes};
}

static void announce_done(struct tcp_receiver *r, coll_status status)
{
	r->into.status = status;
	r->into.finished = true;
}

static uint32_t take_slot(struct tcp_receiver *r)
{
	assert(r->base.spare_count > 0);
	return r->base.spare[--r->base.spare_count];
}

/* Where what the taker has not had yet begins: in its own memory, or in the link's. */
static char *piece_begin(const struct tcp_link *l, const struct tcp_receiver *r)
{
	return r->into.taker->at ? r->into.taker->at + r->into.taken : l->bulk;
}

/* Where the payload goes: announced memory if the frame is the expected one. */
static void aim(struct tcp_link *l, struct tcp_receiver *r)
{
	const struct coll_frame f = frame_of(&l->into_head);

	l->into_slot = UINT32_MAX;
	if (r->into.completion != NULL && !r->into.finished && r->count == 0) {
		if (coll_same_frame(&f, &r->into.expect)) {
			l->taking = r->into.taker != NULL;
			l->into_ptr = l->taking ? piece_begin(l, r) : r->into.ptr;
			/* It was half here on a socket that is lost. */
			l->skip = l->taking ? (uint32_t)r->into.taken : 0;
			return;
		}
		announce_done(r, COLL_ERR_MISMATCH);
		coll_tcp_channel_event(&r->base);
	}
	l->into_slot = take_slot(r);
	l->into_ptr = r->base.memory + l->into_slot * r->base.stride + TCP_HEADROOM;
}

static void arrived(struct tcp_link *l)
{
	struct tcp_receiver *r = l->into;

	l->into = NULL;
	l->into_ptr = NULL;
	l->taking = false;
	if (r == NULL)
		return; /* discarded */
	l->data_in++;
	if (l->into_slot == UINT32_MAX) {
		announce_done(r, COLL_OK);
		coll_tcp_channel_owe(r, l->into_head.flags & COLL_TCP_ASKS);
	} else {
		r->ring[(r->first + r->count) % r->base.slots] =
		        (struct tcp_arrival){l->into_slot, l->into_head.flags & COLL_TCP_ASKS, frame_of(&l->into_head)};
		atomic_fetch_add_explicit(&r->count, 1, memory_order_release); /* see coll_tcp_view */
	}
	coll_tcp_channel_event(&r->base);
}

static const char *begin_data(struct tcp_link *l, const struct coll_tcp_head *head)
{
	struct tcp_receiver *r = coll_id_table_get(&l->receivers, head->channel);

	if (r == NULL)
		return "data for a channel that is not open";
	if (head->len_bytes > r->base.slot_bytes)
		return "a frame is larger than its slot";
	if (head->index != r->index)
		return "a frame of the channel is missing or doubled";
	if (r->allowed == 0)
		return "a frame without credit";
	r->index++;
	r->allowed--;
	l->into = r->draining ? NULL : r;
	l->into_head = *head;
	coll_tcp_check_begin(l);
	l->into_ptr = NULL;
	l->taking = false;
	l->large = head->len_bytes >= TCP_LARGE_BYTES;
	if (l->into != NULL)
		aim(l, r);
	return NULL;
}

/* ---- heads ------------------------------------------------------------------ */

static const char *control(struct tcp_link *l, const struct coll_tcp_head *head)
{
	switch (head->type) {
	case COLL_TCP_CREDIT:
	case COLL_TCP_NOP: return NULL;
	case COLL_TCP_GRANT: return coll_tcp_channel_granted(l, head);
	case COLL_TCP_CLOSE: return coll_tcp_channel_withdrawn(l, head->channel);
	case COLL_TCP_CLOSED: return coll_tcp_channel_drained(l, head->channel);
	case COLL_TCP_STATE: return coll_tcp_kept_state(l, head);
	case COLL_TCP_BYE: l->bye_seen = true; return NULL;
	default: return "a frame of unknown type";
	}
}

static const char *take_head(struct tcp_link *l, const struct coll_tcp_head *head)
{
	const char *wrong = NULL;

	if (head->magic != COLL_TCP_HEAD_MAGIC || head->flags > (head->type == COLL_TCP_DATA ? COLL_TCP_ASKS : 0))
		return "a frame does not begin where it should";
	if (head->check != coll_tcp_head_check(head, &l->key, l->number_in++))
		return "a frame head fails its check";
	if (l->bye_seen)
		return "a frame after the goodbye";
	if (head->type != COLL_TCP_GRANT && head->credit_channel != COLL_TCP_NO_CHANNEL)
		wrong = coll_tcp_channel_credited(l, head->credit_channel, head->credits);
	if (wrong != NULL)
		return wrong;
	return head->type == COLL_TCP_DATA ? begin_data(l, head) : control(l, head);
}

/* ---- bytes ---------------------------------------------------------------------- */

void coll_tcp_rx_give(struct tcp_link *l)
{
	struct tcp_receiver *r = l->into;
	size_t have, good, whole;
	char *begin;

	if (!l->taking)
		return;
	begin = piece_begin(l, r);
	have = (size_t)(l->into_ptr - begin);
	good = l->good > r->into.taken ? l->good - r->into.taken : 0;
	if (good > have)
		good = have;
	whole = l->into_left == 0 ? good : good / TCP_PIECE_BYTES * TCP_PIECE_BYTES;
	if (whole == 0)
		return;
	r->into.taker->take(r->into.taker->arg, begin, r->into.taken, whole);
	r->into.taken += whole;
	if (r->into.taker->at)
		return;
	memmove(l->bulk, l->bulk + whole, have - whole);
	l->into_ptr = l->bulk + (have - whole);
}

/* Give the payload under way what the stage has of it. */
static void drain_stage(struct tcp_link *l)
{
	const uint32_t staged = l->stage_end - l->stage_begin, n = staged < l->piece_left ? staged : l->piece_left;
	const uint32_t skip = n < l->skip ? n : l->skip;
	const char *bytes = l->stage + l->stage_begin;

	l->skip -= skip;
	l->stage_begin += n;
	coll_tcp_check_came(l, bytes, n);
	if (l->into_ptr != NULL) {
		if (n > skip)
			memcpy(l->into_ptr, bytes + skip, n - skip);
		l->into_ptr += n - skip;
	}
	coll_tcp_rx_give(l);
}

/* Whether the payload under way is here as a whole. */
static bool payload_here(struct tcp_link *l)
{
	char wrong[128];

	while (l->piece_left > 0 || l->trailer) {
		drain_stage(l);
		if (l->piece_left > 0)
			return false;
		if (!l->trailer)
			break;
		if (l->stage_end - l->stage_begin < TCP_TRAILER_BYTES)
			return false;
		l->stage_begin += TCP_TRAILER_BYTES;
		if (!coll_tcp_check_end(l, l->stage + l->stage_begin - TCP_TRAILER_BYTES, wrong, sizeof(wrong))) {
			corrupt(l, wrong);
			return false;
		}
		coll_tcp_rx_give(l);
	}
	return true;
}

/* Frames out of the stage; number of heads. The payload of one may be under way. */
static int parse(struct tcp_link *l, bool payload)
{
	int heads = 0;

	while (l->state == LINK_UP) {
		struct coll_tcp_head head;
		const char *wrong;

		if (payload) {
			if (!payload_here(l))
				break;
			arrived(l);
		}
		if (l->stage_end - l->stage_begin < sizeof(head))
			break;
		memcpy(&head, l->stage + l->stage_begin, sizeof(head));
		l->stage_begin += sizeof(head);
		heads++;
		wrong = take_head(l, &head);
		if (wrong != NULL) {
			corrupt(l, wrong);
			break;
		}
		payload = head.type == COLL_TCP_DATA;
	}
	if (l->stage_begin == l->stage_end)
		l->stage_begin = l->stage_end = 0;
	return heads;
}

/* What one read asks for: the rest of the payload under way, then the stage. */
static int aim_read(struct tcp_link *l, struct iovec *iov, size_t *asked)
{
	const uint32_t have = l->stage_end - l->stage_begin;
	uint32_t room, want = 0;
	int n = 0;

	if (l->piece_left > 0 && (l->skip > 0 || l->into_ptr == NULL)) {
		/* Discarding: through the stage, which is empty. */
		room = l->skip > 0 && l->skip < l->piece_left ? l->skip : l->piece_left;
		room = room < TCP_STAGE_BYTES ? room : TCP_STAGE_BYTES;
		iov[n++] = (struct iovec){l->stage, room};
		*asked = room;
		return n;
	}
	if (l->taking && l->piece_left > piece_begin(l, l->into) + TCP_BULK_BYTES - l->into_ptr) {
		*asked = (size_t)(piece_begin(l, l->into) + TCP_BULK_BYTES - l->into_ptr);
		iov[n++] = (struct iovec){l->into_ptr, *asked};
		return n;
	}
	if (l->piece_left > 0)
		iov[n++] = (struct iovec){l->into_ptr, l->piece_left};
	if (l->stage_begin > 0) {
		memmove(l->stage, l->stage + l->stage_begin, have);
		l->stage_begin = 0;
		l->stage_end = have;
	}
	/* Among large frames only the check and the head are wanted: what is staged is copied twice. */
	if (l->check && (l->piece_left > 0 || l->trailer))
		want += TCP_TRAILER_BYTES;
	if (l->into_left == l->piece_left)
		want += sizeof(struct coll_tcp_head);
	room = (l->large && have < want ? want : TCP_STAGE_BYTES) - have;
	iov[n++] = (struct iovec){l->stage + have, room};
	*asked = l->piece_left + room;
	return n;
}

/* n bytes have come. */
static int took(struct tcp_link *l, size_t n)
{
	const bool payload = l->piece_left > 0 || l->trailer;

	l->moved += n;
	l->heard = true;
	if (l->piece_left > 0) {
		const uint32_t direct = n < l->piece_left ? (uint32_t)n : l->piece_left;
		const bool put = l->skip == 0 && l->into_ptr != NULL;

		coll_tcp_check_came(l, put ? l->into_ptr : l->stage, direct);
		if (put)
			l->into_ptr += direct;
		else if (l->skip > 0)
			l->skip -= direct;
		n -= direct;
		coll_tcp_rx_give(l);
		if (l->piece_left > 0)
			return 0;
	}
	l->stage_end += (uint32_t)n;
	return 1 + parse(l, payload);
}

/* Nothing more will come; e is 0 at an orderly end of the stream. */
static void end_of_stream(struct tcp_link *l, int e)
{
	if (e == 0)
		e = l->out_errno;
	if (l->bye_seen)
		coll_tcp_link_ended(l);
	else if (l->several && !l->base.lingering)
		coll_tcp_kept_strand(l, "%s", e != 0 ? coll_errno_text(e).text : "connection closed without a goodbye");
	else if (e != 0)
		/* What this process lacks says nothing about the peer. */
		coll_tcp_link_fail(l, e == ENOMEM || e == ENOBUFS ? COLL_ERR_SYSTEM : COLL_ERR_PEER_DEAD, "recv: %s",
		                   coll_errno_text(e).text);
	else
		coll_tcp_link_fail(l, COLL_ERR_PEER_DEAD, "connection closed without a goodbye");
}

static void wake_at(struct tcp_link *l, uint32_t len_bytes)
{
	const int value = (int)len_bytes;

	if (setsockopt(l->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(value)) == 0)
		l->wake_bytes = len_bytes;
}

void coll_tcp_rx_settle(struct tcp_link *l, uint32_t most_bytes)
{
	const uint32_t want = l->into_left < most_bytes ? l->into_left : most_bytes;

	/* Behind small ones there may be something that somebody can use at once. */
	if (l->state == LINK_UP && l->into_left >= TCP_LARGE_BYTES && want != l->wake_bytes)
		wake_at(l, want);
}

int coll_tcp_rx(struct tcp_link *l, size_t budget)
{
	size_t total = 0;
	int happened = 0;

	while (l->state == LINK_UP && total < budget) {
		struct iovec iov[2];
		size_t asked;
		const int pieces = aim_read(l, iov, &asked);
		const ssize_t n = pieces == 1 ? recv(l->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT)
		                              : readv(l->fd, iov, pieces);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			/* Writing failed and nothing is left to read. */
			if (l->out_errno == 0)
				break;
			errno = l->out_errno;
		}
		if (n <= 0) {
			end_of_stream(l, n < 0 ? errno : 0);
			return happened + 1;
		}
		total += (size_t)n;
		l->calls_in++;
		happened += 1 + took(l, (size_t)n);
		if ((size_t)n < asked && l->out_errno == 0)
			break;
	}
	/* Whoever sleeps next must not wait for more than the frame has. */
	if (l->wake_bytes > 1 && l->wake_bytes > l->into_left && l->state == LINK_UP)
		wake_at(l, 1);
	return happened;
}
