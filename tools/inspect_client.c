/*
 * Queries: see inspect_client.h. Everything is bounded: a process that is stopped does not answer,
 * which is reported and not waited for.
 */
#include "inspect_client.h"

#include <dirent.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum { ANSWER_MS = 2000, JOB_MS = 5000, ANSWER_BYTES_MAX = 64 << 20 };

/* ---- Families ---- */

static int parent_of(int pid)
{
	char path[64], text[512], *p;
	int parent = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return -1;
	/* The name in parentheses may hold anything: what follows the last one counts. */
	text[fread(text, 1, sizeof(text) - 1, f)] = 0;
	p = strrchr(text, ')');
	if (!p || sscanf(p + 1, " %*c %d", &parent) != 1)
		parent = -1;
	fclose(f);
	return parent;
}

static bool holds(const int *pids, int n, int pid)
{
	for (int i = 0; i < n; i++)
		if (pids[i] == pid)
			return true;
	return false;
}

/* The process and its descendants, as far as they are seen in one look each. */
static int family(int pid, int *pids)
{
	int n = 0, before;

	pids[n++] = pid;
	do {
		DIR *proc = opendir("/proc");
		const struct dirent *e;

		before = n;
		while (proc && (e = readdir(proc))) {
			const int candidate = atoi(e->d_name);

			if (candidate > 0 && n < DOOR_FAMILY_MAX && !holds(pids, n, candidate) &&
			    holds(pids, n, parent_of(candidate)))
				pids[n++] = candidate;
		}
		if (proc)
			closedir(proc);
	} while (n > before);
	return n;
}

/* ---- Listeners ---- */

/* Any process can bind an abstract name: check that the listener is the process named. */
static bool is_listener(int fd, int pid)
{
	struct ucred who;
	socklen_t len = sizeof(who);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid == pid;
}

/* Send the request and read to the end; false: no whole answer in time. */
static bool ask(const char *name, int pid, const char *request, struct dump_list *list, int ms)
{
	const uint64_t deadline = coll_clock_ns() + (uint64_t)ms * 1000000;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const size_t len = strlen(name);
	const struct timeval limit = {.tv_sec = ANSWER_MS / 1000};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t used = 0, cap = 1 << 18, before = list->n;
	char *text = malloc(cap), line[16], why[128];
	bool ended = false;

	memcpy(a.sun_path + 1, name, len);
	/* Other clients may connect too: also wait for a place in the backlog. */
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (fd >= 0 && text &&
	    connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) == 0 &&
	    is_listener(fd, pid)) {
		const int n = snprintf(line, sizeof(line), "%s\n", request);

		ended = send(fd, line, (size_t)n, MSG_NOSIGNAL) != n;
	} else {
		ended = true;
	}
	while (!ended && coll_clock_ns() < deadline) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		ssize_t got;

		if (poll(&p, 1, 100) <= 0)
			continue;
		got = recv(fd, text + used, cap - used, MSG_DONTWAIT);
		ended = got <= 0;
		used += got > 0 ? (size_t)got : 0;
		if (used == cap) {
			char *more = cap < ANSWER_BYTES_MAX ? realloc(text, cap *= 2) : NULL;

			if (!more)
				break;
			text = more;
		}
	}
	if (fd >= 0)
		close(fd);
	ended = used > 0 && dump_parse(text, used, list, why, sizeof(why));
	for (; before < list->n; before++)
		snprintf(list->dumps[before].name, sizeof(list->dumps[0].name), "%s", name);
	free(text);
	return ended;
}

/* Next listener of the table; false: none left. An accepted connection has the
 * same name, but does not listen (flags 00010000). */
static bool next_door(FILE *f, char *name, size_t len_bytes, int *pid, int *rank)
{
	char line[512], end;
	int k;

	while (fgets(line, sizeof(line), f)) {
		char *at = strstr(line, " @libcoll.");

		if (!at || !strstr(line, " 00010000 ") ||
		    sscanf(at, " @libcoll.%d.%d.%d%c", pid, &k, rank, &end) != 4 || end != '\n')
			continue;
		at[strcspn(at, "\n")] = 0;
		snprintf(name, len_bytes, "%s", at + 2);
		return true;
	}
	return false;
}

static bool same_job(const struct dump_list *list, size_t n, uint64_t job)
{
	for (size_t i = 0; i < n; i++)
		if (list->dumps[i].job == job)
			return true;
	return false;
}

static bool knows(const struct dump *d, int pid)
{
	for (size_t i = 0; i < d->npeers; i++)
		if (d->peers[i].pid == pid)
			return true;
	return false;
}

/* The other ranks of the same jobs on this host, whichever process started them. If rank pid
 * itself does not answer, ranks that list it as a peer belong to its job. */
static int ask_others(int pid, const int *pids, int n, const char *request, struct dump_list *list)
{
	const bool orphan = list->n == 0;
	struct dump_list others = {0};
	FILE *f = fopen("/proc/net/unix", "re");
	char name[64];
	int of, rank, answered = 0;
	bool more = true;

	while (f && next_door(f, name, sizeof(name), &of, &rank))
		if (!holds(pids, n, of))
			ask(name, of, request, &others, ANSWER_MS);
	if (f)
		fclose(f);
	while (more) {
		more = false;
		for (size_t i = 0; i < others.n; i++) {
			struct dump_list one = {.dumps = &others.dumps[i], .n = 1};

			if (!(orphan && knows(one.dumps, pid)) && !same_job(list, list->n, one.dumps->job))
				continue;
			if (!dump_list_append(list, &one))
				break;
			others.dumps[i--] = others.dumps[--others.n];
			answered++;
			more = true;
		}
	}
	dump_list_free(&others);
	return answered;
}

