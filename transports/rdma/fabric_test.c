/*
 * See fabric_test.h. Invariant: what is destroyed is freed at once, so that the address
 * sanitizer sees whoever uses it afterwards; what the standard forbids (a work request
 * without a receive at the peer, memory that is not registered, too many completions)
 * ends the program.
 */
#include "transports/rdma/fabric_test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NOBODY_LISTENS = 8, CONSUMER_DEFINED = 28, RECVS = 1024, COMPLETIONS = 2048, KEYS = 4096, DATA = 64 };

struct completion_queue {
	struct ibv_cq cq;
	struct ibv_wc wc[COMPLETIONS];
	uint64_t first, count;
	enum { NOT_ARMED, FOR_SOLICITED, FOR_ANY } armed;
	bool told; /* in its channel's list */
	int not_acked;
	struct completion_queue *next;
};

struct completion_channel {
	struct ibv_comp_channel ch;
	struct completion_queue *first; /* with an event */
};

struct queue_pair {
	struct ibv_qp qp;
	struct queue_pair *peer;
	bool error;
	struct {
		uint64_t id;
		struct ibv_sge sge;
	} recv[RECVS];
	uint64_t recv_first, recv_count;
};

struct identifier {
	struct rdma_cm_id id;
	struct identifier *next; /* of all */
	struct identifier *peer; /* the other end of an attempt or a connection */
	uint16_t port;           /* listening there, or the target */
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

static pthread_mutex_t mutex;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct identifier *identifiers;
static struct ibv_mr *region[KEYS];
static int objects;
static bool holding;
static uint16_t last_port = 1000;

static void begin(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

static int enter(void)
{
	pthread_once(&once, begin);
	return pthread_mutex_lock(&mutex);
}

static void leave(const int *unused)
{
	pthread_mutex_unlock(&mutex);
}

#define LOCKED const int locked __attribute__((cleanup(leave), unused)) = enter()

static _Noreturn void forbidden(const char *what)
{
	fprintf(stderr, "fabric: %s\n", what);
	abort();
}

static void *make(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p)
		forbidden("no memory");
	objects++;
	return p;
}

static void unmake(void *p)
{
	objects--;
	free(p);
}

static void show(int fd, bool readable)
{
	uint64_t n = 1;

	if ((readable ? write(fd, &n, sizeof(n)) : read(fd, &n, sizeof(n))) < 0 && errno != EAGAIN)
		forbidden(strerror(errno));
}

int fabric_objects(void)
{
	LOCKED;
	return objects;
}

/* ---- completions ------------------------------------------------------------------ */

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	struct completion_queue *q = (struct completion_queue *)cq;
	struct completion_channel *ch = (struct completion_channel *)cq->channel;

	if (q->count - q->first == COMPLETIONS)
		forbidden("too many completions");
	q->wc[q->count++ % COMPLETIONS] = *wc;
	if (q->armed == FOR_ANY || (q->armed == FOR_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
		q->armed = NOT_ARMED;
		if (!q->told) {
			q->told = true;
			q->next = ch->first;
			ch->first = q;
			show(ch->ch.fd, true);
		}
	}
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	LOCKED;
	struct completion_queue *q = (struct completion_queue *)cq;
	int i = 0;

	while (i < n && q->first < q->count)
		wc[i++] = q->wc[q->first++ % COMPLETIONS];
	return i;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	LOCKED;
	struct completion_queue *q = (struct completion_queue *)cq;

	if (!solicited_only || q->armed == NOT_ARMED)
		q->armed = solicited_only ? FOR_SOLICITED : FOR_ANY;
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int vector)
{
	LOCKED;
	struct completion_queue *q = make(sizeof(*q));

	q->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
	return &q->cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
	LOCKED;
	struct completion_queue *q = (struct completion_queue *)cq;
	struct completion_queue **at = &((struct completion_channel *)cq->channel)->first;

	while (q->not_acked > 0)
		pthread_cond_wait(&acked, &mutex);
	for (; q->told && *at; at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			break;
		}
	unmake(q);
	return 0;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	LOCKED;
	struct completion_channel *ch = make(sizeof(*ch));

	ch->ch = (struct ibv_comp_channel){context, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), 0};
	return &ch->ch;
}

static int destroy_comp_channel(struct ibv_comp_channel *channel)
{
	LOCKED;
	close(channel->fd);
	unmake(channel);
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	LOCKED;
	struct completion_channel *ch = (struct completion_channel *)channel;
	struct completion_queue *q = ch->first;

	if (!q) {
		show(channel->fd, false);
		errno = EAGAIN;
		return -1;
	}
	ch->first = q->next;
	q->told = false;
	q->not_acked++;
	*cq = &q->cq;
	*context = q->cq.cq_context;
	return 0;
}

static void ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	LOCKED;
	((struct completion_queue *)cq)->not_acked -= (int)n;
	pthread_cond_broadcast(&acked);
}

