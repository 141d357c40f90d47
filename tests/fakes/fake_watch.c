/*
 * The watchdog of tests: see fake_watch.h.
 */
#include "tests/fakes/fake_watch.h"

#include <stdio.h>

#include "core/error.h"
#include "watch/alarm.h"
#include "watch/diagnose.h"
#include "watch/late.h"
#include "watch/left.h"
#include "watch/minority.h"
#include "watch/pair_counts.h"
#include "watch/wait_chain.h"

#define WEAK __attribute__((weak))

struct fake_watch fake_watch;

void fake_watch_reset(void)
{
	fake_watch = (struct fake_watch){.culprit = -1};
}

static coll_status verdict(struct coll_comm *comm, coll_status st)
{
	return st == COLL_OK ? st : coll_comm_fail(comm, st, -1, "the fake watchdog says so", "");
}

/* ---- watchdog.c ---- */

WEAK coll_status coll_comm_heed_alarm(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p)
{
	fake_watch.heeded++;
	return verdict(comm, fake_watch.heed);
}

WEAK coll_status coll_comm_attend(struct coll_comm *comm, const char *kind)
{
	fake_watch.attended++;
	return verdict(comm, fake_watch.attend);
}

WEAK coll_status coll_comm_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                   uint64_t now_ns)
{
	fake_watch.inspected++;
	p->begun_ns = now_ns;
	return now_ns < fake_watch.inspect_from_ns ? COLL_OK : verdict(comm, fake_watch.inspect);
}

WEAK bool coll_wait_timer_is_due(const struct coll_wait_timer *p, uint64_t now_ns)
{
	return fake_watch.due;
}

WEAK coll_status coll_wait_fail(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                                coll_status status, int culprit, const char *cause)
{
	fake_watch.status = status;
	fake_watch.culprit = culprit;
	snprintf(fake_watch.cause, sizeof(fake_watch.cause), "%s", cause);
	return status;
}

WEAK coll_status coll_wait_fail_by(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                                   const struct coll_end *e)
{
	return coll_wait_fail(comm, w, p, e->status, e->process >= 0 ? coll_comm_rank_of(comm, e->process) : -1,
	                      e->text);
}

WEAK bool coll_comm_caught_up(struct coll_comm *comm, bool *done)
{
	if (*done || !fake_watch.lags)
		return true;
	*done = true;
	return false;
}

/* ---- diagnose.c ---- */

WEAK coll_status coll_comm_inquire(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                   struct coll_run *run, coll_status status)
{
	if (!p->fault) {
		fake_watch.faulty = run;
		p->fault = status;
	}
	if (fake_watch.inquired++ < fake_watch.unknown)
		return COLL_OK;
	return verdict(comm, fake_watch.inquire);
}

/* ---- mismatch.c ---- */

WEAK void coll_mismatch_question(const struct coll_comm *comm, const struct coll_record *mine,
                                 const struct coll_entry *entry, uint64_t newest, struct coll_mismatch_msg *q)
{
	*q = (struct coll_mismatch_msg){.record = *mine, .sequence = mine->sequence, .about = COLL_ABOUT_CALLS};
}

WEAK bool coll_mismatch_differs(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                                const struct coll_answer *a, char *text, size_t len_bytes)
{
	if (fake_watch.differs)
		snprintf(text, len_bytes, "calls differ");
	return fake_watch.differs;
}

WEAK bool coll_mismatch_agrees(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                               const struct coll_answer *a)
{
	return fake_watch.agrees;
}

WEAK bool coll_minority_behind(struct coll_comm *comm, const struct coll_mismatch_msg *q, int sender, uint64_t now,
                               int *other, int *culprit, char text[400])
{
	*other = *culprit = fake_watch.behind ? fake_watch.behind : -1;
	snprintf(text, 400, "that of the rank behind it");
	return true;
}

WEAK bool coll_minority_find(struct coll_comm *comm, const struct coll_mismatch_msg *q, int peer, uint64_t now,
                             int *culprit)
{
	*culprit = peer;
	return true;
}

WEAK void coll_mismatch_text(const struct coll_comm *comm, const struct coll_record *mine, int peer,
                             const struct coll_record *theirs, char *text, size_t len_bytes)
{
	snprintf(text, len_bytes, "this rank and rank %d", peer);
}

/* ---- deadlock.c ---- */

WEAK void coll_deadlock_show(struct coll_comm *comm, struct coll_wait_timer *p, const struct coll_blocked *s)
{
	fake_watch.shown++;
	p->shown = true;
}

WEAK void coll_deadlock_hide(struct coll_comm *comm, struct coll_wait_timer *p)
{
	fake_watch.hidden++;
	p->shown = false;
}

/* What the test put into the box. */
WEAK bool coll_deadlock_look(const struct coll_comm *comm, struct coll_blocked *s)
{
	return comm->blocked.version != 0 &&
	       coll_words_read(&comm->blocked.version, comm->blocked.word, s, COLL_BLOCKED_WORDS);
}

WEAK bool coll_deadlock_closes(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine,
                               int peer, const struct coll_peer_state *state, struct coll_deadlock *circle)
{
	*circle = fake_watch.circle;
	return fake_watch.closes;
}

/* ---- wait_chain.c ---- */

WEAK bool coll_wait_chain_describe(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                                   char text[COLL_CHAIN_TEXT])
{
	fake_watch.chains++;
	snprintf(text, COLL_CHAIN_TEXT, "%s", impatient ? "a part of the chain" : "the chain");
	return impatient || !fake_watch.chain_waits;
}

WEAK int coll_wait_chain_end(struct coll_comm *comm, const struct coll_record *mine, int peer, bool impatient,
                             struct coll_record *record)
{
	if (fake_watch.chain_waits && !impatient)
		return -1;
	*record = fake_watch.at_the_end;
	return fake_watch.chain_end ? fake_watch.chain_end : peer;
}

/* ---- pair_counts.c ---- */

WEAK void coll_pair_counts_note(struct coll_pair_counts *t, const struct coll_call *call, uint64_t number, int rank,
                                int size)
{
	fake_watch.noted++;
}

/* Two elements to each rank and three from it in every call, where any are kept. */
WEAK bool coll_pair_counts_find(const struct coll_pair_counts *t, uint64_t number, int rank, uint64_t *to,
                                uint64_t *from)
{
	if (!t->ready || number == 0)
		return false;
	*to = 2;
	*from = 3;
	return true;
}

/* ---- late.c ---- */

WEAK bool coll_late_find(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p, int peer,
                         uint64_t now_ns)
{
	comm->late.count = 1;
	comm->late.one = peer;
	return true;
}

WEAK void coll_late_describe(const struct coll_comm *comm, const char *kind, char text[COLL_LATE_TEXT])
{
	text[0] = 0;
}

WEAK void coll_late_read(struct coll_comm *comm, int culprit, const char *text)
{
	snprintf(fake_watch.late_text, sizeof(fake_watch.late_text), "%s", text);
	comm->late.count = 1;
	comm->late.one = culprit;
}
