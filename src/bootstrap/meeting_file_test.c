/*
 * Files that say where the ranks of a host meet: what counts, what is passed over, what is removed, and meetings that
 * somebody else wants to keep from happening.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fork.h"
#include "bootstrap/job_test.h"
#include "bootstrap/meeting_file.h"

enum { NOBODY = 65534 };

static const uint64_t key[2] = {21, 22}, other_key[2] = {21, 23};
static char folder[64];                      /* of this test alone */
static char beside[COLL_MEETING_PATH_BYTES]; /* what the test in hand made beside the file */
static pid_t maker;

/* Of this process: others run this test too. */
static const char *own(const char *text)
{
	static char words[4][64];
	static int used;
	char *w = words[used++ % 4];

	snprintf(w, sizeof(words[0]), "%s %d", text, (int)getpid());
	return w;
}

static struct coll_meeting_words words_of(const char *text)
{
	return (struct coll_meeting_words){own(text), key};
}

static const char *random_name(char name[COLL_MEETING_SOCKET_BYTES])
{
	static int drawn;

	snprintf(name, COLL_MEETING_SOCKET_BYTES, "coll-%016llx%016x", (unsigned long long)getpid(), drawn++);
	return name;
}

/* Written by a rank 0 that listens. */
static int write_one(const struct coll_meeting_words *w, struct coll_meeting_files *files)
{
	char name[COLL_MEETING_SOCKET_BYTES];
	struct coll_address a;
	const int fd = coll_listen_unix(random_name(name), &a);

	CHECK(fd >= 0);
	CHECK(coll_meeting_write(w, name, files) == COLL_MEETING_WRITTEN);
	return fd;
}

static int count(const struct coll_meeting_words *w, bool thorough)
{
	struct coll_places found = {0};

	coll_meeting_find(w, thorough, &found);
	return found.count;
}

/* Only the file of the first folder, which is this test's own. */
static void leave_one(struct coll_meeting_files *files)
{
	for (int i = 1; i < COLL_MEETING_FOLDERS; i++) {
		if (files->path[i][0])
			unlink(files->path[i]);
		files->path[i][0] = '\0';
	}
}