/* ---- memory -------------------------------------------------------------------------- */

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t len_bytes, int access)
{
	LOCKED;
	struct ibv_mr *mr;
	uint32_t key = 1;

	while (key < KEYS && region[key])
		key++;
	if (key == KEYS) {
		errno = ENOMEM;
		return NULL;
	}
	mr = make(sizeof(*mr));
	*mr = (struct ibv_mr){.pd = pd, .addr = base, .length = len_bytes, .lkey = key, .rkey = key};
	region[key] = mr;
	return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	LOCKED;
	region[mr->lkey] = NULL;
	unmake(mr);
	return 0;
}

static bool covers(uint32_t key, uint64_t addr, size_t len_bytes)
{
	const struct ibv_mr *mr = key < KEYS ? region[key] : NULL;

	return mr && addr >= (uintptr_t)mr->addr && len_bytes <= mr->length &&
	       addr - (uintptr_t)mr->addr <= mr->length - len_bytes;
}

/* ---- queue pairs ------------------------------------------------------------------------ */

static void flush(struct queue_pair *q)
{
	q->error = true;
	while (q->recv_first < q->recv_count) {
		const struct ibv_wc wc = {.wr_id = q->recv[q->recv_first++ % RECVS].id, .status = IBV_WC_WR_FLUSH_ERR};

		complete(q->qp.recv_cq, &wc, true);
	}
}

static size_t gather(const struct ibv_send_wr *wr, char *to)
{
	size_t len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (!(wr->send_flags & IBV_SEND_INLINE) && !covers(s->lkey, s->addr, s->length))
			forbidden("memory of ours that is not registered");
		if (to)
			memcpy(to + len, (const void *)(uintptr_t)s->addr, s->length);
		len += s->length;
	}
	return len;
}

/* What a message brings about at the peer. */
static enum ibv_wc_status deliver(const struct ibv_send_wr *wr, struct queue_pair *peer)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .byte_len = (uint32_t)gather(wr, NULL)};
	const bool write = wr->opcode != IBV_WR_SEND;

	if (write && wc.byte_len > 0) {
		if (!covers(wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wc.byte_len))
			return IBV_WC_REM_ACCESS_ERR;
		gather(wr, (char *)(uintptr_t)wr->wr.rdma.remote_addr);
	}
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		return IBV_WC_SUCCESS;
	if (peer->recv_first == peer->recv_count)
		forbidden("a receive is missing");
	wc.wr_id = peer->recv[peer->recv_first % RECVS].id;
	wc.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	wc.imm_data = wr->imm_data;
	if (!write)
		gather(wr, (char *)(uintptr_t)peer->recv[peer->recv_first % RECVS].sge.addr);
	peer->recv_first++;
	complete(peer->qp.recv_cq, &wc, wr->send_flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	LOCKED;
	struct queue_pair *q = (struct queue_pair *)qp;

	for (; wr; wr = wr->next) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR};

		if (!q->error)
			wc.status = q->peer && !q->peer->error ? deliver(wr, q->peer) : IBV_WC_RETRY_EXC_ERR;
		if (wc.status != IBV_WC_SUCCESS || wr->send_flags & IBV_SEND_SIGNALED)
			complete(qp->send_cq, &wc, false);
		if (wc.status != IBV_WC_SUCCESS && !q->error)
			flush(q);
	}
	return 0;
}

static int recvs_allowed = -1;

void fabric_refuse_recvs(int after)
{
	LOCKED;
	recvs_allowed = after;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	LOCKED;
	struct queue_pair *q = (struct queue_pair *)qp;

	for (; wr; wr = wr->next) {
		if (recvs_allowed >= 0 && recvs_allowed-- == 0) {
			*bad = wr;
			return ENOMEM;
		}
		if (q->recv_count - q->recv_first == RECVS ||
		    !covers(wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length))
			forbidden("a receive that cannot be posted");
		q->recv[q->recv_count % RECVS].id = wr->wr_id;
		q->recv[q->recv_count++ % RECVS].sge = wr->sg_list[0];
		if (q->error)
			flush(q);
	}
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	LOCKED;
	struct queue_pair *q = make(sizeof(*q));

	q->qp = (struct ibv_qp){.context = id->verbs, .pd = pd, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq};
	id->qp = &q->qp;
	return 0;
}

static void destroy_qp(struct rdma_cm_id *id)
{
	LOCKED;
	struct queue_pair *q = (struct queue_pair *)id->qp;

	if (q->peer)
		q->peer->peer = NULL;
	id->qp = NULL;
	unmake(q);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	LOCKED;
	if (attr->qp_state == IBV_QPS_ERR)
		flush((struct queue_pair *)qp);
	return 0;
}

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

	show(channel->fd, first_that_arrived((struct event_channel *)channel, &at) != NULL);
}

static struct message *tell(struct identifier *to, enum rdma_cm_event_type type, int status,
                            const struct rdma_conn_param *p)
{
	struct message *m = make(sizeof(*m)), **at = &((struct event_channel *)to->id.channel)->first;

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
	struct event_channel *ch = make(sizeof(*ch));

	ch->ch.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return &ch->ch;
}

