/*
 * Which devices, ports and addresses an instance uses, and how they are called in messages.
 * Every address of this machine is tried with the connection manager, which returns the
 * device of that address (if any); so InfiniBand, RoCE and iWARP are found alike. All usable
 * ports are used, those nearest to the calling thread's memory first.
 */
#include "transports/rdma/device.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/ib_ports.h"
#include "base/link_rates.h"
#include "transports/rdma/address.h"
#include "transports/rdma/rdma.h"

const char *coll_rdma_gid_text(const uint8_t gid[16], char *buf, size_t cap)
{
	if (!inet_ntop(AF_INET6, gid, buf, (socklen_t)cap))
		snprintf(buf, cap, "?");
	return buf;
}

void coll_rdma_path_text(const struct rdma_link *l, char *buf, size_t cap)
{
	const char *here = l->port ? l->port->where : "a port";
	char there[96];

	if (l->have_target)
		snprintf(buf, cap, "%s to %s", here, coll_rdma_spot_text(&l->target, there, sizeof(there)));
	else
		snprintf(buf, cap, "%s", here);
}

static unsigned number_of(const struct rdma_port *p)
{
	return p->inst->info.port[p->index].number;
}

bool coll_rdma_device_active(const struct rdma_port *p)
{
	struct ibv_port_attr port;

	memset(&port, 0, sizeof(port));
	return p->inst->v.ibv_query_port(p->device, (uint8_t)number_of(p), (void *)&port) == 0 &&
	       port.state == IBV_PORT_ACTIVE;
}

