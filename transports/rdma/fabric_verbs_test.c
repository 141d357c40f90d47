/*
 * The verbs of the device in software (fabric_test.h): completions, registered memory, queue pairs. Invariant: a
 * write or a send is done, and its completions are there, when posting it returns.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transports/rdma/fabric_parts_test.h"

enum { COMPLETIONS = 2048, KEYS = 4096 };

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

static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;
static struct ibv_mr *region[KEYS];

/* ---- completions ------------------------------------------------------------------ */

static void complete(struct ibv_cq *cq, const struct ibv_wc *wc, bool solicited)
{
	struct completion_queue *q = (struct completion_queue *)cq;
	struct completion_channel *ch = (struct completion_channel *)cq->channel;

	if (q->count - q->first == COMPLETIONS)
		fabric_forbidden("too many completions");
	q->wc[q->count++ % COMPLETIONS] = *wc;
	if (q->armed == FOR_ANY || (q->armed == FOR_SOLICITED && (solicited || wc->status != IBV_WC_SUCCESS))) {
		q->armed = NOT_ARMED;
		if (!q->told) {
			q->told = true;
			q->next = ch->first;
			ch->first = q;
			fabric_show(ch->ch.fd, true);
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
	struct completion_queue *q = fabric_make(sizeof(*q));

	q->cq = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context, .cqe = cqe};
	return &q->cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
	LOCKED;
	struct completion_queue *q = (struct completion_queue *)cq;
	struct completion_queue **at = &((struct completion_channel *)cq->channel)->first;

	while (q->not_acked > 0)
		pthread_cond_wait(&acked, &fabric_mutex);
	for (; q->told && *at; at = &(*at)->next)
		if (*at == q) {
			*at = q->next;
			break;
		}
	fabric_unmake(q);
	return 0;
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *context)
{
	LOCKED;
	struct completion_channel *ch = fabric_make(sizeof(*ch));

	ch->ch = (struct ibv_comp_channel){context, eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), 0};
	return &ch->ch;
}

static int destroy_comp_channel(struct ibv_comp_channel *channel)
{
	LOCKED;
	close(channel->fd);
	fabric_unmake(channel);
	return 0;
}

static int get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	LOCKED;
	struct completion_channel *ch = (struct completion_channel *)channel;
	struct completion_queue *q = ch->first;

	if (!q) {
		fabric_show(channel->fd, false);
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

static bool memory_refused;

void fabric_refuse_memory(bool on)
{
	LOCKED;
	memory_refused = on;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *base, size_t len_bytes, int access)
{
	LOCKED;
	struct ibv_mr *mr;
	uint32_t key = 1;

	while (key < KEYS && region[key])
		key++;
	if (key == KEYS || memory_refused) {
		errno = ENOMEM;
		return NULL;
	}
	mr = fabric_make(sizeof(*mr));
	*mr = (struct ibv_mr){.pd = pd, .addr = base, .length = len_bytes, .lkey = key, .rkey = key};
	region[key] = mr;
	return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	LOCKED;
	region[mr->lkey] = NULL;
	fabric_unmake(mr);
	return 0;
}

/* For the device that has it. */
static bool covers(const struct queue_pair *q, uint32_t key, uint64_t addr, size_t len_bytes)
{
	const struct ibv_mr *mr = key < KEYS ? region[key] : NULL;

	return mr && mr->pd == q->qp.pd && addr >= (uintptr_t)mr->addr && len_bytes <= mr->length &&
	       addr - (uintptr_t)mr->addr <= mr->length - len_bytes;
}

/* ---- queue pairs ------------------------------------------------------------------------ */

void fabric_flush(struct queue_pair *q)
{
	q->error = true;
	while (q->recv_first < q->recv_count) {
		const struct ibv_wc wc = {.wr_id = q->recv[q->recv_first++ % FABRIC_RECVS].id,
		                          .status = IBV_WC_WR_FLUSH_ERR};

		complete(q->qp.recv_cq, &wc, true);
	}
}

static size_t gather(const struct queue_pair *q, const struct ibv_send_wr *wr, char *to)
{
	size_t len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];

		if (!(wr->send_flags & IBV_SEND_INLINE) && !covers(q, s->lkey, s->addr, s->length))
			fabric_forbidden("memory of ours that is not registered");
		if (to)
			memcpy(to + len, (const void *)(uintptr_t)s->addr, s->length);
		len += s->length;
	}
	return len;
}

static void (*written)(char *to, size_t len_bytes);

void fabric_written(void (*fn)(char *to, size_t len_bytes))
{
	LOCKED;
	written = fn;
}

