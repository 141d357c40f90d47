/*
 * The control plane of tests: see fake_control.h.
 */
#include "tests/fakes/fake_control.h"

#include "base/clock.h"
#include "base/delay.h"
#include "control/keepalive.h"
#include "control/last_error.h"

struct fake_control fake_control;

static struct coll_control plane;

void fake_control_reset(void)
{
	fake_control = (struct fake_control){.plane = &plane};
}

struct coll_answer *fake_control_answers(int process, const struct coll_record *doing)
{
	struct coll_peer_state *s = &fake_control.state[process];

	s->answered_ns = s->life.last_answer_ns = coll_clock_ns();
	s->about_this = true;
	s->life.unanswered = 0;
	s->answer.record = *doing;
	return &s->answer;
}

void coll_control_ask(struct coll_control *c, int peer, const struct coll_mismatch_msg *q)
{
	struct coll_answer *a = &fake_control.state[peer].answer;

	fake_control.asked[peer]++;
	fake_control.question = *q;
	if (!fake_control.echo)
		return;
	a->wait = q->wait;
	a->third = q->third;
	a->about = q->about;
	a->sequence = q->sequence;
}

void coll_control_peer(struct coll_control *c, int peer, uint64_t comm, int about, struct coll_peer_state *state)
{
	*state = fake_control.state[peer];
}

bool coll_control_report(struct coll_control *c, const struct coll_note *note)
{
	if (fake_control.ntold < FAKE_NOTES)
		fake_control.told[fake_control.ntold++] = *note;
	return true;
}

bool coll_control_goes_on(struct coll_control *c, bool certain)
{
	return true;
}

bool coll_control_failure(struct coll_control *c, uint64_t comm, struct coll_note *note)
{
	if (fake_control.has_failure)
		*note = fake_control.failure;
	return fake_control.has_failure;
}

bool coll_control_fact(struct coll_control *c, const struct coll_held_note **at, struct coll_note *note)
{
	const struct coll_note *last = (const void *)*at;
	const struct coll_note *next = last ? last + 1 : fake_control.facts;

	if (next == fake_control.facts + fake_control.nfacts)
		return false;
	*note = *next;
	*at = (const void *)next;
	return true;
}

bool coll_control_end_cause(struct coll_control *c, int process, bool presumed, struct coll_note *why)
{
	*why = fake_control.ended_after[process];
	return why->status != COLL_OK;
}

bool coll_control_settled(struct coll_control *c, const struct coll_held_note *death)
{
	const struct coll_note *n = (const void *)death;
	const bool settled = fake_control.read;

	fake_control.read |= coll_uptime_reaches(&fake_control.age, coll_clock_ns(), COLL_DELAY_NS(SETTLE)) ||
	                     n->status == COLL_ERR_PEER_SILENT;
	if (fake_control.read && !settled)
		coll_control_service(c);
	return settled;
}

bool coll_control_is_parted(struct coll_control *c)
{
	return fake_control.parted;
}

bool coll_control_is_cut(struct coll_control *c)
{
	return fake_control.cut;
}

void coll_control_service(struct coll_control *c)
{
	fake_control.services++;
}

void coll_control_flush(struct coll_control *c, int ms)
{
}
