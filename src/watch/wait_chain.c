/*
 * Chains of waiting: see wait_chain.h.
 */
#include "watch/wait_chain.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"
#include "core/error.h"

enum { LINKS_MAX = 8 };

/* Only what it is doing: about no call in particular. */
static void ask(struct coll_comm *comm, const struct coll_record *mine, int rank)
{
	const struct coll_mismatch_msg q = {.record = *mine, .about = COLL_ABOUT_NOTHING, .third = -1};

	coll_control_ask(comm->ctx->control, coll_comm_process(comm, rank), &q);
	coll_service_kick(comm->ctx);
}

/* The newest word of a rank on this communicator, not older than a moment ago. */
static bool heard(struct coll_comm *comm, int rank, struct coll_record *record)
{
	struct coll_peer_state s;

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, rank), comm->id, -1, &s);
	*record = s.answer.record;
	return s.answered_ns && coll_clock_ns() - s.answered_ns < COLL_DELAY_NS(CHAIN_FRESH);
}

/* The rank that a rank with this record waits for; -1: none. */
static int waits_for(const struct coll_comm *comm, const struct coll_record *r)
{
	return r->comm == comm->id && r->active && r->waits_for >= 0 && r->waits_for < comm->size ? r->waits_for : -1;
}

static void add(char *text, const char *more)
{
	const size_t used = strlen(text);

	snprintf(text + used, COLL_CHAIN_TEXT - used, "%s", more);
}

static void add_doing(const struct coll_comm *comm, const struct coll_record *mine, const struct coll_record *r,
                      char *text)
{
	const bool behind = r->comm != comm->id || !r->active ||
	                    (mine->kind != COLL_KIND_SEND_RECV && coll_record_is_before(r, mine));
	char doing[128];

	coll_record_describe(r, doing, sizeof(doing));
	/* In an earlier call is in a call all the same if it waits there. */
	add(text, behind && waits_for(comm, r) < 0 ? "alive, last seen after " : "alive, in ");
	add(text, doing);
}

static bool member(const int *ranks, int n, int rank)
{
	for (int i = 0; i < n; i++)
		if (ranks[i] == rank)
			return true;
	return false;
}

bool coll_wait_chain_describe(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                              char text[COLL_CHAIN_TEXT])
{
	int chain[LINKS_MAX] = {peer}, n = 1;
	struct coll_record r;

	text[0] = 0;
	heard(comm, peer, &r); /* the caller pings it, and decides when it is silent */
	for (;;) {
		const int next = waits_for(comm, &r);

		add_doing(comm, mine, &r, text);
		if (next < 0)
			return true;
		add(text, ", waits for ");
		add(text, next == comm->rank ? "this rank" : coll_comm_name(comm, next).text);
		if (next == comm->rank || n == LINKS_MAX)
			return true;
		if (member(chain, n, next)) {
			add(text, ": a cycle");
			return true;
		}
		chain[n++] = next;
		ask(comm, mine, next);
		if (!heard(comm, next, &r)) {
			add(text, ", which has not answered");
			return impatient;
		}
		add(text, ", which is ");
	}
}

int coll_wait_chain_end(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                        struct coll_record *record)
{
	int chain[LINKS_MAX] = {peer}, n = 1, next;
	struct coll_record r;

	if (!heard(comm, peer, record))
		return peer;
	while ((next = waits_for(comm, record)) >= 0 && next != comm->rank && n < LINKS_MAX) {
		if (member(chain, n, next))
			return peer;
		ask(comm, mine, next);
		if (!heard(comm, next, &r))
			return impatient ? chain[n - 1] : -1;
		chain[n++] = next;
		*record = r;
	}
	return chain[n - 1];
}
