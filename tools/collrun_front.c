/*
 * The front: the collrun that the user started. One agent per host; the ranks'
 * output, in whole lines; and the fate of the job: the first rank that fails is
 * reported and decides the exit status, the others have GRACE to end by
 * themselves with their own errors, then SIGTERM, then SIGKILL.
 *
 * Which failure came first? A rank that is killed makes others fail within
 * milliseconds, and the reports may arrive together or in the wrong order. So a
 * failure is held for HOLD; a death by a signal that arrives meanwhile is reported
 * instead of a plain exit status.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "collrun_front.h"

#define MS       ((uint64_t)1000000)
#define HOLD_NS  (100 * MS)
#define GRACE_NS (3000 * MS)
#define TERM_NS  (2000 * MS)
#define LEAVE_NS (3000 * MS)
#define HELLO_NS (60000 * MS)
#define NEVER    UINT64_MAX

enum { OUTPUT_MAX = 4 << 20, INPUT_AHEAD = 64 << 10, TIMEOUT_STATUS = 124 };

static const char *host_of(const struct front *f, int rank)
{
	const struct link *l = &f->links[f->link_of[rank]];

	return l->host->local || !*l->host->name ? l->name : l->host->name;
}

/* ---- The fate of the job ----------------------------------------------- */

static void enter_stage(struct front *f, enum stage s, uint64_t for_ns)
{
	if (s <= f->stage)
		return;
	f->stage = s;
	f->stage_ends_ns = coll_clock_ns() + for_ns;
}

static void signal_all(struct front *f, int signal)
{
	const uint32_t number = (uint32_t)signal;

	for (int i = 0; i < f->o->host_count; i++)
		if (f->links[i].sent && !f->links[i].gone)
			channel_send(&f->links[i].ch, FRAME_SIGNAL, 0, &number, sizeof(number));
}

static void failure(struct front *f, int rank, bool by_signal, int status, const char *text)
{
	const bool first = f->fate.rank < 0;

	if (first || (!f->fate.told && by_signal && !f->fate.by_signal)) {
		if (first)
			f->fate.at_ns = coll_clock_ns();
		f->fate.rank = rank;
		f->fate.by_signal = by_signal;
		f->fate.status = status;
		snprintf(f->fate.text, sizeof(f->fate.text), "%s", text);
		enter_stage(f, ENDING, GRACE_NS);
	} else if (f->o->verbose) {
		output_say(f->out, "%s", text);
	}
}

static void report_fate(struct front *f)
{
	if (f->fate.rank < 0 || f->fate.told)
		return;
	f->fate.told = true;
	output_say(f->out, "%s", f->fate.text);
}

static void rank_over(struct front *f, int rank)
{
	if (f->ended[rank])
		return;
	f->ended[rank] = true;
	f->live--;
	output_finish(f->out, rank);
}

static void rank_exited(struct front *f, int rank, int32_t status)
{
	char text[400];

	if (WIFSIGNALED(status)) {
		snprintf(text, sizeof(text), "rank %d on host %s: killed by signal %d (%s)", rank, host_of(f, rank),
		         WTERMSIG(status), strsignal(WTERMSIG(status)));
		failure(f, rank, true, 128 + WTERMSIG(status), text);
	} else if (WEXITSTATUS(status) != 0) {
		snprintf(text, sizeof(text), "rank %d on host %s: exited with status %d", rank, host_of(f, rank),
		         WEXITSTATUS(status));
		failure(f, rank, false, WEXITSTATUS(status), text);
	} else if (f->o->verbose) {
		output_say(f->out, "rank %d on host %s: done", rank, host_of(f, rank));
	}
	rank_over(f, rank);
}

static void rank_not_run(struct front *f, int rank, const struct frame *fr)
{
	char text[512];

	snprintf(text, sizeof(text), "rank %d on host %s: %.*s", rank, host_of(f, rank), (int)fr->len_bytes, fr->body);
	failure(f, rank, false, 127, text);
	rank_over(f, rank);
}

