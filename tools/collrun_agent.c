/*
 * The agent: one per host, one loop over poll(). Says hello, takes the job, starts its ranks, passes their output and
 * their end to the front and the front's input and signals to them. It ends when its ranks have ended, or when its
 * own input ends (collrun is gone, or ssh is): it kills everything below it, and passes on what is left to say.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "collrun_ranks.h"

enum { BACKLOG_MAX = 1 << 20, PIPE_CHUNK = 64 << 10, LAST_WORDS_MAX = 1 << 20, POLLS_OWN = 4, POLLS_RANK = 3 };
enum { CLEAN_MS = 1000, CLEAN_ROUND_MS = 2 };

/* Ranks run; everything below is being killed; the last words are passed on. */
enum agent_stage { SERVING, CLEANING, LEAVING };

struct agent {
	struct channel front;
	int signals;
	bool begun;
	enum agent_stage stage;
	bool lost; /* the front is gone: nothing is passed on */
	uint64_t clean_ends_ns;
	struct job job;
	struct rank *ranks;
	struct buffer input; /* for rank 0 */
	bool input_ended;
	struct pollfd *polls;
};

/* ---- Hello ------------------------------------------------------------- */

static void add_addresses(struct buffer *b)
{
	char text[INET6_ADDRSTRLEN];
	struct ifaddrs *list = NULL;

	if (getifaddrs(&list) < 0)
		return;
	for (struct ifaddrs *i = list; i; i = i->ifa_next) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)i->ifa_addr;

		if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
			continue;
		if (i->ifa_addr->sa_family == AF_INET)
			inet_ntop(AF_INET, &((const struct sockaddr_in *)i->ifa_addr)->sin_addr, text, sizeof(text));
		else if (i->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
			inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(text));
		else
			continue;
		strings_add(b, i->ifa_name);
		strings_add(b, text);
	}
	freeifaddrs(list);
}

/* The address by which ssh reached this host: "client port server port". */
static void add_ssh_address(struct buffer *b)
{
	const char *connection = getenv("SSH_CONNECTION");
	char server[64] = "";

	if (!connection || sscanf(connection, "%*s %*s %63s", server) != 1)
		server[0] = 0;
	strings_add(b, server);
}

static void say_hello(struct agent *a)
{
	struct buffer b = {0};
	char text[256] = "?";

	snprintf(text, sizeof(text), "%d.%d.%d", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
	strings_add(&b, text);
	gethostname(text, sizeof(text) - 1);
	strings_add(&b, text);
	add_ssh_address(&b);
	add_addresses(&b);
	buffer_add(&a->front.out, AGENT_MARK, strlen(AGENT_MARK));
	channel_send(&a->front, FRAME_HELLO, 0, b.data, b.len);
	buffer_free(&b);
}

/* ---- Ranks ------------------------------------------------------------- */

/* Everything below is killed; the loop goes on until that is done. */
static void clean(struct agent *a, bool lost)
{
	a->lost |= lost;
	if (a->stage != SERVING)
		return;
	a->stage = CLEANING;
	a->clean_ends_ns = coll_clock_ns() + (uint64_t)CLEAN_MS * 1000000;
	for (int i = 0; a->begun && i < a->job.count; i++)
		rank_signal(&a->ranks[i], SIGKILL); /* with the processes left of its group */
}

static void not_run(struct agent *a, struct rank *r, const char *why)
{
	r->ended = r->reported = true;
	channel_send(&a->front, FRAME_NOT_RUN, (uint32_t)r->rank, why, strlen(why));
}

static void start_ranks(struct agent *a)
{
	char why[400];

	for (int i = 0; i < a->job.count; i++)
		if (!rank_start(&a->ranks[i], &a->job, why, sizeof(why)))
			not_run(a, &a->ranks[i], why);
}

static void look_at_start(struct agent *a, struct rank *r)
{
	const int32_t pid = r->pid;
	char why[400];

	if (r->trouble < 0)
		return;
	switch (rank_became(r, &a->job, why, sizeof(why))) {
	case RANK_RUNS: channel_send(&a->front, FRAME_STARTED, (uint32_t)r->rank, &pid, sizeof(pid)); break;
	case RANK_NOT: not_run(a, r, why); break;
	case RANK_UNDECIDED: break;
	}
}

static void begin(struct agent *a, const struct frame *f)
{
	char note[256];

	if (a->begun || !job_read(&a->job, f)) {
		channel_send(&a->front, FRAME_NOTE, 0, "an invalid job description", 26);
		a->job.count = 0;
		clean(a, true);
		return;
	}
	if (*a->job.cwd && chdir(a->job.cwd) < 0) {
		snprintf(note, sizeof(note), "cannot enter %.150s: %s; the ranks start in %.60s", a->job.cwd,
		         strerror(errno), getenv("HOME") ? getenv("HOME") : "another directory");
		channel_send(&a->front, FRAME_NOTE, 0, note, strlen(note));
	}
	a->ranks = must(calloc((size_t)a->job.count + 1, sizeof(*a->ranks)));
	a->polls = must(calloc((size_t)(POLLS_RANK * a->job.count + POLLS_OWN), sizeof(*a->polls)));
	for (int i = 0; i < a->job.count; i++)
		a->ranks[i] = (struct rank){
		        .rank = a->job.ranks[i], .local_rank = i, .trouble = -1, .out = {-1, -1}, .stdin_fd = -1};
	a->begun = true;
	start_ranks(a);
}

/* One read of a rank's output; false when there is nothing (more). */
static bool pass_output(struct agent *a, struct rank *r, int stream, size_t *passed)
{
	static char chunk[PIPE_CHUNK];
	ssize_t n;

	if (r->out[stream] < 0)
		return false;
	n = read(r->out[stream], chunk, sizeof(chunk));
	if (n > 0) {
		channel_send(&a->front, stream ? FRAME_ERR : FRAME_OUT, (uint32_t)r->rank, chunk, (size_t)n);
		*passed += (size_t)n;
		return true;
	}
	if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		close(r->out[stream]);
		r->out[stream] = -1;
	}
	return false;
}

