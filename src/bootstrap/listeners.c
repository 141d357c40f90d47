/*
 * See listeners.h. Owns the choice of addresses to listen at; the descriptors are the caller's.
 */
#include "bootstrap/listeners.h"

#include <ifaddrs.h>

#include "base/fork.h"
#include "base/ips.h"

enum { BACKLOG = 4096 };

bool coll_rendezvous_add(struct coll_rendezvous_listeners *l, int fd)
{
	if (fd >= 0)
		l->fd[l->count++] = fd;
	return fd >= 0;
}

void coll_rendezvous_unlisten(struct coll_rendezvous_listeners *l)
{
	for (int i = 0; i < l->count; i++)
		coll_fd_close(l->fd[i]);
	l->count = 0;
}

static void add_loopback(struct coll_ips *to, const struct coll_places *p)
{
	for (int i = 0; p && i < p->count && to->count < COLL_IPS_MAX; i++)
		if (coll_address_is_loopback(&p->place[i]) &&
		    coll_ip_from(&to->at[to->count], (const struct sockaddr *)&p->place[i].at))
			to->count++;
}

bool coll_rendezvous_listen(struct coll_rendezvous_listeners *l, const struct coll_settings *settings,
                            const struct coll_places *besides, uint16_t first, uint16_t last, uint16_t *port)
{
	struct coll_ips at = {.count = 0};
	struct coll_listen_how how = {.at = &at, .first = first, .last = last, .backlog = BACKLOG};
	struct coll_listeners tcp;
	struct ifaddrs *all;

	if (settings->interface[0] && getifaddrs(&all) == 0) {
		coll_ips_read(&at, all, settings->interface);
		add_loopback(&at, besides);
		freeifaddrs(all);
	}
	if (!coll_listeners_open(&tcp, &how))
		return false;
	for (int i = 0; i < tcp.count; i++)
		coll_rendezvous_add(l, tcp.fd[i]);
	*port = tcp.port;
	return true;
}
