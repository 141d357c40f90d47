/*
 * See meeting_file.h. The name of a socket can be bound by anybody who knows it, so rank 0 draws it, and tells it in a
 * file that only its user can read. It writes the file into each folder that is there, and ranks look in all of them.
 *
 * Folders that all users share let anybody make a file of any name. So a file counts only if this user owns it, nobody
 * else may open it, and it is no symbolic link; where somebody else has the usual name, the file has a random ending,
 * and ranks read the whole folder. The socket's owner is checked by who connects.
 *
 * A file is named after the public words of the job. It holds the network namespace, in which alone the socket's name
 * means something, and a hash under the job's key, by which jobs with equal words are told apart. It appears whole. It
 * is left behind only by a process that ended by force, and removed by the next rank 0 of this user.
 */
#include "bootstrap/meeting_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/hash.h"
#include "base/own_user.h"
#include "base/proof.h"
#include "bootstrap/host_id.h"

#define PREFIX "libcoll-meet-"

enum {
	USUAL_BYTES = sizeof(PREFIX) - 1 + 16,
	NAME_BYTES = USUAL_BYTES + 1 + 16 + 1,
	LINE_BYTES = 16 + 1 + 16 + 1 + 37 + 1,
	LEFT_MAX = 64, /* files that one cleaning looks at */
	OLD_S = 24 * 60 * 60
};

/* The content: one line, so that people can read it. */
struct line {
	char text[LINE_BYTES + 1];
};

struct folders {
	int count;
	const char *at[COLL_MEETING_FOLDERS];
};

static struct folders folders(void)
{
	const char *own = getenv("XDG_RUNTIME_DIR");
	struct folders f = {0};

	if (own && own[0] == '/' && strlen(own) + 1 + NAME_BYTES <= COLL_MEETING_PATH_BYTES)
		f.at[f.count++] = own;
	f.at[f.count++] = "/dev/shm";
	f.at[f.count++] = "/tmp";
	return f;
}

/* The user's number keeps users apart. */
static void usual_name(const struct coll_meeting_words *w, char name[USUAL_BYTES + 1])
{
	char full[400];

	snprintf(full, sizeof(full), "%.300s|uid %u", w->text, (unsigned)geteuid());
	snprintf(name, USUAL_BYTES + 1, PREFIX "%016llx", (unsigned long long)coll_hash_bytes(3, full, strlen(full)));
}

const char *coll_meeting_text(const struct coll_meeting_words *w, char *buf, size_t cap)
{
	const struct folders f = folders();
	char name[USUAL_BYTES + 1];
	size_t at;

	usual_name(w, name);
	at = (size_t)snprintf(buf, cap, "%s in ", name);
	for (int i = 0; i < f.count && at < cap; i++)
		at += (size_t)snprintf(buf + at, cap - at, "%s%s",
		                       i == 0             ? ""
		                       : i == f.count - 1 ? " or "
		                                          : ", ",
		                       f.at[i]);
	return buf;
}

/* ---- The content ------------------------------------------------------- */

static struct line line_of(const struct coll_meeting_words *w, const char *socket_name)
{
	struct line l;
	const struct coll_proof tag = COLL_PROOF(w->key, {socket_name, strlen(socket_name)});

	snprintf(l.text, sizeof(l.text), "%016llx %016llx %37.37s\n", (unsigned long long)coll_bootstrap_name_space(),
	         (unsigned long long)tag.word[0], socket_name);
	return l;
}

/* In this network namespace. */
static bool reads_here(const struct line *l, char socket_name[COLL_MEETING_SOCKET_BYTES])
{
	unsigned long long space, tag;

	return sscanf(l->text, "%16llx %16llx %37s", &space, &tag, socket_name) == 3 &&
	       space == coll_bootstrap_name_space();
}

/* Only this user can have written it. */
static bool is_own(int fd, struct stat *st)
{
	return fstat(fd, st) == 0 && S_ISREG(st->st_mode) && coll_user_of(st->st_uid) == COLL_USER_OWN &&
	       (st->st_mode & 077) == 0;
}

