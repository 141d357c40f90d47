/*
 * The file of a digest: what is sound comes back, anything else is ignored and replaced, and one of many makes it.
 */
#include "topology/digest_cache.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/plain.h"
#include "topology/host_digest.h"

enum { KEY = 7, WAIT_MS = 60000, HEADER_BYTES = 32, THREADS = 8 };

struct place {
	char folder[64], path[80], path_new[96];
};

static atomic_int made;

static bool make(void *arg, struct coll_digest *d)
{
	struct coll_graph *g = coll_graph_new();

	atomic_fetch_add(&made, 1);
	g->cores = g->pus = g->kinds = 1;
	g->core[0] = (struct coll_graph_core){-1, -1, -1, 0};
	g->pu[0] = (struct coll_graph_pu){arg ? *(int *)arg : 0, 0};
	d->len_bytes = coll_digest_write(g, d->bytes);
	d->hash = coll_digest_hash(d->bytes, d->len_bytes);
	free(g);
	return true;
}

static bool make_poor(void *arg, struct coll_digest *d)
{
	(void)make(arg, d);
	return false;
}

static bool begin(struct place *p)
{
	snprintf(p->folder, sizeof(p->folder), "/tmp/coll-digest-XXXXXX");
	if (!mkdtemp(p->folder))
		return false;
	snprintf(p->path, sizeof(p->path), "%s/d", p->folder);
	snprintf(p->path_new, sizeof(p->path_new), "%s.new", p->path);
	atomic_store(&made, 0);
	return true;
}

static void end(const struct place *p)
{
	(void)unlink(p->path);
	(void)rmdir(p->path);
	(void)unlink(p->path_new);
	CHECK(rmdir(p->folder) == 0, "something is left in %s", p->folder);
}

static bool obtain(const struct place *p, struct coll_digest *d)
{
	return coll_digest_cache_obtain(p->path, KEY, WAIT_MS, make, NULL, d);
}

/* The file does not count, the digest is made again, and then there is a file that counts. */
static void check_replaced(const struct place *p, const char *what)
{
	const int before = atomic_load(&made);
	struct coll_digest d;

	CHECK(!coll_digest_cache_read(p->path, KEY, &d), "%s", what);
	CHECK(!obtain(p, &d) && atomic_load(&made) == before + 1, "%s", what);
	CHECK(coll_digest_cache_read(p->path, KEY, &d), "%s: not replaced", what);
	CHECK(access(p->path_new, F_OK) != 0, "%s: a file is left", what);
}

#define PLACE_TEST(suite, name) TEST_WITH(suite, name, struct place, p, REQUIRE(begin(&p)), end(&p))

