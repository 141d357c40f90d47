/*
 * The end of processes of this host, by a descriptor of the process (pidfd). It decides: sockets may stay open after a
 * process has ended, since children that it made may hold them.
 *
 * A process id counts only where both ends have the same name space of processes on the same machine, and only from
 * the moment that a link has been authenticated: before, it may already be another process's. Sockets are closed before
 * the descriptor is readable, so what the process has said last is in its links: who hears that it is readable reads
 * them first.
 */
#include "control/process.h"

#include "control/one_host.h"
#include "net/net.h"

void coll_control_watch_process(struct coll_control *c, int peer)
{
	const struct coll_peer_info *us = &c->peer_infos[c->rank], *it = &c->peer_infos[peer];
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = EVENT_OF_PROCESS | (uint64_t)peer};
	struct peer *p = &c->peers[peer];
	int fd;

	if (p->process_fd > 0 || !coll_one_machine(it, us) || it->process_space != us->process_space ||
	    !it->process_space || it->process == us->process)
		return;
	/* Without a descriptor, links say what they can. */
	fd = coll_net->process_open(it->process);
	if (fd < 0)
		return;
	p->process_fd = fd;
	coll_net->epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

void coll_control_forget_process(struct coll_control *c, int peer)
{
	struct peer *p = &c->peers[peer];

	if (p->process_fd > 0)
		coll_net->close(p->process_fd);
	p->process_fd = 0;
}