/* What the rank wrote before it ended is in its pipes; what others that it left
 * behind write comes later, or never. */
static void report_end(struct agent *a, struct rank *r)
{
	const int32_t status = r->status;

	for (int stream = 0; stream < 2; stream++) {
		size_t passed = 0;

		while (passed < LAST_WORDS_MAX && pass_output(a, r, stream, &passed))
			;
	}
	r->reported = true;
	channel_send(&a->front, FRAME_EXIT, (uint32_t)r->rank, &status, sizeof(status));
}

static void look_at_ranks(struct agent *a)
{
	for (int i = 0; a->begun && i < a->job.count; i++) {
		rank_look(&a->ranks[i]);
		look_at_start(a, &a->ranks[i]);
		if (a->ranks[i].ended && !a->ranks[i].reported)
			report_end(a, &a->ranks[i]);
	}
}

static bool all_ended(const struct agent *a)
{
	for (int i = 0; i < a->job.count; i++)
		if (!a->ranks[i].reported)
			return false;
	return a->begun;
}

static struct rank *rank_zero(struct agent *a)
{
	return a->begun && a->job.count > 0 && a->ranks[0].rank == 0 ? &a->ranks[0] : NULL;
}

static void feed(struct agent *a)
{
	struct rank *r = rank_zero(a);
	uint32_t taken = 0;

	while (r && r->stdin_fd >= 0 && buffer_size(&a->input) > 0) {
		ssize_t n = write(r->stdin_fd, a->input.data + a->input.at, buffer_size(&a->input));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0) { /* it reads no more */
			close(r->stdin_fd);
			r->stdin_fd = -1;
			break;
		}
		buffer_drop(&a->input, (size_t)n);
		taken += (uint32_t)n;
	}
	if (!r || r->stdin_fd < 0) {
		taken += (uint32_t)buffer_size(&a->input);
		buffer_drop(&a->input, buffer_size(&a->input));
	} else if (a->input_ended && buffer_size(&a->input) == 0) {
		close(r->stdin_fd);
		r->stdin_fd = -1;
	}
	if (taken > 0)
		channel_send(&a->front, FRAME_STDIN_OK, 0, &taken, sizeof(taken));
}

/* ---- The loop ---------------------------------------------------------- */

static void signal_ranks(struct agent *a, int number)
{
	for (int i = 0; a->begun && i < a->job.count; i++)
		if (!a->ranks[i].ended)
			rank_signal(&a->ranks[i], number);
}