/* The agent is gone and some of its ranks had not ended. */
static void host_lost(struct front *f, struct link *l, const char *why)
{
	char text[512];
	int left = 0, first = -1;

	for (int i = 0; i < l->host->rank_count; i++) {
		if (!f->ended[l->host->ranks[i]]) {
			first = first < 0 ? l->host->ranks[i] : first;
			left++;
		}
	}
	if (left == 0)
		return;
	snprintf(text, sizeof(text), "lost host %s (%s) with rank %d%s", l->host->local ? l->name : l->host->name, why,
	         first, left > 1 ? " and others" : "");
	failure(f, first, true, 1, text);
	for (int i = 0; i < l->host->rank_count; i++)
		rank_over(f, l->host->ranks[i]);
}

/* The job is ended from outside: exits of ranks are not reported any more. */
static void end_all(struct front *f, int status, int signal, uint64_t for_ns)
{
	if (f->fate.rank < 0)
		f->fate = (struct fate){.rank = 0, .told = true, .status = status};
	signal_all(f, signal);
	enter_stage(f, TERMINATED, for_ns);
}

static void advance_stage(struct front *f)
{
	const uint64_t now = coll_clock_ns();

	if (f->fate.rank >= 0 && !f->fate.told && now >= f->fate.at_ns + HOLD_NS)
		report_fate(f);
	if (now >= f->deadline_ns && f->stage < TERMINATED) {
		output_say(f->out, "the job has not ended within %g s: ending it", f->o->timeout_s);
		end_all(f, TIMEOUT_STATUS, SIGTERM, TERM_NS);
	}
	if (f->stage == RUNNING || now < f->stage_ends_ns || f->live == 0)
		return;
	if (f->stage == ENDING) {
		if (f->o->verbose)
			output_say(f->out, "%d ranks have not ended by themselves: SIGTERM", f->live);
		signal_all(f, SIGTERM);
		enter_stage(f, TERMINATED, TERM_NS);
	} else if (f->stage == TERMINATED) {
		signal_all(f, SIGKILL);
		enter_stage(f, KILLED, LEAVE_NS);
	} else {
		f->stage = GIVEN_UP; /* closing the channels is the agents' last order */
	}
}

/* ---- What agents say --------------------------------------------------- */

static void hello(struct front *f, struct link *l, const struct frame *fr)
{
	const char *filter = getenv("COLL_INTERFACE"), *s, *interface;
	char version[32];
	size_t at = 0;

	snprintf(version, sizeof(version), "%d.%d.%d", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
	s = strings_next(fr, &at);
	if (!s || strcmp(s, version) != 0) {
		char why[96];

		snprintf(why, sizeof(why), "collrun there has version %.20s, here %s", s ? s : "?", version);
		host_lost(f, l, why);
		channel_close(&l->ch);
		l->gone = true;
		return;
	}
	l->hello = true;
	s = strings_next(fr, &at);
	snprintf(l->name, sizeof(l->name), "%s", s ? s : "?");
	s = strings_next(fr, &at); /* how ssh came */
	if (s && *s && strcmp(s, "127.0.0.1") != 0 && strcmp(s, "::1") != 0 && !filter)
		snprintf(l->address, sizeof(l->address), "%s", s);
	while ((interface = strings_next(fr, &at)) && (s = strings_next(fr, &at)))
		if (!l->address[0] && start_interface_wanted(interface, filter ? filter : ""))
			snprintf(l->address, sizeof(l->address), "%s", s);
}

static void serve_frame(struct front *f, struct link *l, const struct frame *fr)
{
	const int rank = (int)fr->rank;
	const bool known = rank >= 0 && rank < f->o->size && &f->links[f->link_of[rank]] == l;
	int32_t number = 0;

	if (fr->len_bytes == sizeof(number))
		memcpy(&number, fr->body, sizeof(number));
	if (fr->type == FRAME_HELLO)
		hello(f, l, fr);
	else if (fr->type == FRAME_NOTE)
		output_say(f->out, "host %s: %.*s", l->name, (int)fr->len_bytes, fr->body);
	else if (fr->type == FRAME_STDIN_OK)
		f->input_ahead -= (size_t)number < f->input_ahead ? (size_t)number : f->input_ahead;
	else if (!known)
		return;
	else if (fr->type == FRAME_OUT || fr->type == FRAME_ERR)
		output_add(f->out, rank, fr->type == FRAME_OUT ? 1 : 2, fr->body, fr->len_bytes);
	else if (fr->type == FRAME_EXIT)
		rank_exited(f, rank, number);
	else if (fr->type == FRAME_NOT_RUN)
		rank_not_run(f, rank, fr);
	else if (fr->type == FRAME_STARTED && f->o->verbose)
		output_say(f->out, "rank %d on host %s: process %d", rank, host_of(f, rank), (int)number);
}

static void link_ended(struct front *f, struct link *l)
{
	char why[96] = "its agent is gone";
	int status;

	if (l->pid > 0 && waitpid(l->pid, &status, l->host->local ? WNOHANG : 0) == l->pid) {
		l->pid = 0;
		if (!l->host->local && WIFEXITED(status))
			snprintf(why, sizeof(why), "%.60s ended with status %d", f->o->ssh, WEXITSTATUS(status));
		else if (WIFSIGNALED(status))
			snprintf(why, sizeof(why), "its agent was killed by signal %d", WTERMSIG(status));
	}
	l->gone = true;
	host_lost(f, l, why);
	channel_close(&l->ch);
}

static void serve_link(struct front *f, struct link *l)
{
	struct frame fr;

	channel_read(&l->ch);
	while (!l->gone && channel_next(&l->ch, &fr))
		serve_frame(f, l, &fr);
	if (l->ch.ended && !l->gone)
		link_ended(f, l);
}

/* ---- Input and signals ------------------------------------------------- */

static struct link *input_link(struct front *f)
{
	struct link *l = &f->links[f->link_of[0]];

	return l->sent && !l->gone && !f->ended[0] ? l : NULL;
}

/* A terminal is read only by its foreground; otherwise the kernel would stop us. */
static bool may_read_input(struct front *f)
{
	if (f->input_ended || f->input_ahead >= INPUT_AHEAD || !input_link(f))
		return false;
	return !isatty(0) || tcgetpgrp(0) == getpgrp();
}

static void pass_input(struct front *f)
{
	struct link *l = input_link(f);
	static char chunk[16 << 10];
	ssize_t n;

	if (!l)
		return;
	n = read(0, chunk, sizeof(chunk));
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		f->input_ended = true;
		n = 0;
	}
	f->input_ahead += (size_t)n;
	channel_send(&l->ch, FRAME_STDIN, 0, chunk, (size_t)n);
}

