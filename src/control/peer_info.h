/*
 * The peer info: what every process tells every other at creation. Fixed size, no
 * pointers, exchanged by bootstrap in rank order; read-only afterwards.
 */
#ifndef COLL_CONTROL_PEER_INFO_H
#define COLL_CONTROL_PEER_INFO_H

#include <assert.h>
#include <stdint.h>

#include "base/config.h"
#include "transport/transport.h"
#include "transports/registry.h"

enum { COLL_PEER_INFO_ADDRESS_BYTES = 248, COLL_PEER_INFO_CONTROL_HOSTS = 4 };

struct coll_peer_info {
	uint32_t magic;
	uint32_t version;
	struct coll_process_id id;
	struct coll_agreed settings;
	int32_t rank;
	int32_t size;
	int32_t process; /* pid, for messages */
	uint32_t cores;  /* this process may run on, its share of a quota considered */
	char host_id[64];
	char host_name[64];
	/* Control plane: an abstract Unix socket name and a TCP listener. */
	char control_unix[40];
	uint16_t control_port; /* 0: none */
	uint8_t control_hosts; /* addresses that follow */
	uint8_t pad[5];
	struct {
		uint16_t family; /* AF_INET or AF_INET6 */
		uint8_t address[16];
	} control_host[COLL_PEER_INFO_CONTROL_HOSTS];
	/* By position in the table of transports; length 0: not available here. */
	struct {
		uint32_t len_bytes;
		uint8_t bytes[COLL_PEER_INFO_ADDRESS_BYTES];
	} transport[COLL_TRANSPORTS];
	/* Processors this process may run on, numbers modulo 256. */
	uint64_t cpus[4];
	uint64_t site;          /* of COLL_SITE, a hash; 0: none told */
	uint32_t site_mbps;     /* of COLL_SITE_RATE; 0: unknown */
	uint32_t device;        /* 1: it has one (coll_config.device) */
	uint64_t process_space; /* `process` means the same where this is equal on a machine; 0: unknown */
	uint64_t machine;       /* equal on processes that share cores: see coll_bootstrap_machine() */
};

#define COLL_PEER_INFO_MAGIC   0x434f4c4cu /* "COLL" */
#define COLL_PEER_INFO_VERSION 7u

/* Ranks compare the version: a change of the layout, a new transport for example, needs a new one. */
static_assert(COLL_PEER_INFO_VERSION == 7u && COLL_TRANSPORTS == 4, "raise COLL_PEER_INFO_VERSION");

#endif
