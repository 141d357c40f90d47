/*
 * See descriptors.h. The limit is raised only for jobs that may need it: programs that use select() rely on low
 * numbers. It is raised when ranks join, ahead of need, because descriptors that come in a message are lost when there
 * is no number for them. Nothing lowers it again.
 */
#include "context/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"

/* MOST: as many as a forked child closes, base/fork.h. OTHERS: files, and connections that are not proved yet. A link
 * here is a socket and a doorbell, elsewhere a socket or some; a rank that asks this one why it waits has a control
 * link, of a socket and here a process (pidfd). */
enum { EACH_HERE = 4, EACH_ELSEWHERE = 3, OTHERS = 64, MOST = 1 << 20 };

unsigned long coll_descriptors_needed(int ranks_here, int ranks_elsewhere)
{
	return (unsigned long)(ranks_here - 1) * EACH_HERE + (unsigned long)ranks_elsewhere * EACH_ELSEWHERE + OTHERS;
}

/* The lowest free number: so many are in use, at least. */
static unsigned long in_use(const struct coll_context *ctx)
{
	const int fd = fcntl(ctx->wake_fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0 ? (unsigned long)fd : 0;
}

void coll_descriptors_allow(const struct coll_context *ctx, unsigned long needed)
{
	struct rlimit limit, raised;

	needed += in_use(ctx);
	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed || limit.rlim_cur >= limit.rlim_max)
		return;
	raised = (struct rlimit){limit.rlim_max < MOST ? limit.rlim_max : MOST, limit.rlim_max};
	if (setrlimit(RLIMIT_NOFILE, &raised) != 0)
		return;
	coll_log(&ctx->logger, COLL_LOG_INFO,
	         "this job may need %lu descriptors: the soft limit (ulimit -n) is raised from %lu to %lu", needed,
	         (unsigned long)limit.rlim_cur, (unsigned long)raised.rlim_cur);
}