TEST(meeting_file, every_folder_has_it_and_one_is_enough)
{
	const struct coll_meeting_words w = words_of("one"), other = words_of("another"), keyed = {w.text, other_key};
	struct coll_meeting_files files;
	struct stat st;
	const int fd = write_one(&w, &files);

	for (int i = 0; i < COLL_MEETING_FOLDERS; i++)
		CHECK(lstat(files.path[i], &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600, "%s",
		      files.path[i]);
	CHECK(count(&w, false) == 1 && count(&w, true) == 1);
	/* Where the kernel lets them, others can give it one more name. */
	CHECK(link(files.path[0], beside) == 0 && count(&w, false) == 1 && unlink(beside) == 0);
	CHECK(count(&other, true) == 0);
	CHECK(count(&keyed, true) == 0, "a file of another key leads nowhere");
	leave_one(&files);
	CHECK(count(&w, false) == 1);
	coll_meeting_remove(&files);
	CHECK(count(&w, true) == 0);
	coll_fd_close(fd);
}

TEST(meeting_file, a_mask_of_the_user_changes_nothing)
{
	const struct coll_meeting_words w = words_of("mask");
	struct coll_meeting_files files;
	const mode_t before = umask(0777);
	const int fd = write_one(&w, &files);

	CHECK(count(&w, false) == 1);
	umask(0);
	coll_meeting_remove(&files);
	coll_fd_close(fd);
	umask(before);
}

TEST(meeting_file, a_second_process_is_told)
{
	const struct coll_meeting_words w = words_of("twice"), keyed = {w.text, other_key};
	struct coll_meeting_files first, again, third;
	const int fd = write_one(&w, &first);
	int fd_keyed;

	CHECK(coll_meeting_held(&w) && !coll_meeting_held(&keyed));
	CHECK(coll_meeting_write(&w, "coll-0000000000000000000000000000000a", &again) == COLL_MEETING_TAKEN);
	coll_meeting_remove(&again);
	CHECK(count(&w, true) == 1, "the first is still there");
	/* Another job of equal words has its own. */
	fd_keyed = write_one(&keyed, &third);
	CHECK(count(&w, true) == 1 && count(&keyed, true) == 1);
	coll_meeting_remove(&third);
	coll_fd_close(fd_keyed);
	coll_meeting_remove(&first);
	coll_fd_close(fd);
}

/* ---- What does not count ----------------------------------------------- */

/* Replace the file of the first folder by what make() makes of it, and expect that it leads nowhere; then write another
 * one, which goes by another name. */
static void spoil(const char *what, void (*make)(const char *path))
{
	const struct coll_meeting_words w = words_of(what);
	struct coll_meeting_files files, again;
	int fd = write_one(&w, &files), fd_again;

	leave_one(&files);
	make(files.path[0]);
	CHECK(count(&w, true) == 0, "%s", what);
	fd_again = write_one(&w, &again);
	leave_one(&again);
	CHECK(strncmp(again.path[0], files.path[0], strlen(files.path[0])) == 0);
	CHECK(strcmp(again.path[0], files.path[0]) != 0, "%s: it took the name", what);
	CHECK(count(&w, false) == 1, "%s", what);
	coll_meeting_remove(&again);
	coll_meeting_remove(&files);
	unlink(beside);
	coll_fd_close(fd);
	coll_fd_close(fd_again);
}

static void others_may_read(const char *path)
{
	CHECK(chmod(path, 0640) == 0);
}

static void is_a_symlink(const char *path)
{
	CHECK(rename(path, beside) == 0 && symlink(beside, path) == 0);
}

static void is_a_fifo(const char *path)
{
	CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
}

static void is_somebody_elses(const char *path)
{
	CHECK(chown(path, NOBODY, NOBODY) == 0);
}

TEST(meeting_file, only_a_file_of_this_user_alone_counts)
{
	spoil("others may read it", others_may_read);
	spoil("it is a symlink", is_a_symlink);
	spoil("it is a fifo", is_a_fifo);
	if (geteuid() == 0)
		spoil("it is somebody else's", is_somebody_elses);
}

static void write_text(const char *path, const char *text)
{
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	coll_fd_close(fd);
}

TEST(meeting_file, nonsense_leads_nowhere)
{
	static const char *const texts[] = {
	        "", "x", "0000000000000000 0000000000000000 coll-0000000000000000000000000000000a\n",
	        "zzzzzzzzzzzzzzzz zzzzzzzzzzzzzzzz                                      \n"};
	const struct coll_meeting_words w = words_of("nonsense");
	struct coll_meeting_files files;
	const int fd = write_one(&w, &files);

	leave_one(&files);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(files.path[0], texts[i]);
		CHECK(count(&w, true) == 0, "%s", texts[i]);
	}
	coll_meeting_remove(&files);
	coll_fd_close(fd);
}

/* ---- What is left ------------------------------------------------------ */

TEST(meeting_file, what_the_dead_have_left_is_removed)
{
	const struct coll_meeting_words dead = words_of("dead"), living = words_of("living");
	struct coll_meeting_files left, kept;
	const int fd = write_one(&dead, &left), fd_living = write_one(&living, &kept);

	CHECK(coll_meeting_held(&dead));
	coll_fd_close(fd);
	CHECK(count(&dead, false) == 1);
	CHECK(!coll_meeting_held(&dead));
	coll_meeting_clean();
	CHECK(count(&dead, true) == 0 && access(left.path[0], F_OK) != 0);
	CHECK(count(&living, true) == 1);
	coll_meeting_remove(&kept);
	coll_fd_close(fd_living);
}

/* ---- Meetings ---------------------------------------------------------- */

