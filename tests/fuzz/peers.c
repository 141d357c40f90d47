/*
 * Targets: what peers say of themselves at creation, and of their calls later.
 */
#include <stdio.h>
#include <stdlib.h>

#include "control/one_host.h"
#include "control/peer_info.h"
#include "record/record.h"
#include "tests/fuzz/fuzz.h"
#include "transports/registry.h"
#include "transports/tcp/address.h"

void fuzz_peer_info(const uint8_t *data, size_t len_bytes);
void fuzz_record(const uint8_t *data, size_t len_bytes);

static void use_addresses(const struct coll_peer_info *own, const struct coll_peer_info *info)
{
	struct coll_ips mine = {.count = 0}, ips;
	struct sockaddr_storage to;
	char text[64];
	size_t len_bytes;
	const uint8_t *bytes = coll_peer_info_part(own, own->ips, &len_bytes);

	if (!coll_ips_unpack(&mine, bytes, len_bytes))
		mine.count = 0;
	bytes = coll_peer_info_part(info, info->ips, &len_bytes);
	if (!coll_ips_unpack(&ips, bytes, len_bytes))
		return;
	FUZZ_HOLDS(ips.count <= COLL_IPS_MAX);
	coll_ips_order(&mine, &ips, info->has_met ? &info->met : NULL, own->site & 1);
	for (unsigned i = 0; i < ips.count; i++) {
		coll_ip_text(&ips.at[i], info->control_port, text, sizeof(text));
		coll_ip_to(&ips.at[i], info->control_port, &to);
	}
}

static void use_transports(const struct coll_peer_info *info)
{
	struct coll_tcp_address tcp;
	size_t len_bytes;

	for (int i = 0; i < COLL_TRANSPORTS; i++) {
		const uint8_t *bytes = coll_peer_info_part(info, info->transport[i], &len_bytes);

		if (coll_tcp_address_decode(&tcp, bytes, len_bytes))
			FUZZ_HOLDS(tcp.count <= sizeof(tcp.candidate) / sizeof(tcp.candidate[0]));
	}
}

/* Two of them, one with the beginning of the input and one with the rest: the bytes of parts follow the members. */
void fuzz_peer_info(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct coll_peer_info *info = calloc(2, sizeof(*info));
	char text[200];
	int at;

	for (int i = 0; i < 2; i++) {
		fuzz_bytes(&in, &info[i], offsetof(struct coll_peer_info, bytes));
		fuzz_bytes(&in, info[i].bytes, fuzz_byte(&in) * 8u);
		coll_peer_info_end_texts(&info[i]);
		snprintf(text, sizeof(text), "%s %s %s", info[i].host_id, info[i].host_name, info[i].control_unix);
		use_transports(&info[i]);
	}
	coll_settings_differing(&info[0].settings, &info[1].settings, &at);
	FUZZ_HOLDS(coll_one_host(&info[0], &info[1]) == coll_one_host(&info[1], &info[0]));
	FUZZ_HOLDS(!coll_one_network(&info[0], &info[1]) || !coll_copies(&info[1], &info[0]));
	use_addresses(&info[0], &info[1]);
	free(info);
}

/* A call record of a peer becomes words. */
void fuzz_record(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	struct coll_record r;
	char text[160];

	for (int i = 0; i < 8; i++) {
		fuzz_bytes(&in, &r, sizeof(r));
		coll_record_describe(&r, text, sizeof(text));
		FUZZ_HOLDS(memchr(text, 0, sizeof(text)) && text[0]);
	}
}
