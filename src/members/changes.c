/*
 * See changes.h. A voter lives as long as the context: what it has promised holds for ever, and who comes late gets the
 * decision from it. Its answers wait until all of its host have its words (control/words.h).
 */
#include "members/changes.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"
#include "control/carry.h"
#include "control/gossip.h"
#include "members/changes_state.h"
#include "members/wire.h"
#include "net/net.h"

enum { CHANGES_MAX = 4096 };

/* ---- Finding ---- */

struct coll_change *coll_change_of(struct coll_context *ctx, uint64_t comm, int size)
{
	struct coll_change *c = ctx->changes ? ctx->changes->first : NULL;

	while (c && c->comm != comm)
		c = c->next;
	if (c)
		return c->size == size ? c : NULL;
	if (!ctx->changes)
		ctx->changes = calloc(1, sizeof(*ctx->changes));
	if (!ctx->changes || ctx->changes->count >= CHANGES_MAX)
		return NULL;
	c = calloc(1, sizeof(*c) + (size_t)ctx->size * sizeof(c->given[0]));
	if (!c)
		return NULL;
	c->comm = comm;
	c->size = size;
	c->next = ctx->changes->first;
	ctx->changes->first = c;
	ctx->changes->count++;
	return c;
}

void coll_changes_free(struct coll_context *ctx)
{
	while (ctx->changes && ctx->changes->first) {
		struct coll_change *c = ctx->changes->first;

		ctx->changes->first = c->next;
		while (c->words) {
			struct coll_left_words *w = c->words;

			c->words = w->next;
			free(w);
		}
		free(c->proposal);
		free(c);
	}
	free(ctx->changes);
	ctx->changes = NULL;
}

/* Its program has destroyed the communicator, so it will not make calls on what comes next. */
static bool is_gone(struct coll_context *ctx, uint64_t id)
{
	const struct coll_comm *comm;
	bool gone = false;

	pthread_mutex_lock(&ctx->comms_lock);
	comm = ctx->comms;
	while (comm && comm->id != id)
		comm = comm->next;
	for (unsigned i = 0; !comm && i < COLL_GONE_MAX; i++)
		gone |= ctx->gone[i] == id;
	pthread_mutex_unlock(&ctx->comms_lock);
	return gone;
}

/* ---- Sending ---- */

bool coll_change_send(struct coll_context *ctx, int process, struct coll_change *c, struct coll_change_msg *m)
{
	uint8_t bytes[COLL_CARRIED_BYTES];

	m->comm = c->comm;
	m->size = c->size;
	coll_change_pack(m, bytes);
	if (process != ctx->rank)
		return coll_control_carry(ctx->control, process, bytes);
	coll_changes_on_message(ctx, process, false, bytes);
	return true;
}

/* One that does not arrive is asked for again. */
static void answer(struct coll_context *ctx, struct coll_change *c, int process, uint64_t ballot, enum coll_vote vote)
{
	struct coll_change_msg m = {.ballot = ballot};

	switch (vote) {
	case COLL_VOTE_PROMISE:
		m.kind = COLL_CHANGE_PROMISE;
		m.leaves = is_gone(ctx, c->comm) && !planted(CHANGE_LEAVERS);
		m.words = c->voter.words;
		if (planted(CHANGE_NO_ACCEPTED))
			m.words = (struct coll_words){.promised = c->voter.words.promised};
		break;
	case COLL_VOTE_ACCEPTED: m.kind = COLL_CHANGE_ACCEPTED; break;
	case COLL_VOTE_REFUSED:
		m.kind = COLL_CHANGE_REFUSED;
		m.words.promised = c->voter.words.promised;
		break;
	default: return;
	}
	coll_change_send(ctx, process, c, &m);
}

/* Give the words to all of this host that lack them; the answer goes when nobody does. */
static void write_out(struct coll_context *ctx, struct coll_change *c)
{
	struct coll_change_msg m = {
	        .kind = COLL_CHANGE_WORDS, .size = c->size, .comm = c->comm, .words = c->voter.words};
	uint8_t bytes[COLL_CARRIED_BYTES];
	bool all = true;

	coll_change_pack(&m, bytes);
	for (int q = 0; q < ctx->size; q++) {
		if (q == ctx->rank || c->given[q] || !coll_control_is_here(ctx->control, q))
			continue;
		c->given[q] = coll_control_leave_words(ctx->control, q, bytes) != COLL_WORDS_AGAIN ||
		              planted(CHANGE_AGAIN_GIVEN);
		all &= c->given[q];
	}
	if (all || planted(CHANGE_AT_ONCE))
		answer(ctx, c, c->owner, c->voter.words.promised, coll_decide_written(&c->voter));
}

void coll_changes_serve(void *context)
{
	struct coll_context *ctx = context;

	for (struct coll_change *c = ctx->changes ? ctx->changes->first : NULL; c; c = c->next)
		if (c->voter.owed)
			write_out(ctx, c);
}

