/*
 * The front: the collrun that the user started, one loop over poll(). One agent per host; their ranks' output; our
 * input for rank 0; signals. Nothing waits outside the loop, and everything in it that may take long has a deadline,
 * so a signal and --timeout end the job in whatever state it is.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sysexits.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "collrun_cause.h"
#include "collrun_front.h"

#define HELLO_NS (60000 * MS)
#define LEAVE_NS (1000 * MS) /* for a process to end behind its channel */

enum { OUTPUT_MAX = 4 << 20, INPUT_AHEAD = 64 << 10, POLLS_OWN = 5, POLLS_LINK = 3 };

/* ---- What agents say --------------------------------------------------- */

static void lose(struct front *f, struct link *l, const char *why)
{
	link_close(l, LEAVE_NS, why);
	fate_host_lost(f, l);
}

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
		lose(f, l, why);
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

static bool output_full(const struct front *f)
{
	return output_size(f->out) > OUTPUT_MAX;
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
	else if ((fr->type == FRAME_OUT || fr->type == FRAME_ERR) && !(f->outside && output_full(f)))
		output_add(f->out, rank, fr->type == FRAME_OUT ? 1 : 2, fr->body, fr->len_bytes);
	else if (fr->type == FRAME_EXIT)
		fate_rank_exited(f, rank, number);
	else if (fr->type == FRAME_NOT_RUN)
		fate_rank_not_run(f, rank, fr->body, (int)fr->len_bytes);
	else if (fr->type == FRAME_STARTED && f->o->verbose)
		output_say(f->out, "rank %d on host %s: process %d", rank, l->name, (int)number);
}

static void serve_link(struct front *f, struct link *l)
{
	struct frame fr;

	if (l->state != LINK_OPEN)
		return;
	channel_read(&l->ch);
	if (link_find_mark(f, l))
		while (l->state == LINK_OPEN && channel_next(&l->ch, &fr))
			serve_frame(f, l, &fr);
	if (l->ch.ended && l->state == LINK_OPEN) {
		link_reap(f, l);
		lose(f, l, l->hello ? "its agent is gone" : "it closed its output and said nothing of an agent");
	}
}

/* What has ended may have left others behind that hold its pipes. */
static void look_at_processes(struct front *f)
{
	for (int i = 0; i < f->o->host_count; i++) {
		struct link *l = &f->links[i];

		if (l->state == LINK_OPEN && link_reap(f, l)) {
			while (l->state == LINK_OPEN && !l->ch.ended && channel_readable(&l->ch))
				serve_link(f, l);
			if (l->state == LINK_OPEN)
				lose(f, l, "its agent is gone");
		}
	}
}

/* ---- Input and signals ------------------------------------------------- */

static struct link *input_link(struct front *f)
{
	struct link *l = &f->links[f->link_of[0]];

	return l->sent && l->state == LINK_OPEN && !f->ended[0] ? l : NULL;
}

/* A terminal is read only by its foreground; otherwise the kernel would stop us. */
static bool may_read_input(struct front *f)
{
	if (f->input < 0 || f->input_ended || f->input_ahead >= INPUT_AHEAD || !input_link(f))
		return false;
	return !isatty(f->input) || tcgetpgrp(f->input) == getpgrp();
}

static void pass_input(struct front *f)
{
	struct link *l = input_link(f);
	static char chunk[16 << 10];
	ssize_t n;

	if (!l)
		return;
	n = stream_read(f->input, chunk, sizeof(chunk));
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	f->input_ended = n <= 0;
	if (n > 0) {
		f->input_ahead += (size_t)n;
		channel_send(&l->ch, FRAME_STDIN, 0, chunk, (size_t)n);
	}
}

static void close_input(struct front *f)
{
	struct link *l = input_link(f);

	if (!l || f->input_closed || (f->input >= 0 && !f->input_ended))
		return;
	f->input_closed = true;
	channel_send(&l->ch, FRAME_STDIN, 0, "", 0);
}

/* As the terminal asked. The time until SIGCONT counts for --timeout alone. */
static void stop_here(struct front *f)
{
	uint64_t *const times[] = {&f->hello_ns, &f->stage_ends_ns, &f->lookup.until_ns, &f->drain_ns, &f->fate.at_ns};
	const uint64_t since = coll_clock_ns();
	uint64_t stood;

	raise(SIGSTOP);
	stood = coll_clock_ns() - since;
	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		if (*times[i] != NEVER)
			*times[i] += stood;
	for (int i = 0; i < f->o->host_count; i++)
		f->links[i].end_ns += stood;
}

