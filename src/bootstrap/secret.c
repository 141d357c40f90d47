/*
 * The launch secret (secret.h): what the handshakes of the rendezvous prove, and what the key of the job rests on.
 *
 * Owns the table of its sources, and what the process keeps of those that can be read only once: COLL_JOB_KEY, which is
 * overwritten in the environment, and the bytes of COLL_KEY_FD. A forked child has them too, since it may create
 * communicators of its own. No message and no log has a secret, or a part of one: they name its source. Words that are
 * public about a job (launcher, address, port, job id) are mixed into a key that several jobs share, and never count as
 * a secret. This file reads; it writes no key.
 */
#include "bootstrap/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/own_user.h"
#include "base/siphash.h"

enum { KEY_DIGITS = 32, BYTES_MIN = 16, BYTES_MAX = 4096, PATH_BYTES = 512 };

const char coll_secret_unique_id[] = "unique id", coll_secret_munge[] = "munge";

/* Read once, and kept; under lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	bool has_environment;
	int fd; /* whose bytes key_of_fd are made of, 0: none yet */
	uint64_t environment[2], key_of_fd[2];
} kept;

static pthread_once_t forks_watched = PTHREAD_ONCE_INIT;

/* Whoever forks holds the lock, so it is free in the child. */
static void take_lock(void)
{
	pthread_mutex_lock(&lock);
}

static void release_lock(void)
{
	pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(take_lock, release_lock, release_lock);
}

static void enter(void)
{
	pthread_once(&forks_watched, watch_forks);
	take_lock();
}

/* ---- Bytes ---- */

static bool from_digits(const char *text, size_t len, uint64_t key[2])
{
	char half[17] = {0};

	if (len != KEY_DIGITS || strspn(text, "0123456789abcdefABCDEF") != KEY_DIGITS)
		return false;
	for (int i = 0; i < 2; i++) {
		memcpy(half, text + 16 * i, 16);
		key[i] = strtoull(half, NULL, 16);
	}
	explicit_bzero(half, sizeof(half));
	return true;
}

static void from_bytes(const char *bytes, size_t len_bytes, uint64_t key[2])
{
	static const uint64_t fixed[2] = {0x636f6c6c206b6579u, 0};

	/* An editor ends a file with a newline. */
	if (bytes[len_bytes - 1] == '\n')
		len_bytes--;
	coll_siphash24_wide(fixed, bytes, len_bytes, key);
}

/* Until the end or BYTES_MAX + 1, and a zero. -1 and errno; ETIMEDOUT: nothing comes and it does not end. */
static ssize_t read_all(int fd, char buf[BYTES_MAX + 2])
{
	size_t n = 0;

	while (n <= BYTES_MAX) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		const int ready = poll(&p, 1, COLL_DELAY_KEY_FD_MS);
		/* The ranks of a host may share a file and its offset. */
		ssize_t got = ready > 0 ? pread(fd, buf + n, BYTES_MAX + 1 - n, (off_t)n) : -1;

		if (got < 0 && ready > 0 && errno == ESPIPE)
			got = read(fd, buf + n, BYTES_MAX + 1 - n);
		if (got == 0)
			break;
		if (ready == 0)
			errno = ETIMEDOUT;
		if (got < 0 && (ready == 0 || (errno != EINTR && errno != EAGAIN)))
			return -1;
		n += got > 0 ? (size_t)got : 0;
	}
	buf[n] = 0;
	return (ssize_t)n;
}

static coll_status check_length(const char *what, ssize_t n, struct coll_error_box *err)
{
	if (n >= BYTES_MIN && n <= BYTES_MAX)
		return COLL_OK;
	if (n < 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1120] %s: cannot be read: %s", what,
		                      errno == ETIMEDOUT ? "no end of the key within 10 s"
		                                         : coll_errno_text(errno).text);
	return coll_error_set(err, COLL_ERR_CONFIG,
	                      "[COLL-1120] %s: the key has %s%zd bytes, expected %d to %d: make one with "
	                      "`head -c16 /dev/urandom | base64`",
	                      what, n > BYTES_MAX ? "more than " : "", n > BYTES_MAX ? (ssize_t)BYTES_MAX : n,
	                      BYTES_MIN, BYTES_MAX);
}

/* ---- Files ---- */

/* Only this user may have been able to write it or to read it, and a group to which root gave a file of its own: so
 * Kubernetes mounts a Secret for a user without privileges (fsGroup). */
