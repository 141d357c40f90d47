/*
 * The client side of PMI-1, the text protocol of MPICH's launcher: lines of
 * "cmd=name key=value ..." over the descriptor PMI_FD. Carries one text from
 * rank 0 to all: put in pieces, barrier, get. Written from what mpirun (MPICH
 * 4.0) answers. The conversation is closed by finalize: without it the launcher
 * takes a process's end for a failure.
 */
#include "bootstrap/pmi.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/interrupt.h"
#include "bootstrap/id.h"

enum { LINE_BYTES = 2048 };

struct pmi {
	int fd;
	uint64_t deadline_ns;
	struct coll_error_box *err;
	char line[LINE_BYTES]; /* the last answer */
	char name[300];        /* of the key-value space */
	size_t value_max;
};

static int wait_ms(const struct pmi *p)
{
	const uint64_t now = coll_clock_ns();

	return now >= p->deadline_ns ? 0 : (int)((p->deadline_ns - now) / 1000000 + 1);
}

/* As poll(): 0 is the deadline, or the end by the program's hook. */
static int wait_for(const struct pmi *p, short events)
{
	for (;;) {
		struct pollfd poll_fd = {.fd = p->fd, .events = events};
		const int ms = wait_ms(p), turn_ms = coll_interrupt_limit_ms(ms);
		const int ready = poll(&poll_fd, 1, turn_ms);

		if (ready > 0 || (ready < 0 && errno != EINTR) || (ready == 0 && turn_ms == ms))
			return ready;
		if (coll_interrupt_here(ready < 0))
			return 0;
	}
}

static coll_status broken(struct pmi *p, const char *during, const char *why)
{
	return coll_error_set(p->err, COLL_ERR_BOOTSTRAP, "PMI over PMI_FD=%d: %.60s: %s", p->fd, during, why);
}

/* One byte at a time: what follows the line may belong to others (MPI in the same
 * process reads the same descriptor later). */
static coll_status read_line(struct pmi *p, const char *during)
{
	size_t n = 0;

	while (n + 1 < sizeof(p->line)) {
		int ready = wait_for(p, POLLIN);
		ssize_t got;

		if (ready == 0)
			return broken(p, during, "no answer: some ranks did not reach the barrier");
		got = ready < 0 ? -1 : read(p->fd, p->line + n, 1);
		if (got == 0)
			return broken(p, during, "the launcher closed the connection");
		if (got < 0 && errno != EINTR && errno != EAGAIN)
			return broken(p, during, strerror(errno));
		if (got == 1 && p->line[n++] == '\n') {
			p->line[n - 1] = 0;
			return COLL_OK;
		}
	}
	return broken(p, during, "the line is too long");
}

static coll_status write_line(struct pmi *p, const char *text)
{
	size_t left = strlen(text);

	while (left > 0) {
		int ready = wait_for(p, POLLOUT);
		ssize_t n;

		if (ready == 0)
			return broken(p, text, "the launcher does not read from its socket");
		n = send(p->fd, text, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == ENOTSOCK)
			n = write(p->fd, text, left);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return broken(p, text, strerror(errno));
		if (n > 0)
			text += n, left -= (size_t)n;
	}
	return COLL_OK;
}

/* The value of key in the last answer; false when it has none. */
static bool value_of(const struct pmi *p, const char *key, char *buf, size_t len_bytes)
{
	const size_t k = strlen(key);

	for (const char *at = p->line; *at;) {
		const size_t n = strcspn(at, " ");

		if (n > k && memcmp(at, key, k) == 0 && at[k] == '=') {
			snprintf(buf, len_bytes, "%.*s", (int)(n - k - 1), at + k + 1);
			return true;
		}
		at += n + (at[n] == ' ');
	}
	return false;
}

/* Ask, and insist on an answer of the expected kind with rc=0 (or none). */
static coll_status ask(struct pmi *p, const char *question, const char *expect)
{
	coll_status st = write_line(p, question);
	char cmd[64], rc[32];

	if (st == COLL_OK)
		st = read_line(p, question);
	if (st != COLL_OK)
		return st;
	if (!value_of(p, "cmd", cmd, sizeof(cmd)) || strcmp(cmd, expect) != 0)
		return broken(p, question, p->line);
	if (value_of(p, "rc", rc, sizeof(rc)) && strcmp(rc, "0") != 0)
		return broken(p, question, p->line);
	return COLL_OK;
}

static coll_status begin(struct pmi *p)
{
	char text[32];
	coll_status st = ask(p, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init");

	if (st == COLL_OK)
		st = ask(p, "cmd=get_maxes\n", "maxes");
	if (st != COLL_OK)
		return st;
	p->value_max = value_of(p, "vallen_max", text, sizeof(text)) ? (size_t)strtoul(text, NULL, 10) : 0;
	if (p->value_max < 2)
		return broken(p, "get_maxes", p->line);
	if (p->value_max > LINE_BYTES / 2)
		p->value_max = LINE_BYTES / 2;
	p->value_max--; /* some count the end of the string */
	st = ask(p, "cmd=get_my_kvsname\n", "my_kvsname");
	if (st == COLL_OK && !value_of(p, "kvsname", p->name, sizeof(p->name)))
		st = broken(p, "get_my_kvsname", p->line);
	return st;
}

static coll_status put_pieces(struct pmi *p, const char *text)
{
	coll_status st = COLL_OK;
	char line[LINE_BYTES];

	for (int i = 0; st == COLL_OK && *text; i++) {
		const size_t n = strnlen(text, p->value_max);

		snprintf(line, sizeof(line), "cmd=put kvsname=%s key=coll-root-%d value=%.*s\n", p->name, i, (int)n,
		         text);
		st = ask(p, line, "put_result");
		text += n;
	}
	return st;
}

/* The length is known beforehand (cap - 1), so the pieces are counted alike. */
static coll_status get_pieces(struct pmi *p, char *text, size_t cap)
{
	coll_status st = COLL_OK;
	char line[LINE_BYTES];
	size_t at = 0;

	for (int i = 0; st == COLL_OK && at + 1 < cap; i++) {
		snprintf(line, sizeof(line), "cmd=get kvsname=%s key=coll-root-%d\n", p->name, i);
		st = ask(p, line, "get_result");
		if (st == COLL_OK && !value_of(p, "value", text + at, cap - at))
			st = broken(p, line, p->line);
		if (st == COLL_OK && text[at] == 0)
			st = broken(p, line, "an empty value");
		at += st == COLL_OK ? strlen(text + at) : 0;
	}
	return st;
}

coll_status coll_pmi_share(bool root, char *text, size_t cap, uint64_t deadline_ns, struct coll_error_box *err)
{
	const char *fd = getenv("PMI_FD");
	struct pmi p = {.fd = fd ? atoi(fd) : -1, .deadline_ns = deadline_ns, .err = err};
	coll_status st;

	if (p.fd < 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "PMI_FD is not set: set COLL_ROOT=host:port");
	st = begin(&p);
	if (st == COLL_OK && root)
		st = put_pieces(&p, text);
	if (st == COLL_OK)
		st = ask(&p, "cmd=barrier_in\n", "barrier_out");
	if (st == COLL_OK && !root)
		st = get_pieces(&p, text, cap);
	if (st == COLL_OK)
		st = ask(&p, "cmd=finalize\n", "finalize_ack");
	return st;
}
