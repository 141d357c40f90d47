/*
 * The text of an address: a fixed part, then 28 bytes for each port, or 40 where its address is one of IPv6. Everything
 * that comes from a peer is checked.
 */
#include "transports/rdma/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/link_rates.h"

enum {
	FIXED_BYTES = 4 + 2 + 2 + 16,
	SPOT_FIXED_BYTES = 1 + 1 + 1 + 1 + 2 + 3,
	NAME_BYTES = COLL_RDMA_DEVICE_BYTES - 1
};

static size_t ip_bytes(const struct coll_rdma_spot *s)
{
	return s->family == 4 ? 4 : 16;
}

static void put_spot(const struct coll_rdma_spot *s, unsigned char *p)
{
	const size_t ip = ip_bytes(s);

	p[0] = (unsigned char)((s->family == 6) | (s->fabric & 7) << 1 | (s->layer & 3) << 4 | s->origin << 6);
	p[1] = s->prefix;
	p[2] = s->number;
	p[3] = s->distance;
	memcpy(p + 4, &s->listens, 2);
	p[6] = (unsigned char)s->mbps;
	p[7] = (unsigned char)(s->mbps >> 8);
	p[8] = (unsigned char)(s->mbps >> 16);
	memcpy(p + SPOT_FIXED_BYTES, s->ip, ip);
	memset(p + SPOT_FIXED_BYTES + ip, 0, NAME_BYTES);
	memcpy(p + SPOT_FIXED_BYTES + ip, s->device, strnlen(s->device, NAME_BYTES));
}

coll_status coll_rdma_address_encode(const struct coll_rdma_peer_info *info, void *buf, size_t cap, size_t *len_bytes)
{
	const uint32_t magic = COLL_RDMA_MAGIC;
	const uint16_t version = COLL_RDMA_VERSION;
	unsigned char *p = buf;
	size_t at = FIXED_BYTES;
	uint16_t count = 0;

	for (; count < info->count; count++) {
		const size_t bytes = SPOT_FIXED_BYTES + ip_bytes(&info->port[count]) + NAME_BYTES;

		if (cap < at + bytes)
			break;
		put_spot(&info->port[count], p + at);
		at += bytes;
	}
	if (count == 0)
		return COLL_ERR_ARGUMENT;
	memcpy(p, &magic, 4);
	memcpy(p + 4, &version, 2);
	memcpy(p + 6, &count, 2);
	memcpy(p + 8, &info->id, 16);
	*len_bytes = at;
	return COLL_OK;
}

/* How many bytes it takes up; 0: it is none. */
static size_t get_spot(struct coll_rdma_spot *s, const unsigned char *p, size_t len_bytes)
{
	size_t ip;

	if (len_bytes < SPOT_FIXED_BYTES)
		return 0;
	*s = (struct coll_rdma_spot){.family = p[0] & 1 ? 6 : 4,
	                             .fabric = p[0] >> 1 & 7,
	                             .layer = p[0] >> 4 & 3,
	                             .origin = p[0] >> 6,
	                             .prefix = p[1],
	                             .number = p[2],
	                             .distance = p[3],
	                             .mbps = (uint32_t)p[6] | (uint32_t)p[7] << 8 | (uint32_t)p[8] << 16};
	ip = ip_bytes(s);
	if (len_bytes < SPOT_FIXED_BYTES + ip + NAME_BYTES || s->prefix > 8 * ip || s->mbps > COLL_LINK_RATE_MAX)
		return 0;
	memcpy(&s->listens, p + 4, 2);
	memcpy(s->ip, p + SPOT_FIXED_BYTES, ip);
	memcpy(s->device, p + SPOT_FIXED_BYTES + ip, NAME_BYTES);
	for (char *c = s->device; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?'; /* it is for messages only */
	return SPOT_FIXED_BYTES + ip + NAME_BYTES;
}

bool coll_rdma_address_decode(struct coll_rdma_peer_info *info, const void *buf, size_t len_bytes)
{
	const unsigned char *p = buf;
	size_t at = FIXED_BYTES;
	uint32_t magic;
	uint16_t version, count;

	if (len_bytes < at)
		return false;
	memcpy(&magic, p, 4);
	memcpy(&version, p + 4, 2);
	memcpy(&count, p + 6, 2);
	if (magic != COLL_RDMA_MAGIC || version != COLL_RDMA_VERSION || count == 0 || count > COLL_RDMA_PORTS)
		return false;
	*info = (struct coll_rdma_peer_info){.count = count};
	memcpy(&info->id, p + 8, 16);
	for (unsigned i = 0; i < count; i++) {
		const size_t bytes = get_spot(&info->port[i], p + at, len_bytes - at);

		if (bytes == 0)
			return false;
		at += bytes;
	}
	return at == len_bytes;
}

void coll_rdma_spot_sockaddr(const struct coll_rdma_spot *spot, uint16_t service, struct sockaddr_storage *sa)
{
	memset(sa, 0, sizeof(*sa));
	if (spot->family == 4) {
		struct sockaddr_in *in4 = (struct sockaddr_in *)sa;

		in4->sin_family = AF_INET;
		in4->sin_port = htons(service);
		memcpy(&in4->sin_addr, spot->ip, 4);
	} else {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)sa;

		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(service);
		memcpy(&in6->sin6_addr, spot->ip, 16);
	}
}

const char *coll_rdma_spot_text(const struct coll_rdma_spot *spot, char *buf, size_t cap)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	inet_ntop(spot->family == 4 ? AF_INET : AF_INET6, spot->ip, ip, sizeof(ip));
	snprintf(buf, cap, "%.15s port %u at %s", spot->device, spot->number, ip);
	return buf;
}