static coll_status check_owner(const char *what, int fd, struct coll_error_box *err)
{
	struct stat s;
	mode_t denied;

	if (fstat(fd, &s) < 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1120] %s: %s", what, coll_errno_text(errno).text);
	if (!S_ISREG(s.st_mode))
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1120] %s: is no regular file", what);
	if (coll_user_of(s.st_uid) == COLL_USER_UNKNOWN)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1120] %s: belongs to user %u, which may be any user without a number in "
		                      "this user namespace: set COLL_JOB_KEY instead, or map the user",
		                      what, (unsigned)s.st_uid);
	if (coll_user_of(s.st_uid) != COLL_USER_OWN && s.st_uid != 0)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1120] %s: belongs to user %u, expected user %u or root: chown it", what,
		                      (unsigned)s.st_uid, (unsigned)geteuid());
	denied = s.st_uid == 0 ? 037 : 077;
	if (s.st_mode & denied)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-1120] %s: other users may use it (mode %04o): chmod 600 it", what,
		                      (unsigned)s.st_mode & 07777);
	return COLL_OK;
}

static coll_status read_key_file(const char *what, const char *path, bool may_lack, uint64_t key[2],
                                 struct coll_error_box *err)
{
	const int fd = COLL_FD(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
	char buf[BYTES_MAX + 2];
	coll_status st;
	ssize_t n;

	if (fd < 0 && may_lack && (errno == ENOENT || errno == ENOTDIR || errno == EACCES))
		return COLL_AGAIN;
	if (fd < 0)
		return coll_error_set(
		        err, COLL_ERR_CONFIG, "[COLL-1120] %s: %s", what,
		        errno == EACCES ? "Permission denied (this user may not read it, or not enter its directory)"
		                        : coll_errno_text(errno).text);
	st = check_owner(what, fd, err);
	if (st == COLL_OK) {
		n = read_all(fd, buf);
		st = check_length(what, n, err);
		if (st == COLL_OK)
			from_bytes(buf, (size_t)n, key);
		explicit_bzero(buf, sizeof(buf));
	}
	coll_fd_close(fd);
	return st;
}

/* ---- Sources ---- */

static coll_status find_job_key(const struct coll_settings *s, const struct coll_identity *id, uint64_t key[2],
                                struct coll_error_box *err)
{
	coll_status st = COLL_AGAIN;

	(void)id;
	if (*s->job_key)
		return from_digits(s->job_key, strlen(s->job_key), key)
		               ? COLL_OK
		               : coll_error_set(err, COLL_ERR_CONFIG,
		                                "[COLL-1106] COLL_JOB_KEY: expected 32 hexadecimal digits");
	enter();
	if (kept.has_environment) {
		memcpy(key, kept.environment, sizeof(kept.environment));
		st = COLL_OK;
	}
	release_lock();
	return st;
}

/* The same digits as in COLL_JOB_KEY are the same key. */
static coll_status read_fd(int fd, uint64_t key[2], struct coll_error_box *err)
{
	char buf[BYTES_MAX + 2], what[40];
	const ssize_t n = read_all(fd, buf);
	coll_status st;

	snprintf(what, sizeof(what), "COLL_KEY_FD=%d", fd);
	st = check_length(what, n, err);
	if (st == COLL_OK && !from_digits(buf, (size_t)n - (buf[n - 1] == '\n'), key))
		from_bytes(buf, (size_t)n, key);
	explicit_bzero(buf, sizeof(buf));
	/* One without a key stays open: the next try must not find a file of the program at its number. */
	if (st == COLL_OK)
		coll_fd_close(fd);
	return st;
}

static coll_status find_fd(const struct coll_settings *s, const struct coll_identity *id, uint64_t key[2],
                           struct coll_error_box *err)
{
	coll_status st = COLL_OK;

	(void)id;
	if (s->key_fd < 0)
		return COLL_AGAIN;
	if (s->key_fd < 3)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] COLL_KEY_FD=%d: expected 3 or more",
		                      s->key_fd);
	enter();
	if (kept.fd != s->key_fd) {
		st = read_fd(s->key_fd, kept.key_of_fd, err);
		kept.fd = st == COLL_OK ? s->key_fd : 0;
	}
	if (st == COLL_OK)
		memcpy(key, kept.key_of_fd, sizeof(kept.key_of_fd));
	release_lock();
	return st;
}

static coll_status find_file(const struct coll_settings *s, const struct coll_identity *id, uint64_t key[2],
                             struct coll_error_box *err)
{
	char what[PATH_BYTES];

	(void)id;
	if (!*s->key_file)
		return COLL_AGAIN;
	snprintf(what, sizeof(what), "COLL_KEY_FILE=%s", s->key_file);
	return read_key_file(what, s->key_file, false, key, err);
}

/* Of ranks that may be on several hosts: a job of one host must not fail for a file that nobody named. */
static coll_status find_user_file(const struct coll_settings *s, const struct coll_identity *id, uint64_t key[2],
                                  struct coll_error_box *err)
{
	static const char *const below[][2] = {{"XDG_CONFIG_HOME", "coll/key"}, {"HOME", ".config/coll/key"}};
	coll_status st = COLL_AGAIN;