static void serve_signals(struct front *f)
{
	struct signalfd_siginfo s;

	while (read(f->signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		const int number = (int)s.ssi_signo;

		if (number == SIGCHLD) {
			look_at_processes(f);
			start_reap_lookup(f);
		} else if (signal_is_handed_on(number)) {
			fate_signal_ranks(f, number);
			if (number == SIGTSTP && s.ssi_code == SI_KERNEL)
				stop_here(f);
		} else {
			fate_signalled(f, number);
		}
	}
}

/* ---- The loop ---------------------------------------------------------- */

static int wait_ms(struct front *f)
{
	const uint64_t now = coll_clock_ns();
	uint64_t until = fate_next_ns(f);

	until = f->hello_ns < until ? f->hello_ns : until;
	until = f->lookup.until_ns < until ? f->lookup.until_ns : until;
	until = f->drain_ns < until && f->draining ? f->drain_ns : until;
	for (int i = 0; i < f->o->host_count; i++)
		if (f->links[i].state == LINK_ENDING && f->links[i].end_ns < until)
			until = f->links[i].end_ns;
	if (until == NEVER)
		return f->input >= 0 && isatty(f->input) ? 1000 : -1; /* we may become the foreground */
	return until <= now ? 0 : until - now > 3600000 * MS ? 3600000 : (int)((until - now) / MS + 1);
}

static void check_hellos(struct front *f)
{
	bool all = true;

	for (int i = 0; i < f->o->host_count; i++) {
		struct link *l = &f->links[i];

		if (l->hello || l->state != LINK_OPEN)
			continue;
		all = false;
		if (coll_clock_ns() >= f->hello_ns)
			lose(f, l, "no answer within 60 s");
	}
	if (all)
		f->hello_ns = NEVER;
}

static int make_polls(struct front *f, struct pollfd *p)
{
	const bool full = output_full(f) && !f->outside;
	int n = 0;

	p[n++] = (struct pollfd){.fd = f->signals, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = may_read_input(f) ? f->input : -1, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = f->lookup.fd, .events = POLLIN};
	for (int stream = 1; stream <= 2; stream++)
		p[n++] = (struct pollfd){.fd = output_fd(f->out, stream), .events = POLLOUT};
	for (int i = 0; i < f->o->host_count; i++) {
		struct channel *c = &f->links[i].ch;

		p[n++] = (struct pollfd){.fd = full ? -1 : c->in_fd, .events = POLLIN};
		p[n++] = (struct pollfd){.fd = buffer_size(&c->out) ? c->out_fd : -1, .events = POLLOUT};
		p[n++] = (struct pollfd){.fd = f->links[i].error_fd, .events = POLLIN};
	}
	return n;
}

static void turn(struct front *f)
{
	struct pollfd *p = f->polls;

	if (poll(p, (nfds_t)make_polls(f, p), wait_ms(f)) < 0)
		return;
	if (p[0].revents)
		serve_signals(f);
	if (p[1].revents)
		pass_input(f);
	close_input(f);
	if (f->lookup.fd >= 0 && (p[2].revents || coll_clock_ns() >= f->lookup.until_ns))
		start_looked_up(f);
	for (int i = 0; i < f->o->host_count; i++) {
		const struct pollfd *own = p + POLLS_OWN + POLLS_LINK * i;
		struct link *l = &f->links[i];

		if (own[2].revents && l->error_fd >= 0)
			link_read_error(f, l);
		if (own[0].revents)
			serve_link(f, l);
		if (own[1].revents)
			channel_write(&l->ch);
		link_advance(f, l);
	}
	for (int stream = 1; stream <= 2; stream++)
		if (p[2 + stream].revents)
			output_write(f->out, stream);
}

static bool links_left(const struct front *f)
{
	for (int i = 0; i < f->o->host_count; i++)
		if (f->links[i].state != LINK_GONE)
			return true;
	return false;
}

/* After the last rank the agents clean up and hang up; that is waited for. */
static void run(struct front *f)
{
	while (links_left(f)) {
		if (f->live == 0 && f->stage < KILLED) {
			f->stage = KILLED;
			f->stage_ends_ns = coll_clock_ns() + 3 * LEAVE_NS;
		}
		if (f->stage == KILLED && output_full(f) && !f->outside) /* its last words wait for a reader */
			f->stage_ends_ns = coll_clock_ns() + 3 * LEAVE_NS;
		turn(f);
		start_send_jobs(f);
		check_hellos(f);
		fate_advance(f);
		if (output_broken(f->out))
			fate_unread(f);
		for (int i = 0; i < f->o->host_count && f->stage == GIVEN_UP; i++)
			if (f->links[i].state == LINK_OPEN)
				lose(f, &f->links[i], "it does not answer");
	}
	start_forget_lookup(f);
}

/* Write what is left, as long as it takes if nobody ends us. */
static void drain(struct front *f)
{
	if (f->outside && f->drain_ns > coll_clock_ns())
		f->drain_ns = coll_clock_ns() + 2 * LEAVE_NS;
	f->draining = true;
	while ((output_waiting(f->out, 1) || output_waiting(f->out, 2)) && coll_clock_ns() < f->drain_ns) {
		turn(f);
		fate_advance(f);
	}
}

static void front_free(struct front *f)
{
	output_close(f->out);
	stream_close(f->input);
	free(f->links);
	free(f->link_of);
	free(f->ended);
	free(f->polls);
	close(f->signals);
}

/* Nothing of a job that was before is left but its output. */
static void begin(struct front *f)
{
	const struct options *o = f->o;

	for (int i = 0; i < o->host_count; i++)
		f->links[i] = (struct link){.state = LINK_GONE, .error_fd = -1, .ch = {.in_fd = -1, .out_fd = -1}};
	memset(f->ended, 0, (size_t)o->size * sizeof(*f->ended));
	f->to_start_again = 0;
	f->live = o->size;
	f->fate = (struct fate){.rank = -1};
	cause_clear(output_cause(f->out));
	f->stage = RUNNING;
	f->stage_ends_ns = NEVER;
	f->hello_ns = coll_clock_ns() + HELLO_NS;
	f->root_known = f->input_closed = false;
	f->input_ahead = 0;
}

/* A program that aborted may say what the job ends with, whatever the ranks end with. Ranks that were asked to end, and
 * have saved what they did, say so together. */
static int status_of(const struct front *f)
{
	const int aborted = output_cause(f->out)->exit_status;

	if (aborted && !f->outside)
		return aborted;
	if (f->outside && f->to_start_again == f->o->size)
		return EX_TEMPFAIL;
	return f->fate.rank >= 0 ? f->fate.status : 0;
}

static int run_job(struct front *f)
{
	begin(f);
	if (start_choose_meeting(f))
		start_agents(f);
	run(f);
	return status_of(f);
}

/* From run to run the key, the processes and the meeting are new. */
static int run_jobs(struct front *f)
{
	for (;; f->restarted++) {
		const int status = run_job(f);

		if (status == 0 || f->outside || f->restarted >= f->o->restarts)
			return status;
		fate_last_line(f);
		output_say(f->out, "starting the job anew (%d of %d)", f->restarted + 1, f->o->restarts);
	}
}

int front_run(struct options *o)
{
	struct front f = {.o = o, .deadline_ns = NEVER, .drain_ns = NEVER, .lookup = {.fd = -1, .until_ns = NEVER}};
	const int polls = o->host_count * POLLS_LINK + POLLS_OWN;
	int status = 1;

	limit_raise();
	if (sysconf(_SC_OPEN_MAX) < polls) { /* poll() would refuse them */
		fprintf(stderr, "collrun: %d hosts need more open files than the limit of %ld (ulimit -Hn)\n",
		        o->host_count, sysconf(_SC_OPEN_MAX));
		return 1;
	}
	f.signals = signals_take();
	f.out = output_open(o);
	if (!f.out)
		return 1;
	f.input = o->input ? stream_open(0) : -1;
	f.links = must(calloc((size_t)o->host_count, sizeof(*f.links)));
	f.link_of = must(calloc((size_t)o->size, sizeof(*f.link_of)));
	f.ended = must(calloc((size_t)o->size, sizeof(*f.ended)));
	f.polls = must(calloc((size_t)polls, sizeof(*f.polls)));
	if (o->timeout_s > 0)
		f.deadline_ns = coll_clock_ns() + (uint64_t)(o->timeout_s * 1e9);
	status = run_jobs(&f);
	drain(&f);
	status = status_of(&f); /* it may have been ended while it was drained */
	fate_last_line(&f);
	drain(&f);
	if (status == 0 && !output_written(f.out))
		status = 1;
	front_free(&f);
	return status;
}
