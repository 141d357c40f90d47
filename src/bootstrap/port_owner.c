/*
 * Reads /proc: the kernel's table of sockets has the user of each listener, and its inode leads to the process, where
 * this user may look. Owns nothing. It is slow: for failures, and for ports that are taken.
 */
#include "bootstrap/port_owner.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/own_user.h"

enum { LISTENS = 0x0A, PATH = 300 };

struct listener {
	unsigned user;
	unsigned long inode;
};

/* One that listens at the port; own: of this user. */
static bool find_in(const char *table, uint16_t port, bool own, struct listener *found)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool yes = false;

	while (f && !yes && fgets(line, sizeof(line), f)) {
		unsigned at, state;

		yes = sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %u %*u %lu", &at, &state,
		             &found->user, &found->inode) == 4 &&
		      at == port && state == LISTENS && (!own || coll_user_of(found->user) == coll_user_of(geteuid()));
	}
	if (f)
		fclose(f);
	return yes;
}

static bool find_listener(uint16_t port, bool own, struct listener *found)
{
	return find_in("/proc/net/tcp", port, own, found) || find_in("/proc/net/tcp6", port, own, found);
}

bool coll_port_may_be_own(uint16_t port)
{
	struct listener l;

	return find_listener(port, true, &l) || !find_listener(port, false, &l);
}

static bool holds(const char *process, unsigned long inode)
{
	char path[PATH], to[64], want[64];
	const struct dirent *d;
	bool found = false;
	DIR *all;

	snprintf(path, sizeof(path), "/proc/%.32s/fd", process);
	snprintf(want, sizeof(want), "socket:[%lu]", inode);
	all = opendir(path);
	while (all && !found && (d = readdir(all))) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/%.32s/fd/%.32s", process, d->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		found = strcmp(to, want) == 0;
	}
	if (all)
		closedir(all);
	return found;
}

static void name_process(const char *process, char *name, size_t name_bytes)
{
	char path[PATH];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%.32s/comm", process);
	f = fopen(path, "re");
	if (!f || !fgets(name, (int)name_bytes, f))
		snprintf(name, name_bytes, "?");
	name[strcspn(name, "\n")] = '\0';
	if (f)
		fclose(f);
}

void coll_port_owner(uint16_t port, char *text, size_t text_bytes)
{
	const struct dirent *d;
	struct listener l;
	char name[32];
	DIR *all;

	*text = '\0';
	if (!find_listener(port, false, &l))
		return;
	snprintf(text, text_bytes, "a process of user %u", l.user);
	all = opendir("/proc");
	while (all && (d = readdir(all))) {
		if (d->d_name[0] < '1' || d->d_name[0] > '9' || !holds(d->d_name, l.inode))
			continue;
		name_process(d->d_name, name, sizeof(name));
		snprintf(text, text_bytes, "process %.20s (%s) of user %u", d->d_name, name, l.user);
		break;
	}
	if (all)
		closedir(all);
}
