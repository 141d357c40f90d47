/*
 * Asking: see door.h. Everything is bounded: a process that is stopped does not answer,
 * which is told, not waited for.
 */
#include "door.h"

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

enum { ANSWER_MS = 2000, ANSWER_BYTES_MAX = 64 << 20 };

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

/* ---- Doors ---- */

/* Send the request and read to the end; false: no whole answer in time. */
static bool ask(const char *name, const char *request, struct dump_list *list)
{
	const uint64_t deadline = coll_clock_ns() + (uint64_t)ANSWER_MS * 1000000;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const size_t len = strlen(name);
	const struct timeval patience = {.tv_sec = ANSWER_MS / 1000};
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	size_t used = 0, cap = 1 << 18;
	char *text = malloc(cap), line[16], why[128];
	bool ended = false;

	memcpy(a.sun_path + 1, name, len);
	/* Others may knock: for the place in the queue too. */
	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (fd >= 0 && text &&
	    connect(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) == 0) {
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
	free(text);
	return ended;
}

/* Next listening door of the table; false: none left. An accepted connection has the
 * same name, but does not listen (flags 00010000). */
static bool next_door(FILE *f, char *name, size_t len_bytes, int *pid)
{
	char line[512], end;
	int k;

	while (fgets(line, sizeof(line), f)) {
		char *at = strstr(line, " @libcoll.");

		if (!at || !strstr(line, " 00010000 ") || sscanf(at, " @libcoll.%d.%d%c", pid, &k, &end) != 3 ||
		    end != '\n')
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

/* The other ranks of the same jobs on this host, whoever started them. */
static int ask_others(const int *pids, int n, const char *request, struct dump_list *list)
{
	const size_t known = list->n;
	FILE *f = fopen("/proc/net/unix", "re");
	char name[64];
	int pid, answered = 0;

	while (f && known > 0 && next_door(f, name, sizeof(name), &pid)) {
		struct dump_list one = {0};
		bool ours;

		if (holds(pids, n, pid) || !ask(name, request, &one))
			continue;
		ours = same_job(list, known, one.dumps[0].job) && dump_list_append(list, &one);
		answered += ours;
		dump_list_free(&one);
	}
	if (f)
		fclose(f);
	return answered;
}

int door_ask_family(int pid, const char *request, struct dump_list *list, struct door_silent *silent)
{
	int *pids = malloc(DOOR_FAMILY_MAX * sizeof(*pids));
	const int n = pids ? family(pid, pids) : 0;
	FILE *f = fopen("/proc/net/unix", "re");
	bool is_rank = false;
	char name[64];
	int answered = 0, of;

	silent->n = 0;
	while (f && next_door(f, name, sizeof(name), &of)) {
		if (!holds(pids, n, of))
			continue;
		is_rank |= of == pid;
		if (ask(name, request, list))
			answered++;
		else if (silent->n < DOOR_SILENT_MAX)
			silent->pids[silent->n++] = of;
	}
	if (f)
		fclose(f);
	if (is_rank)
		answered += ask_others(pids, n, request, list);
	free(pids);
	return answered;
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
