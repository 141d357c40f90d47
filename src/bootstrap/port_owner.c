/*
 * Reads /proc: the kernel's table of sockets has the user of each listener, and its inode leads to the process, where
 * this user may look. Owns nothing. For messages of failures only: it is slow.
 */
#include "bootstrap/port_owner.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LISTENS = 0x0A, PATH = 300 };

static bool find_socket(const char *table, uint16_t port, unsigned *user, unsigned long *inode)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		unsigned at, state;

		if (sscanf(line, " %*d: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*x:%*x %*x:%*x %*x %u %*u %lu", &at, &state,
		           user, inode) == 4)
			found = at == port && state == LISTENS;
	}
	if (f)
		fclose(f);
	return found;
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
	unsigned long inode;
	const struct dirent *d;
	char name[32];
	unsigned user;
	DIR *all;

	*text = '\0';
	if (!find_socket("/proc/net/tcp", port, &user, &inode) && !find_socket("/proc/net/tcp6", port, &user, &inode))
		return;
	snprintf(text, text_bytes, "a process of user %u", user);
	all = opendir("/proc");
	while (all && (d = readdir(all))) {
		if (d->d_name[0] < '1' || d->d_name[0] > '9' || !holds(d->d_name, inode))
			continue;
		name_process(d->d_name, name, sizeof(name));
		snprintf(text, text_bytes, "process %.20s (%s) of user %u", d->d_name, name, user);
		break;
	}
	if (all)
		closedir(all);
}
