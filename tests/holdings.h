/*
 * What a process holds, as /proc has it: to be compared with what it held before.
 */
#ifndef COLL_TESTS_HOLDINGS_H
#define COLL_TESTS_HOLDINGS_H

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Names in a directory that contain part; in /proc/self/fd with the one that this opens. */
static inline int holdings_entries(const char *directory, const char *part)
{
	DIR *d = opendir(directory);
	int n = 0;

	for (const struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.' && strstr(e->d_name, part);
	if (d)
		closedir(d);
	return n;
}

/* Shared memory with a name of this library, without the host's digest, which stays for the jobs to come. */
static inline int holdings_shared_names(void)
{
	return holdings_entries("/dev/shm", "coll") - holdings_entries("/dev/shm", "libcoll-digest-") -
	       holdings_entries("/dev/shm", "libcoll-running-");
}

/* No more names than so many, now or soon: those of other jobs on this host come and go meanwhile. */
static inline bool holdings_names_gone(int most)
{
	for (int i = 0; i < 5000 && holdings_shared_names() > most; i++)
		usleep(1000);
	return holdings_shared_names() <= most;
}

/* But eventfds: a thread keeps one from the first time it sleeps beside others, and when that is nobody knows. Whatever
 * else holds some of them holds sockets or memory as well. */
static inline int holdings_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	char target[64];
	int n = 0;

	for (const struct dirent *e; d && (e = readdir(d));) {
		const ssize_t length = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

		target[length < 0 ? 0 : length] = 0;
		n += e->d_name[0] != '.' && !strstr(target, "[eventfd]");
	}
	if (d)
		closedir(d);
	return n;
}

static inline int holdings_threads(void)
{
	return holdings_entries("/proc/self/task", "");
}

/* No more than so many, now or soon. A descriptor that travels to a peer is open at either end until the service thread
 * has sent or mapped it, and a communicator may close behind the destroy that left it. turn(arg), called meanwhile,
 * makes progress. */
static inline bool holdings_settle(int descriptors, int threads, void (*turn)(void *arg), void *arg)
{
	const uint64_t until_ns = coll_clock_ns() + (uint64_t)20 * 1000000000;

	while (holdings_descriptors() > descriptors || holdings_threads() > threads) {
		if (coll_clock_ns() > until_ns)
			return false;
		turn(arg);
		usleep(1000);
	}
	return true;
}

/* Mappings whose line in /proc/self/maps contains part. */
static inline int holdings_mappings(const char *part)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4352];
	int n = 0;

	while (maps && fgets(line, sizeof(line), maps))
		n += strstr(line, part) != NULL;
	if (maps)
		fclose(maps);
	return n;
}

#endif
