/*
 * See listeners.h. Owns the choice of addresses to listen at; the descriptors are the caller's.
 */
#include "bootstrap/listeners.h"

#include <errno.h>
#include <ifaddrs.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/ips.h"
#include "bootstrap/resolve.h"

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

static bool is_in(const struct coll_ips *l, const struct coll_ip *ip)
{
	for (unsigned i = 0; i < l->count; i++)
		if (coll_ip_same(&l->at[i], ip))
			return true;
	return false;
}

static void add_own(struct coll_ips *to, const struct coll_ips *own, const struct coll_places *p)
{
	struct coll_ip ip;

	for (int i = 0; p && i < p->count && to->count < COLL_IPS_MAX; i++)
		if (coll_ip_from(&ip, (const struct sockaddr *)&p->place[i].at) && (ip.loopback || is_in(own, &ip)) &&
		    !is_in(to, &ip))
			to->at[to->count++] = ip;
}

coll_status coll_rendezvous_addresses(const struct coll_settings *settings, const struct coll_places *besides,
                                      struct coll_ips *at, struct coll_error_box *err)
{
	struct ifaddrs *all;
	struct coll_ips own;
	char why[240];
	bool fits;

	at->count = 0;
	if (!settings->interface[0])
		return COLL_OK;
	if (getifaddrs(&all) != 0)
		return coll_error_set(err, COLL_ERR_SYSTEM, "cannot read the network interfaces: getifaddrs: %s",
		                      coll_errno_text(errno).text);
	fits = coll_ips_check(all, settings->interface, why, sizeof(why));
	coll_ips_read(at, all, settings->interface);
	coll_ips_read(&own, all, "");
	freeifaddrs(all);
	if (!fits)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s", why);
	add_own(at, &own, besides);
	return at->count > 0 ? COLL_OK : COLL_AGAIN;
}

bool coll_rendezvous_listen(struct coll_rendezvous_listeners *l, const struct coll_ips *at, uint16_t first,
                            uint16_t last, uint16_t *port)
{
	const struct coll_listen_how how = {.at = at, .first = first, .last = last, .backlog = BACKLOG};
	struct coll_listeners tcp;

	if (!coll_listeners_open(&tcp, &how))
		return false;
	for (int i = 0; i < tcp.count; i++)
		coll_rendezvous_add(l, tcp.fd[i]);
	*port = tcp.port;
	return true;
}

coll_status coll_rendezvous_root_addresses(const struct coll_settings *settings, const char *host, struct coll_ips *at,
                                           struct coll_error_box *err)
{
	struct coll_places found = {0};
	char why[200];

	if (settings->interface[0])
		coll_resolve(host, 0, coll_clock_ns() + COLL_DELAY_NS(ROOT_TRY), &found, why, sizeof(why));
	return coll_rendezvous_addresses(settings, &found, at, err);
}

void coll_rendezvous_ports(uint64_t seed, uint16_t named, uint16_t first, uint16_t last,
                           uint16_t ports[COLL_RENDEZVOUS_PORTS])
{
	struct coll_rng rng = {seed};
	const uint32_t low = first ? first : 20000, count = first ? last - first + 1u : 12000;
	int n = 0;

	if (named)
		ports[n++] = named;
	while (n < COLL_RENDEZVOUS_PORTS)
		ports[n++] = (uint16_t)(low + coll_rng_below(&rng, count));
}