/* A rank 0 was killed, and somebody has taken the name of its socket, which all can read. */
static void a_dead_name_is_taken(struct job *j)
{
	const struct coll_meeting_words w = {j->id.unix_name, j->id.job_key};
	struct coll_meeting_files files;
	const int fd = write_one(&w, &files);
	struct coll_address a = meeting_place(j);
	int pipe_fds[2];
	char c;

	coll_fd_close(fd);
	REQUIRE(pipe(pipe_fds) == 0);
	j->pid[JOB_RANKS_MAX - 1] = fork();
	if (j->pid[JOB_RANKS_MAX - 1] == 0) {
		struct coll_address again;
		char name[COLL_MEETING_SOCKET_BYTES];

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memcpy(name, ((struct sockaddr_un *)&a.at)->sun_path + 1, 37);
		name[37] = '\0';
		if (setuid(NOBODY) != 0 || coll_listen_unix(name, &again) < 0)
			exit(1);
		(void)!write(pipe_fds[1], "x", 1);
		pause();
	}
	close(pipe_fds[1]);
	REQUIRE(read(pipe_fds[0], &c, 1) == 1);
	close(pipe_fds[0]);
}

TEST(meeting_file, names_that_others_hold_stop_no_job)
{
	struct coll_meeting_files files;
	struct coll_address a;
	struct job j;
	int fd, name;

	if (geteuid() != 0)
		SKIP("only root can be somebody else");
	job_init(&j, 12, gather_200);
	over_unix(&j);
	/* The usual name in each folder, by which alone anything could be foreseen, and the old name of the socket. */
	fd = write_one(&(struct coll_meeting_words){j.id.unix_name, j.id.job_key}, &files);
	coll_fd_close(fd);
	for (int i = 0; i < COLL_MEETING_FOLDERS; i++)
		CHECK(chown(files.path[i], NOBODY, NOBODY) == 0 && chmod(files.path[i], 0644) == 0);
	name = coll_listen_unix(j.id.unix_name, &a);
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	coll_meeting_remove(&files);
	coll_fd_close(name);
	job_free(&j);
	job_init(&j, 12, gather_200);
	over_unix(&j);
	a_dead_name_is_taken(&j);
	start_all_but(&j, -1);
	for (int r = 0; r < j.n; r++)
		waitpid(j.pid[r], NULL, 0);
	kill(j.pid[JOB_RANKS_MAX - 1], SIGKILL);
	waitpid(j.pid[JOB_RANKS_MAX - 1], NULL, 0);
	all_ok(&j);
	job_free(&j);
}

TEST(meeting_file, names_that_the_key_gives_and_others_hold_stop_no_job)
{
	struct coll_meeting_words w;
	struct coll_address a, again;
	int fd[COLL_MEETING_NAMES];
	struct job j;

	if (geteuid() != 0)
		SKIP("only root can be somebody else");
	job_init(&j, 12, gather_200);
	over_unix(&j);
	j.id.secret = "a test";
	w = (struct coll_meeting_words){j.id.unix_name, j.id.job_key};
	for (int i = 0; i < COLL_MEETING_NAMES; i++) {
		coll_meeting_named(&w, i, &a);
		coll_meeting_named(&(struct coll_meeting_words){w.text, other_key}, i, &again);
		CHECK(a.len == again.len && memcmp(&a.at, &again.at, a.len) != 0);
		/* The kernel tells who it was that called listen(). */
		CHECK(seteuid(NOBODY) == 0);
		fd[i] = coll_listen_unix_at(&a);
		CHECK(seteuid(0) == 0 && fd[i] >= 0);
	}
	start_all_but(&j, -1);
	job_wait(&j);
	all_ok(&j);
	job_free(&j);
	for (int i = 0; i < COLL_MEETING_NAMES; i++)
		coll_fd_close(fd[i]);
}

static void remove_folder(void)
{
	if (getpid() == maker)
		rmdir(folder);
}

PROGRAM(meeting_file, "")
{
	snprintf(folder, sizeof(folder), "/tmp/meeting_file_test.XXXXXX");
	if (!mkdtemp(folder))
		return -1;
	snprintf(beside, sizeof(beside), "%s/beside", folder);
	setenv("XDG_RUNTIME_DIR", folder, 1);
	maker = getpid();
	atexit(remove_folder);
	return 1;
}
