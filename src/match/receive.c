/*
 * Receives, and what arrives for them.
 */
#include "match/receive.h"

#include <string.h>

#include "base/planted.h"
#include "core/dead.h"
#include "match/send.h"
#include "match/state.h"

void coll_tag_op_receive(struct coll_tag_op *op, void *buf, size_t max_count, coll_dtype type, int source, int tag)
{
	*op = (struct coll_tag_op){.posted = {.source = source, .tag = tag},
	                           .receives = true,
	                           .buf = buf,
	                           .count = max_count,
	                           .type = type,
	                           .peer = source,
	                           .tag = tag,
	                           .source = -1,
	                           .got_tag = -1,
	                           .dead = -1};
	coll_list_init(&op->link);
	coll_list_init(&op->posted.link);
}

void coll_tag_op_probe(struct coll_tag_op *op, int source, int tag)
{
	coll_tag_op_receive(op, NULL, 0, COLL_U8, source, tag);
	op->probes = true;
}

/* What is said of a message. */
static void see(struct coll_tag_op *op, const struct coll_message_head *head)
{
	op->source = head->source;
	op->got_tag = head->tag;
	op->got_count = head->count;
	op->got_type = (coll_dtype)head->type;
}

void coll_tag_show(struct coll_tags *t, const struct coll_message_head *head)
{
	struct coll_link *next;

	for (struct coll_link *l = t->probes.next; l != &t->probes; l = next) {
		struct coll_tag_op *op = COLL_ENTRY(l, struct coll_tag_op, link);

		next = l->next;
		if ((op->peer != COLL_MATCH_ANY && op->peer != head->source) ||
		    (op->tag != COLL_MATCH_ANY && op->tag != head->tag))
			continue;
		see(op, head);
		coll_tag_finish(t, op, COLL_OK);
	}
}

/* A receive gets a message. OK: its payload may be written to the buffer. */
static coll_status take(struct coll_tag_op *op, const struct coll_message_head *head)
{
	see(op, head);
	op->peer = head->source;
	op->id = head->id;
	op->events++;
	if (op->got_type != op->type && !planted(MATCH_TYPE))
		return COLL_ERR_ARGUMENT;
	if (head->count > op->count && planted(MATCH_CUT))
		op->got_count = op->count;
	return head->count > op->count && !planted(MATCH_CUT) ? COLL_ERR_ARGUMENT : COLL_OK;
}

/* The payload that waits at the sender is asked for, or refused. */
static void answer(struct coll_tags *t, struct coll_tag_op *op, const struct coll_message_head *head)
{
	op->status = take(op, head);
	op->refuses = op->status != COLL_OK || (planted(MATCH_CUT) && head->count > op->count);
	coll_tag_move(op, COLL_TAG_ANSWERS, &t->peers[head->source].answers);
}

void coll_tag_hand_over(struct coll_tags *t, struct coll_tag_op *receive, struct coll_tag_op *send)
{
	const struct coll_message_head head = {
	        .source = send->peer, .tag = send->tag, .type = (uint8_t)send->type, .count = send->count};
	const coll_status st = take(receive, &head);

	if (st == COLL_OK && receive->got_count > 0)
		memmove(receive->buf, send->buf, receive->got_count * coll_dtype_size(send->type));
	coll_tag_finish(t, receive, st);
	coll_tag_finish(t, send, COLL_OK);
}

/* Its payload is here. */
static coll_status deliver(struct coll_tag_op *op, const struct coll_message_head *head, const void *payload)
{
	const coll_status st = take(op, head);

	if (st == COLL_OK && op->got_count > 0)
		memcpy(op->buf, payload, op->got_count * coll_dtype_size(op->got_type));
	return st;
}

void coll_tag_arrived(struct coll_comm *comm, struct coll_tag_peer *p, const struct coll_message_head *head,
                      const void *payload)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_posted *posted = coll_matcher_arrive(&t->matcher, p->rank, head->tag);
	struct coll_tag_op *op;
	coll_status st;

	if (!posted) {
		st = coll_matcher_keep(&t->matcher, head, payload);
		if (st != COLL_OK)
			coll_tag_fail(t, st, p->rank,
			              st == COLL_ERR_MEMORY ? "no memory for messages that wait"
			                                    : "it sends more than its share of the pool");
		else
			coll_tag_show(t, head);
		return;
	}
	op = COLL_ENTRY(posted, struct coll_tag_op, posted);
	p->owed += coll_matcher_cells(head->len_bytes);
	if (head->here)
		coll_tag_finish(t, op, deliver(op, head, payload));
	else
		answer(t, op, head);
}

/* ---- Messages that waited ---- */