/* ---- Receiving ---- */

/* The communicator ends here: its program comes to a call that says so. */
static void end_communicator(struct coll_context *ctx, const struct coll_change *c, int process)
{
	struct coll_note n = {.kind = COLL_GOSSIP_FAIL,
	                      .status = COLL_ERR_ABORTED,
	                      .process = process,
	                      .origin = process,
	                      .comm = c->comm};

	snprintf(n.text, sizeof(n.text), "[COLL-3301] rank %d of the job aborted the communicator: shrunk", process);
	coll_control_spread(ctx->control, &n, -1);
}

static void carry_out(struct coll_context *ctx, struct coll_change *c, int process, uint64_t ballot,
                      struct coll_voter_acts acts)
{
	answer(ctx, c, process, ballot, acts.answer);
	if (!acts.write)
		return;
	if (!planted(CHANGE_WRONG_OWNER) || coll_ballot_round(c->voter.words.promised) == 1)
		c->owner = process;
	for (int q = 0; q < ctx->size && !planted(CHANGE_GIVEN_ONCE); q++)
		c->given[q] = false;
	if (!planted(CHANGE_NO_END))
		end_communicator(ctx, c, process);
	write_out(ctx, c);
}

void coll_change_tidy(struct coll_change *c)
{
	if (!c->decided || !c->proposal || c->proposal->calls > 0)
		return;
	free(c->proposal);
	c->proposal = NULL;
}

static bool waits(const struct coll_change *c)
{
	return c->proposal && c->proposal->calls > 0;
}

static void to_voter(struct coll_context *ctx, struct coll_change *c, int process, const struct coll_change_msg *m)
{
	struct coll_change_msg decided = {.kind = COLL_CHANGE_DECIDED, .words.value = c->value};

	if (planted(CHANGE_NEEDS_CALL) && !waits(c))
		return;
	if (c->decided) {
		if (!planted(CHANGE_MUTE_DECIDED))
			coll_change_send(ctx, process, c, &decided);
	} else if (m->kind == COLL_CHANGE_PREPARE) {
		carry_out(ctx, c, process, m->ballot, coll_decide_prepare(&c->voter, m->ballot));
	} else {
		carry_out(ctx, c, process, m->ballot, coll_decide_propose(&c->voter, m->ballot, &m->words.value));
	}
}

static void to_proposer(struct coll_change *c, int process, const struct coll_change_msg *m)
{
	struct coll_proposal *p = c->proposal;
	int member = 0;

	while (p && member < p->size && p->process[member] != process)
		member++;
	if (!p || member == p->size)
		return;
	if (planted(CHANGE_NEXT_MEMBER))
		member = (member + 1) % p->size;
	p->unanswered[member] = (struct coll_uptime){0};
	if (m->kind == COLL_CHANGE_PROMISE)
		coll_decide_promised(&p->ballot, member, m->ballot, m->leaves, &m->words);
	else if (m->kind == COLL_CHANGE_ACCEPTED || planted(CHANGE_YES))
		coll_decide_accepted(&p->ballot, member, m->ballot);
	else
		coll_decide_refused(&p->ballot, m->words.promised);
}

/* Words only grow: what is older changes nothing. */
static void keep_words(struct coll_change *c, int process, const struct coll_words *words)
{
	struct coll_left_words *w = c->words;

	while (w && w->process != process)
		w = w->next;
	if (!w) {
		w = calloc(1, sizeof(*w));
		if (!w) {
			c->words_lost = true;
			return;
		}
		w->process = process;
		w->next = c->words;
		c->words = w;
	}
	if (planted(CHANGE_FIRST_WORDS) && w->words.promised)
		return;
	if (words->promised > w->words.promised || words->accepted > w->words.accepted)
		w->words = *words;
}

void coll_changes_on_message(void *context, int process, bool words, const uint8_t *bytes)
{
	struct coll_context *ctx = context;
	const uint64_t one = 1;
	struct coll_change_msg m;
	struct coll_change *c;

	if (!coll_change_parse(&m, bytes) || words != (m.kind == COLL_CHANGE_WORDS))
		return;
	c = coll_change_of(ctx, m.comm, m.size);
	if (!c)
		return;
	switch (m.kind) {
	case COLL_CHANGE_PREPARE:
	case COLL_CHANGE_PROPOSE: to_voter(ctx, c, process, &m); break;
	case COLL_CHANGE_WORDS: keep_words(c, process, &m.words); break;
	case COLL_CHANGE_YIELD: c->yielded = m.ballot > c->yielded ? m.ballot : c->yielded; break;
	case COLL_CHANGE_DECIDED:
		c->decided = true;
		c->value = m.words.value;
		coll_change_tidy(c);
		break;
	default: to_proposer(c, process, &m); break;
	}
	if (waits(c) && coll_net->write(ctx->wake_fd, &one, sizeof(one)) < 0) {
		/* Full: the sleeper is awake already. */
	}
}
