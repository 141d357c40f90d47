/*
 * What the kernel has counted of a link, over all of its rails: bytes add up, and time is that of the busiest, since
 * rails carry side by side. A socket that took the place of another counts from 0 again, so sums may fall.
 *
 * The C library's struct tcp_info ends before the members that are read here; the kernel's own has them.
 */
#include "transports/tcp/counts.h"

#include <linux/tcp.h>
#include <stddef.h>
#include <string.h>

#include "transports/tcp/tcp.h"

static void add(struct tcp_link *l, struct coll_link_counts *counts, bool *any)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);
	uint64_t busy;

	memset(&info, 0, sizeof(info));
	pthread_mutex_lock(&l->base.lock);
	if (l->state != LINK_UP || getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		len = 0;
	pthread_mutex_unlock(&l->base.lock);
	if (len < offsetof(struct tcp_info, tcpi_sndbuf_limited)) /* a kernel before 4.10 */
		return;
	*any = true;
	busy = info.tcpi_busy_time > info.tcpi_rwnd_limited ? info.tcpi_busy_time - info.tcpi_rwnd_limited : 0;
	counts->bytes += info.tcpi_bytes_acked;
	counts->repeated += info.tcpi_total_retrans;
	if (busy >= counts->busy_us)
		counts->busy_us = busy;
	if (info.tcpi_rtt > counts->rtt_us)
		counts->rtt_us = info.tcpi_rtt;
}

bool coll_tcp_link_counts(void *link, struct coll_link_counts *counts)
{
	struct coll_peer_link *first = link, *rail[COLL_RAILS_MAX];
	unsigned n;
	bool any = false;

	pthread_mutex_lock(&first->lock);
	n = first->rails;
	memcpy(rail, first->rail, sizeof(rail));
	pthread_mutex_unlock(&first->lock);
	*counts = (struct coll_link_counts){0};
	for (unsigned i = 0; i < n; i++)
		add((struct tcp_link *)rail[i], counts, &any);
	return any;
}
