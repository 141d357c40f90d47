/*
 * See ports.h. A port may be lacking: no harm on one host, which may have no network at all; who gives a range has
 * others in mind. A choice of addresses is never widened to all of them, unless there are more than listeners.
 */
#include "control/ports.h"

#include <errno.h>

#include "base/errno_text.h"
#include "control/one_host.h"
#include "net/net.h"

/* Those that this process announces, and listens at where that is a choice; loopback is enough on one host. */
static void choose_addresses(const struct coll_control_env *env, const struct ifaddrs *all, struct coll_ips *ips)
{
	unsigned kept = 0;

	coll_ips_read(ips, all, env->settings->interface);
	if (!env->one_host || env->settings->interface[0])
		return;
	for (unsigned i = 0; i < ips->count && kept == 0; i++)
		if (ips->at[i].loopback)
			ips->at[kept++] = ips->at[i];
	ips->count = kept;
}

static void announce(struct coll_peer_info *info, const struct coll_ips *ips, uint16_t port)
{
	info->control_port = port;
	info->ips.at = info->used_bytes;
	info->ips.len_bytes = (uint16_t)coll_ips_pack(ips, info->bytes + info->used_bytes, COLL_PEER_INFO_IPS_BYTES);
	info->used_bytes = (uint16_t)(info->used_bytes + info->ips.len_bytes);
}

/* A choice of addresses that leaves none, or cannot be made, must not become all of them. */
static coll_status check_choice(const struct coll_control *c, const struct coll_ips *ips, bool listed,
                                struct coll_error_box *err)
{
	const char *interface = c->env.settings->interface;

	if (!c->env.one_host && !interface[0])
		return COLL_OK;
	if (!listed)
		return coll_error_set(err, COLL_ERR_SYSTEM,
		                      "[COLL-4102] cannot list the network interfaces: getifaddrs: %s",
		                      coll_errno_text(errno).text);
	if (ips->count == 0)
		return coll_error_set(err, COLL_ERR_CONFIG,
		                      "[COLL-6109] control links: no interface with an address%s%s",
		                      interface[0] ? " matches COLL_INTERFACE=" : ", and no loopback", interface);
	if (interface[0] && ips->count > COLL_LISTENERS_MAX)
		coll_log(c->env.logger, COLL_LOG_WARN,
		         "[COLL-6110] control links: more than %d addresses: ranks listen at all of this host",
		         COLL_LISTENERS_MAX);
	return COLL_OK;
}

coll_status coll_control_open_ports(struct coll_control *c, struct coll_peer_info *info, struct coll_error_box *err)
{
	const struct coll_settings *settings = c->env.settings;
	const char *range = settings->port_range;
	const bool chosen = c->env.one_host || settings->interface[0];
	struct coll_ips ips = {.count = 0};
	struct ifaddrs *all = NULL;
	const bool listed = coll_net->getifaddrs(&all) == 0;
	coll_status status;
	char why[240];

	if (listed) {
		const bool fits = coll_ips_check(all, settings->interface, why, sizeof(why));

		choose_addresses(&c->env, all, &ips);
		if (!c->env.one_host)
			coll_one_host_mark(info, all);
		coll_net->freeifaddrs(all);
		if (!fits)
			return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1106] %s", why);
	}
	if (c->env.one_host && !settings->host_id[0])
		return COLL_OK;
	status = check_choice(c, &ips, listed, err);
	if (status != COLL_OK)
		return status;
	if (coll_link_listen_tcp(range, chosen ? &ips : NULL, &c->tcp))
		announce(info, &ips, c->tcp.port);
	else
		coll_log(c->env.logger, range[0] ? COLL_LOG_ERROR : COLL_LOG_INFO,
		         "[COLL-6104] control links: no port to listen on%s%s: %s",
		         range[0] ? " in COLL_PORT_RANGE=" : "", range, coll_errno_text(errno).text);
	return COLL_OK;
}

void coll_control_close_ports(struct coll_control *c)
{
	bool needed = c->listen_unix < 0;

	for (int r = 0; r < c->size && !needed; r++)
		needed = !coll_one_host(&c->peer_infos[r], &c->peer_infos[c->rank]);
	if (!needed)
		coll_listeners_close(&c->tcp);
}