/* Field of /proc/PID/status, the first word of it; "": gone. */
static void status_word(int pid, const char *field, char *word, size_t len_bytes)
{
	char path[64], line[256];
	const size_t n = strlen(field);
	FILE *f;

	*word = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, field, n) == 0) {
			char *p = line + n + strspn(line + n, " \t");

			p[strcspn(p, " \t\n")] = 0;
			snprintf(word, len_bytes, "%s", p);
			break;
		}
	if (f)
		fclose(f);
}

static void fall_silent(struct door_silent *silent, int pid, int rank)
{
	char state[16], user[32], *why = silent->who[silent->n].why;
	const size_t cap = sizeof(silent->who[0].why);

	status_word(pid, "State:", state, sizeof(state));
	status_word(pid, "Uid:", user, sizeof(user));
	silent->who[silent->n].process = rank;
	silent->who[silent->n++].pid = pid;
	if (state[0] == 'T' || state[0] == 't')
		snprintf(why, cap, "is stopped, by a signal (kill -CONT %d continues it) or by a debugger", pid);
	else if (geteuid() != 0 && user[0] && (uid_t)strtoul(user, NULL, 10) != geteuid())
		snprintf(why, cap, "belongs to user %s and answers only that user and root", user);
	else if (!state[0] || state[0] == 'Z' || state[0] == 'X')
		snprintf(why, cap, "has just ended");
	else
		snprintf(why, cap, "does not answer: it gets no processor time, or it is not a rank");
}

int door_ask_family(int pid, const char *request, struct dump_list *list, struct door_silent *silent)
{
	int *pids = malloc(DOOR_FAMILY_MAX * sizeof(*pids));
	const int n = pids ? family(pid, pids) : 0;
	FILE *f = fopen("/proc/net/unix", "re");
	bool is_rank = false;
	char name[64];
	int answered = 0, of, rank;

	silent->n = 0;
	while (f && next_door(f, name, sizeof(name), &of, &rank)) {
		if (!holds(pids, n, of))
			continue;
		is_rank |= of == pid;
		if (ask(name, of, request, list, ANSWER_MS))
			answered++;
		else if (silent->n < DOOR_SILENT_MAX)
			fall_silent(silent, of, rank);
	}
	if (f)
		fclose(f);
	if (is_rank)
		answered += ask_others(pid, pids, n, request, list);
	free(pids);
	return answered;
}

static struct dump *dump_of(struct dump_list *list, uint64_t job, int process)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->dumps[i].job == job && list->dumps[i].process == process)
			return &list->dumps[i];
	return NULL;
}

/* The new dump of the one that was asked has what it has heard since. */
static void take_in(struct dump_list *list, struct dump_list *told)
{
	for (size_t i = 0; i < told->n; i++) {
		struct dump *known = dump_of(list, told->dumps[i].job, told->dumps[i].process), had;
		struct dump_list one = {.dumps = &told->dumps[i], .n = 1};

		if (!known && dump_list_append(list, &one))
			told->dumps[i--] = told->dumps[--told->n];
		else if (known && !told->dumps[i].heard) {
			had = *known;
			*known = told->dumps[i];
			told->dumps[i] = had;
		}
	}
	dump_list_free(told);
}

void door_ask_job(struct dump_list *list)
{
	const size_t n = list->n;

	for (size_t i = 0; i < n; i++) {
		const struct dump d = list->dumps[i];
		struct dump_list told = {0};
		size_t of_job = 0;

		for (size_t k = 0; k < list->n; k++)
			of_job += list->dumps[k].job == d.job;
		if (of_job < (size_t)d.processes && !same_job(list, i, d.job) &&
		    ask(d.name, d.pid, "job", &told, JOB_MS))
			take_in(list, &told);
	}
}

bool door_ask_slow(const struct dump_list *list, struct dump_list *told)
{
	for (size_t i = 0; i < list->n; i++)
		if (!same_job(told, told->n, list->dumps[i].job))
			ask(list->dumps[i].name, list->dumps[i].pid, "slow", told, JOB_MS);
	return told->n > 0;
}

void door_why_none(int pid, char *why, size_t why_bytes)
{
	char path[64], theirs[64] = "", ours[64] = "";

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (access(path, F_OK) != 0) {
		snprintf(why, why_bytes, "there is no process %d", pid);
		return;
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (readlink(path, theirs, sizeof(theirs) - 1) > 0 &&
	    readlink("/proc/self/ns/net", ours, sizeof(ours) - 1) > 0 && strcmp(theirs, ours) != 0)
		snprintf(why, why_bytes,
		         "process %d is in another network namespace: nsenter -t %d -n coll-info --pid %d", pid, pid,
		         pid);
	else
		snprintf(why, why_bytes,
		         "neither process %d nor a descendant is a rank with a service thread (one rank alone has "
		         "none, nor has COLL_SERVICE_THREAD=0)",
		         pid);
}
