/*
 * Which device, port and address an instance uses, and how they are called in messages.
 * Every address of this machine is tried with the connection manager, which returns the
 * device of that address (if any); so InfiniBand, RoCE and iWARP are found alike. Of the usable
 * ports the one nearest to the calling thread's memory is used.
 */
#include "transports/rdma/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/ports.h"
#include "transports/rdma/rdma.h"

const char *coll_rdma_gid_text(const uint8_t gid[16], char *buf, size_t cap)
{
	if (!inet_ntop(AF_INET6, gid, buf, (socklen_t)cap))
		snprintf(buf, cap, "?");
	return buf;
}

void coll_rdma_path_text(const struct rdma_link *l, char *buf, size_t cap)
{
	char gid[INET6_ADDRSTRLEN];

	if (l->have_target)
		snprintf(buf, cap, "%s to %.24s port %u GID %s", l->inst->where, l->target.device, l->target.port_num,
		         coll_rdma_gid_text(l->target.gid, gid, sizeof(gid)));
	else
		snprintf(buf, cap, "%s", l->inst->where);
}

bool coll_rdma_peer_info_valid(const void *address, size_t len_bytes, struct coll_rdma_peer_info *info)
{
	if (len_bytes != sizeof(*info))
		return false;
	memcpy(info, address, sizeof(*info));
	info->device[sizeof(info->device) - 1] = 0;
	return info->magic == COLL_RDMA_MAGIC && info->version == COLL_RDMA_VERSION &&
	       (info->family == 4 || info->family == 6);
}

bool coll_rdma_device_active(struct rdma_inst *in)
{
	struct ibv_port_attr port;

	memset(&port, 0, sizeof(port));
	return in->v.ibv_query_port(in->device, in->info.port_num, (void *)&port) == 0 && port.state == IBV_PORT_ACTIVE;
}

/* "rxe0", "mlx5_0:1", "rxe0,rxe1": whether the list names this port; an empty one names all. */
static bool named(const char *list, const char *device, unsigned port)
{
	char full[80];

	if (!list[0])
		return true;
	snprintf(full, sizeof(full), "%s:%u", device, port);
	for (const char *p = list; *p;) {
		const size_t n = strcspn(p, ",");

		if ((n == strlen(device) && memcmp(p, device, n) == 0) ||
		    (n == strlen(full) && memcmp(p, full, n) == 0))
			return true;
		p += n + (p[n] == ',');
	}
	return false;
}

static bool same_ip(const struct sockaddr *sa, const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (sa->sa_family == AF_INET)
		return memcmp(gid, mapped, 12) == 0 &&
		       memcmp(gid + 12, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4) == 0;
	return memcmp(gid, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16) == 0;
}

/* Whether COLL_RDMA_GID_INDEX, if set, means this address of the port. */
static bool gid_wanted(struct rdma_inst *in, struct rdma_cm_id *id, const struct sockaddr *sa, char *why,
                       size_t why_bytes)
{
	const char *text = in->env.setting(in->env.ctx, "COLL_RDMA_GID_INDEX");
	const int index = text[0] ? atoi(text) : -1;
	union ibv_gid gid;

	if (index < 0)
		return true;
	memset(&gid, 0, sizeof(gid));
	if (in->v.ibv_query_gid(id->verbs, id->port_num, index, &gid) != 0 ||
	    (gid.global.subnet_prefix == 0 && gid.global.interface_id == 0)) {
		snprintf(why, why_bytes, "COLL_RDMA_GID_INDEX=%d: %s port %u has no such GID", index,
		         id->verbs->device->name, id->port_num);
		return false;
	}
	if (same_ip(sa, gid.raw))
		return true;
	snprintf(why, why_bytes, "COLL_RDMA_GID_INDEX=%d of %s port %u belongs to no usable address", index,
	         id->verbs->device->name, id->port_num);
	return false;
}

static void set_port(struct sockaddr *sa)
{
	if (sa->sa_family == AF_INET)
		((struct sockaddr_in *)(void *)sa)->sin_port = 0;
	else
		((struct sockaddr_in6 *)(void *)sa)->sin6_port = 0;
}

