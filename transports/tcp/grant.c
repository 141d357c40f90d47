/*
 * Credits and grants. The receiver's side counts emptied slots and decides when to return
 * them. The sender's side keeps a grant for every receiving end that the peer
 * has opened, found by the peer's index and joined to a sender of the same key,
 * whichever of the two came first. Messages of the peer are checked here: a grant
 * out of range, credits beyond the slots, a channel that was not opened.
 */
#include "transports/tcp/grant.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tcp.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/link.h"
#include "transports/tcp/tx.h"

/* ---- credit of receivers -------------------------------------------------------- */

void coll_tcp_channel_owe(struct tcp_receiver *r, bool asks)
{
	struct tcp_link *l = r->base.link;

	if (r->owed++ == 0) {
		r->owing_next = l->owing;
		l->owing = r;
	}
	l->asked |= asks;
	if (!r->due && (asks || r->owed >= r->due_at)) {
		r->due = true;
		l->due++;
	}
}

void coll_tcp_channel_forget_owed(struct tcp_receiver *r)
{
	struct tcp_link *l = r->base.link;

	l->due -= r->due;
	r->due = false;
	for (struct tcp_receiver **p = &l->owing; *p != NULL; p = &(*p)->owing_next)
		if (*p == r) {
			*p = r->owing_next;
			break;
		}
	r->owed = 0;
}

bool coll_tcp_channel_take_credit(struct tcp_link *l, bool due_only, uint32_t *id, uint32_t *count)
{
	struct tcp_receiver *r = l->owing;

	if (r == NULL || (due_only && l->due == 0))
		return false;
	if (l->due > 0)
		while (!r->due)
			r = r->owing_next;
	*id = r->id;
	*count = r->owed;
	r->allowed += r->owed;
	coll_tcp_channel_forget_owed(r);
	return true;
}

static struct tcp_grant *find_grant(struct tcp_link *l, const struct coll_channel_key *key)
{
	for (uint32_t i = 0; i < l->grants.cap; i++) {
		struct tcp_grant *g = l->grants.at[i];

		if (g != NULL && coll_same_key(&g->key, key))
			return g;
	}
	return NULL;
}

static void join(struct tcp_sender *s, struct tcp_grant *g)
{
	struct tcp_channel *ch = &s->base;

	if (g->slots != ch->slots || g->slot_bytes != ch->slot_bytes) {
		tcp_log(ch->link->inst, COLL_LOG_ERROR,
		        "[COLL-6108] tcp: a channel has %u slots of %zu bytes here, %u slots of %zu bytes at the "
		        "receiver",
		        ch->slots, ch->slot_bytes, g->slots, g->slot_bytes);
		ch->status = COLL_ERR_MISMATCH;
		return;
	}
	s->grant = g;
	g->sender = s;
}

/* ---- what the peer says --------------------------------------------------------------- */

void coll_tcp_channel_meet(struct tcp_sender *s)
{
	struct tcp_grant *g = find_grant(s->base.link, &s->base.key);

	if (g != NULL)
		join(s, g);
}

const char *coll_tcp_channel_granted(struct tcp_link *l, const struct coll_tcp_head *head)
{
	const struct coll_channel_key key = {.comm = head->sequence,
	                                     .epoch = head->signature,
	                                     .lane = (uint16_t)(head->index >> 16),
	                                     .window = (uint16_t)head->index};
	struct tcp_grant *g;

	if (head->channel >= TCP_CHANNELS_MAX || head->credits < 2 || head->credits > TCP_CHANNELS_MAX)
		return "a grant out of range";
	g = coll_id_table_get(&l->grants, head->channel);
	if (g != NULL && g->held && coll_same_key(&g->key, &key))
		return NULL; /* told again on a new socket */
	if (g != NULL || find_grant(l, &key) != NULL)
		return "a channel is granted twice";
	g = calloc(1, sizeof(*g));
	if (g == NULL || !coll_id_table_put(&l->grants, head->channel, g)) {
		free(g);
		/* First, so that the peer is not said to be at fault. */
		coll_tcp_link_fail(l, COLL_ERR_MEMORY, "no memory for a grant");
		return "no memory for a grant";
	}
	g->key = key;
	g->id = head->channel;
	g->slots = g->credits = head->credits;
	g->slot_bytes = head->len_bytes;
	for (struct tcp_sender *s = l->senders; s != NULL; s = s->next)
		if (!s->closed && coll_same_key(&s->base.key, &key)) {
			join(s, g);
			coll_tcp_channel_event(&s->base);
			break;
		}
	return NULL;
}

const char *coll_tcp_channel_credited(struct tcp_link *l, uint32_t id, uint32_t count)
{
	struct tcp_grant *g = coll_id_table_get(&l->grants, id);

	if (g == NULL)
		return "credits for a channel that was not granted";
	if (count > g->slots - g->credits)
		return "more credits than slots";
	g->credits += count;
	if (g->sender != NULL && g->sender->kept != NULL)
		coll_tcp_kept_release(g->sender);
	else if (g->sender != NULL)
		coll_tcp_channel_event(&g->sender->base);
	return NULL;
}

const char *coll_tcp_channel_withdrawn(struct tcp_link *l, uint32_t id)
{
	struct tcp_grant *g = coll_id_table_get(&l->grants, id);
	struct tcp_sender *s = g != NULL ? g->sender : NULL;
	struct coll_tcp_head head = {.type = COLL_TCP_CLOSED, .channel = id};

	if (g == NULL && l->made <= 1)
		return "a channel that was not granted is closed";
	if (s != NULL)
		s->grant = NULL;
	if (g != NULL)
		coll_id_table_drop(&l->grants, id, g);
	free(g);
	if (s != NULL && s->kept != NULL)
		coll_tcp_kept_release(s);
	coll_tcp_tx_control(l, &head);
	return NULL;
}

const char *coll_tcp_channel_drained(struct tcp_link *l, uint32_t id)
{
	struct tcp_receiver *r = coll_id_table_get(&l->receivers, id);

	if (r == NULL || !r->draining)
		return "an open channel is reported closed";
	coll_tcp_channel_free_receiver(r);
	return NULL;
}
