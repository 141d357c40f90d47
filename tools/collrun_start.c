/*
 * How a job begins: one agent per host, by fork or by ssh; where rank 0 will be
 * reached; what each agent has to run. Nothing here waits for an agent.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proof.h"
#include "bootstrap/address.h"
#include "bootstrap/resolve.h"
#include "collrun_front.h"

#define RESOLVE_NS ((uint64_t)5000000000)

/* ---- Agents ---------------------------------------------------------- */

/* 'text' for a shell. */
static char *quoted(const char *text)
{
	char *q = must(malloc(4 * strlen(text) + 3)), *at = q;

	*at++ = '\'';
	for (; *text; text++) {
		if (*text == '\'')
			at = stpcpy(at, "'\\''");
		else
			*at++ = *text;
	}
	strcpy(at, "'");
	return q;
}

/* Words of the ssh command, the host, and what runs there. */
static void exec_ssh(const struct options *o, const char *host, const char *self)
{
	char *words[64], *copy = must(strdup(o->ssh)), *save = NULL, *path = quoted(o->remote ? o->remote : self);
	char *command = must(malloc(strlen(path) + 16));
	int n = 0;

	for (char *t = strtok_r(copy, " \t", &save); t && n < 60; t = strtok_r(NULL, " \t", &save))
		words[n++] = t;
	sprintf(command, "%s --agent", path);
	words[n++] = (char *)host;
	words[n++] = command;
	words[n] = NULL;
	execvp(words[0], words);
	fprintf(stderr, "collrun: cannot run %s: %s\n", words[0], strerror(errno));
	_exit(127);
}

static _Noreturn void become_agent(const struct options *o, const struct host *h, const char *self, int in, int out)
{
	dup2(in, 0);
	dup2(out, 1);
	signals_give_back();
	if (!h->local) {
		setpgid(0, 0); /* keys typed at the terminal are for the front */
		exec_ssh(o, h->name, self);
	}
	execl("/proc/self/exe", "collrun", "--agent", (char *)NULL);
	fprintf(stderr, "collrun: cannot start its agent: %s\n", strerror(errno));
	_exit(127);
}

static bool start_agent(struct front *f, struct link *l, struct host *h, const char *self)
{
	int to[2], from[2];

	l->host = h;
	snprintf(l->name, sizeof(l->name), "%s", h->name);
	if (pipe2(to, O_CLOEXEC) < 0)
		return false;
	if (pipe2(from, O_CLOEXEC) < 0) {
		close(to[0]);
		close(to[1]);
		return false;
	}
	l->pid = fork();
	if (l->pid == 0)
		become_agent(f->o, h, self, to[0], from[1]);
	close(to[0]);
	close(from[1]);
	channel_open(&l->ch, from[0], to[1]);
	return l->pid > 0;
}

/* ---- Where rank 0 is reached ------------------------------------------- */

bool start_interface_wanted(const char *interface, const char *filter)
{
	const bool exclude = *filter == '^';
	bool listed = false;

	for (const char *p = filter + exclude; *p;) {
		const size_t n = strcspn(p, ",");

		listed |= strlen(interface) == n && strncmp(interface, p, n) == 0;
		p += n + (p[n] == ',');
	}
	return !*filter || listed != exclude;
}

/* The address of this host on the way to another. */
static bool route_to(const char *host, char *text, size_t len_bytes)
{
	struct coll_address here = {.len = sizeof(here.at)};
	struct coll_places p;
	char why[256], *end;
	bool ok = false;
	int fd;

	if (!coll_resolve(host, 9, coll_clock_ns() + RESOLVE_NS, &p, why, sizeof(why)))
		return false;
	fd = socket(p.place[0].at.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&p.place[0].at, p.place[0].len) == 0 &&
	    getsockname(fd, (struct sockaddr *)&here.at, &here.len) == 0 && !coll_address_is_loopback(&here)) {
		coll_address_set_port(&here, 0);
		coll_address_text(&here, text, len_bytes);
		end = strrchr(text, ':'); /* without its port */
		*end = 0;
		ok = true;
	}
	if (fd >= 0)
		close(fd);
	return ok;
}

