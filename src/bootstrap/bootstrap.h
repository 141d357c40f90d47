/*
 * Bootstrap: finds the rank of this process and the other ranks, and makes one all-gather among them.
 * No data path. Bounded in time and in bytes, also against foreign connections.
 */
#ifndef COLL_BOOTSTRAP_BOOTSTRAP_H
#define COLL_BOOTSTRAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"
#include "base/ips.h"
#include "coll/coll.h"

/* Why a rank does not come to the rendezvous. text names it. */
struct coll_absent {
	coll_status status;
	int rank;
	const char *text;
};

/* What the launcher (or the caller) says. */
struct coll_identity {
	int rank;
	int size;
	int local_rank;    /* -1 unknown */
	int local_size;    /* -1 unknown */
	char device[24];   /* on the PCI bus, the device that it will have; "": none, or unknown */
	char launcher[24]; /* "collrun", "torchrun", "openmpi", "mpich", "pmi1", "explicit", "id", "callback", "alone"
	                    */
	char passed_over[192]; /* other launchers whose variables say something else, "" if none */
	char root_host[256];   /* rendezvous address, "" when the launcher offers another way */
	uint16_t root_port;
	bool root_bind;      /* this rank (0) must listen at root_host:root_port */
	char unix_name[96];  /* public words of a rendezvous on one host, see meeting_file.h; "" if none */
	bool one_host;       /* all ranks are on this host, which is known before they meet */
	uint64_t job_key[2]; /* what the handshakes of the rendezvous prove */
	/* Where job_key comes from (secret.h); NULL: from nothing, or from public words of the job. */
	const char *secret;
	bool open;          /* the ranks may be on several hosts and have no secret, and the user allows that */
	bool root_ports;    /* root_port may be taken or is 0: ports chosen by port_seed are tried too */
	uint64_t port_seed; /* public */
	char publish[8];    /* "pmi", "pmix", "munge": rank 0 publishes its address there, "" elsewhere */
	/* Enter into what this rank brings the address of its own over which it has met the root, and how far that is
	 * (0: it is the root, or nobody knows); NULL: not wanted. */
	void (*met)(void *mine, const struct coll_ip *own, uint32_t round_trip_us);
	/* What all ranks bring has come, and is passed on next: others may call this rank from then on. NULL: not
	 * wanted. */
	coll_status (*complete)(void *arg);
	void *complete_arg;
	/* Set while this rank fails and the others have not been told; NULL: not wanted. */
	bool *untold;
	uint64_t begun_ns; /* when the creation began, which is to end create_timeout_ms later; 0: with the exchange */
};

#endif
