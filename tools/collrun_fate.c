/*
 * The fate of a job: the first rank that fails decides the exit status and is the cause that is told. The others have
 * the time of --grace to end by themselves with their own errors, then SIGTERM, then SIGKILL. From outside the job is
 * ended by a signal for collrun, by --timeout, and when nobody reads our output.
 *
 * Which failure came first? A rank that is killed makes others fail within milliseconds, and the reports may arrive
 * together or in the wrong order. So for HOLD a failure that weighs more replaces the first one: a death by a signal,
 * or an exit behind no error of the library, which is what a rank reports that fails because of another.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <sysexits.h>

#include "base/clock.h"
#include "collrun_cause.h"
#include "collrun_front.h"

#define HOLD_NS  (100 * MS)
#define EARLY_NS (2000 * MS) /* the cause is told by then, if the others go on */
#define TERM_NS  (2000 * MS)
#define LEAVE_NS (3000 * MS)
#define DRAIN_NS (2000 * MS)

enum { TIMEOUT_STATUS = 124 };

static const char *host_of(const struct front *f, int rank)
{
	const struct link *l = &f->links[f->link_of[rank]];

	return l->host->local || !*l->host->name ? l->name : l->host->name;
}

static void enter_stage(struct front *f, enum stage s, uint64_t for_ns)
{
	if (s <= f->stage)
		return;
	f->stage = s;
	f->stage_ends_ns = for_ns == NEVER ? NEVER : coll_clock_ns() + for_ns;
}

static uint64_t grace_ns(const struct front *f)
{
	return f->o->grace_s > 0 ? (uint64_t)(f->o->grace_s * 1e9) : NEVER;
}

void fate_signal_ranks(struct front *f, int number)
{
	const uint32_t n = (uint32_t)number;

	for (int i = 0; i < f->o->host_count; i++)
		if (f->links[i].sent && f->links[i].state == LINK_OPEN)
			channel_send(&f->links[i].ch, FRAME_SIGNAL, 0, &n, sizeof(n));
}

/* ---- Failures ------------------------------------------------------------ */

static void failure(struct front *f, int rank, enum weight weight, int status, struct link *lost, const char *text)
{
	const bool first = f->fate.rank < 0;
	const uint64_t now = coll_clock_ns();

	if (!first && (f->fate.told || weight <= f->fate.weight || now >= f->fate.at_ns + HOLD_NS)) {
		if (f->o->verbose)
			output_say(f->out, "%s", text);
		return;
	}
	f->fate.at_ns = first ? now : f->fate.at_ns;
	f->fate.rank = rank;
	f->fate.weight = weight;
	f->fate.status = status;
	f->fate.lost = lost;
	snprintf(f->fate.text, sizeof(f->fate.text), "%s", text);
	enter_stage(f, ENDING, grace_ns(f));
}

static void rank_over(struct front *f, int rank)
{
	if (f->ended[rank])
		return;
	f->ended[rank] = true;
	f->live--;
	output_finish(f->out, rank);
}

void fate_rank_exited(struct front *f, int rank, int32_t status)
{
	char text[400];

	rank_over(f, rank);
	f->to_start_again += WIFEXITED(status) && WEXITSTATUS(status) == EX_TEMPFAIL;
	if (WIFSIGNALED(status)) {
		snprintf(text, sizeof(text), "rank %d on host %s: killed by signal %d (%s)", rank, host_of(f, rank),
		         WTERMSIG(status), strsignal(WTERMSIG(status)));
		failure(f, rank, DIED, 128 + WTERMSIG(status), NULL, text);
	} else if (WEXITSTATUS(status) != 0) {
		snprintf(text, sizeof(text), "rank %d on host %s: exited with status %d", rank, host_of(f, rank),
		         WEXITSTATUS(status));
		failure(f, rank, output_cause(f->out)->erred[rank] ? EXITED_AFTER_ERROR : EXITED, WEXITSTATUS(status),
		        NULL, text);
	} else if (f->o->verbose) {
		output_say(f->out, "rank %d on host %s: done", rank, host_of(f, rank));
	}
}

void fate_rank_not_run(struct front *f, int rank, const char *why, int len_bytes)
{
	char text[512];

	snprintf(text, sizeof(text), "rank %d on host %s: %.*s", rank, host_of(f, rank), len_bytes, why);
	failure(f, rank, EXITED, 127, NULL, text);
	rank_over(f, rank);
}

/* How its process ended may be found out later: fate_text() says it then. */
void fate_host_lost(struct front *f, struct link *l)
{
	char text[480], with[512];
	int left = 0, first = -1;

	for (int i = 0; i < l->host->rank_count; i++) {
		if (!f->ended[l->host->ranks[i]]) {
			first = first < 0 ? l->host->ranks[i] : first;
			left++;
		}
	}
	if (left == 0)
		return;
	link_tell_why(f, l, text, sizeof(text));
	snprintf(with, sizeof(with), " with rank %d%s", first, left > 1 ? " and others" : "");
	failure(f, first, DIED, 1, l, with);
	for (int i = 0; i < l->host->rank_count; i++)
		rank_over(f, l->host->ranks[i]);
}

/* ---- From outside -------------------------------------------------------- */

/* The text has been told. */
static void from_outside(struct front *f, int status, const char *text)
{
	f->outside = true;
	if (f->fate.rank >= 0)
		return;
	f->fate = (struct fate){.rank = 0, .weight = FROM_OUTSIDE, .told = true, .status = status};
	f->fate.told_at = output_lines(f->out);
	snprintf(f->fate.text, sizeof(f->fate.text), "%s", text);
}

