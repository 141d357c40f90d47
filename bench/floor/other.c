/*
 * The other process of cuda_floor: started before the driver is loaded, since a process that uses it cannot fork. It
 * does what it is told over a socket.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "other.h"

static int sock = -1;
static pid_t child;

static bool hear_order(struct floor_order *o, int *descriptor)
{
	char room[CMSG_SPACE(sizeof(int))];
	struct iovec io = {o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room)};
	struct cmsghdr *c;

	*descriptor = -1;
	if (recvmsg(sock, &m, MSG_WAITALL) != (ssize_t)sizeof(*o))
		return false;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(descriptor, CMSG_DATA(c), sizeof(int));
	return true;
}

bool floor_tell(const struct floor_order *o, int descriptor)
{
	char room[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec io = {(void *)(uintptr_t)o, sizeof(*o)};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};

	if (descriptor >= 0) {
		struct cmsghdr *c;

		m.msg_control = room;
		m.msg_controllen = sizeof(room);
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
	}
	return sendmsg(sock, &m, MSG_NOSIGNAL) == (ssize_t)sizeof(*o);
}

bool floor_hear(struct floor_answer *a)
{
	return recv(sock, a, sizeof(*a), MSG_WAITALL) == (ssize_t)sizeof(*a);
}

static int serve(int ordinal)
{
	struct floor_answer a = {.done = floor_open(ordinal)};
	struct floor_order o;
	int descriptor;

	if (send(sock, &a, sizeof(a), MSG_NOSIGNAL) != (ssize_t)sizeof(a) || !a.done)
		return 1;
	while (hear_order(&o, &descriptor) && o.task != FLOOR_END) {
		a = (struct floor_answer){.done = false};
		if (o.task == FLOOR_PING || o.task == FLOOR_TURNS)
			a.done = floor_pair_other(&o);
		else
			floor_mapped_other(&o, descriptor, &a);
		if (descriptor >= 0)
			close(descriptor);
		if (send(sock, &a, sizeof(a), MSG_NOSIGNAL) != (ssize_t)sizeof(a))
			return 1;
	}
	return 0;
}

bool floor_other_start(int ordinal)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
		return false;
	fflush(NULL);
	child = fork();
	if (child < 0)
		return false;
	sock = ends[child == 0];
	close(ends[child != 0]);
	if (child == 0)
		_exit(serve(ordinal));
	return true;
}

void floor_other_end(void)
{
	const struct floor_order end = {.task = FLOOR_END};

	floor_tell(&end, -1);
	waitpid(child, NULL, 0);
}
