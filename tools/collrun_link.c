/*
 * The process that leads to an agent: the agent itself on this host, a remote shell for another. What a remote shell
 * says, before the agent speaks or on its standard error, is shown. A process whose channel is closed gets time to
 * end, then SIGTERM, then SIGKILL: none is waited for without a limit, and none is left behind. A remote shell has a
 * session of its own, so it cannot ask for a password on our terminal, where nobody would see who asks.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "collrun_front.h"

#define SIGNAL_NS (500 * MS)

enum { LINES_SHOWN = 40, TEXT_MAX = 4096 };

/* ---- Start -------------------------------------------------------------- */

static _Noreturn void become_remote_shell(const struct options *o, const char *host)
{
	char *words[LINK_WORDS_MAX];

	setsid();
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	signals_give_back();
	link_words(o, host, words);
	execvp(words[0], words);
	fprintf(stderr, "cannot run %s: %s\n", words[0], strerror(errno));
	_exit(127);
}

/* The mask of signals goes along: the agent is not to be ended by one before it takes them. */
static _Noreturn void become_agent(void)
{
	setpgid(0, 0); /* keys typed at the terminal are for the front */
	execl("/proc/self/exe", "collrun", "--agent", (char *)NULL);
	fprintf(stderr, "collrun: cannot start its agent: /proc/self/exe: %s (is /proc mounted?)\n", strerror(errno));
	_exit(127);
}

struct three_pipes {
	int to[2], from[2], error[2];
};

static void close_all(struct three_pipes *p)
{
	int *const all = p->to;

	for (size_t i = 0; i < sizeof(*p) / sizeof(int); i++)
		if (all[i] >= 0)
			close(all[i]);
}

bool link_start(const struct front *f, struct link *l, struct host *h)
{
	struct three_pipes p = {{-1, -1}, {-1, -1}, {-1, -1}};
	bool ok;

	l->host = h;
	snprintf(l->name, sizeof(l->name), "%s", h->name);
	ok = pipe2(p.to, O_CLOEXEC) == 0 && pipe2(p.from, O_CLOEXEC) == 0 &&
	     (h->local || pipe2(p.error, O_CLOEXEC) == 0);
	l->pid = ok ? fork() : -1;
	if (l->pid == 0) {
		limit_give_back();
		dup2(p.to[0], 0);
		dup2(p.from[1], 1);
		if (h->local)
			become_agent();
		dup2(p.error[1], 2);
		become_remote_shell(f->o, h->name);
	}
	if (l->pid > 0) {
		l->state = LINK_OPEN;
		channel_open(&l->ch, p.from[0], p.to[1]);
		l->error_fd = p.error[0];
		if (l->error_fd >= 0)
			fcntl(l->error_fd, F_SETFL, O_NONBLOCK);
		p.from[0] = p.to[1] = p.error[0] = -1;
	}
	close_all(&p);
	return l->pid > 0;
}

/* ---- What it says ------------------------------------------------------- */

static void show_line(struct front *f, struct link *l, const char *text, size_t len_bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < len_bytes && n < sizeof(l->last) - 1; i++)
		if (text[i] != '\r')
			l->last[n++] =
			        isprint((unsigned char)text[i]) || (unsigned char)text[i] >= 0x80 ? text[i] : ' ';
	while (n > 0 && l->last[n - 1] == ' ')
		n--;
	l->last[n] = 0;
	if (n > 0 && l->shown++ < LINES_SHOWN)
		output_say(f->out, "host %s: %s", l->host->name, l->last);
}

/* Whole lines are shown and dropped; a last one without an end is, if it cannot grow any more. */
static void show_text(struct front *f, struct link *l, struct buffer *b, bool whole)
{
	const char *end;

	while (buffer_size(b) > 0 && (end = memchr(b->data + b->at, '\n', buffer_size(b)))) {
		const size_t n = (size_t)(end - (b->data + b->at));

		show_line(f, l, b->data + b->at, n);
		buffer_drop(b, n + 1);
	}
	if (buffer_size(b) > 0 && (whole || buffer_size(b) > TEXT_MAX)) {
		show_line(f, l, b->data + b->at, buffer_size(b));
		buffer_drop(b, buffer_size(b));
	}
}