enum what { ABSENT, FOREIGN, UNFINISHED, LINE, NO_DESCRIPTOR };

static enum what read_file(const char *path, struct line *l, struct stat *st)
{
	const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC); /* a FIFO keeps nobody waiting */
	enum what what;

	if (fd < 0 && errno == ENOENT)
		return ABSENT;
	if (fd < 0)
		return coll_errno_is_shortage(errno) ? NO_DESCRIPTOR : FOREIGN;
	memset(l, 0, sizeof(*l));
	what = !is_own(fd, st) ? FOREIGN : read(fd, l->text, LINE_BYTES) == LINE_BYTES ? LINE : UNFINISHED;
	close(fd);
	return what;
}

/* ---- Looking ----------------------------------------------------------- */

/* If the file is of this job, append where it leads. */
static enum what consider(const char *path, const struct coll_meeting_words *w, struct coll_places *found)
{
	char socket_name[COLL_MEETING_SOCKET_BYTES];
	struct coll_address a;
	struct line l, mine;
	struct stat st;
	const enum what what = read_file(path, &l, &st);

	if (what != LINE || !reads_here(&l, socket_name))
		return what;
	mine = line_of(w, socket_name);
	if (memcmp(l.text, mine.text, LINE_BYTES) != 0)
		return what;
	coll_address_unix(&a, socket_name);
	coll_places_add(found, &a);
	return what;
}

/* Call look for each file of this user whose name begins like that. */
static void read_folder(const char *folder, const char *begin, void (*look)(const char *path, void *arg), void *arg)
{
	char path[COLL_MEETING_PATH_BYTES];
	const struct dirent *e;
	DIR *d = opendir(folder);
	struct stat st;

	while (d && (e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, begin, strlen(begin)) != 0 || strlen(e->d_name) >= NAME_BYTES)
			continue;
		snprintf(path, sizeof(path), "%s/%.*s", folder, NAME_BYTES, e->d_name);
		if (lstat(path, &st) == 0 && st.st_uid == geteuid())
			look(path, arg);
	}
	if (d)
		closedir(d);
}

struct search {
	const struct coll_meeting_words *words;
	struct coll_places *found;
};

static void consider_named(const char *path, void *arg)
{
	const struct search *s = arg;

	consider(path, s->words, s->found);
}

int coll_meeting_find(const struct coll_meeting_words *w, bool thorough, struct coll_places *found)
{
	const struct folders f = folders();
	int shortage = 0;
	struct search s = {w, found};
	char path[COLL_MEETING_PATH_BYTES], name[USUAL_BYTES + 1];

	usual_name(w, name);
	for (int i = 0; i < f.count; i++) {
		enum what what;

		snprintf(path, sizeof(path), "%s/%s", f.at[i], name);
		what = consider(path, w, found);
		if (what == NO_DESCRIPTOR)
			shortage = errno;
		else if (what == FOREIGN || thorough)
			read_folder(f.at[i], name, consider_named, &s);
	}
	return shortage;
}

void coll_meeting_named(const struct coll_meeting_words *w, int i, struct coll_address *a)
{
	const struct coll_proof p = COLL_PROOF(w->key, COLL_SAID(i), {w->text, strlen(w->text)});
	char name[COLL_MEETING_SOCKET_BYTES];

	snprintf(name, sizeof(name), "coll-%016llx%016llx", (unsigned long long)p.word[0],
	         (unsigned long long)p.word[1]);
	coll_address_unix(a, name);
}

/* ---- Who is there, and cleaning ---------------------------------------------------------- */

enum who { NOBODY, OWN, UNKNOWN };

/* Who listens there. The name of a socket whose process has ended can be taken by anybody; a backlog that is full says
 * nothing. */
static enum who listens(const struct coll_address *a)
{
	const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	enum who who = UNKNOWN;