static void fill_card(struct rdma_inst *in, struct rdma_cm_id *id, const struct sockaddr *sa,
                      const struct ibv_port_attr *port)
{
	struct coll_rdma_peer_info *c = &in->info;
	char gid[INET6_ADDRSTRLEN];

	*c = (struct coll_rdma_peer_info){.magic = COLL_RDMA_MAGIC,
	                                  .version = COLL_RDMA_VERSION,
	                                  .port = ntohs(in->v.rdma_get_src_port(id)),
	                                  .id = in->env.self,
	                                  .family = sa->sa_family == AF_INET ? 4 : 6,
	                                  .fabric = (uint8_t)id->verbs->device->transport_type,
	                                  .layer = port->link_layer,
	                                  .port_num = id->port_num,
	                                  .mtu_bytes = 128u << port->active_mtu};
	if (sa->sa_family == AF_INET)
		memcpy(c->ip, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	else
		memcpy(c->ip, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	memcpy(c->gid, id->route.addr.addr.ibaddr.sgid.raw, 16);
	snprintf(c->device, sizeof(c->device), "%.23s", id->verbs->device->name);
	in->message_max = port->max_msg_sz;
	snprintf(in->where, sizeof(in->where), "%.24s port %u GID %s", c->device, c->port_num,
	         coll_rdma_gid_text(c->gid, gid, sizeof(gid)));
}

/* An address of this machine behind which a port that may be used has been found. */
struct candidate {
	struct sockaddr_storage address;
	char device[64];
	unsigned port;
	int distance; /* struct coll_nic_facts */
};

struct search {
	struct candidate found[COLL_RDMA_PORTS_MAX];
	int count;
	char *why; /* the last address was not fit, because */
	size_t why_bytes;
};

/* Bound to the address; NULL: no device is behind it. */
static struct rdma_cm_id *bind_to(struct rdma_inst *in, const struct sockaddr_storage *sa, char *why, size_t why_bytes)
{
	struct rdma_cm_id *id = NULL;
	struct sockaddr_storage address = *sa;

	if (in->v.rdma_create_id(in->cm, &id, NULL, RDMA_PS_TCP) != 0) {
		snprintf(why, why_bytes, "no identifier of the connection manager: %s", strerror(errno));
		return NULL;
	}
	if (in->v.rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && id->verbs) {
		coll_rdma_verbs_opened(id->verbs);
		return id;
	}
	in->v.rdma_destroy_id(id);
	return NULL;
}

/* Whether settings and state allow the port that id is bound to. */
static bool fit(struct rdma_inst *in, struct rdma_cm_id *id, const struct sockaddr_storage *sa,
                struct ibv_port_attr *port, char *why, size_t why_bytes)
{
	const char *list = in->env.setting(in->env.ctx, "COLL_RDMA_DEVICE");
	const char *name = id->verbs->device->name;

	memset(port, 0, sizeof(*port));
	if (!named(list, name, id->port_num)) {
		snprintf(why, why_bytes, "%s port %u is not in COLL_RDMA_DEVICE=%s", name, id->port_num, list);
		return false;
	}
	if (in->v.ibv_query_port(id->verbs, id->port_num, (void *)port) != 0 || port->state != IBV_PORT_ACTIVE) {
		snprintf(why, why_bytes, "%s port %u is not active", name, id->port_num);
		return false;
	}
	return gid_wanted(in, id, (const struct sockaddr *)sa, why, why_bytes);
}

/* What is not known is as near as anything. */
static int distance_of(const struct rdma_inst *in, const char *device)
{
	struct coll_nic_facts facts = {.size = sizeof(facts)};

	return in->env.nic_facts && in->env.nic_facts(in->env.ctx, device, &facts) ? facts.distance : 0;
}

static void look_at(struct rdma_inst *in, struct search *s, const struct sockaddr *address)
{
	struct candidate *c = &s->found[s->count];
	struct ibv_port_attr port;
	struct rdma_cm_id *id;

	if (s->count == COLL_RDMA_PORTS_MAX)
		return;
	memset(c, 0, sizeof(*c));
	memcpy(&c->address, address,
	       address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	set_port((struct sockaddr *)&c->address);
	id = bind_to(in, &c->address, s->why, s->why_bytes);
	if (!id)
		return;
	if (fit(in, id, &c->address, &port, s->why, s->why_bytes)) {
		snprintf(c->device, sizeof(c->device), "%.63s", id->verbs->device->name);
		c->port = id->port_num;
		c->distance = distance_of(in, c->device);
		s->count++;
	}
	in->v.rdma_destroy_id(id);
}

static bool listen_at(struct rdma_inst *in, const struct candidate *c, char *why, size_t why_bytes)
{
	struct rdma_cm_id *id = bind_to(in, &c->address, why, why_bytes);
	struct ibv_port_attr port;

	if (!id)
		return false;
	if (!fit(in, id, &c->address, &port, why, why_bytes)) {
		in->v.rdma_destroy_id(id);
		return false;
	}
	if (in->v.rdma_listen(id, 1024) != 0) {
		snprintf(why, why_bytes, "%s port %u: listen: %s", c->device, c->port, strerror(errno));
		in->v.rdma_destroy_id(id);
		return false;
	}
	in->listener = id;
	in->device = id->verbs;
	fill_card(in, id, (const struct sockaddr *)&c->address, &port);
	return true;
}

static bool usable(const struct ifaddrs *i, int family)
{
	if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
		return false;
	return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr);
}

/* Nearest first; equally near ones stay in the order of the addresses. */
static struct candidate *nearest(struct search *s)
{
	struct candidate *best = NULL;

	for (int i = 0; i < s->count; i++)
		if (s->found[i].device[0] && (!best || s->found[i].distance < best->distance))
			best = &s->found[i];
	return best;
}

static const char *reason(struct rdma_inst *in, const struct search *s, const struct coll_rdma_port *p, int far)
{
	const char *list = in->env.setting(in->env.ctx, "COLL_RDMA_DEVICE");

	if (!p->active)
		return "its port is not active";
	if (!named(list, p->device, p->number))
		return "it is not in COLL_RDMA_DEVICE";
	for (int i = 0; i < s->count; i++)
		if (strcmp(s->found[i].device, p->device) == 0 && s->found[i].port == p->number)
			return s->found[i].distance > far ? "another one is nearer to this process's memory"
			                                  : "another one comes first";
	return "no usable address is on its network interface";
}

/* For coll-info and the log. */
static void tell_others(struct rdma_inst *in, const struct search *s, int far)
{
	struct coll_rdma_port ports[COLL_RDMA_PORTS_MAX];
	const int n = coll_rdma_ports_list(COLL_RDMA_SYS, ports, COLL_RDMA_PORTS_MAX);

	for (int i = 0; i < n; i++)
		if (!in->listener || strcmp(ports[i].device, in->info.device) != 0 ||
		    ports[i].number != in->info.port_num)
			rdma_log(in, COLL_LOG_INFO, "rdma: %s port %u is not used: %s", ports[i].device,
			         ports[i].number, reason(in, s, &ports[i], far));
}

coll_status coll_rdma_device_open(struct rdma_inst *in, char *why, size_t why_bytes)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct search s = {.why = why, .why_bytes = why_bytes};
	struct candidate *c;
	struct ifaddrs *all = NULL;
	int far = 0;

	snprintf(why, why_bytes, "no RDMA device has an address (ip addr add ... on its network interface)");
	if (getifaddrs(&all) != 0)
		return COLL_ERR_SYSTEM;
	for (int f = 0; f < 2 && s.count == 0; f++)
		for (const struct ifaddrs *i = all; i; i = i->ifa_next)
			if (usable(i, families[f]))
				look_at(in, &s, i->ifa_addr);
	freeifaddrs(all);
	while (!in->listener && (c = nearest(&s))) {
		far = c->distance;
		if (!listen_at(in, c, why, why_bytes))
			c->device[0] = 0; /* the next one */
	}
	tell_others(in, &s, far);
	return in->listener ? COLL_OK : COLL_ERR_UNSUPPORTED;
}