	(void)s;
	for (int i = 0; i < 2 && st == COLL_AGAIN && id->root_host[0]; i++) {
		const char *home = getenv(below[i][0]);
		char path[PATH_BYTES];

		if (home && *home == '/' &&
		    (size_t)snprintf(path, sizeof(path), "%s/%s", home, below[i][1]) < PATH_BYTES)
			st = read_key_file(path, path, true, key, err);
	}
	return st;
}

/* In the order in which they are asked. */
static const struct source {
	const char *name;
	bool shared; /* by several jobs of the user: words of the job are mixed in */
	/* OK: key is filled. AGAIN: this source has none. */
	coll_status (*find)(const struct coll_settings *s, const struct coll_identity *id, uint64_t key[2],
	                    struct coll_error_box *err);
} sources[] = {
        {"COLL_JOB_KEY", false, find_job_key},
        {"COLL_KEY_FD", false, find_fd},
        {"COLL_KEY_FILE", true, find_file},
        {"~/.config/coll/key", true, find_user_file},
};
enum { SOURCES = sizeof(sources) / sizeof(sources[0]) };

coll_status coll_secret_find(const struct coll_settings *settings, const char *words, struct coll_identity *id,
                             struct coll_error_box *err)
{
	static const uint64_t nothing[2];
	uint64_t key[2];

	for (int i = 0; i < SOURCES; i++) {
		coll_status st = sources[i].find(settings, id, key, err);

		if (st == COLL_AGAIN)
			continue;
		if (st != COLL_OK)
			return st;
		if (sources[i].shared)
			coll_siphash24_wide(key, words, strlen(words), key);
		memcpy(id->job_key, key, sizeof(key));
		explicit_bzero(key, sizeof(key));
		id->secret = sources[i].name;
		/* Ports that the words alone choose can be taken by who knows the words, and so can one that is named.
		 */
		id->root_ports = id->root_ports || id->root_port;
		if (id->port_seed || id->root_port || !sources[i].shared)
			id->port_seed = coll_siphash24(id->job_key, "ports", 5) | 1;
		return COLL_OK;
	}
	if (*words)
		coll_siphash24_wide(nothing, words, strlen(words), id->job_key);
	return COLL_OK;
}

/* ---- Need ---- */

coll_status coll_secret_check(bool insecure, const char *others, struct coll_identity *id, struct coll_error_box *err)
{
	if (id->size == 1 || coll_identity_has_secret(id) || !id->root_host[0])
		return COLL_OK;
	id->open = insecure;
	if (insecure)
		return COLL_OK;
	return coll_error_set(
	        err, COLL_ERR_CONFIG,
	        "[COLL-1119] the ranks meet at %.100s, beyond this host, and have no secret that keeps strangers out: "
	        "%smake a key, `mkdir -p ~/.config/coll; (umask 077; head -c16 /dev/urandom | base64 "
	        ">~/.config/coll/key)`, and "
	        "copy it to each host; or give all ranks one COLL_JOB_KEY; or, where nobody else can connect, set "
	        "COLL_INSECURE=1 (if all ranks are on this host: COLL_ROOT=127.0.0.1:PORT)",
	        id->root_host, others);
}

bool coll_secret_warns(const struct coll_identity *id)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	return id->open && id->rank == 0 && !atomic_flag_test_and_set(&said);
}

/* ---- The environment ---- */

/* What the kernel shows as /proc/PID/environ lies between the random bytes that it gave the process and the name of
 * its program, also when the program has moved its variables away. */
static void wipe_shown(const char *name)
{
	char *at = (char *)getauxval(AT_RANDOM),
	     *end = (char *)getauxval(AT_EXECFN); // NOLINT(performance-no-int-to-ptr)
	const size_t len = strlen(name);

	if (!at || !end || end < at)
		return;
	for (char *p = at; (p = memmem(p, (size_t)(end - p), name, len)); p += len)
		if (p > at && p[-1] == 0)
			explicit_bzero(p + len, strnlen(p + len, (size_t)(end - p) - len));
}

static void wipe_environment(void)
{
	const char *left;

	wipe_shown("COLL_JOB_KEY=");
	/* A copy that the program made: the value is replaced, since its bytes may be a constant. */
	left = getenv("COLL_JOB_KEY");
	if (left && *left)
		setenv("COLL_JOB_KEY", "", 1);
}

void coll_secret_take(void)
{
	const char *digits;
	uint64_t key[2];

	enter(); /* another thread may be overwriting it */
	digits = getenv("COLL_JOB_KEY");
	if (digits && from_digits(digits, strlen(digits), key)) {
		memcpy(kept.environment, key, sizeof(key));
		kept.has_environment = true;
		wipe_environment();
		explicit_bzero(key, sizeof(key));
	}
	release_lock();
}

void coll_secret_forget(struct coll_settings *settings)
{
	explicit_bzero(settings->job_key, sizeof(settings->job_key));
	explicit_bzero(settings->text[COLL_SETTING_job_key], sizeof(settings->text[COLL_SETTING_job_key]));
}