	if (fd < 0)
		return UNKNOWN;
	if (connect(fd, (const struct sockaddr *)&a->at, a->len) == 0)
		who = coll_unix_foreign(fd, false) ? NOBODY : OWN;
	else if (errno == ECONNREFUSED)
		who = NOBODY;
	close(fd);
	return who;
}

bool coll_meeting_held(const struct coll_meeting_words *w)
{
	struct coll_places found = {0};
	bool held = false;

	coll_meeting_find(w, true, &found);
	for (int i = 0; i < found.count && !held; i++)
		held = listens(&found.place[i]) == OWN;
	return held;
}

/* Of another namespace nothing can be told, and one that is not whole may become it. */
static void remove_left(const char *path, void *arg)
{
	char socket_name[COLL_MEETING_SOCKET_BYTES];
	struct coll_address a;
	struct line l;
	struct stat st;
	int *tries = arg;
	const enum what what = read_file(path, &l, &st);

	if ((what != LINE && what != UNFINISHED) || (*tries)-- <= 0)
		return;
	if (what == LINE && reads_here(&l, socket_name)) {
		coll_address_unix(&a, socket_name);
		if (listens(&a) == NOBODY)
			unlink(path);
	} else if (time(NULL) - st.st_mtime > OLD_S) {
		unlink(path);
	}
}

void coll_meeting_clean(void)
{
	const struct folders f = folders();
	int tries = LEFT_MAX;

	for (int i = 0; i < f.count; i++)
		read_folder(f.at[i], PREFIX, remove_left, &tries);
}

/* ---- Writing ----------------------------------------------------------- */

static bool write_whole(const char *path, const struct line *l)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	bool whole;

	if (fd < 0)
		return false;
	/* Whatever the umask is. */
	whole = fchmod(fd, 0600) == 0 && write(fd, l->text, LINE_BYTES) == LINE_BYTES;
	close(fd);
	if (!whole)
		unlink(path);
	return whole;
}

/* Under a random name, then under the usual one if nobody has it. False: another process of this job has it. */
static bool write_to(const char *folder, const struct coll_meeting_words *w, const struct line *l,
                     char path[COLL_MEETING_PATH_BYTES])
{
	char usual[COLL_MEETING_PATH_BYTES], name[USUAL_BYTES + 1];
	struct coll_places other = {0};
	uint64_t random;

	usual_name(w, name);
	path[0] = '\0';
	if (!coll_random(&random, sizeof(random)))
		return true;
	snprintf(usual, sizeof(usual), "%s/%s", folder, name);
	snprintf(path, COLL_MEETING_PATH_BYTES, "%s/%s-%016llx", folder, name, (unsigned long long)random);
	if (!write_whole(path, l)) {
		path[0] = '\0';
		return true;
	}
	if (renameat2(AT_FDCWD, path, AT_FDCWD, usual, RENAME_NOREPLACE) == 0) {
		memcpy(path, usual, sizeof(usual));
		return true;
	}
	return consider(usual, w, &other) != LINE || other.count == 0;
}

enum coll_meeting_wrote coll_meeting_write(const struct coll_meeting_words *w, const char *socket_name,
                                           struct coll_meeting_files *files)
{
	const struct line l = line_of(w, socket_name);
	const struct folders f = folders();
	bool any = false;

	memset(files, 0, sizeof(*files));
	for (int i = 0; i < f.count; i++) {
		if (!write_to(f.at[i], w, &l, files->path[i]))
			return COLL_MEETING_TAKEN;
		any = any || files->path[i][0];
	}
	return any ? COLL_MEETING_WRITTEN : COLL_MEETING_NOWHERE;
}

void coll_meeting_remove(struct coll_meeting_files *files)
{
	for (int i = 0; i < COLL_MEETING_FOLDERS; i++)
		if (files->path[i][0])
			unlink(files->path[i]);
	memset(files, 0, sizeof(*files));
}
