/*
 * Sockets of the control plane: listeners, connections, fixed-size messages.
 * It has no policy: connect.c decides on links, control.c on what a message means.
 */
#include "control/socket.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/delay.h"
#include "base/retransmit.h"
#include "net/net.h"

static socklen_t unix_address(struct sockaddr_un *a, const char *name)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "%s", name);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* Others may see the name, and connect: processes of a job may be of several users. So it tells nothing of the process,
 * and it is the handshake that lets in. */
int coll_link_listen_unix(char *name, size_t len_bytes, const uint64_t random[2])
{
	struct sockaddr_un a;
	int fd = coll_net->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(name, len_bytes, "coll-%016llx%016llx", (unsigned long long)random[0], (unsigned long long)random[1]);
	if (fd < 0)
		return -1;
	if (coll_net->bind(fd, (void *)&a, unix_address(&a, name)) < 0 || coll_net->listen(fd, 1024) < 0) {
		coll_net->close(fd);
		name[0] = 0;
		return -1;
	}
	return fd;
}

bool coll_link_listen_tcp(const char *port_range, const struct coll_ips *at, struct coll_listeners *l)
{
	struct coll_listen_how how = {.at = at, .backlog = 1024};

	errno = EINVAL;
	if (*port_range &&
	    (sscanf(port_range, "%u-%u", &how.first, &how.last) != 2 || how.first > how.last || how.last > 65535))
		return false;
	return coll_listeners_open(l, &how);
}

void coll_link_tune(int fd, int unreachable_ms)
{
	int one = 1, idle = COLL_DELAY_CONTROL_IDLE_PROBE_MS / 1000;
	int count = unreachable_ms / COLL_DELAY_CONTROL_IDLE_PROBE_MS;
	const int again_ms = coll_retransmit_ms(unreachable_ms);

	/* An idle link detects an unreachable host as soon as one that waits. This is not a death yet: see
	 * liveness.c. */
	count = count < 1 ? 1 : count > 127 ? 127 : count;
	coll_net->setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	coll_net->setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	coll_net->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	coll_net->setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	coll_net->setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	coll_net->setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unreachable_ms, sizeof(unreachable_ms));
	coll_net->setsockopt(fd, IPPROTO_TCP, COLL_TCP_RTO_MAX, &again_ms, sizeof(again_ms));
}

bool coll_link_peer(int fd, struct coll_ip *ip)
{
	struct sockaddr_storage s;
	socklen_t len = sizeof(s);

	return coll_net->getpeername(fd, (void *)&s, &len) == 0 && coll_ip_from(ip, (void *)&s);
}

int coll_link_connect(const struct coll_peer_info *info, const struct coll_ip *ip, int unreachable_ms,
                      bool *in_progress)
{
	struct sockaddr_storage s;
	socklen_t len = ip ? coll_ip_to(ip, info->control_port, &s) : unix_address((void *)&s, info->control_unix);
	int fd = coll_net->socket(s.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -1;
	if (ip)
		coll_link_tune(fd, unreachable_ms);
	*in_progress = false;
	if (coll_net->connect(fd, (void *)&s, len) == 0)
		return fd;
	if (errno == EINPROGRESS) {
		*in_progress = true;
		return fd;
	}
	int why = errno;

	coll_net->close(fd);
	errno = why;
	return -1;
}

bool coll_link_queue(struct coll_control_link *l, const struct coll_message *m)
{
	struct coll_message *slot;

	if (l->count + (m->type != COLL_MSG_BYE) >= COLL_LINK_QUEUE)
		return false;
	slot = &l->out[(l->head + l->count) % COLL_LINK_QUEUE];
	*slot = *m;
	slot->magic = COLL_PEER_INFO_MAGIC;
	slot->version = COLL_PEER_INFO_VERSION;
	if (m->type > COLL_MSG_WELCOME)
		slot->check = coll_seal_next(&l->seal_out, slot, offsetof(struct coll_message, check));
	l->count++;
	return true;
}

bool coll_link_flush(struct coll_control_link *l)
{
	while (l->count > 0) {
		const char *p = (const char *)&l->out[l->head];
		ssize_t n = coll_net->send(l->fd, p + l->out_bytes, sizeof(struct coll_message) - l->out_bytes,
		                           MSG_NOSIGNAL);

		if (n < 0)
			return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
		l->out_bytes += (size_t)n;
		if (l->out_bytes < sizeof(struct coll_message))
			return true;
		l->out_bytes = 0;
		l->head = (l->head + 1) % COLL_LINK_QUEUE;
		l->count--;
	}
	return true;
}

int coll_link_read(struct coll_control_link *l)
{
	ssize_t n;

	if (l->in_bytes == sizeof(l->in))
		l->in_bytes = 0; /* the caller has consumed it */
	n = coll_net->recv(l->fd, (char *)&l->in + l->in_bytes, sizeof(l->in) - l->in_bytes, 0);
	if (n == 0)
		return -1;
	if (n < 0)
		return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
	l->in_bytes += (size_t)n;
	if (l->in_bytes >= 8 && (l->in.magic != COLL_PEER_INFO_MAGIC || l->in.version != COLL_PEER_INFO_VERSION)) {
		l->corrupt = l->ready;
		errno = 0;
		return -1;
	}
	return l->in_bytes == sizeof(l->in) ? 1 : 0;
}

bool coll_link_is_owed(const struct coll_control_link *l, uint32_t silent_ms)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	return coll_net->getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
	       (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0) && info.tcpi_last_ack_recv >= silent_ms;
}

bool coll_link_genuine(struct coll_control_link *l)
{
	const struct coll_proof want = coll_seal_next(&l->seal_in, &l->in, offsetof(struct coll_message, check));

	return coll_proof_same(&want, &l->in.check);
}
