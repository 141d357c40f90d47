/*
 * The minority: see minority.h. A few other ranks are asked the question whose answer showed the difference, for as
 * long as late ranks are (late.c), whose times are used: a wait ends in one of the two.
 */
#include "watch/minority.h"

#include "base/delay.h"
#include "context/service.h"
#include "control/ping.h"
#include "watch/mismatch.h"

/* TURN, at a time: less than the control plane can ask about. */
enum { ASKED = 6, TURN = 16 };

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

bool coll_minority_behind(struct coll_comm *comm, const struct coll_mismatch_msg *q, int sender, uint64_t now,
                          int *other, int *culprit, char text[400])
{
	struct coll_late *l = &comm->late;
	const int first = l->wait_ns == UINT64_MAX ? l->next : 0;
	const int end = first + TURN < comm->size ? first + TURN : comm->size;
	const bool begins = l->wait_ns != UINT64_MAX || !l->turn_ns;
	int with = 0, against = 0, asked = 0;

	*other = -1;
	if (q->about != COLL_ABOUT_CALLS)
		return true;
	if (l->wait_ns != UINT64_MAX)
		*l = (struct coll_late){.wait_ns = UINT64_MAX, .begun_ns = now, .ranks = l->ranks};
	if (begins)
		l->turn_ns = now;
	for (int r = first; r < end; r++) {
		struct coll_peer_state s;

		if (r == comm->rank || r == sender)
			continue;
		asked++;
		if (begins)
			coll_control_ask(comm->ctx->control, coll_comm_process(comm, r), q);
		with += vote(comm, q, r, l->begun_ns) > 0;
		if (vote(comm, q, r, l->begun_ns) >= 0)
			continue;
		against++;
		coll_control_peer(comm->ctx->control, coll_comm_process(comm, r), comm->id, (int)q->about, &s);
		if (*other < 0 && coll_mismatch_differs(comm, r, q, &s.answer, text, 400))
			*other = r;
	}
	coll_service_kick(comm->ctx);
	if (with + against < asked && now - l->turn_ns < COLL_DELAY_NS(LATE_TURN))
		return false;
	*culprit = against > with + 1 ? comm->rank : *other;
	l->next = end;
	l->turn_ns = 0;
	return *other >= 0 || end == comm->size;
}