/* Best first: the way ssh came, the name, what the host says of itself. */
static void choose_root(struct front *f)
{
	struct link *l = &f->links[0];
	struct coll_places p;
	char why[256], text[120];
	const char *at = strrchr(l->host->name, '@');
	const char *name = at ? at + 1 : l->host->name;

	f->root_known = true;
	if (l->host->local && f->o->host_count > 1) {
		at = strrchr(f->o->hosts[1].name, '@');
		if (route_to(at ? at + 1 : f->o->hosts[1].name, f->root, sizeof(f->root)))
			return;
	}
	if (!l->address[0] && !l->host->local &&
	    coll_resolve(name, 0, coll_clock_ns() + RESOLVE_NS, &p, why, sizeof(why)) &&
	    !coll_address_is_loopback(&p.place[0])) {
		coll_address_text(&p.place[0], text, sizeof(text));
		*strrchr(text, ':') = 0;
		snprintf(f->root, sizeof(f->root), "%s", text);
		return;
	}
	snprintf(f->root, sizeof(f->root), strchr(l->address, ':') ? "[%s]" : "%s",
	         l->address[0] ? l->address : "127.0.0.1");
}

bool start_choose_meeting(struct front *f)
{
	uint64_t key[2], name;

	if (!coll_random(key, sizeof(key)) || !coll_random(&name, sizeof(name))) {
		fprintf(stderr, "collrun: no random bytes for the key of the job: getrandom: %s\n", strerror(errno));
		return false;
	}
	snprintf(f->key, sizeof(f->key), "%016llx%016llx", (unsigned long long)key[0], (unsigned long long)key[1]);
	if (f->o->host_count == 1 && f->o->hosts[0].local && !f->o->root) {
		snprintf(f->root, sizeof(f->root), "unix:collrun-%016llx", (unsigned long long)name);
		f->root_known = true;
	} else if (f->o->root) {
		snprintf(f->root, sizeof(f->root), "%s", f->o->root);
		f->root_known = true;
	}
	return true;
}

/* ---- Jobs -------------------------------------------------------------- */

static void number_add(struct buffer *b, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	strings_add(b, text);
}

static void send_job(struct front *f, struct link *l)
{
	char cwd[PATH_MAX] = "";
	struct buffer b = {0};
	int n = 0;

	if (!getcwd(cwd, sizeof(cwd)))
		cwd[0] = 0;
	number_add(&b, f->o->size);
	number_add(&b, f->o->bind);
	strings_add(&b, cwd);
	strings_add(&b, f->root);
	strings_add(&b, f->key);
	number_add(&b, l->host->rank_count);
	for (int i = 0; i < l->host->rank_count; i++)
		number_add(&b, l->host->ranks[i]);
	while (f->o->program[n])
		n++;
	number_add(&b, n);
	for (int i = 0; i < n; i++)
		strings_add(&b, f->o->program[i]);
	number_add(&b, f->o->env_count);
	for (int i = 0; i < f->o->env_count; i++)
		strings_add(&b, f->o->env[i]);
	channel_send(&l->ch, FRAME_JOB, 0, b.data, b.len);
	buffer_free(&b);
	l->sent = true;
}

void start_send_jobs(struct front *f)
{
	if (!f->root_known && f->links[0].hello)
		choose_root(f);
	for (int i = 0; i < f->o->host_count; i++)
		if (f->root_known && f->links[i].hello && !f->links[i].sent)
			send_job(f, &f->links[i]);
}

bool start_agents(struct front *f)
{
	char self[PATH_MAX] = "collrun";
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0)
		self[n] = 0;
	for (int i = 0; i < f->o->host_count; i++) {
		struct host *h = &f->o->hosts[i];

		for (int k = 0; k < h->rank_count; k++)
			f->link_of[h->ranks[k]] = i;
		if (!start_agent(f, &f->links[i], h, self)) {
			fprintf(stderr, "collrun: cannot start the agent of host %s: %s\n", h->name, strerror(errno));
			return false;
		}
	}
	return true;
}
