/*
 * The ballots of a call that waits for a decision: when one begins, whom it asks, what its members count as. The lowest
 * living member begins at once. Another one waits until that has had its time, so that ballots seldom meet; two that do
 * cost time only.
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

coll_status coll_change_begin(struct coll_comm *comm, struct coll_proposal **out)
{
	struct coll_control *control = comm->ctx->control;
	struct coll_proposal *p = calloc(1, sizeof(*p));
	coll_status st = COLL_OK;

	if (!p)
		return COLL_ERR_MEMORY;
	p->comm = comm;
	p->rng.state = comm->id + (uint64_t)comm->rank + coll_clock_ns();
	coll_control_lock(control);
	p->change = coll_change_of(comm->ctx, comm->id, comm->size);
	if (!p->change)
		st = COLL_ERR_MEMORY;
	else if (p->change->taken)
		st = COLL_ERR_ARGUMENT;
	else
		p->change->proposal = p;
	coll_control_unlock(control);
	if (st == COLL_OK)
		*out = p;
	else
		free(p);
	return st;
}

void coll_change_take(struct coll_proposal *p, struct coll_member_set *members)
{
	struct coll_control *control = p->comm->ctx->control;

	coll_control_lock(control);
	*members = p->change->value;
	p->change->taken = true;
	coll_control_unlock(control);
}

void coll_change_end(struct coll_proposal **out)
{
	struct coll_proposal *p = *out;

	*out = NULL;
	if (!p)
		return;
	coll_control_lock(p->comm->ctx->control);
	p->change->proposal = NULL;
	if (planted(CHANGE_FORGETS) && !p->change->decided)
		p->change->voter = (struct coll_voter){0};
	coll_control_unlock(p->comm->ctx->control);
	free(p);
}

/* ---- Members ---- */

static bool is_reported(const struct coll_proposal *p, int member)
{
	const int process = coll_comm_process(p->comm, member);

	return process != p->comm->ctx->rank && coll_control_is_reported(p->comm->ctx->control, process);
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

static void see_members(struct coll_proposal *p, uint64_t now)
{
	struct coll_control *control = p->comm->ctx->control;
	const bool silent = (coll_uptime_reaches(&p->silence, now, COLL_DELAY_NS(SUSPECT)) || planted(CHANGE_HASTY)) &&
	                    !planted(CHANGE_PATIENT);

	for (int r = 0; r < p->comm->size; r++) {
		const int process = coll_comm_process(p->comm, r);
		struct coll_detect_facts f = {.heard = p->heard[r], .silent = silent};

		if (r != p->comm->rank) {
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

static uint64_t pause_ns(struct coll_proposal *p)
{
	return COLL_DELAY_NS(MEMBERS_BALLOT) + coll_rng_below(&p->rng, COLL_DELAY_NS(MEMBERS_BALLOT));
}

static int lowest_living(const struct coll_proposal *p)
{
	int r = 0;

	while (r < p->comm->rank && is_reported(p, r))
		r++;
	return r;
}

/* The ballot that runs, as far as is known here, is waited for while its owner lives: as long as it may wait itself. */
static bool is_my_turn(struct coll_proposal *p, uint64_t now)
{
	const uint64_t running = p->change->voter.words.promised;
	const int lowest = lowest_living(p), owner = running ? coll_ballot_owner(running) : lowest;
	const uint64_t soon = now + (lowest == p->comm->rank ? 0 : pause_ns(p));

	if (p->turn_ns == 0)
		p->turn_ns = soon;
	if (running != p->seen && owner != p->comm->rank)
		p->turn_ns = now + COLL_DELAY_NS(SUSPECT) + pause_ns(p);
	p->seen = running;
	if (owner != p->comm->rank && is_reported(p, owner) && p->turn_ns > soon)
		p->turn_ns = soon;
	if (planted(CHANGE_FIRST_ONLY) && p->comm->rank > 0)
		return false;
	return now >= p->turn_ns;
}

static void begin_ballot(struct coll_proposal *p)
{
	const uint64_t promised = p->change->voter.words.promised;
	const uint64_t top = promised > p->ballot.above ? promised : p->ballot.above;
	const uint64_t last = coll_ballot_round(p->ballot.number);
	const uint64_t round = planted(CHANGE_ONE_NUMBER) && last ? last : coll_ballot_round(top) + 1;

	coll_decide_begin(&p->ballot, coll_ballot_number(round, p->comm->rank), p->comm->size);
	memset(p->sent_ns, 0, sizeof(p->sent_ns));
}

/* ---- Ballots ---- */

/* Ask those that have not answered, again after a while: links break. True: somebody was asked. */
static bool ask(struct coll_proposal *p, uint64_t now)
{
	const bool prepares = p->ballot.phase == COLL_BALLOT_PREPARES;
	const int answer = prepares ? COLL_SAID_PROMISE : COLL_SAID_ACCEPTED;
	struct coll_change_msg m = {.kind = prepares ? COLL_CHANGE_PREPARE : COLL_CHANGE_PROPOSE,
	                            .ballot = p->ballot.number};
	bool asked = false;

	if (!prepares)
		m.words.value = p->ballot.value;
	for (int r = 0; planted(CHANGE_OTHER_VALUE) && !prepares && r < p->comm->size; r++)
		if (p->member[r].standing == COLL_STANDING_LIVES)
			coll_set_add(&m.words.value, r);
	for (int r = 0; r < p->comm->size; r++) {
		if ((p->ballot.said[r] & answer) || p->member[r].standing == COLL_STANDING_ENDED ||
		    (p->sent_ns[r] && (planted(CHANGE_ASKS_ONCE) || now < p->sent_ns[r] + COLL_DELAY_NS(PING))))
			continue;
		if (!coll_change_send(p->comm->ctx, coll_comm_process(p->comm, r), p->change, &m))
			continue;
		p->sent_ns[r] = now;
		asked = true;
	}
	return asked;
}

/* Those that are out get it, too. */
static void decided(struct coll_proposal *p)
{
	struct coll_change_msg m = {.kind = COLL_CHANGE_DECIDED, .words.value = p->ballot.value};

	for (int r = 0; r < p->comm->size; r++)
		if (p->member[r].standing != COLL_STANDING_ENDED)
			coll_change_send(p->comm->ctx, coll_comm_process(p->comm, r), p->change, &m);
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
		p->turn_ns = now + pause_ns(p);
		break;
	case COLL_ACT_PROPOSE:
		memset(p->sent_ns, 0, sizeof(p->sent_ns));
		*moved = true;
		break;
	case COLL_ACT_WAIT: break;
	}
	return COLL_AGAIN;
}

coll_status coll_change_step(struct coll_proposal *p, bool *moved)
{
	struct coll_control *control = p->comm->ctx->control;
	coll_status st;

	coll_control_service(control);
	coll_control_lock(control);
	st = advance(p, coll_clock_ns(), moved);
	coll_control_unlock(control);
	return st;
}
