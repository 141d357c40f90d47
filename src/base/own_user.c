/*
 * See own_user.h. The kernel says the number of /proc/sys/kernel/overflowuid, 65534 as a rule, for each user that a
 * user namespace does not map. Where it maps all, that number is a user like others, often called nobody. What cannot
 * be read counts as a reason for doubt. Owns the number, which is read once.
 */
#include "base/own_user.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

enum { OVERFLOW_UID = 65534 };

static uid_t overflow_uid(void)
{
	static _Atomic int64_t known = -1;
	int64_t uid = atomic_load_explicit(&known, memory_order_relaxed);
	unsigned number = OVERFLOW_UID;
	FILE *f;

	if (uid >= 0)
		return (uid_t)uid;
	f = fopen("/proc/sys/kernel/overflowuid", "re");
	if (f && fscanf(f, "%u", &number) != 1)
		number = OVERFLOW_UID;
	if (f)
		fclose(f);
	atomic_store_explicit(&known, (int64_t)number, memory_order_relaxed);
	return (uid_t)number;
}

/* Not kept: a process may enter another namespace. */
static bool all_are_mapped(void)
{
	unsigned inside = 1, outside, count = 0;
	FILE *f = fopen("/proc/self/uid_map", "re");
	const int n = f ? fscanf(f, "%u %u %u", &inside, &outside, &count) : 0;

	if (f)
		fclose(f);
	return n == 3 && inside == 0 && count == UINT32_MAX;
}

enum coll_user coll_user_of(uid_t uid)
{
	if (uid == overflow_uid() && !all_are_mapped())
		return COLL_USER_UNKNOWN;
	return uid == geteuid() ? COLL_USER_OWN : COLL_USER_OTHER;
}