void fate_not_begun(struct front *f, const char *why)
{
	output_say(f->out, "%s", why);
	from_outside(f, 1, why);
	f->stage = GIVEN_UP;
	for (int i = 0; i < f->o->host_count; i++)
		link_close(&f->links[i], 0, "the job was not begun");
}

/* Hosts where nothing runs yet are not waited for. */
static void end_all(struct front *f, int status, int signal, uint64_t for_ns, const char *text)
{
	from_outside(f, status, text);
	f->drain_ns = coll_clock_ns() + DRAIN_NS;
	fate_signal_ranks(f, signal);
	for (int i = 0; i < f->o->host_count; i++) {
		if (!f->links[i].sent && f->links[i].state == LINK_OPEN) {
			link_close(&f->links[i], 0, "the job was ended");
			fate_host_lost(f, &f->links[i]);
		}
	}
	enter_stage(f, TERMINATED, for_ns);
}

void fate_signalled(struct front *f, int number)
{
	char text[96];

	if (f->stage >= KILLED && f->outside) { /* asked three times */
		f->stage = GIVEN_UP;
	} else if (f->stage >= TERMINATED && f->outside) { /* asked twice */
		fate_signal_ranks(f, SIGKILL);
		enter_stage(f, KILLED, LEAVE_NS);
		f->drain_ns = coll_clock_ns();
	} else {
		snprintf(text, sizeof(text), "signal %d (%s): ending the job", number, strsignal(number));
		output_say(f->out, "%s", text);
		end_all(f, 128 + number, number, grace_ns(f), text);
	}
}

void fate_unread(struct front *f)
{
	if (f->stage < TERMINATED)
		end_all(f, 128 + SIGPIPE, SIGTERM, TERM_NS, "");
}

static void time_over(struct front *f)
{
	char text[96];

	f->timed_out = true;
	snprintf(text, sizeof(text), "the job has not ended within %g s: ending it", f->o->timeout_s);
	if (!f->outside) {
		output_say(f->out, "%s", text);
		end_all(f, TIMEOUT_STATUS, SIGTERM, f->o->grace_s > 0 ? grace_ns(f) : TERM_NS, text);
	} else if (f->stage_ends_ns > coll_clock_ns() + TERM_NS) {
		f->stage_ends_ns = coll_clock_ns() + TERM_NS;
	}
}

/* ---- The clock ----------------------------------------------------------- */

/* What the library said is more than the status behind it. */
static bool library_says(const struct front *f)
{
	return f->fate.weight == EXITED_AFTER_ERROR && output_cause(f->out)->weight > 0;
}

/* Lines that are left out are counted, whatever becomes of the job. */
static void say_repeated(struct front *f)
{
	struct cause *c = output_cause(f->out);

	if (c->repeated > 0)
		output_say(f->out,
		           "not shown: %d line%s with an error that another rank logged just before (see --verbose)",
		           c->repeated, c->repeated > 1 ? "s" : "");
	c->repeated = 0;
}

static void say_cause(struct front *f, const char *before)
{
	const struct cause *c = output_cause(f->out);
	char lost[480] = "";

	if (f->fate.lost)
		link_tell_why(f, f->fate.lost, lost, sizeof(lost));
	say_repeated(f);
	if (library_says(f))
		output_say(f->out, "the cause: %s (rank %d on host %s)", c->text, c->rank, host_of(f, c->rank));
	else
		output_say(f->out, "%s%s%s", before, lost, f->fate.text);
	f->fate.told = true;
	f->fate.told_at = output_lines(f->out);
}

static void tell(struct front *f)
{
	if (f->fate.rank >= 0 && !f->fate.told)
		say_cause(f, "");
}

void fate_last_line(struct front *f)
{
	say_repeated(f);
	if (f->fate.rank < 0 || (f->fate.weight == FROM_OUTSIDE && !*f->fate.text))
		return;
	if (!f->fate.told)
		say_cause(f, "");
	else if (output_lines(f->out) != f->fate.told_at)
		say_cause(f, "the cause: ");
}

void fate_advance(struct front *f)
{
	const uint64_t now = coll_clock_ns();

	if (f->fate.rank >= 0 && f->live > 0 && now >= f->fate.at_ns + EARLY_NS)
		tell(f);
	if (now >= f->deadline_ns && !f->timed_out)
		time_over(f);
	if (f->stage == RUNNING || now < f->stage_ends_ns)
		return;
	if (f->stage == ENDING && f->live > 0) {
		tell(f);
		if (f->o->verbose)
			output_say(f->out, "%d ranks have not ended by themselves: SIGTERM", f->live);
		fate_signal_ranks(f, SIGTERM);
		enter_stage(f, TERMINATED, TERM_NS);
	} else if (f->stage == TERMINATED && f->live > 0) {
		fate_signal_ranks(f, SIGKILL);
		enter_stage(f, KILLED, LEAVE_NS);
	} else if (f->stage == KILLED) {
		f->stage = GIVEN_UP; /* closing the channels is the agents' last order */
	}
}

uint64_t fate_next_ns(const struct front *f)
{
	uint64_t next = f->timed_out ? NEVER : f->deadline_ns;

	if (f->fate.rank >= 0 && !f->fate.told && f->fate.at_ns + EARLY_NS < next)
		next = f->fate.at_ns + EARLY_NS;
	if (f->stage != RUNNING && f->stage != GIVEN_UP && f->stage_ends_ns < next)
		next = f->stage_ends_ns;
	return next;
}
