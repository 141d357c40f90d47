/*
 * How a job begins: one agent per host; where rank 0 will be reached; what each agent has to run. Nothing here waits
 * for an agent. Names are looked up by a child process, because name servers may be silent.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proof.h"
#include "bootstrap/address.h"
#include "bootstrap/resolve.h"
#include "collrun_front.h"

#define RESOLVE_NS ((uint64_t)5000000000)

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

/* An address of a host by its name, in brackets if it has colons. */
static bool named(const char *host, char *text, size_t len_bytes)
{
	struct coll_places p;
	char why[256];

	if (!coll_resolve(host, 0, coll_clock_ns() + RESOLVE_NS, &p, why, sizeof(why)) ||
	    coll_address_is_loopback(&p.place[0]))
		return false;
	coll_address_text(&p.place[0], text, len_bytes);
	*strrchr(text, ':') = 0;
	return true;
}

static const char *without_user(const char *name)
{
	const char *at = strrchr(name, '@');

	return at ? at + 1 : name;
}

/* The child that looks a name up, and writes what it finds. */
static _Noreturn void look_up(const struct front *f, int fd)
{
	const struct host *first = f->o->hosts;
	char text[256] = "";
	size_t n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (first->local ? !route_to(without_user(first[1].name), text, sizeof(text))
	                 : !named(without_user(first->name), text, sizeof(text)))
		_exit(1);
	n = strlen(text);
	_exit(write(fd, text, n) == (ssize_t)n ? 0 : 1);
}

void start_reap_lookup(struct front *f)
{
	if (f->lookup.pid > 0 && waitpid(f->lookup.pid, NULL, WNOHANG) == f->lookup.pid)
		f->lookup.pid = 0;
}

void start_forget_lookup(struct front *f)
{
	if (f->lookup.fd >= 0)
		close(f->lookup.fd);
	if (f->lookup.pid > 0)
		kill(f->lookup.pid, SIGKILL);
	f->lookup.fd = -1;
	f->lookup.until_ns = NEVER;
	start_reap_lookup(f);
}

/* What the host says of itself, when its name says nothing. */
static void take_own_word(struct front *f)
{
	const char *address = f->links[0].address;

	f->root_known = true;
	snprintf(f->root, sizeof(f->root), strchr(address, ':') ? "[%s]" : "%s", *address ? address : "127.0.0.1");
}

void start_looked_up(struct front *f)
{
	const ssize_t n = read(f->lookup.fd, f->root, sizeof(f->root) - 1);

	if (n < 0 && (errno == EAGAIN || errno == EINTR) && coll_clock_ns() < f->lookup.until_ns)
		return;
	start_forget_lookup(f);
	if (n <= 0) {
		take_own_word(f);
		return;
	}
	f->root[n] = 0;
	f->root_known = true;
}

/* Best first: the way ssh came, the name, what the host says of itself. */
static void choose_root(struct front *f)
{
	const struct link *l = &f->links[0];
	int fd[2];

	if (f->lookup.fd >= 0)
		return;
	if (l->host->local ? f->o->host_count < 2 : l->address[0] != 0) {
		take_own_word(f);
		return;
	}
	if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0) {
		take_own_word(f);
		return;
	}
	f->lookup.pid = fork();
	if (f->lookup.pid == 0)
		look_up(f, fd[1]);
	close(fd[1]);
	f->lookup.fd = fd[0];
	f->lookup.until_ns = coll_clock_ns() + RESOLVE_NS + RESOLVE_NS / 5;
}

bool start_choose_meeting(struct front *f)
{
	uint64_t key[2], name;
	char why[160];

	if (!coll_random(key, sizeof(key)) || !coll_random(&name, sizeof(name))) {
		snprintf(why, sizeof(why), "no random bytes for the key of the job: getrandom: %s", strerror(errno));
		fate_not_begun(f, why);
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
	char cwd[PATH_MAX] = "", restart[40];
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
	snprintf(restart, sizeof(restart), "COLLRUN_RESTART=%d", f->restarted);
	number_add(&b, f->o->env_count + 1);
	strings_add(&b, restart);
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
		if (f->root_known && f->links[i].hello && !f->links[i].sent && f->links[i].state == LINK_OPEN)
			send_job(f, &f->links[i]);
}

void start_agents(struct front *f)
{
	char why[400];

	for (int i = 0; i < f->o->host_count; i++) {
		struct host *h = &f->o->hosts[i];

		for (int k = 0; k < h->rank_count; k++)
			f->link_of[h->ranks[k]] = i;
		if (!link_start(f, &f->links[i], h)) {
			snprintf(why, sizeof(why), "cannot start the agent of host %.255s: %s", h->name,
			         strerror(errno));
			fate_not_begun(f, why);
			return;
		}
	}
}
