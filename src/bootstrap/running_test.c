/*
 * The table of running ranks: who is listed, that a killed process leaves nothing, and which files do not count.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/running.h"
#include "plain.h"

static char path[64];
static struct coll_running_rank list[COLL_RUNNING_MAX];

static struct coll_running_rank rank_of(uint64_t job)
{
	return (struct coll_running_rank){.job = job, .cpus = {3}, .cores = 2, .process = (int32_t)getpid()};
}

static struct coll_running enter(uint64_t job)
{
	const struct coll_running_rank self = rank_of(job);
	struct coll_running t;

	coll_running_enter(&t, path, &self);
	return t;
}

static void fresh(void)
{
	snprintf(path, sizeof(path), "/tmp/coll-running-%d", (int)getpid());
	unlink(path);
}

#define TABLE_TEST(name) TEST_BETWEEN(running, name, fresh(), unlink(path))

TABLE_TEST(a_rank_of_another_job_is_listed_until_it_leaves)
{
	struct coll_running a = enter(1), b = enter(1), c = enter(2);

	CHECK(coll_running_others(&a, 1, list) == 1);
	CHECK(list[0].job == 2 && list[0].cpus[0] == 3 && list[0].cores == 2 && list[0].process == (int32_t)getpid());
	CHECK(coll_running_others(&c, 2, list) == 2);
	coll_running_leave(&c);
	CHECK(coll_running_others(&a, 1, list) == 0);
	coll_running_leave(&a);
	coll_running_leave(&b);
}

TABLE_TEST(who_comes_and_goes_is_a_change)
{
	struct coll_running a = enter(1), b;

	CHECK(coll_running_changed(&a) && !coll_running_changed(&a));
	b = enter(2);
	CHECK(coll_running_changed(&a) && !coll_running_changed(&a));
	coll_running_leave(&b);
	CHECK(coll_running_changed(&a) && !coll_running_changed(&a));
	coll_running_leave(&a);
}

TABLE_TEST(a_killed_process_is_not_listed)
{
	struct coll_running a = enter(1);
	const pid_t child = fork();
	int status;

	if (child == 0) {
		enter(2);
		raise(SIGSTOP);
		_exit(0);
	}
	waitpid(child, &status, WUNTRACED);
	CHECK(coll_running_others(&a, 1, list) == 1);
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	CHECK(coll_running_others(&a, 1, list) == 0);
	coll_running_leave(&a);
}

TABLE_TEST(many_ranks_have_an_entry_each)
{
	enum { MANY = COLL_RUNNING_MAX / 8 };
	static struct coll_running t[MANY];
	int listed = 0;

	for (int i = 0; i < MANY; i++) {
		t[i] = enter(2);
		listed += t[i].entry >= 0;
	}
	CHECK(listed == MANY && coll_running_others(&t[0], 1, list) == MANY - 1);
	for (int i = 0; i < MANY; i++)
		coll_running_leave(&t[i]);
	CHECK(coll_running_others(&t[0], 1, list) == 0);
}

TABLE_TEST(a_file_that_is_cut_short_lists_nobody)
{
	struct coll_running a = enter(1), b = enter(2);

	CHECK(truncate(path, 0) == 0);
	CHECK(coll_running_others(&a, 1, list) == 0);
	coll_running_leave(&b);
	coll_running_leave(&a);
}

TABLE_TEST(files_that_others_may_write_do_not_count)
{
	char real[80];
	struct coll_running a;

	close(open(path, O_CREAT | O_RDWR, 0600));
	chmod(path, 0620);
	a = enter(1);
	CHECK(a.fd < 0 && !coll_running_changed(&a) && coll_running_others(&a, 2, list) == 0);
	coll_running_leave(&a);
	unlink(path);
	CHECK(mkfifo(path, 0600) == 0);
	a = enter(1);
	CHECK(a.fd < 0);
	unlink(path);
	snprintf(real, sizeof(real), "%s-real", path);
	close(open(real, O_CREAT | O_RDWR, 0600));
	CHECK(symlink(real, path) == 0);
	a = enter(1);
	CHECK(a.fd < 0);
	unlink(path);
	CHECK(link(real, path) == 0); /* another user may give a file of ours a second name */
	a = enter(1);
	CHECK(a.fd < 0);
	unlink(real);
	if (geteuid() != 0)
		return;
	unlink(path);
	close(open(path, O_CREAT | O_RDWR, 0600));
	CHECK(chown(path, 12345, 12345) == 0);
	a = enter(1);
	CHECK(a.fd < 0);
}