PLACE_TEST(digest_cache, comes_back)
{
	struct coll_digest d, again;
	struct stat st;

	CHECK(!obtain(p, &d));
	CHECK(obtain(p, &again) && atomic_load(&made) == 1);
	CHECK(again.len_bytes == d.len_bytes && again.hash == d.hash && memcmp(again.bytes, d.bytes, d.len_bytes) == 0);
	CHECK(stat(p->path, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_size <= HEADER_BYTES + COLL_DIGEST_MAX);
	CHECK(!coll_digest_cache_read(p->path, KEY + 1, &d), "a file of another key");
	CHECK(!coll_digest_cache_obtain(p->path, KEY + 1, WAIT_MS, make, NULL, &d) && atomic_load(&made) == 2);
	CHECK(coll_digest_cache_read(p->path, KEY + 1, &d) && !coll_digest_cache_read(p->path, KEY, &d),
	      "not replaced");
}

PLACE_TEST(digest_cache, damaged_files_are_replaced)
{
	struct coll_digest d;
	struct stat st;

	CHECK(!obtain(p, &d));
	REQUIRE(stat(p->path, &st) == 0);
	for (off_t at = 0; at < st.st_size; at++) {
		const int fd = open(p->path, O_RDWR);
		char c;

		REQUIRE(fd >= 0 && pread(fd, &c, 1, at) == 1);
		c ^= 0x10;
		CHECK(pwrite(fd, &c, 1, at) == 1);
		close(fd);
		check_replaced(p, "a byte is changed");
	}
	for (off_t len = 0; len < st.st_size; len++) {
		CHECK(truncate(p->path, len) == 0);
		check_replaced(p, "truncated");
	}
	CHECK(truncate(p->path, st.st_size + 1) == 0);
	check_replaced(p, "too long");
	CHECK(truncate(p->path, (off_t)1 << 40) == 0);
	check_replaced(p, "huge");
}

PLACE_TEST(digest_cache, only_own_regular_files_count)
{
	struct coll_digest d;
	char other[100];

	CHECK(!obtain(p, &d));
	CHECK(chmod(p->path, 0620) == 0);
	check_replaced(p, "its group may write");
	CHECK(chmod(p->path, 0602) == 0);
	check_replaced(p, "others may write");
	snprintf(other, sizeof(other), "%s/other", p->folder);
	CHECK(rename(p->path, other) == 0 && symlink(other, p->path) == 0);
	check_replaced(p, "a symbolic link");
	CHECK(unlink(other) == 0);
	CHECK(unlink(p->path) == 0 && mkfifo(p->path, 0600) == 0);
	check_replaced(p, "a FIFO");
	if (geteuid() == 0) {
		CHECK(chown(p->path, 1234, 1234) == 0);
		check_replaced(p, "another user's");
	}
	/* What cannot be replaced: the digest is made, and nothing else happens. */
	CHECK(unlink(p->path) == 0 && mkdir(p->path, 0700) == 0);
	CHECK(!obtain(p, &d) && d.len_bytes > 0 && access(p->path_new, F_OK) != 0);
}

PLACE_TEST(digest_cache, a_lock_file_of_another_kind_is_not_written)
{
	struct coll_digest d;
	struct stat st;
	char other[100];
	int fd;

	snprintf(other, sizeof(other), "%s/other", p->folder);
	fd = open(other, O_WRONLY | O_CREAT, 0600);
	REQUIRE(fd >= 0);
	close(fd);
	CHECK(symlink(other, p->path_new) == 0);
	CHECK(!obtain(p, &d) && d.len_bytes > 0);
	CHECK(stat(other, &st) == 0 && st.st_size == 0);
	CHECK(access(p->path, F_OK) != 0);
	/* Where the system lets users link to files that are not theirs. */
	CHECK(unlink(p->path_new) == 0 && link(other, p->path_new) == 0);
	CHECK(!obtain(p, &d) && d.len_bytes > 0);
	CHECK(stat(other, &st) == 0 && st.st_size == 0, "a file of ours that others have linked to is written");
	CHECK(access(p->path, F_OK) != 0);
	CHECK(unlink(other) == 0);
}

PLACE_TEST(digest_cache, what_a_dead_process_left_is_used)
{
	int fd;

	fd = open(p->path_new, O_WRONLY | O_CREAT, 0600);
	REQUIRE(fd >= 0);
	CHECK(write(fd, "coll", 4) == 4);
	close(fd);
	check_replaced(p, "half a file");
}

PLACE_TEST(digest_cache, poor_digests_are_not_kept)
{
	struct coll_digest d;

	CHECK(!coll_digest_cache_obtain(p->path, KEY, WAIT_MS, make_poor, NULL, &d) && d.len_bytes > 0);
	CHECK(access(p->path, F_OK) != 0 && access(p->path_new, F_OK) != 0);
}

struct waiter {
	const struct place *p;
	struct coll_digest d;
	bool found;
};

static void *wait_for_digest(void *arg)
{
	struct waiter *w = arg;

	w->found = obtain(w->p, &w->d);
	return NULL;
}

PLACE_TEST(digest_cache, one_of_many_makes_it)
{
	static struct waiter w[THREADS];
	pthread_t t[THREADS];
	int cached = 0;

	for (int i = 0; i < THREADS; i++) {
		w[i].p = p;
		REQUIRE(pthread_create(&t[i], NULL, wait_for_digest, &w[i]) == 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		cached += w[i].found;
		CHECK(w[i].d.hash == w[0].d.hash);
	}
	CHECK(atomic_load(&made) == 1 && cached == THREADS - 1, "%d made, %d from the file", atomic_load(&made),
	      cached);
}

PLACE_TEST(digest_cache, nobody_waits_for_ever)
{
	struct coll_digest d;
	int fd;

	fd = open(p->path_new, O_WRONLY | O_CREAT, 0600);
	REQUIRE(fd >= 0 && flock(fd, LOCK_EX) == 0);
	CHECK(!coll_digest_cache_obtain(p->path, KEY, 1, make, NULL, &d) && d.len_bytes > 0);
	CHECK(access(p->path, F_OK) != 0, "written without the lock");
	close(fd);
}

/* The key of a process in a new network namespace, which ends; 0: not permitted. */
static uint64_t key_of_new_network(char path[256])
{
	struct {
		char path[256];
		uint64_t key;
	} answer = {.key = 0};
	int fd[2], status;
	pid_t child;

	if (pipe2(fd, O_CLOEXEC) < 0)
		return 0;
	child = fork();
	if (child == 0) {
		if (unshare(CLONE_NEWNET) == 0 &&
		    coll_host_digest_path(answer.path, sizeof(answer.path), &answer.key) &&
		    write(fd[1], &answer, sizeof(answer)) < 0)
			_exit(1);
		_exit(0);
	}
	close(fd[1]);
	if (child < 0 || read(fd[0], &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
		answer.key = 0;
	close(fd[0]);
	if (child > 0)
		CHECK(waitpid(child, &status, 0) == child);
	memcpy(path, answer.path, sizeof(answer.path));
	return answer.key;
}

TEST(host_digest, networks_are_told_apart)
{
	enum { NETWORKS = 200, FILES_MAX = 64 };
	static uint64_t keys[NETWORKS];
	static char paths[NETWORKS][256];
	uint64_t netns;
	socklen_t len = sizeof(netns);
	const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const bool distinct = fd >= 0 && getsockopt(fd, SOL_SOCKET, 71 /* SO_NETNS_COOKIE */, &netns, &len) == 0;
	int files = 0;

	if (fd >= 0)
		close(fd);
	unsetenv("HWLOC_XMLFILE");
	unsetenv("HWLOC_SYNTHETIC");
	for (int i = 0; i < NETWORKS; i++) {
		bool again = false;

		keys[i] = key_of_new_network(paths[i]);
		if (keys[i] == 0)
			SKIP("no right to make a network namespace, or no folder for the file");
		for (int k = 0; k < i; k++) {
			CHECK(!distinct || keys[k] != keys[i], "networks %d and %d have one key", k, i);
			again = again || strcmp(paths[k], paths[i]) == 0;
		}
		files += !again;
	}
	CHECK(files <= FILES_MAX, "%d files are left", files);
}

TEST(host_digest, this_host)
{
	static struct coll_host_digest d, again;
	char path[256], other[256];
	uint64_t key, same;

	unsetenv("HWLOC_XMLFILE");
	unsetenv("HWLOC_SYNTHETIC");
	coll_host_digest_obtain(&d);
	coll_host_digest_obtain(&again);
	CHECK(d.digest.len_bytes > 0 && d.digest.hash == again.digest.hash);
	if (coll_host_digest_path(path, sizeof(path), &key)) {
		CHECK(coll_host_digest_path(other, sizeof(other), &same) && same == key && strcmp(path, other) == 0);
		CHECK(again.cached == (d.note[0] == 0), "%s", d.note);
	}
	setenv("HWLOC_SYNTHETIC", "numa:2 core:2 pu:1", 1);
	CHECK(!coll_host_digest_path(path, sizeof(path), &key), "a machine that is told is not kept");
	coll_host_digest_obtain(&again);
	CHECK(!again.cached && again.digest.len_bytes > 0);
	setenv("HWLOC_SYNTHETIC", "nonsense:", 1);
	coll_host_digest_obtain(&again);
	CHECK(again.digest.len_bytes > 0, "hwloc fails: the kernel's part remains");
	unsetenv("HWLOC_SYNTHETIC");
}