struct rdma_port *coll_rdma_device_port(struct rdma_inst *in, const struct rdma_cm_id *id)
{
	for (unsigned i = 0; i < in->ports; i++)
		if (in->port[i].device == id->verbs && number_of(&in->port[i]) == id->port_num)
			return &in->port[i];
	return NULL;
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

/* An address of this machine behind which a port that may be used has been found. */
struct candidate {
	struct sockaddr_storage address;
	char device[64], interface[24];
	unsigned port, prefix;
	int distance;         /* enum coll_nic_distance */
	const char *left_out; /* why it is not to be tried any more */
};

struct search {
	struct candidate found[COLL_IB_PORTS_MAX];
	int count;
	struct coll_ib_port ports[COLL_IB_PORTS_MAX]; /* all of this machine */
	int port_count;
	struct coll_link_rate rate[COLL_LINK_RATES_MAX]; /* instead of what the system says */
	int rates;
	char *why; /* the last address was not fit, because */
	size_t why_bytes;
};

/* As the user says, of the port, the device or the interface, or else as the system does. */
static uint32_t rate_of(const struct rdma_inst *in, const struct search *s, const struct candidate *c, uint8_t *origin)
{
	const char *names[] = {NULL, c->device, c->interface};
	char full[80];

	snprintf(full, sizeof(full), "%s:%u", c->device, c->port);
	names[0] = full;
	*origin = COLL_RATE_USER;
	for (int i = 0; i < 3; i++)
		if (coll_link_rate_of(s->rate, s->rates, names[i]) > 0)
			return coll_link_rate_of(s->rate, s->rates, names[i]);
	*origin = COLL_RATE_SYSTEM;
	return in->env.nic_mbps ? in->env.nic_mbps(in->env.ctx, full) : 0;
}

static void fill_spot(struct rdma_port *p, const struct rdma_cm_id *id, const struct search *s,
                      const struct candidate *c, const struct ibv_port_attr *port)
{
	struct rdma_inst *in = p->inst;
	struct coll_rdma_spot *spot = &in->info.port[p->index];
	const struct sockaddr *sa = (const struct sockaddr *)&c->address;
	char gid[INET6_ADDRSTRLEN];

	*spot = (struct coll_rdma_spot){.listens = ntohs(in->v.rdma_get_src_port(p->listener)),
	                                .family = sa->sa_family == AF_INET ? 4 : 6,
	                                .prefix = (uint8_t)c->prefix,
	                                .fabric = (uint8_t)id->verbs->device->transport_type & 7,
	                                .layer = port->link_layer & 3,
	                                .number = (uint8_t)c->port};
	spot->mbps = rate_of(in, s, c, &spot->origin);
	spot->distance = (uint8_t)c->distance;
	if (spot->family == 4)
		memcpy(spot->ip, &((const struct sockaddr_in *)(const void *)sa)->sin_addr, 4);
	else
		memcpy(spot->ip, &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr, 16);
	snprintf(spot->device, sizeof(spot->device), "%.15s", c->device);
	p->message_max = port->max_msg_sz;
	snprintf(p->where, sizeof(p->where), "%.24s port %u GID %s", c->device, c->port,
	         coll_rdma_gid_text(id->route.addr.addr.ibaddr.sgid.raw, gid, sizeof(gid)));
}

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
static int distance_of(const struct rdma_inst *in, const struct candidate *c)
{
	char full[80];

	snprintf(full, sizeof(full), "%s:%u", c->device, c->port);
	return in->env.nic_distance ? (int)in->env.nic_distance(in->env.ctx, full) : 0;
}

static unsigned prefix_of(const struct sockaddr *mask)
{
	const unsigned char *p;
	unsigned bits, n = 0;

	if (!mask)
		return 0;
	bits = mask->sa_family == AF_INET6 ? 128 : 32;
	p = mask->sa_family == AF_INET6
	            ? (const unsigned char *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr
	            : (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
	while (n < bits && (p[n / 8] << n % 8 & 0x80) != 0)
		n++;
	return n;
}

static struct candidate *found_before(struct search *s, const char *device, unsigned port)
{
	for (int i = 0; i < s->count; i++)
		if (strcmp(s->found[i].device, device) == 0 && s->found[i].port == port)
			return &s->found[i];
	return NULL;
}

static void look_at(struct rdma_inst *in, struct search *s, const struct ifaddrs *i)
{
	struct candidate *c = &s->found[s->count];
	const bool four = i->ifa_addr->sa_family == AF_INET;
	struct ibv_port_attr port;
	struct rdma_cm_id *id;

	if (s->count == COLL_IB_PORTS_MAX)
		return;
	memset(c, 0, sizeof(*c));
	memcpy(&c->address, i->ifa_addr, four ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
	set_port((struct sockaddr *)&c->address);
	id = bind_to(in, &c->address, s->why, s->why_bytes);
	if (!id)
		return;
	if (!found_before(s, id->verbs->device->name, id->port_num) &&
	    fit(in, id, &c->address, &port, s->why, s->why_bytes)) {
		snprintf(c->device, sizeof(c->device), "%.63s", id->verbs->device->name);
		snprintf(c->interface, sizeof(c->interface), "%.23s", i->ifa_name);
		c->port = id->port_num;
		c->prefix = prefix_of(i->ifa_netmask);
		s->count++;
	}
	in->v.rdma_destroy_id(id);
}

/* One more port of the instance, if it can be had. */
static bool listen_at(struct rdma_inst *in, const struct search *s, const struct candidate *c)
{
	struct rdma_cm_id *id = bind_to(in, &c->address, s->why, s->why_bytes);
	struct rdma_port *p = &in->port[in->ports];
	struct ibv_port_attr port;

	if (!id)
		return false;
	if (!fit(in, id, &c->address, &port, s->why, s->why_bytes)) {
		in->v.rdma_destroy_id(id);
		return false;
	}
	if (in->v.rdma_listen(id, 1024) != 0) {
		snprintf(s->why, s->why_bytes, "%s port %u: listen: %s", c->device, c->port, strerror(errno));
		in->v.rdma_destroy_id(id);
		return false;
	}
	*p = (struct rdma_port){.inst = in, .index = in->ports, .listener = id, .device = id->verbs};
	fill_spot(p, id, s, c, &port);
	in->info.count = ++in->ports;
	return true;
}

static bool usable(const struct ifaddrs *i, int family)
{
	if (!i->ifa_addr || i->ifa_addr->sa_family != family || !(i->ifa_flags & IFF_UP) || i->ifa_flags & IFF_LOOPBACK)
		return false;
	return family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr);
}

/* Nearest first; equally near ones stay in the order of the addresses. NULL: none is left. */
static struct candidate *nearest(struct search *s)
{
	struct candidate *best = NULL;

	for (int i = 0; i < s->count; i++)
		if (!s->found[i].left_out && (!best || s->found[i].distance < best->distance))
			best = &s->found[i];
	return best;
}

static const char *reason(struct rdma_inst *in, struct search *s, const struct coll_ib_port *p)
{
	const char *list = in->env.setting(in->env.ctx, "COLL_RDMA_DEVICE");
	const struct candidate *c = found_before(s, p->device, p->number);

	if (!p->active)
		return "its port is not active";
	if (!named(list, p->device, p->number))
		return "it is not in COLL_RDMA_DEVICE";
	return c && c->left_out ? c->left_out : "no usable address is on its network interface";
}

/* For coll-info and the log. */
static void report_others(struct rdma_inst *in, struct search *s)
{
	for (int i = 0; i < s->port_count; i++) {
		const struct coll_ib_port *p = &s->ports[i];
		bool used = false;

		for (unsigned k = 0; k < in->ports; k++)
			used |= strcmp(in->port[k].device->device->name, p->device) == 0 &&
			        number_of(&in->port[k]) == p->number;
		if (!used)
			rdma_log(in, COLL_LOG_INFO, "rdma: %s port %u is not used: %s", p->device, p->number,
			         reason(in, s, p));
	}
}

/* Checked when the communicator was made. */
static void read_rates(struct rdma_inst *in, struct search *s)
{
	char why[160];

	s->rates = coll_link_rates_parse(in->env.setting(in->env.ctx, "COLL_LINK_RATES"), s->rate, why, sizeof(why));
	if (s->rates < 0)
		s->rates = 0;
}

static void use_found(struct rdma_inst *in, struct search *s)
{
	struct candidate *c;

	while ((c = nearest(s))) {
		if (in->ports == COLL_RDMA_PORTS)
			c->left_out = "as many others as one process uses are nearer or come first";
		else if (listen_at(in, s, c))
			c->left_out = "it is used";
		else
			c->left_out = "nobody can listen there";
	}
}

coll_status coll_rdma_device_open(struct rdma_inst *in, char *why, size_t why_bytes)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct search *s = calloc(1, sizeof(*s));
	struct ifaddrs *all = NULL;

	snprintf(why, why_bytes, "no RDMA device has an address (ip addr add ... on its network interface)");
	if (!s)
		return COLL_ERR_MEMORY;
	if (getifaddrs(&all) != 0) {
		free(s);
		return COLL_ERR_SYSTEM;
	}
	s->why = why;
	s->why_bytes = why_bytes;
	s->port_count = coll_ib_ports_list(COLL_IB_SYS, s->ports, COLL_IB_PORTS_MAX);
	read_rates(in, s);
	for (int f = 0; f < 2; f++) /* an address of IPv6 where a port has none of IPv4 */
		for (const struct ifaddrs *i = all; i; i = i->ifa_next)
			if (usable(i, families[f]))
				look_at(in, s, i);
	freeifaddrs(all);
	/* It takes reading the machine, so it is asked where there is a choice. */
	for (int i = 0; i < s->count && s->count > 1; i++)
		s->found[i].distance = distance_of(in, &s->found[i]);
	use_found(in, s);
	report_others(in, s);
	free(s);
	return in->ports > 0 ? COLL_OK : COLL_ERR_UNSUPPORTED;
}
