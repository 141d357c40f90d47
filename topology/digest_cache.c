/*
 * The file of a digest: see digest_cache.h.
 */
#include "topology/digest_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/interrupt.h"
#include "base/own_user.h"
#include "topology/digest_read.h"

enum { NAME_MAX_BYTES = 300, LOCK_TRIES = 8 };

struct header {
	char magic[8];
	uint64_t key;
	uint64_t hash; /* of the bytes that follow */
	uint32_t len_bytes;
	uint32_t version;
};
static const char magic[8] = {'c', 'o', 'l', 'l', 'd', 'g', 's', 't'};

/* Ours alone to write, and no other file of ours to which somebody has made a link of this name. */
static bool is_trusted(int fd, struct stat *st)
{
	return fstat(fd, st) == 0 && S_ISREG(st->st_mode) && coll_user_of(st->st_uid) == COLL_USER_OWN &&
	       st->st_nlink == 1 && (st->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static bool is_sound(const struct coll_digest *d)
{
	char why[100];
	struct coll_graph *g = coll_digest_read(d->bytes, d->len_bytes, why, sizeof(why));
	const bool sound = g != NULL;

	free(g);
	return sound && coll_digest_hash(d->bytes, d->len_bytes) == d->hash;
}

static bool read_file(int fd, uint64_t key, struct coll_digest *d)
{
	struct header h;
	struct stat st;

	if (!is_trusted(fd, &st) || st.st_size < (off_t)sizeof(h) ||
	    st.st_size > (off_t)(sizeof(h) + COLL_DIGEST_MAX) || read(fd, &h, sizeof(h)) != (ssize_t)sizeof(h))
		return false;
	if (memcmp(h.magic, magic, sizeof(magic)) != 0 || h.key != key || h.version != COLL_DIGEST_VERSION ||
	    h.len_bytes == 0 || (off_t)(sizeof(h) + h.len_bytes) != st.st_size)
		return false;
	d->len_bytes = h.len_bytes;
	d->hash = h.hash;
	return read(fd, d->bytes, h.len_bytes) == (ssize_t)h.len_bytes && is_sound(d);
}

bool coll_digest_cache_read(const char *path, uint64_t key, struct coll_digest *d)
{
	/* NONBLOCK: a FIFO of that name keeps nobody waiting. */
	const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	const bool found = fd >= 0 && read_file(fd, key, d);

	if (fd >= 0)
		close(fd);
	return found;
}

static bool lock_until(int fd, uint64_t deadline_ns)
{
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		const struct timespec nap = {0, COLL_DELAY_NS(DIGEST_LOOK)};

		if ((errno != EWOULDBLOCK && errno != EINTR) || coll_clock_ns() >= deadline_ns ||
		    coll_interrupt_here(false))
			return false;
		nanosleep(&nap, NULL);
	}
	return true;
}

/* The locked file to write to; -1: there is none, or *found, since another process has written the digest. A file that
 * was renamed while we waited is the digest itself: not to be written to. */
static int open_new(const char *path, const char *path_new, uint64_t key, int wait_ms, struct coll_digest *d,
                    bool *found)
{
	const uint64_t deadline_ns = coll_clock_ns() + (uint64_t)wait_ms * COLL_NS_PER_MS;
	struct stat mine, named;

	for (int i = 0; i < LOCK_TRIES; i++) {
		const int fd = open(path_new, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);

		if (fd < 0)
			return -1;
		if (!is_trusted(fd, &mine) || !lock_until(fd, deadline_ns)) {
			close(fd);
			return -1;
		}
		*found = coll_digest_cache_read(path, key, d);
		if (!*found && lstat(path_new, &named) == 0 && named.st_ino == mine.st_ino &&
		    named.st_dev == mine.st_dev)
			return fd;
		close(fd);
		if (*found)
			return -1;
	}
	return -1;
}

static bool write_file(int fd, const char *path, const char *path_new, uint64_t key, const struct coll_digest *d)
{
	struct header h = {
	        .key = key, .hash = d->hash, .len_bytes = (uint32_t)d->len_bytes, .version = COLL_DIGEST_VERSION};

	memcpy(h.magic, magic, sizeof(magic));
	return ftruncate(fd, 0) == 0 && pwrite(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) &&
	       pwrite(fd, d->bytes, d->len_bytes, sizeof(h)) == (ssize_t)d->len_bytes && rename(path_new, path) == 0;
}

bool coll_digest_cache_obtain(const char *path, uint64_t key, int wait_ms, coll_digest_make_fn *make, void *arg,
                              struct coll_digest *d)
{
	char path_new[NAME_MAX_BYTES];
	bool found = coll_digest_cache_read(path, key, d), keep;
	int fd;

	if (found)
		return true;
	if (snprintf(path_new, sizeof(path_new), "%s.new", path) >= (int)sizeof(path_new)) {
		make(arg, d);
		return false;
	}
	fd = open_new(path, path_new, key, wait_ms, d, &found);
	if (found)
		return true;
	keep = make(arg, d) && d->len_bytes > 0;
	if (fd >= 0) {
		if (!keep || !write_file(fd, path, path_new, key, d))
			unlink(path_new);
		close(fd);
	}
	return false;
}
