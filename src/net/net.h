/*
 * What the control plane asks of the system: sockets, readiness, wake-ups, sleeps, threads of the
 * library, random bytes. All of it goes through one table, so that a simulator can stand in for
 * the system's network. The clock has its own seam: base/clock.h.
 *
 * The members are the system's calls: same arguments, same results, errno as there. Who uses the
 * table: src/control, src/context, the waits of calls in flight, and the loop transport. The
 * transports that move bytes between processes (shm, tcp, rdma) make their own calls.
 */
#ifndef COLL_NET_NET_H
#define COLL_NET_NET_H

#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

struct coll_net {
	/* Sockets. */
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int fd, const struct sockaddr *address, socklen_t len_bytes);
	int (*listen)(int fd, int backlog);
	int (*accept)(int fd, int flags);
	int (*connect)(int fd, const struct sockaddr *address, socklen_t len_bytes);
	int (*getsockname)(int fd, struct sockaddr *address, socklen_t *len_bytes);
	int (*getpeername)(int fd, struct sockaddr *address, socklen_t *len_bytes);
	int (*getsockopt)(int fd, int level, int option, void *value, socklen_t *len_bytes);
	int (*setsockopt)(int fd, int level, int option, const void *value, socklen_t len_bytes);
	ssize_t (*send)(int fd, const void *bytes, size_t len_bytes, int flags);
	ssize_t (*recv)(int fd, void *bytes, size_t len_bytes, int flags);
	int (*getifaddrs)(struct ifaddrs **all);
	void (*freeifaddrs)(struct ifaddrs *all);
	/* Readiness. */
	int (*epoll_create)(int flags);
	int (*epoll_ctl)(int epoll, int what, int fd, struct epoll_event *event);
	int (*epoll_wait)(int epoll, struct epoll_event *events, int max, int timeout_ms);
	int (*poll)(struct pollfd *fds, nfds_t n, int timeout_ms);
	/* Wake-ups and timers. */
	int (*eventfd)(unsigned value, int flags);
	int (*timerfd_create)(int clock, int flags);
	int (*timerfd_settime)(int fd, int flags, const struct itimerspec *when, struct itimerspec *before);
	ssize_t (*read)(int fd, void *bytes, size_t len_bytes);
	ssize_t (*write)(int fd, const void *bytes, size_t len_bytes);
	int (*close)(int fd);
	/* A descriptor that is readable when the process has ended (pidfd). */
	int (*process_open)(pid_t process);
	/* The processor. */
	int (*yield)(void);
	/* Nanoseconds that this thread was ready to run and had no core, since it began; 0: not known. NULL: a
	 * simulated machine, whose time stands still while a wait spins. */
	uint64_t (*held_up_ns)(void);
	int (*sleep)(const struct timespec *time, struct timespec *left);
	int (*thread_start)(pthread_t *thread, size_t stack_bytes, void *(*run)(void *arg), void *arg);
	int (*thread_join)(pthread_t thread, void **result);
	ssize_t (*random)(void *bytes, size_t len_bytes, unsigned flags);
};

/* The table in use: the system's, or what coll_net_take() gave. */
extern const struct coll_net *coll_net;

/* For simulators: before the process has a context, or after its last one has ended. net lives
 * until another table takes its place; NULL: the system's again. */
void coll_net_take(const struct coll_net *net);

#endif
