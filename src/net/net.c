/*
 * The system's own table: see net.h. It owns the pointer to the table in use and nothing else;
 * what a call means is the system's matter.
 */
#include "net/net.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fork.h"
#include "base/thread.h"

/* What makes descriptors keeps them for forks. Address arguments are a union of pointer types in the C library, so a
 * plain pointer to these functions has another type than the table. */
static int system_socket(int domain, int type, int protocol)
{
	return COLL_FD(socket(domain, type, protocol));
}

static int system_bind(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	return bind(fd, address, len_bytes);
}

static int system_accept(int fd, int flags)
{
	return COLL_FD(accept4(fd, NULL, NULL, flags));
}

static int system_connect(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	return connect(fd, address, len_bytes);
}

static int system_getsockname(int fd, struct sockaddr *address, socklen_t *len_bytes)
{
	return getsockname(fd, address, len_bytes);
}

static int system_epoll_create(int flags)
{
	return COLL_FD(epoll_create1(flags));
}

static int system_eventfd(unsigned value, int flags)
{
	return COLL_FD(eventfd(value, flags));
}

static int system_timerfd_create(int clock, int flags)
{
	return COLL_FD(timerfd_create(clock, flags));
}

static int system_process_open(pid_t process)
{
	return COLL_FD((int)syscall(SYS_pidfd_open, process, 0));
}

static int system_getpeername(int fd, struct sockaddr *address, socklen_t *len_bytes)
{
	return getpeername(fd, address, len_bytes);
}

/* The second field of what the kernel says of the thread. */
static uint64_t system_held_up_ns(void)
{
	const int fd = COLL_FD(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC));
	char text[96], *second;
	ssize_t n;

	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	coll_fd_close(fd);
	text[n > 0 ? n : 0] = 0;
	strtoull(text, &second, 10);
	return strtoull(second, NULL, 10);
}

static const struct coll_net system_net = {
        .socket = system_socket,
        .bind = system_bind,
        .listen = listen,
        .accept = system_accept,
        .connect = system_connect,
        .getsockname = system_getsockname,
        .getpeername = system_getpeername,
        .getsockopt = getsockopt,
        .setsockopt = setsockopt,
        .send = send,
        .recv = recv,
        .getifaddrs = getifaddrs,
        .freeifaddrs = freeifaddrs,
        .epoll_create = system_epoll_create,
        .epoll_ctl = epoll_ctl,
        .epoll_wait = epoll_wait,
        .poll = poll,
        .eventfd = system_eventfd,
        .timerfd_create = system_timerfd_create,
        .timerfd_settime = timerfd_settime,
        .read = read,
        .write = write,
        .close = coll_fd_close,
        .process_open = system_process_open,
        .yield = sched_yield,
        .held_up_ns = system_held_up_ns,
        .sleep = nanosleep,
        .thread_start = coll_thread_start,
        .thread_join = pthread_join,
        .random = getrandom,
};

const struct coll_net *coll_net = &system_net;

void coll_net_take(const struct coll_net *net)
{
	coll_net = net ? net : &system_net;
}