bool link_find_mark(struct front *f, struct link *l)
{
	struct buffer *in = &l->ch.in;
	struct buffer before = {0};
	const char *mark = memmem(in->data + in->at, buffer_size(in), AGENT_MARK, strlen(AGENT_MARK));

	if (l->marked)
		return true;
	if (!mark) {
		show_text(f, l, in, l->ch.ended);
		return false;
	}
	l->marked = true;
	buffer_add(&before, in->data + in->at, (size_t)(mark - (in->data + in->at)));
	buffer_drop(in, buffer_size(&before) + strlen(AGENT_MARK));
	show_text(f, l, &before, true);
	buffer_free(&before);
	return true;
}

void link_read_error(struct front *f, struct link *l)
{
	char chunk[TEXT_MAX];
	const ssize_t n = l->error_fd >= 0 ? read(l->error_fd, chunk, sizeof(chunk)) : 0;

	if (n > 0)
		buffer_add(&l->error, chunk, (size_t)n);
	else if (l->error_fd >= 0 && (n == 0 || (errno != EAGAIN && errno != EINTR))) {
		close(l->error_fd);
		l->error_fd = -1;
	}
	show_text(f, l, &l->error, l->error_fd < 0);
}

/* ---- Its end ------------------------------------------------------------ */

void link_close(struct link *l, uint64_t for_ns, const char *why)
{
	if (l->state != LINK_OPEN)
		return;
	channel_close(&l->ch);
	l->state = LINK_ENDING;
	l->end_ns = coll_clock_ns() + (l->pid > 0 ? for_ns : 0);
	snprintf(l->why, sizeof(l->why), "%s", why);
}

bool link_reap(struct front *f, struct link *l)
{
	int status;

	if (l->pid <= 0)
		return true;
	if (waitpid(l->pid, &status, WNOHANG) != l->pid)
		return false;
	l->pid = 0;
	for (int i = 0; i < LINES_SHOWN && l->error_fd >= 0; i++)
		link_read_error(f, l); /* its last words; what it has left behind may hold the pipe */
	show_text(f, l, &l->error, true);
	if (l->signalled)
		return true;
	if (WIFSIGNALED(status))
		snprintf(l->ended, sizeof(l->ended), "%.40s was killed by signal %d",
		         l->host->local ? "its agent" : f->o->ssh, WTERMSIG(status));
	else if (!l->host->local)
		snprintf(l->ended, sizeof(l->ended), "%.60s ended with status %d", f->o->ssh, WEXITSTATUS(status));
	return true;
}

static void signal_process(struct link *l, int number)
{
	l->signalled = number;
	if (kill(-l->pid, number) < 0)
		kill(l->pid, number);
	kill(-l->pid, SIGCONT); /* one that asks on a terminal has been stopped */
}

void link_advance(struct front *f, struct link *l)
{
	if (l->state != LINK_ENDING)
		return;
	if (link_reap(f, l) || (l->signalled == SIGKILL && coll_clock_ns() >= l->end_ns)) {
		if (l->error_fd >= 0)
			close(l->error_fd);
		l->error_fd = -1;
		buffer_free(&l->error);
		l->state = LINK_GONE;
	} else if (coll_clock_ns() >= l->end_ns) {
		signal_process(l, l->signalled ? SIGKILL : SIGTERM);
		l->end_ns = coll_clock_ns() + SIGNAL_NS;
	}
}

void link_tell_why(const struct front *f, const struct link *l, char *text, size_t len_bytes)
{
	const char *how = *l->ended ? l->ended : l->why;
	const bool quote = *l->last && !l->hello;

	snprintf(text, len_bytes, "lost host %s (%s%s%s%s)", l->host->local ? l->name : l->host->name, how,
	         quote ? "; it said \"" : "", quote ? l->last : "", quote ? "\"" : "");
}
