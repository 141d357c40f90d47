/*
 * The connection manager of the device in software (fabric_test.h): identifiers, and the messages between them.
 * Invariant: what is told to an identifier arrives in order, except that a held last word waits; an identifier that
 * ends tells its peer, once.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transports/rdma/fabric_parts_test.h"

enum { NOBODY_LISTENS = 8, CONSUMER_DEFINED = 28, DATA = 64 };

struct identifier {
	struct rdma_cm_id id;
	struct identifier *next; /* of all */
	struct identifier *peer; /* the other end of an attempt or a connection */
	uint16_t port;           /* listening there, or the target */
	int target;              /* the device that has the target's address */
	bool listening, accepting, accepted, complete, ended;
};

struct message {
	struct message *next;
	struct rdma_cm_event event;
	struct identifier *to;
	char data[DATA];
	bool response, held;
};

struct event_channel {
	struct rdma_event_channel ch;
	struct message *first;
};

static struct identifier *identifiers;
static bool holding;
static uint16_t last_port = 1000;

/* ---- messages of the connection manager ---------------------------------------------------- */

static struct message *first_that_arrived(struct event_channel *ch, struct message ***at)
{
	for (*at = &ch->first; **at; *at = &(**at)->next)
		if (!(**at)->held)
			return **at;
	return NULL;
}

static void show_messages(struct rdma_event_channel *channel)
{
	struct message **at;

	fabric_show(channel->fd, first_that_arrived((struct event_channel *)channel, &at) != NULL);
}

static struct message *tell(struct identifier *to, enum rdma_cm_event_type type, int status,
                            const struct rdma_conn_param *p)
{
	struct message *m = fabric_make(sizeof(*m)), **at = &((struct event_channel *)to->id.channel)->first;

	m->to = to;
	m->event = (struct rdma_cm_event){.id = &to->id, .event = type, .status = status};
	if (p && p->private_data_len > 0) {
		memcpy(m->data, p->private_data, p->private_data_len);
		m->event.param.conn.private_data = m->data;
		m->event.param.conn.private_data_len = p->private_data_len;
	}
	while (*at)
		at = &(*at)->next;
	*at = m;
	show_messages(to->id.channel);
	return m;
}

void fabric_hold(bool on)
{
	LOCKED;
	holding = on;
	for (struct identifier *i = identifiers; i && !on; i = i->next)
		for (struct message *m = ((struct event_channel *)i->id.channel)->first; m; m = m->next)
			if (m->held) {
				m->held = false;
				m->to->complete = true;
				show_messages(m->to->id.channel);
			}
}

static struct rdma_event_channel *create_event_channel(void)
{
	LOCKED;
	struct event_channel *ch = fabric_make(sizeof(*ch));

	ch->ch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return &ch->ch;
}

static void destroy_event_channel(struct rdma_event_channel *channel)
{
	LOCKED;
	if (((struct event_channel *)channel)->first)
		fabric_forbidden("events without an identifier");
	close(channel->fd);
	fabric_unmake(channel);
}

/* The connection is complete at the asking end when it takes the answer; then its last word leaves. */
static void answer_taken(struct message *m)
{
	struct identifier *i = m->to;

	if (!i->peer) {
		m->event.event = RDMA_CM_EVENT_CONNECT_ERROR;
		return;
	}
	m->event.event = RDMA_CM_EVENT_ESTABLISHED;
	i->complete = true;
	tell(i->peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL)->held = holding;
	i->peer->complete = !holding;
	show_messages(i->peer->id.channel);
}

static int get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	LOCKED;
	struct message **at, *m = first_that_arrived((struct event_channel *)channel, &at);

	if (!m) {
		fabric_show(channel->fd, false);
		errno = EAGAIN;
		return -1;
	}
	*at = m->next;
	if (m->response)
		answer_taken(m);
	if (m->event.event == RDMA_CM_EVENT_REJECTED && m->to->id.qp)
		fabric_flush((struct queue_pair *)m->to->id.qp);
	show_messages(channel);
	*event = &m->event;
	return 0;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
	LOCKED;
	fabric_unmake((char *)event - offsetof(struct message, event));
	return 0;
}

/* ---- identifiers ------------------------------------------------------------------------------ */

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *ctx, enum rdma_port_space ps)
{
	LOCKED;
	struct identifier *i = fabric_make(sizeof(*i));

	i->id = (struct rdma_cm_id){.channel = channel, .context = ctx, .ps = ps};
	i->next = identifiers;
	identifiers = i;
	*id = &i->id;
	return 0;
}

static bool unplugged(const struct identifier *i)
{
	return fabric_device_of(i->id.verbs)->unplugged;
}

