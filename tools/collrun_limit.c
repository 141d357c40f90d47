/*
 * The limit of open descriptors. Front and agents raise theirs to the hard one, since they hold some for each host and
 * each rank; their children get back what collrun was started with.
 */
#include <sys/resource.h>

#include "collrun.h"

static struct rlimit before;
static bool raised;

void limit_raise(void)
{
	struct rlimit most;

	if (raised || getrlimit(RLIMIT_NOFILE, &before) < 0)
		return;
	most = before;
	most.rlim_cur = most.rlim_max;
	raised = setrlimit(RLIMIT_NOFILE, &most) == 0;
}

void limit_give_back(void)
{
	if (raised)
		setrlimit(RLIMIT_NOFILE, &before);
}