static void destroy_event_channel(struct rdma_event_channel *channel)
{
	LOCKED;
	if (((struct event_channel *)channel)->first)
		forbidden("events without an identifier");
	close(channel->fd);
	unmake(channel);
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
		show(channel->fd, false);
		errno = EAGAIN;
		return -1;
	}
	*at = m->next;
	if (m->response)
		answer_taken(m);
	if (m->event.event == RDMA_CM_EVENT_REJECTED && m->to->id.qp)
		flush((struct queue_pair *)m->to->id.qp);
	show_messages(channel);
	*event = &m->event;
	return 0;
}

static int ack_cm_event(struct rdma_cm_event *event)
{
	LOCKED;
	unmake((char *)event - offsetof(struct message, event));
	return 0;
}

/* ---- identifiers ------------------------------------------------------------------------------ */

static struct ibv_device device = {.transport_type = IBV_TRANSPORT_IB, .node_type = IBV_NODE_CA, .name = "fabric"};
static struct ibv_context context = {
        .device = &device,
        .ops = {.poll_cq = poll_cq, .req_notify_cq = req_notify_cq, .post_send = post_send, .post_recv = post_recv}};

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *ctx, enum rdma_port_space ps)
{
	LOCKED;
	struct identifier *i = make(sizeof(*i));

	i->id = (struct rdma_cm_id){.channel = channel, .context = ctx, .ps = ps};
	i->next = identifiers;
	identifiers = i;
	*id = &i->id;
	return 0;
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
			unmake(asked);
		}
		unmake(m);
	}
}

static int destroy_id(struct rdma_cm_id *id)
{
	LOCKED;
	struct identifier *i = (struct identifier *)id, **at = &identifiers;

	if (id->qp)
		forbidden("an identifier is destroyed before its queue pair");
	part(i);
	forget_events(i);
	show_messages(id->channel);
	while (*at != i)
		at = &(*at)->next;
	*at = i->next;
	unmake(i);
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

static int bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	id->verbs = &context;
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

	while (l && !(l->listening && l->port == i->port))
		l = l->next;
	if (!l) {
		tell(i, RDMA_CM_EVENT_REJECTED, NOBODY_LISTENS, NULL);
		return 0;
	}
	create_id(l->id.channel, &made, l->id.context, l->id.ps);
	asked = (struct identifier *)made;
	bind_addr(made, NULL);
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

/* ---- the rest -------------------------------------------------------------------------------------- */

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	LOCKED;
	struct ibv_pd *pd = make(sizeof(*pd));

	pd->context = ctx;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	LOCKED;
	unmake(pd);
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	*(struct ibv_port_attr *)(void *)attr = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
	                                                               .max_msg_sz = 1 << 23,
	                                                               .active_mtu = IBV_MTU_4096,
	                                                               .link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "failed";
}

static const char *event_str(enum rdma_cm_event_type type)
{
	return "an event";
}

coll_status coll_rdma_verbs_load(struct coll_rdma_verbs *v, char *why, size_t why_bytes)
{
	*v = (struct coll_rdma_verbs){.ibv_alloc_pd = alloc_pd,
	                              .ibv_dealloc_pd = dealloc_pd,
	                              .ibv_reg_mr = reg_mr,
	                              .ibv_dereg_mr = dereg_mr,
	                              .ibv_create_cq = create_cq,
	                              .ibv_destroy_cq = destroy_cq,
	                              .ibv_create_comp_channel = create_comp_channel,
	                              .ibv_destroy_comp_channel = destroy_comp_channel,
	                              .ibv_get_cq_event = get_cq_event,
	                              .ibv_ack_cq_events = ack_cq_events,
	                              .ibv_modify_qp = modify_qp,
	                              .ibv_query_port = query_port,
	                              .ibv_wc_status_str = wc_status_str,
	                              .rdma_create_event_channel = create_event_channel,
	                              .rdma_destroy_event_channel = destroy_event_channel,
	                              .rdma_create_id = create_id,
	                              .rdma_destroy_id = destroy_id,
	                              .rdma_bind_addr = bind_addr,
	                              .rdma_listen = listen_at,
	                              .rdma_get_src_port = get_src_port,
	                              .rdma_resolve_addr = resolve_addr,
	                              .rdma_resolve_route = resolve_route,
	                              .rdma_create_qp = create_qp,
	                              .rdma_destroy_qp = destroy_qp,
	                              .rdma_connect = do_connect,
	                              .rdma_accept = do_accept,
	                              .rdma_reject = do_reject,
	                              .rdma_get_cm_event = get_cm_event,
	                              .rdma_ack_cm_event = ack_cm_event,
	                              .rdma_event_str = event_str,
	                              .rdma_set_option = set_option};
	return COLL_OK;
}

void coll_rdma_verbs_opened(struct ibv_context *opened)
{
}

void coll_rdma_verbs_unload(struct coll_rdma_verbs *v)
{
}

/* This machine has one address, behind which is the device. */
static struct sockaddr_in address = {.sin_family = AF_INET};
static char interface[] = "fabric0";
static struct ifaddrs only = {.ifa_name = interface, .ifa_flags = IFF_UP, .ifa_addr = (struct sockaddr *)&address};

int getifaddrs(struct ifaddrs **all)
{
	address.sin_addr.s_addr = htonl(0x0a630001);
	*all = &only;
	return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
}
