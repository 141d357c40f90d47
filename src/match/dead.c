/*
 * Tagged messages when a member has died: what needs the rank ends, and what is here of it can still be received.
 * Nobody reads or writes the memory of an operation that has ended: the channels are closed before.
 */
#include "match/dead.h"

#include "core/dead.h"
#include "core/fabric.h"
#include "match/state.h"

static void finish_all(struct coll_comm *comm, struct coll_link *list, int rank)
{
	while (!coll_list_empty(list))
		coll_tag_finish_dead(comm, coll_tag_first(list), rank);
}

/* What was under way to or from the rank. Its messages that are here wait on. */
static void end_transfers(struct coll_comm *comm, struct coll_tag_peer *p)
{
	finish_all(comm, &p->queue, p->rank);
	finish_all(comm, &p->offered, p->rank);
	finish_all(comm, &p->answers, p->rank);
	for (int half = 0; half < 2; half++) {
		if (p->running[half]) {
			coll_run_cancel(p->run[half], COLL_ERR_PEER_DEAD);
			coll_tag_finish_dead(comm, p->moving[half], p->rank);
		}
		p->running[half] = false;
		p->moving[half] = NULL;
		finish_all(comm, &p->bulk[half], p->rank);
	}
}

static void end_probes(struct coll_comm *comm, const struct coll_tag_peer *p)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_link *next;

	for (struct coll_link *l = t->probes.next; l != &t->probes; l = next) {
		struct coll_tag_op *op = COLL_ENTRY(l, struct coll_tag_op, link);

		next = l->next;
		if (op->peer == p->rank || op->peer == COLL_MATCH_ANY)
			coll_tag_finish_dead(comm, op, p->rank);
		if (op->peer == COLL_MATCH_ANY)
			t->dead_told = t->dead;
	}
}

/* Receives and probes that name the rank, and those from any source that wait at this moment: each reports the death
 * once. */
static void end_receives(struct coll_comm *comm, struct coll_tag_peer *p)
{
	struct coll_matcher *m = &comm->tagged.tags->matcher;
	struct coll_link *lists[] = {&m->source[p->rank].posted, &m->posted_any};

	end_probes(comm, p);

	for (int i = 0; i < 2; i++)
		while (!coll_list_empty(lists[i])) {
			struct coll_posted *posted = COLL_ENTRY(lists[i]->next, struct coll_posted, link);

			coll_matcher_cancel(m, posted);
			coll_tag_finish_dead(comm, COLL_ENTRY(posted, struct coll_tag_op, posted), p->rank);
			if (i == 1)
				comm->tagged.tags->dead_told = comm->tagged.tags->dead;
		}
}

/* The channels are closed before an operation ends: nobody reads or writes its memory behind that. */
static void lose(struct coll_comm *comm, struct coll_tag_peer *p)
{
	struct coll_tags *t = comm->tagged.tags;
	int n = 0;

	coll_comm_fabric_close_peer(&comm->tagged.own->fabric, p->rank);
	for (int i = 0; i < t->nopened; i++)
		if (t->opened[i] != p->rank)
			t->opened[n++] = t->opened[i];
	t->nopened = n;
	t->ends -= p->end != COLL_OK;
	p->open = false;
	p->dead = true;
	p->end = COLL_ERR_PEER_DEAD;
	if (t->fault.peer == p->rank && t->fault.status == COLL_ERR_PEER_DEAD)
		t->fault = (struct coll_tags_fault){.status = COLL_OK};
	end_transfers(comm, p);
	coll_matcher_drop_offers(&t->matcher, p->rank);
	end_receives(comm, p);
}

void coll_tag_lose_dead(struct coll_comm *comm)
{
	const struct coll_dead_members *d = coll_comm_dead(comm);
	const int n = d ? atomic_load_explicit(&d->count, memory_order_acquire) : 0;
	struct coll_tags *t = comm->tagged.tags;

	while (t && t->dead < n)
		lose(comm, &t->peers[d->rank[t->dead++]]);
}
