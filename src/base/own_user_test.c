/*
 * Users that the kernel names: this one, another one, and those without a number in a user namespace.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/own_user.h"
#include "tests/plain.h"

enum { NOBODY = 65534, NO_NAMESPACE = 77 };

/* A container may map some users only. */
static bool all_have_numbers(void)
{
	unsigned inside = 1, outside, count = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	const int n = f ? fscanf(f, "%u %u %u", &inside, &outside, &count) : 0;

	if (f)
		fclose(f);
	return n == 3 && inside == 0 && count == UINT32_MAX;
}

TEST(own_user, this_one_and_others)
{
	if (!all_have_numbers())
		SKIP("not all users have numbers here");
	CHECK(coll_user_of(geteuid()) == COLL_USER_OWN);
	CHECK(coll_user_of(geteuid() + 1) == COLL_USER_OTHER);
	CHECK(coll_user_of(geteuid() == NOBODY ? 0 : NOBODY) == COLL_USER_OTHER);
}

static int in_child(int (*look)(void))
{
	const pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		_exit(look());
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int as_nobody(void)
{
	return setuid(NOBODY) == 0 ? (int)coll_user_of(geteuid()) : NO_NAMESPACE;
}

static int without_a_number(void)
{
	if (unshare(CLONE_NEWUSER) != 0)
		return NO_NAMESPACE;
	return geteuid() == NOBODY ? (int)coll_user_of(geteuid()) : -1;
}

TEST(own_user, nobody_is_a_user_where_all_have_numbers)
{
	if (!all_have_numbers())
		SKIP("not all users have numbers here");
	if (geteuid() != 0)
		SKIP("only root can be somebody else");
	CHECK(in_child(as_nobody) == COLL_USER_OWN);
}

TEST(own_user, without_a_number_it_may_be_anybody)
{
	const int seen = in_child(without_a_number);

	if (seen == NO_NAMESPACE)
		SKIP("no user namespaces here");
	CHECK(seen == COLL_USER_UNKNOWN, "%d", seen);
}
