/*
 * The minority: see minority.h. A few other ranks are asked the question whose answer showed the difference, for as
 * long as late ranks are (late.c), whose times are used: a wait ends in one of the two.
 */
#include "watch/minority.h"

#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"
#include "watch/mismatch.h"

enum { ASKED = 6 };

/* 1: rank r makes this rank's call, -1: another one, 0: it has not said. */
static int vote(struct coll_comm *comm, const struct coll_mismatch_msg *q, int r, uint64_t since)
{
	struct coll_peer_state s;
	char text[400];

	coll_control_peer(comm->ctx->control, coll_comm_process(comm, r), comm->id, (int)q->about, &s);
	if (s.answered_ns < since || !s.about_this)
		return 0;
	if (coll_mismatch_differs(comm, r, q, &s.answer, text, sizeof(text)))
		return -1;
	return coll_mismatch_agrees(comm, r, q, &s.answer);
}

bool coll_minority_find(struct coll_comm *comm, const struct coll_mismatch_msg *q, int peer, uint64_t now, int *culprit)
{
	struct coll_late *l = &comm->late;
	const int others = comm->size - 2 < ASKED ? comm->size - 2 : ASKED;
	const bool begins = l->wait_ns != UINT64_MAX;
	int with = 0, against = 0, asked = 0;

	*culprit = peer;
	if (q->about != COLL_ABOUT_CALLS || others < 1)
		return true;
	if (begins) {
		l->wait_ns = UINT64_MAX; /* of no wait */
		l->begun_ns = now;
	}
	for (int r = (comm->rank + 1) % comm->size; asked < others; r = (r + 1) % comm->size) {
		if (r == peer || r == comm->rank)
			continue;
		asked++;
		coll_control_ask(comm->ctx->control, coll_comm_process(comm, r), q);
		with += vote(comm, q, r, l->begun_ns) > 0;
		against += vote(comm, q, r, l->begun_ns) < 0;
	}
	coll_service_kick(comm->ctx);
	if (with + against < others && with + 1 <= (others + 2) / 2 && against + 1 <= (others + 2) / 2 &&
	    now - l->begun_ns < COLL_DELAY_NS(LATE_TURN))
		return false;
	if (against > with)
		*culprit = comm->rank;
	return true;
}