static void serve_signals(struct front *f)
{
	struct signalfd_siginfo s;

	while (read(f->signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		const int signal = (int)s.ssi_signo;

		if (signal == SIGCHLD)
			continue;
		if (f->stage >= TERMINATED) { /* asked twice */
			signal_all(f, SIGKILL);
			enter_stage(f, KILLED, LEAVE_NS);
			continue;
		}
		output_say(f->out, "signal %d: ending the job", signal);
		end_all(f, 128 + signal, signal, GRACE_NS);
		if (!f->links[0].sent)
			f->stage = GIVEN_UP; /* nothing runs yet */
	}
}

/* ---- The loop ---------------------------------------------------------- */

static int wait_ms(const struct front *f)
{
	const uint64_t now = coll_clock_ns();
	uint64_t until = f->deadline_ns < f->hello_ns ? f->deadline_ns : f->hello_ns;

	if (f->fate.rank >= 0 && !f->fate.told && f->fate.at_ns + HOLD_NS < until)
		until = f->fate.at_ns + HOLD_NS;
	if (f->stage != RUNNING && f->stage_ends_ns < until)
		until = f->stage_ends_ns;
	if (until == NEVER)
		return isatty(0) ? 1000 : -1; /* we may become the foreground */
	return until <= now ? 0 : until - now > 3600000 * MS ? 3600000 : (int)((until - now) / MS + 1);
}

static void check_hellos(struct front *f)
{
	bool all = true;

	for (int i = 0; i < f->o->host_count; i++) {
		struct link *l = &f->links[i];

		if (l->hello || l->gone)
			continue;
		all = false;
		if (coll_clock_ns() >= f->hello_ns) {
			host_lost(f, l, "no answer within 60 s");
			channel_close(&l->ch);
			l->gone = true;
		}
	}
	if (all)
		f->hello_ns = NEVER;
}

static void turn(struct front *f, struct pollfd *p)
{
	const bool full = output_size(f->out) > OUTPUT_MAX;
	const int hosts = f->o->host_count;
	int n = 0;

	p[n++] = (struct pollfd){.fd = f->signals, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = may_read_input(f) ? 0 : -1, .events = POLLIN};
	for (int stream = 1; stream <= 2; stream++)
		p[n++] = (struct pollfd){.fd = output_waiting(f->out, stream) ? stream : -1, .events = POLLOUT};
	for (int i = 0; i < hosts; i++) {
		struct channel *c = &f->links[i].ch;

		p[n++] = (struct pollfd){.fd = full ? -1 : c->in_fd, .events = POLLIN};
		p[n++] = (struct pollfd){.fd = buffer_size(&c->out) ? c->out_fd : -1, .events = POLLOUT};
	}
	if (poll(p, (nfds_t)n, wait_ms(f)) < 0)
		return;
	if (p[0].revents)
		serve_signals(f);
	if (p[1].revents)
		pass_input(f);
	for (int i = 0; i < hosts; i++) {
		if (p[4 + 2 * i].revents)
			serve_link(f, &f->links[i]);
		if (p[5 + 2 * i].revents)
			channel_write(&f->links[i].ch);
	}
	for (int stream = 1; stream <= 2; stream++)
		if (p[1 + stream].revents)
			output_write(f->out, stream);
}

static bool links_open(const struct front *f)
{
	for (int i = 0; i < f->o->host_count; i++)
		if (!f->links[i].gone)
			return true;
	return false;
}

static void run(struct front *f)
{
	struct pollfd *p = must(calloc((size_t)f->o->host_count * 2 + 4, sizeof(*p)));

	/* After the last rank the agents clean up and hang up; that is waited for. */
	while (f->stage != GIVEN_UP && links_open(f)) {
		if (f->live == 0 && f->stage < KILLED)
			enter_stage(f, KILLED, LEAVE_NS);
		if (f->live == 0 && coll_clock_ns() >= f->stage_ends_ns)
			break;
		turn(f, p);
		start_send_jobs(f);
		check_hellos(f);
		advance_stage(f);
		if (output_broken(f->out) && f->stage < TERMINATED)
			end_all(f, 128 + SIGPIPE, SIGTERM, TERM_NS);
	}
	free(p);
}

/* Closing a channel is the order to kill everything. */
static void close_links(struct front *f)
{
	for (int i = 0; i < f->o->host_count; i++)
		channel_close(&f->links[i].ch);
	for (int i = 0; i < f->o->host_count; i++) {
		if (f->links[i].pid <= 0)
			continue;
		for (int tries = 0; tries < 100 && waitpid(f->links[i].pid, NULL, WNOHANG) == 0; tries++)
			usleep(10000);
	}
}

static void flush_output(struct front *f)
{
	report_fate(f);
	for (int stream = 1; stream <= 2; stream++) {
		while (output_waiting(f->out, stream)) {
			struct pollfd p = {.fd = stream, .events = POLLOUT};

			if (poll(&p, 1, -1) < 0 && errno != EINTR)
				break;
			output_write(f->out, stream);
		}
	}
}

int front_run(struct options *o)
{
	struct front f = {.o = o, .live = o->size, .fate = {.rank = -1}, .deadline_ns = NEVER};
	int status = 1;

	f.signals = signals_take();
	f.out = output_open(o);
	if (!f.out)
		return 1;
	f.links = must(calloc((size_t)o->host_count, sizeof(*f.links)));
	f.link_of = must(calloc((size_t)o->size, sizeof(*f.link_of)));
	f.ended = must(calloc((size_t)o->size, sizeof(*f.ended)));
	for (int i = 0; i < o->host_count; i++)
		f.links[i].ch.in_fd = f.links[i].ch.out_fd = -1;
	if (o->timeout_s > 0)
		f.deadline_ns = coll_clock_ns() + (uint64_t)(o->timeout_s * 1e9);
	f.hello_ns = coll_clock_ns() + HELLO_NS;
	if (start_choose_meeting(&f) && start_agents(&f)) {
		run(&f);
		status = f.fate.rank >= 0 ? f.fate.status : 0;
	}
	close_links(&f);
	flush_output(&f);
	output_close(f.out);
	free(f.links);
	free(f.link_of);
	free(f.ended);
	close(f.signals);
	return status;
}