/* The peer learns that this end is no more: who has not heard the last word refuses, later. */
static void part(struct identifier *i)
{
	struct identifier *p = i->peer;

	if (!p)
		return;
	i->peer = p->peer = NULL;
	if (p->accepting && !p->accepted)
		return; /* and will not be able to accept */
	for (struct message *m = ((struct event_channel *)p->id.channel)->first; m; m = m->next)
		m->held &= m->to != p; /* what was said before comes before */
	if (unplugged(i) || fabric_device_of(i->id.verbs)->muted)
		return; /* nobody hears it */
	if (i->complete)
		tell(p, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	else
		tell(p, RDMA_CM_EVENT_REJECTED, CONSUMER_DEFINED, NULL);
}

/* Its events are gone; a request among them is refused. */
static void forget_events(struct identifier *i)
{
	struct message **at = &((struct event_channel *)i->id.channel)->first;

	while (*at) {
		struct message *m = *at;

		if (m->to != i) {
			at = &m->next;
			continue;
		}
		*at = m->next;
		if (m->event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			struct identifier *asked = (struct identifier *)m->event.id, **all = &identifiers;

			part(asked);
			while (*all != asked)
				all = &(*all)->next;
			*all = asked->next;
			fabric_unmake(asked);
		}
		fabric_unmake(m);
	}
}

static int destroy_id(struct rdma_cm_id *id)
{
	LOCKED;
	struct identifier *i = (struct identifier *)id, **at = &identifiers;

	if (id->qp)
		fabric_forbidden("an identifier is destroyed before its queue pair");
	part(i);
	forget_events(i);
	show_messages(id->channel);
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	fabric_unmake(i);
	return 0;
}

void fabric_kill(struct rdma_event_channel *channel)
{
	LOCKED;
	for (struct identifier *i = identifiers; i; i = i->next) {
		struct queue_pair *q = (struct queue_pair *)i->id.qp;

		if (i->id.channel != channel)
			continue;
		i->listening = false;
		part(i);
		if (q && q->peer)
			q->peer->peer = NULL;
		if (q)
			q->peer = NULL;
	}
}

static int device_at(const struct sockaddr *addr)
{
	const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)addr;

	return (int)(ntohl(in4->sin_addr.s_addr) >> 8 & 0xff);
}

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	id->verbs = &fabric_device[device_at(addr)].context;
	id->port_num = 1;
	return 0;
}

static int listen_at(struct rdma_cm_id *id, int backlog)
{
	LOCKED;
	((struct identifier *)id)->port = ++last_port;
	((struct identifier *)id)->listening = true;
	return 0;
}

static __be16 get_src_port(struct rdma_cm_id *id)
{
	return htons(((struct identifier *)id)->port);
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms)
{
	LOCKED;
	((struct identifier *)id)->port = ntohs(((const struct sockaddr_in *)(const void *)to)->sin_port);
	((struct identifier *)id)->target = device_at(to);
	bind_addr(id, from);
	tell((struct identifier *)id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL);
	return 0;
}

static int resolve_route(struct rdma_cm_id *id, int ms)
{
	LOCKED;
	tell((struct identifier *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	return 0;
}

static int do_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	LOCKED;
	struct identifier *i = (struct identifier *)id, *l = identifiers, *asked;
	struct rdma_cm_id *made;

	if (unplugged(i) || fabric_device[i->target].unplugged) {
		tell(i, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		return 0;
	}
	if (fabric_device_of(id->verbs)->muted)
		return 0;
	if (id->verbs != &fabric_device[i->target].context)
		fabric_forbidden("devices of different networks");
	while (l && !(l->listening && l->port == i->port && l->id.verbs == id->verbs))
		l = l->next;
	if (!l) {
		tell(i, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS, NULL);
		return 0;
	}
	create_id(l->id.channel, &made, l->id.context, l->id.ps);
	asked = (struct identifier *)made;
	made->verbs = l->id.verbs;
	made->port_num = 1;
	asked->accepting = true;
	asked->peer = i;
	i->peer = asked;
	tell(l, RDMA_CM_EVENT_CONNECT_REQUEST, 0, p)->event.id = made;
	return 0;
}

static int do_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	LOCKED;
	struct identifier *i = (struct identifier *)id;
	struct queue_pair *mine = (struct queue_pair *)id->qp, *theirs;

	if (!i->peer) {
		errno = EINVAL;
		return -1;
	}
	theirs = (struct queue_pair *)i->peer->id.qp;
	i->accepted = true;
	mine->peer = theirs;
	/* An end that takes its attempt down is without one for a while: its identifier, which goes next, tells us. */
	if (theirs)
		theirs->peer = mine;
	tell(i->peer, RDMA_CM_EVENT_ESTABLISHED, 0, p)->response = true;
	return 0;
}

static int do_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	LOCKED;
	struct identifier *i = (struct identifier *)id;
	const struct rdma_conn_param p = {.private_data = data, .private_data_len = len};

	if (i->peer) {
		tell(i->peer, RDMA_CM_EVENT_REJECTED, CONSUMER_DEFINED, &p);
		i->peer->peer = NULL;
		i->peer = NULL;
	}
	return 0;
}

static int set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t len)
{
	return 0;
}

static const char *event_str(enum rdma_cm_event_type type)
{
	return "an event";
}

void fabric_cm_fill(struct coll_rdma_verbs *v)
{
	v->rdma_create_event_channel = create_event_channel;
	v->rdma_destroy_event_channel = destroy_event_channel;
	v->rdma_create_id = create_id;
	v->rdma_destroy_id = destroy_id;
	v->rdma_bind_addr = bind_addr;
	v->rdma_listen = listen_at;
	v->rdma_get_src_port = get_src_port;
	v->rdma_resolve_addr = resolve_addr;
	v->rdma_resolve_route = resolve_route;
	v->rdma_connect = do_connect;
	v->rdma_accept = do_accept;
	v->rdma_reject = do_reject;
	v->rdma_get_cm_event = get_cm_event;
	v->rdma_ack_cm_event = ack_cm_event;
	v->rdma_event_str = event_str;
	v->rdma_set_option = set_option;
}