/* What a message brings about at the peer. */
static enum ibv_wc_status deliver(const struct queue_pair *q, const struct ibv_send_wr *wr, struct queue_pair *peer)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS, .byte_len = (uint32_t)gather(q, wr, NULL)};
	const bool write = wr->opcode != IBV_WR_SEND;

	if (write && wc.byte_len > 0) {
		if (!covers(peer, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wc.byte_len))
			return IBV_WC_REM_ACCESS_ERR;
		gather(q, wr, (char *)(uintptr_t)wr->wr.rdma.remote_addr);
		if (written)
			written((char *)(uintptr_t)wr->wr.rdma.remote_addr, wc.byte_len);
	}
	fabric_device_of(q->qp.context)->sent += wc.byte_len;
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		return IBV_WC_SUCCESS;
	if (peer->recv_first == peer->recv_count)
		fabric_forbidden("a receive is missing");
	wc.wr_id = peer->recv[peer->recv_first % FABRIC_RECVS].id;
	wc.opcode = write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
	wc.imm_data = wr->imm_data;
	if (!write)
		gather(q, wr, (char *)(uintptr_t)peer->recv[peer->recv_first % FABRIC_RECVS].sge.addr);
	peer->recv_first++;
	complete(peer->qp.recv_cq, &wc, wr->send_flags & IBV_SEND_SOLICITED);
	return IBV_WC_SUCCESS;
}

static bool reaches(const struct queue_pair *q)
{
	return q->peer && !q->peer->error && !fabric_device_of(q->qp.context)->unplugged;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	LOCKED;
	struct queue_pair *q = (struct queue_pair *)qp;

	for (; wr; wr = wr->next) {
		struct ibv_wc wc = {.wr_id = wr->wr_id, .status = IBV_WC_WR_FLUSH_ERR};

		if (!q->error && fabric_device_of(qp->context)->muted)
			continue;
		if (!q->error)
			wc.status = reaches(q) ? deliver(q, wr, q->peer) : IBV_WC_RETRY_EXC_ERR;
		if (wc.status != IBV_WC_SUCCESS || wr->send_flags & IBV_SEND_SIGNALED)
			complete(qp->send_cq, &wc, false);
		if (wc.status != IBV_WC_SUCCESS && !q->error)
			fabric_flush(q);
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
		if (q->recv_count - q->recv_first == FABRIC_RECVS ||
		    !covers(q, wr->sg_list[0].lkey, wr->sg_list[0].addr, wr->sg_list[0].length))
			fabric_forbidden("a receive that cannot be posted");
		q->recv[q->recv_count % FABRIC_RECVS].id = wr->wr_id;
		q->recv[q->recv_count++ % FABRIC_RECVS].sge = wr->sg_list[0];
		if (q->error)
			fabric_flush(q);
	}
	return 0;
}

static int create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	LOCKED;
	struct queue_pair *q = fabric_make(sizeof(*q));

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
	fabric_unmake(q);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	LOCKED;
	if (attr->qp_state == IBV_QPS_ERR)
		fabric_flush((struct queue_pair *)qp);
	return 0;
}

/* ---- the device ---------------------------------------------------------------------- */

static struct ibv_device device[FABRIC_DEVICES];
struct fabric_device fabric_device[FABRIC_DEVICES];

static void make_devices(void)
{
	for (int i = 0; i < FABRIC_DEVICES; i++) {
		struct ibv_context *c = &fabric_device[i].context;

		device[i].transport_type = IBV_TRANSPORT_IB;
		device[i].node_type = IBV_NODE_CA;
		snprintf(device[i].name, sizeof(device[i].name), "fabric%d", i);
		c->device = &device[i];
		c->ops.poll_cq = poll_cq;
		c->ops.req_notify_cq = req_notify_cq;
		c->ops.post_send = post_send;
		c->ops.post_recv = post_recv;
	}
}

void fabric_unplug(int i, bool out)
{
	LOCKED;
	fabric_device[i].unplugged = out;
}

void fabric_mute(int i, bool on)
{
	LOCKED;
	fabric_device[i].muted = on;
}

uint64_t fabric_sent(int i)
{
	LOCKED;
	return fabric_device[i].sent;
}

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	LOCKED;
	struct ibv_pd *pd = fabric_make(sizeof(*pd));

	pd->context = ctx;
	return pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	LOCKED;
	fabric_unmake(pd);
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	*(struct ibv_port_attr *)(void *)attr =
	        (struct ibv_port_attr){.state = fabric_device_of(ctx)->unplugged ? IBV_PORT_DOWN : IBV_PORT_ACTIVE,
	                               .max_msg_sz = 1 << 23,
	                               .active_mtu = IBV_MTU_4096,
	                               .link_layer = IBV_LINK_LAYER_ETHERNET};
	return 0;
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_WR_FLUSH_ERR ? "flushed" : "failed";
}

static pthread_once_t once = PTHREAD_ONCE_INIT;

void fabric_verbs_fill(struct coll_rdma_verbs *v)
{
	pthread_once(&once, make_devices);
	v->ibv_alloc_pd = alloc_pd;
	v->ibv_dealloc_pd = dealloc_pd;
	v->ibv_reg_mr = reg_mr;
	v->ibv_dereg_mr = dereg_mr;
	v->ibv_create_cq = create_cq;
	v->ibv_destroy_cq = destroy_cq;
	v->ibv_create_comp_channel = create_comp_channel;
	v->ibv_destroy_comp_channel = destroy_comp_channel;
	v->ibv_get_cq_event = get_cq_event;
	v->ibv_ack_cq_events = ack_cq_events;
	v->ibv_modify_qp = modify_qp;
	v->ibv_query_port = query_port;
	v->ibv_wc_status_str = wc_status_str;
	v->rdma_create_qp = create_qp;
	v->rdma_destroy_qp = destroy_qp;
}