static void from_front(struct agent *a)
{
	struct frame f;
	uint32_t number;

	channel_read(&a->front);
	while (channel_next(&a->front, &f)) {
		if (f.type == FRAME_JOB) {
			begin(a, &f);
		} else if (f.type == FRAME_STDIN && f.len_bytes == 0) {
			a->input_ended = true;
		} else if (f.type == FRAME_STDIN) {
			buffer_add(&a->input, f.body, f.len_bytes);
		} else if (f.type == FRAME_SIGNAL && f.len_bytes == sizeof(number)) {
			memcpy(&number, f.body, sizeof(number));
			signal_ranks(a, (int)number);
		}
	}
	feed(a);
}

/* A signal for the agent itself means this host's part of the job. */
static void from_signals(struct agent *a)
{
	struct signalfd_siginfo s;

	while (read(a->signals, &s, sizeof(s)) == (ssize_t)sizeof(s)) {
		if (signal_is_handed_on((int)s.ssi_signo))
			signal_ranks(a, (int)s.ssi_signo);
		else if (s.ssi_signo != SIGCHLD)
			clean(a, true);
	}
	if (a->begun)
		reap_orphans(a->ranks, a->job.count);
}

static int make_polls(struct agent *a, struct pollfd *p)
{
	const bool full = buffer_size(&a->front.out) > BACKLOG_MAX, serving = a->stage == SERVING && a->begun;
	struct rank *zero = rank_zero(a);
	int n = 0;

	p[n++] = (struct pollfd){.fd = a->signals, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = a->front.ended ? -1 : a->front.in_fd, .events = POLLIN};
	p[n++] = (struct pollfd){.fd = buffer_size(&a->front.out) ? a->front.out_fd : -1, .events = POLLOUT};
	p[n++] = (struct pollfd){.fd = zero && buffer_size(&a->input) ? zero->stdin_fd : -1, .events = POLLOUT};
	for (int i = 0; serving && i < a->job.count; i++) {
		for (int stream = 0; stream < 2; stream++)
			p[n++] = (struct pollfd){.fd = full ? -1 : a->ranks[i].out[stream], .events = POLLIN};
		p[n++] = (struct pollfd){.fd = a->ranks[i].trouble, .events = POLLIN};
	}
	return n;
}

static void turn(struct agent *a)
{
	struct pollfd few[POLLS_OWN], *p = a->begun ? a->polls : few;
	const int n = make_polls(a, p);

	if (poll(p, (nfds_t)n, a->stage == CLEANING ? CLEAN_ROUND_MS : -1) < 0 && errno != EINTR)
		clean(a, true);
	if (p[0].revents)
		from_signals(a);
	if (p[2].revents)
		channel_write(&a->front);
	if (p[3].revents)
		feed(a);
	for (int i = POLLS_OWN; i < n; i++) {
		const int rank = (i - POLLS_OWN) / POLLS_RANK, stream = (i - POLLS_OWN) % POLLS_RANK;
		size_t passed = 0;

		if (p[i].revents && stream < 2)
			pass_output(a, &a->ranks[rank], stream, &passed);
	}
	if (p[1].revents)
		from_front(a);
	if (a->stage == SERVING)
		look_at_ranks(a);
}

/* What a process that was killed has written is in the pipes still. */
static void last_words(struct agent *a)
{
	for (int i = 0; i < a->job.count; i++) {
		size_t passed = 0;

		for (int stream = 0; stream < 2; stream++)
			while (pass_output(a, &a->ranks[i], stream, &passed))
				;
	}
}

void agent_run(int in_fd, int out_fd)
{
	struct agent a = {0};

	setpgid(0, 0); /* keys typed at the terminal are for the front */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	a.signals = signals_take();
	channel_open(&a.front, in_fd, out_fd);
	say_hello(&a);
	while (a.stage != LEAVING || buffer_size(&a.front.out) > 0) {
		turn(&a);
		if (a.front.ended)
			clean(&a, true);
		if (a.stage == SERVING && all_ended(&a))
			clean(&a, false);
		if (a.stage == CLEANING && (kill_descendants() || coll_clock_ns() >= a.clean_ends_ns)) {
			a.stage = LEAVING;
			if (!a.lost)
				last_words(&a);
		}
		if (a.stage == LEAVING && (a.lost || a.front.ended))
			_exit(1);
	}
	_exit(0);
}