/* Give the cells back: to the sender, or to sends of this rank that wait for them. */
static void release(struct coll_comm *comm, struct coll_arrival *a)
{
	struct coll_tags *t = comm->tagged.tags;
	const int source = a->head.source;
	const uint32_t cells = coll_matcher_release(&t->matcher, a);

	if (source == comm->rank)
		coll_tag_flush_self(comm);
	else
		t->peers[source].owed += cells;
}

/* A receive takes a message whose payload waits here. */
static coll_status take_kept(struct coll_comm *comm, struct coll_tag_op *op, struct coll_arrival *a)
{
	const coll_status st = take(op, &a->head);

	if (st == COLL_OK && !(planted(MATCH_CUT) && a->head.count > op->count))
		coll_matcher_read(a, op->buf);
	release(comm, a);
	return st;
}

/* The rank whose death ends a receive for which no message is here; -1: none. One from any source reports the first
 * that no such receive has reported. */
static int dead_for(struct coll_comm *comm, const struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;

	if (op->peer != COLL_MATCH_ANY)
		return op->peer != comm->rank && t->peers[op->peer].dead ? op->peer : -1;
	if (t->dead_told == t->dead)
		return -1;
	return coll_comm_dead(comm)->rank[t->dead_told++];
}

/* Of named messages that may come: this rank expects them. */
static void expect(struct coll_comm *comm, const struct coll_tag_op *op)
{
	if (op->peer != COLL_MATCH_ANY && op->peer != comm->rank)
		coll_tag_open(comm, &comm->tagged.tags->peers[op->peer], false);
}

static void probe(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	const struct coll_arrival *a = coll_matcher_peek(&t->matcher, op->peer, op->tag);
	const int dead = a ? -1 : dead_for(comm, op);

	if (a) {
		see(op, &a->head);
		coll_tag_finish(t, op, COLL_OK);
	} else if (dead >= 0) {
		coll_tag_finish_dead(comm, op, dead);
	} else {
		coll_tag_move(op, COLL_TAG_POSTED, &t->probes);
		expect(comm, op);
	}
}

coll_status coll_tags_look(struct coll_comm *comm, struct coll_tag_op *op)
{
	coll_status st = COLL_AGAIN;

	pthread_mutex_lock(&comm->tagged.lock);
	if (!comm->tagged.closed) {
		probe(comm, op);
		coll_list_remove(&op->link);
		st = op->state == COLL_TAG_DONE ? op->status : COLL_AGAIN;
	}
	pthread_mutex_unlock(&comm->tagged.lock);
	return st;
}

/* What this rank owes is sent by the next poll. */
static void receive(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_arrival *a;
	int dead;

	if (op->probes) {
		probe(comm, op);
		return;
	}
	a = coll_matcher_post(&t->matcher, &op->posted);
	dead = a ? -1 : dead_for(comm, op);
	if (dead >= 0) {
		coll_matcher_cancel(&t->matcher, &op->posted);
		coll_tag_finish_dead(comm, op, dead);
	} else if (!a) {
		coll_tag_move(op, COLL_TAG_POSTED, NULL);
		expect(comm, op);
	} else if (a->head.here) {
		coll_tag_finish(t, op, take_kept(comm, op, a));
	} else if (a->head.sender) {
		coll_tag_hand_over(t, op, a->head.sender);
		release(comm, a);
	} else {
		answer(t, op, &a->head);
		release(comm, a);
	}
}

bool coll_tags_receive_now(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	const struct coll_arrival *a = NULL;
	bool mine;

	pthread_mutex_lock(&comm->tagged.lock);
	if (!comm->tagged.closed && t->fault.status == COLL_OK)
		a = coll_matcher_peek(&t->matcher, op->posted.source, op->posted.tag);
	/* Cells of this rank may be what its own sends wait for, and these are requests. */
	mine = a && a->head.here && a->head.source != comm->rank;
	if (mine) {
		op->status = take_kept(comm, op, coll_matcher_post(&t->matcher, &op->posted));
		op->state = COLL_TAG_DONE;
		/* No poll follows: this rank may leave the library for long. */
		coll_tag_give_back(comm, &t->peers[op->source]);
	}
	pthread_mutex_unlock(&comm->tagged.lock);
	return mine;
}

void coll_tags_receive(struct coll_comm *comm, struct coll_tag_op *op)
{
	pthread_mutex_lock(&comm->tagged.lock);
	if (!comm->tagged.closed)
		receive(comm, op);
	pthread_mutex_unlock(&comm->tagged.lock);
}

bool coll_tags_cancel(struct coll_comm *comm, struct coll_tag_op *op)
{
	bool waited;

	pthread_mutex_lock(&comm->tagged.lock);
	waited = !comm->tagged.closed && op->state == COLL_TAG_POSTED &&
	         (op->probes || coll_matcher_cancel(&comm->tagged.tags->matcher, &op->posted));
	if (waited)
		coll_tag_move(op, COLL_TAG_DONE, NULL);
	pthread_mutex_unlock(&comm->tagged.lock);
	return waited;
}
