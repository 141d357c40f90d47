/*
 * The table of running ranks: see running.h. It is read and written, not mapped: a file that somebody cuts short then
 * harms nobody.
 */
#include "bootstrap/running.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/own_user.h"
#include "base/proof.h"

/* Another form of the table needs another number. */
static const uint64_t form = 0x6c6c6f6372756e01;
enum { TRIES = 64 };

struct entry {
	uint64_t form;
	struct coll_running_rank rank;
};
static_assert(sizeof(struct entry) == 64, "written as it is");

static off_t offset_of(int entry)
{
	return (off_t)(sizeof(uint64_t) + (size_t)entry * sizeof(struct entry));
}

static int open_own(const char *path)
{
	const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC; /* a FIFO keeps nobody waiting */
	const int fd = COLL_FD(open(path, flags, 0600));
	struct stat st;

	if (fd < 0 || (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && coll_user_of(st.st_uid) == COLL_USER_OWN &&
	               (st.st_mode & 077) == 0 && st.st_nlink == 1))
		return fd;
	coll_fd_close(fd);
	return -1;
}

static int open_usual(void)
{
	static const char *const folders[] = {"/dev/shm", "/tmp"};
	int fd = -1;

	for (int i = 0; i < 2 && fd < 0; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/libcoll-running-%u", folders[i], (unsigned)geteuid());
		fd = open_own(path);
	}
	return fd;
}

/* Of the open file, not of the process: a process may have several, and each sees the locks of the others. */
static bool lock(int fd, int command, int entry)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset_of(entry), .l_len = 1};

	return fcntl(fd, command, &l) == 0 && (command == F_OFD_SETLK || l.l_type != F_UNLCK);
}

static void change(int fd)
{
	uint64_t word;

	if (coll_random(&word, sizeof(word)) && pwrite(fd, &word, sizeof(word), 0) < 0) {
		/* Others notice it late. */
	}
}

void coll_running_enter(struct coll_running *t, const char *path, const struct coll_running_rank *self)
{
	struct entry e = {form, *self};
	uint64_t from;

	*t = (struct coll_running){.fd = path ? open_own(path) : open_usual(), .entry = -1};
	if (t->fd < 0)
		return;
	if (!coll_random(&from, sizeof(from))) /* so that ranks that start together do not try the same ones */
		from = (uint64_t)self->process;
	for (int i = 0; i < TRIES && t->entry < 0; i++) {
		const int at = (int)((from + (uint64_t)i) % COLL_RUNNING_MAX);

		if (lock(t->fd, F_OFD_SETLK, at))
			t->entry = at;
	}
	if (t->entry >= 0 && pwrite(t->fd, &e, sizeof(e), offset_of(t->entry)) == sizeof(e))
		change(t->fd);
}

bool coll_running_changed(struct coll_running *t)
{
	uint64_t word = 0;

	if (t->fd < 0 || pread(t->fd, &word, sizeof(word), 0) != sizeof(word) || word == t->change)
		return false;
	t->change = word;
	return true;
}

int coll_running_others(const struct coll_running *t, uint64_t job, struct coll_running_rank *list)
{
	struct entry *all = t->fd >= 0 ? malloc(COLL_RUNNING_MAX * sizeof(*all)) : NULL;
	const ssize_t bytes = all ? pread(t->fd, all, COLL_RUNNING_MAX * sizeof(*all), offset_of(0)) : 0;
	int n = 0;

	for (int i = 0; i < bytes / (ssize_t)sizeof(*all); i++)
		if (all[i].form == form && all[i].rank.job != job && lock(t->fd, F_OFD_GETLK, i))
			list[n++] = all[i].rank;
	free(all);
	return n;
}

void coll_running_leave(struct coll_running *t)
{
	static const struct entry free_entry;

	if (t->fd < 0)
		return;
	if (t->entry >= 0 && pwrite(t->fd, &free_entry, sizeof(free_entry), offset_of(t->entry)) > 0)
		change(t->fd);
	coll_fd_close(t->fd);
	t->fd = t->entry = -1;
}
