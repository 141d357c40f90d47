/*
 * The peer info: what every process tells every other at creation. Fixed size, no
 * pointers, exchanged by bootstrap in rank order; read-only afterwards.
 */
#ifndef COLL_CONTROL_PEER_INFO_H
#define COLL_CONTROL_PEER_INFO_H

#include <assert.h>
#include <stdint.h>

#include "base/config.h"
#include "base/ips.h"
#include "base/version.h"
#include "transport/transport.h"
#include "transports/registry.h"

/* Room for 64 addresses of IPv6 in the list of the control plane and in that of tcp, and for what other transports say.
 */
enum {
	COLL_PEER_INFO_BYTES = 3584,
	COLL_PEER_INFO_IPS_BYTES = 1152,
	COLL_PEER_INFO_OTHER_BYTES = 256,
	COLL_HOST_MARKS = 8
};

/* A part of bytes[]. */
struct coll_peer_info_part {
	uint16_t at, len_bytes;
};

struct coll_peer_info {
	/* These three stay where they are in every version to come. */
	uint32_t magic;
	uint32_t version;
	char library[COLL_LIBRARY_BYTES]; /* coll_library_version() */
	struct coll_process_id id;
	uint64_t contribution[2]; /* random: all of them make the session key, see context/session.h */
	struct coll_agreed settings;
	int32_t rank;
	int32_t size;
	int32_t process; /* pid, for messages */
	uint32_t cores;  /* this process may run on, its share of a quota considered */
	char host_id[64];
	char host_name[64];
	uint32_t marks[COLL_HOST_MARKS]; /* of the addresses of its host, see control/one_host.h */
	/* Control plane: an abstract Unix socket name and a TCP listener. */
	char control_unix[40];
	uint16_t control_port; /* 0: none */
	uint16_t used_bytes;   /* of bytes[] */
	uint64_t name_space;   /* equal where loopback is common */
	struct coll_ip met;    /* its address over which it met the rendezvous */
	uint32_t has_met;      /* 1: that is known */
	uint32_t met_us;       /* the round trip to the root of the rendezvous then; 0: unknown, or it is the root */
	struct coll_peer_info_part ips; /* its addresses: base/ips.h */
	/* What transports say of themselves, by position in their table; length 0: not available here. */
	struct coll_peer_info_part transport[COLL_TRANSPORTS];
	/* Processors this process may run on, numbers modulo 256. */
	uint64_t cpus[4];
	uint64_t site;                       /* of COLL_SITE, a hash; 0: none told */
	uint32_t site_mbps;                  /* of COLL_SITE_RATE; 0: unknown */
	uint32_t device;                     /* 1: it has one (coll_config.device) */
	uint64_t process_space;              /* `process` means the same where this is equal on a machine; 0: unknown */
	uint64_t machine;                    /* equal on processes that share cores: see coll_bootstrap_machine() */
	uint8_t bytes[COLL_PEER_INFO_BYTES]; /* last: zeros at the end do not travel */
};

#define COLL_PEER_INFO_MAGIC   0x434f4c4cu /* "COLL" */
#define COLL_PEER_INFO_VERSION 15u

/* Ranks compare the version: a change of the layout, a new transport for example, needs a new one. */
static_assert(COLL_PEER_INFO_VERSION == 15u && COLL_TRANSPORTS == 4, "raise COLL_PEER_INFO_VERSION");

/* A part; length 0 if it is none, or came damaged. */
static inline const uint8_t *coll_peer_info_part(const struct coll_peer_info *info, struct coll_peer_info_part part,
                                                 size_t *len_bytes)
{
	const bool whole = (size_t)part.at + part.len_bytes <= sizeof(info->bytes);

	*len_bytes = whole ? part.len_bytes : 0;
	return info->bytes + (whole ? part.at : 0);
}

/* What came from a peer is text that ends, whatever it sent. */
static inline void coll_peer_info_end_texts(struct coll_peer_info *info)
{
	info->library[sizeof(info->library) - 1] = 0;
	info->host_id[sizeof(info->host_id) - 1] = 0;
	info->host_name[sizeof(info->host_name) - 1] = 0;
	info->control_unix[sizeof(info->control_unix) - 1] = 0;
	for (int i = 0; i < COLL_AGREED_MAX; i++)
		info->settings.value[i][COLL_AGREED_BYTES - 1] = 0;
}

static inline bool coll_peer_info_has(const struct coll_peer_info *info, int position)
{
	return info->transport[position].len_bytes > 0;
}

#endif
