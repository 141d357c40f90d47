/*
 * The ballots of calls that wait for a decision: whom they ask, what their members count as. turn.c says when one
 * begins. All that is needed for it outlives the call: programs call again, and a decision that takes longer than one
 * call would else never come.
 */
#include "members/proposal.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "base/planted.h"
#include "control/carry.h"
#include "members/changes.h"
#include "members/changes_state.h"
#include "members/detect.h"

static struct coll_proposal *make(struct coll_comm *comm, struct coll_change *change)
{
	struct coll_proposal *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->ctx = comm->ctx;
	p->change = change;
	p->rank = comm->rank;
	p->size = comm->size;
	p->turn.rng.state = comm->id + (uint64_t)comm->rank + coll_clock_ns();
	for (int r = 0; r < p->size; r++)
		p->process[r] = coll_comm_process(comm, r);
	return p;
}

/* The last call may have ended long ago: all who have not answered are asked at once. */
static void go_on(struct coll_proposal *p)
{
	if (p->calls++ > 0)
		return;
	memset(p->sent_ns, 0, sizeof(p->sent_ns));
	for (int r = 0; r < p->size; r++)
		p->unanswered[r].looked_ns = 0;
}

coll_status coll_change_begin(struct coll_comm *comm, struct coll_proposal **out)
{
	struct coll_control *control = comm->ctx->control;
	coll_status st = COLL_ERR_MEMORY;
	struct coll_change *change;

	coll_control_lock(control);
	change = coll_change_of(comm->ctx, comm->id, comm->size);
	if (change && change->taken)
		st = COLL_ERR_ARGUMENT;
	else if (change && (change->proposal || (change->proposal = make(comm, change))))
		st = COLL_OK;
	if (st == COLL_OK) {
		go_on(change->proposal);
		*out = change->proposal;
	}
	coll_control_unlock(control);
	return st;
}

void coll_change_take(struct coll_proposal *p, struct coll_member_set *members)
{
	struct coll_control *control = p->ctx->control;

	coll_control_lock(control);
	*members = p->change->value;
	p->change->taken = true;
	coll_control_unlock(control);
}

void coll_change_end(struct coll_proposal **out)
{
	struct coll_proposal *p = *out;
	struct coll_control *control;

	*out = NULL;
	if (!p)
		return;
	control = p->ctx->control;
	coll_control_lock(control);
	p->calls--;
	if (planted(CHANGE_FORGETS) && !p->change->decided)
		p->change->voter = (struct coll_voter){0};
	if (planted(CHANGE_CALL_ALONE) && p->calls == 0) {
		p->change->proposal = NULL;
		free(p);
	} else {
		coll_change_tidy(p->change);
	}
	coll_control_unlock(control);
}

/* ---- Members ---- */

static bool is_reported(const struct coll_proposal *p, int member)
{
	return member != p->rank && coll_control_is_reported(p->ctx->control, p->process[member]);
}

/* What a member says in answer to this phase. */
static int answer_of(const struct coll_ballot *b)
{
	return b->phase == COLL_BALLOT_PREPARES ? COLL_SAID_PROMISE : COLL_SAID_ACCEPTED;
}

static struct coll_words words_of(const struct coll_change *c, int process)
{
	const struct coll_left_words *w = c->words;

	while (w && w->process != process)
		w = w->next;
	if (planted(CHANGE_NO_WORDS))
		w = NULL;
	return w ? w->words : (struct coll_words){0};
}

/* Since it was asked it has not answered, and does not. */
static bool is_silent(struct coll_proposal *p, int member, uint64_t now)
{
	if (planted(CHANGE_PATIENT))
		return false;
	return coll_uptime_reaches(&p->unanswered[member], now, COLL_DELAY_NS(SUSPECT)) || planted(CHANGE_HASTY);
}

static void see_members(struct coll_proposal *p, uint64_t now)
{
	struct coll_control *control = p->ctx->control;

	for (int r = 0; r < p->size; r++) {
		const int process = p->process[r];
		struct coll_detect_facts f = {.heard = p->ballot.said[r] & answer_of(&p->ballot)};

		f.silent = !f.heard && is_silent(p, r, now);
		if (r != p->rank) {
			f.here = coll_control_is_here(control, process);
			f.ended = f.words_read = coll_control_has_ended(control, process) && !p->change->words_lost;
			f.reported = coll_control_is_reported(control, process);
			if (planted(CHANGE_REPORTED) && f.reported)
				f.ended = f.words_read = true;
		}
		p->member[r].standing = coll_detect_standing(&f);
		if (p->member[r].standing == COLL_STANDING_ENDED)
			p->member[r].words = words_of(p->change, process);
	}
}

/* ---- Turns ---- */

static bool all_reported(const struct coll_proposal *p, int below)
{
	int r = 0;

	while (r < below && is_reported(p, r))
		r++;
	return r == below;
}

