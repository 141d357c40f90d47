/*
 * See round_trip.h. The kernel's header has members that the C library's lacks, and the two do not go together: so this
 * file includes it and nothing else of TCP.
 */
#include "base/round_trip.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

uint32_t coll_round_trip_us(int fd)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof(info);

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return 0;
	/* All ones: none was measured. */
	if (len >= offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt) && info.tcpi_min_rtt > 0 &&
	    info.tcpi_min_rtt < info.tcpi_rtt)
		return info.tcpi_min_rtt;
	return info.tcpi_rtt;
}
