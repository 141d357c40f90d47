/*
 * The file in which rank 0 writes where it waits for the ranks of its host: the random name of its Unix socket.
 */
#ifndef COLL_BOOTSTRAP_MEETING_FILE_H
#define COLL_BOOTSTRAP_MEETING_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bootstrap/address.h"

enum {
	COLL_MEETING_FOLDERS = 3,
	COLL_MEETING_SOCKET_BYTES = 40,
	COLL_MEETING_PATH_BYTES = 160,
	COLL_MEETING_NAMES = 4
};

/* What names a meeting: the public words of the job, and its key. */
struct coll_meeting_words {
	const char *text;
	const uint64_t *key;
};

/* What rank 0 has written, "" where it has not. */
struct coll_meeting_files {
	char path[COLL_MEETING_FOLDERS][COLL_MEETING_PATH_BYTES];
};

enum coll_meeting_wrote {
	COLL_MEETING_WRITTEN,
	COLL_MEETING_TAKEN, /* by another process of this user, for the same words and key */
	COLL_MEETING_NOWHERE
};

/* Write it to each folder; coll_meeting_remove() is due in any case. */
enum coll_meeting_wrote coll_meeting_write(const struct coll_meeting_words *w, const char *socket_name,
                                           struct coll_meeting_files *files);
void coll_meeting_remove(struct coll_meeting_files *files);

/* Where the files lead that this user wrote for these words and this key. thorough: read the folders, also where
 * nobody holds the usual name. Result: 0, or the errno of a file that this process had no descriptor to read. */
int coll_meeting_find(const struct coll_meeting_words *w, bool thorough, struct coll_places *found);

/* For ranks that share a network namespace and no folder, where the key is secret: names of sockets, 0 to
 * COLL_MEETING_NAMES - 1, that only who has the key knows beforehand. Rank 0 takes the first that is free. */
void coll_meeting_named(const struct coll_meeting_words *w, int i, struct coll_address *a);

/* Whether a living process of this user has written one. */
bool coll_meeting_held(const struct coll_meeting_words *w);

/* Remove what processes of this user have left that ended by force. */
void coll_meeting_clean(void);

/* "libcoll-meet-0123456789abcdef in /run/user/1000, /dev/shm or /tmp" */
const char *coll_meeting_text(const struct coll_meeting_words *w, char *buf, size_t cap);

#endif