static bool is_my_turn(struct coll_proposal *p, uint64_t now)
{
	const uint64_t promised = p->change->voter.words.promised;
	struct coll_turn_facts f = {.now_ns = now,
	                            .self = p->rank,
	                            .lowest = all_reported(p, p->rank),
	                            .running = promised > p->ballot.above ? promised : p->ballot.above};
	const int owner = coll_ballot_owner(f.running);

	f.lost = f.running && ((owner < p->size && is_reported(p, owner)) || f.running <= p->change->yielded);
	return coll_turn_is_mine(&p->turn, &f);
}

static void begin_ballot(struct coll_proposal *p)
{
	const uint64_t promised = p->change->voter.words.promised;
	const uint64_t top = promised > p->ballot.above ? promised : p->ballot.above;
	const uint64_t last = coll_ballot_round(p->ballot.number);
	const uint64_t round = planted(CHANGE_ONE_NUMBER) && last ? last : coll_ballot_round(top) + 1;

	coll_decide_begin(&p->ballot, coll_ballot_number(round, p->rank), p->size);
	memset(p->sent_ns, 0, sizeof(p->sent_ns));
	p->yield_ns = 0;
}

/* ---- Ballots ---- */

/* Ask those that have not answered, again after a while: links break. True: somebody was asked. */
static bool ask(struct coll_proposal *p, uint64_t now)
{
	const bool prepares = p->ballot.phase == COLL_BALLOT_PREPARES;
	const int answer = answer_of(&p->ballot);
	struct coll_change_msg m = {.kind = prepares ? COLL_CHANGE_PREPARE : COLL_CHANGE_PROPOSE,
	                            .ballot = p->ballot.number};
	bool asked = false;

	if (!prepares)
		m.words.value = p->ballot.value;
	for (int r = 0; planted(CHANGE_OTHER_VALUE) && !prepares && r < p->size; r++)
		if (p->member[r].standing == COLL_STANDING_LIVES)
			coll_set_add(&m.words.value, r);
	for (int r = 0; r < p->size; r++) {
		if ((p->ballot.said[r] & answer) || p->member[r].standing == COLL_STANDING_ENDED ||
		    (p->sent_ns[r] && (planted(CHANGE_ASKS_ONCE) || now < p->sent_ns[r] + COLL_DELAY_NS(PING))))
			continue;
		if (!coll_change_send(p->ctx, p->process[r], p->change, &m))
			continue;
		p->sent_ns[r] = now;
		asked = true;
	}
	return asked;
}

/* Others need not wait for a ballot that is stuck. It goes on all the same, and its owner begins no other one while
 * nobody refuses it: so who cannot count on a majority is in nobody's way. */
static void yield(struct coll_proposal *p, uint64_t now)
{
	struct coll_change_msg m = {.kind = COLL_CHANGE_YIELD, .ballot = p->ballot.number};

	if (planted(CHANGE_NO_YIELD) || now < p->yield_ns || !coll_decide_is_stuck(&p->ballot, p->member))
		return;
	p->yield_ns = now + COLL_DELAY_NS(PING);
	for (int r = 0; r < p->size; r++)
		if (r != p->rank && p->member[r].standing != COLL_STANDING_ENDED)
			coll_change_send(p->ctx, p->process[r], p->change, &m);
}

/* Those that are out get it, too. */
static void decided(struct coll_proposal *p)
{
	struct coll_change_msg m = {.kind = COLL_CHANGE_DECIDED, .words.value = p->ballot.value};

	for (int r = 0; r < p->size; r++)
		if (p->member[r].standing != COLL_STANDING_ENDED)
			coll_change_send(p->ctx, p->process[r], p->change, &m);
}

static coll_status advance(struct coll_proposal *p, uint64_t now, bool *moved)
{
	if (p->change->decided)
		return COLL_OK;
	if (p->ballot.phase == COLL_BALLOT_IDLE) {
		if (!is_my_turn(p, now))
			return COLL_AGAIN;
		begin_ballot(p);
	}
	*moved = ask(p, now);
	see_members(p, now);
	switch (coll_decide_look(&p->ballot, p->member)) {
	case COLL_ACT_DECIDED: decided(p); return COLL_OK;
	case COLL_ACT_GIVE_UP:
		p->ballot.phase = COLL_BALLOT_IDLE;
		coll_turn_overtaken(&p->turn, now);
		break;
	case COLL_ACT_PROPOSE:
		memset(p->sent_ns, 0, sizeof(p->sent_ns));
		p->yield_ns = 0;
		*moved = true;
		break;
	case COLL_ACT_WAIT: yield(p, now); break;
	}
	return COLL_AGAIN;
}

coll_status coll_change_step(struct coll_proposal *p, bool *moved)
{
	struct coll_control *control = p->ctx->control;
	coll_status st;

	coll_control_service(control);
	coll_control_lock(control);
	st = advance(p, coll_clock_ns(), moved);
	coll_control_unlock(control);
	return st;
}
