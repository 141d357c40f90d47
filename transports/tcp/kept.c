/*
 * Frames that are sent again. A rail that is one of several outlives its socket: it connects again over another rail's
 * addresses and goes on where the peer says that it is. So a sender keeps each frame, in its slot or in the memory that
 * was loaned, until its credit has come back. That is also when loaned memory is given back: the kernel may have taken
 * bytes that never arrive.
 *
 * Invariant: kept frames are the last ones of the channel, in order, at most as many as it has slots. What is in the
 * link's queue is kept. Nothing but frames needs to be sent again: grants, credits and closings are told anew from the
 * receivers that are here. A link of one socket keeps nothing.
 */
#include "transports/tcp/kept.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transports/common/rails.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/link.h"
#include "transports/tcp/tx.h"

/* ---- frames ---------------------------------------------------------------------- */

static struct tcp_entry *kept_at(const struct tcp_sender *s, uint32_t i)
{
	return &s->kept[(s->kept_first + i) % s->base.slots];
}

static void send_entry(struct tcp_sender *s, const struct tcp_entry *e)
{
	bool gone;

	s->queued++;
	coll_tcp_tx(s->base.link, e, &gone);
	s->queued -= gone;
}

void coll_tcp_kept_send(struct tcp_sender *s, const struct tcp_entry *e)
{
	assert(s->kept_count < s->base.slots);
	*kept_at(s, s->kept_count++) = *e;
	if (!s->grant->held)
		send_entry(s, e);
}

/* How many the peer has not given back yet. */
static uint32_t wanted(const struct tcp_sender *s)
{
	const struct tcp_grant *g = s->grant;

	return g && coll_peer_link_works(&s->base.link->base) ? g->slots - g->credits : 0;
}

void coll_tcp_kept_release(struct tcp_sender *s)
{
	while (s->kept_count > s->queued && s->kept_count > wanted(s)) {
		struct tcp_entry *e = kept_at(s, 0);

		free(e->owned);
		if (e->slot != UINT32_MAX)
			s->base.spare[s->base.spare_count++] = e->slot;
		s->loaned_done += e->loaned;
		s->kept_first = (s->kept_first + 1) % s->base.slots;
		s->kept_count--;
	}
	if (!s->closed)
		coll_tcp_channel_event(&s->base);
	else if (s->kept_count == 0)
		coll_tcp_channel_free_sender(s);
}

bool coll_tcp_kept_copy(struct tcp_sender *s)
{
	struct tcp_link *l = s->base.link;

	for (uint32_t i = 0; i < s->kept_count; i++) {
		struct tcp_entry *e = kept_at(s, i);

		if (!e->loaned)
			continue;
		e->owned = malloc(e->len_bytes ? e->len_bytes : 1);
		if (!e->owned)
			return false;
		memcpy(e->owned, e->payload, e->len_bytes);
		e->payload = e->owned;
		e->loaned = false;
		s->loaned_done++;
	}
	for (uint32_t i = 0, n = s->kept_count - s->queued; i < l->queue_count; i++) {
		struct tcp_entry *e = tcp_queue_at(l, i);

		if (e->sender == s)
			e->payload = kept_at(s, n++)->payload;
	}
	return true;
}

/* ---- the end of a socket --------------------------------------------------------- */

/* A frame that is half here comes again as a whole; what its taker has had of it is skipped then. */
static void forget_half(struct tcp_link *l)
{
	struct tcp_receiver *r = l->into;

	if (r) {
		r->index--;
		r->allowed++;
		if (l->into_slot != UINT32_MAX)
			r->base.spare[r->base.spare_count++] = l->into_slot;
	}
	l->into = NULL;
	l->into_ptr = NULL;
	l->taking = l->large = false;
	l->into_left = l->piece_left = l->skip = l->wake_bytes = 0;
	l->trailer = false;
	l->stage_begin = l->stage_end = 0;
}

static void forget_queue(struct tcp_link *l)
{
	for (; l->queue_count > 0; l->queue_count--, l->queue_first++) {
		const struct tcp_entry *e = tcp_queue_at(l, 0);

		if (e->sender)
			e->sender->queued--;
	}
	l->sent = l->check_count = 0;
	for (uint32_t i = 0; i < l->grants.cap; i++)
		if (l->grants.at[i])
			((struct tcp_grant *)l->grants.at[i])->held = true;
	for (struct tcp_sender *s = l->senders, *next; s; s = next) {
		next = s->next;
		coll_tcp_kept_release(s);
	}
}

void coll_tcp_kept_strand(struct tcp_link *l, const char *format, ...)
{
	struct tcp_inst *in = l->inst;
	char cause[160];
	va_list ap;

	va_start(ap, format);
	vsnprintf(cause, sizeof(cause), format, ap);
	va_end(ap);
	snprintf(l->base.cause, sizeof(l->base.cause), "%s%s%.100s", l->where, l->where[0] ? ": " : "", cause);
	tcp_log(in, COLL_LOG_INFO, "tcp: rail %u is lost: %s", l->base.part + 1, l->base.cause);
	close(coll_tcp_link_detach(l));
	l->state = LINK_CONNECTING;
	atomic_fetch_add(&in->connecting, 1);
	l->again = l->stranded = true;
	l->stranded_ns = coll_clock_ns();
	l->out_errno = 0;
	l->unanswered_ns = 0;
	l->silent = l->unreached = false;
	forget_half(l);
	forget_queue(l);
	l->news = true;
	atomic_fetch_add(&in->links.stale, 1);
	coll_link_rails_notice(&in->links);
	coll_reactor_kick(&in->service);
}

/* ---- the next socket -------------------------------------------------------------- */

void coll_tcp_kept_resume(struct tcp_link *l)
{
	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		struct tcp_receiver *r = l->receivers.at[i];
		struct coll_tcp_head head = {.type = COLL_TCP_CLOSE};

		if (!r)
			continue;
		if (!r->draining) {
			coll_tcp_channel_grant(r);
			head = (struct coll_tcp_head){.type = COLL_TCP_STATE, .index = r->index, .credits = r->allowed};
		}
		head.channel = r->id;
		coll_tcp_tx_control(l, &head);
	}
}

const char *coll_tcp_kept_state(struct tcp_link *l, const struct coll_tcp_head *head)
{
	struct tcp_grant *g = coll_id_table_get(&l->grants, head->channel);
	const uint32_t missing = g ? g->index - head->index : 0;
	struct tcp_sender *s;

	if (!g)
		return "the state of a channel that was not granted";
	/* Granted just now, for the first time: frames may be under way already. */
	if (!g->held && head->index == 0 && head->credits == g->slots)
		return NULL;
	s = g->sender;
	if (!g->held || head->credits > g->slots || missing > head->credits || (missing > 0 && !s))
		return "an impossible state of a channel";
	g->credits = head->credits - missing;
	g->held = false;
	/* What is not missing first: sending may end frames of the queue, and then none moves. */
	if (s)
		coll_tcp_kept_release(s);
	s = g->sender;
	if ((s ? s->kept_count : 0) < missing)
		return "frames are missing that were given back";
	for (uint32_t i = s ? s->kept_count - missing : 0; s && i < s->kept_count; i++)
		send_entry(s, kept_at(s, i));
	return NULL;
}
