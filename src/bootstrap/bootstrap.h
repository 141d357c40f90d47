/*
 * Bootstrap: who am I, who are the others, and one all-gather among all of us.
 * No data path. Bounded in time, in bytes and against strangers.
 */
#ifndef COLL_BOOTSTRAP_BOOTSTRAP_H
#define COLL_BOOTSTRAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config.h"
#include "base/error.h"
#include "coll/coll.h"

/* What the launcher (or the caller) says. */
struct coll_identity {
	int rank;
	int size;
	int local_rank;      /* -1 unknown */
	int local_size;      /* -1 unknown */
	char launcher[24];   /* "collrun", "torchrun", "openmpi", "mpich", "pmi1", "explicit", "id", "callback", "alone"
	                      */
	char root_host[256]; /* rendezvous address, "" when the launcher offers another way */
	uint16_t root_port;
	bool root_bind;     /* this rank (0) must listen at root_host:root_port */
	char unix_name[96]; /* abstract Unix socket name of a rendezvous on one host, "" if none */
	uint64_t
	        job_key[2]; /* shared secret: from COLL_JOB_KEY, the unique id, or derived from the launcher's job id */
	bool root_ports;    /* root_port may be taken or is 0: ports derived from job_key are tried too */
	char publish[8];    /* "pmi", "pmix": rank 0 publishes its address there, "" elsewhere */
	uint64_t begun_ns;  /* when the creation began, which is to end create_timeout_ms later; 0: with the exchange */
};

/* Find out from cfg, then the environment. Contradictions and half-set
 * variables are COLL_ERR_CONFIG, named in err. Reads only, except under a launcher
 * whose store must carry the address of rank 0 across hosts (publish): then it
 * waits for all ranks there, within create_timeout_ms. */
coll_status coll_bootstrap_probe(const coll_config *cfg, const struct coll_settings *settings, struct coll_identity *id,
                                 struct coll_error_box *err);

/*
 * All-gather len_bytes from every rank into all (size * len_bytes, rank order),
 * over a tree of short-lived connections (or PMI, or the caller's exchange).
 * Blocks until done or until the creation deadline; the error names the ranks
 * that never came. May be called once per identity.
 */
coll_status coll_bootstrap_exchange(const coll_config *cfg, const struct coll_settings *settings,
                                    const struct coll_identity *id, const void *mine, void *all, size_t len_bytes,
                                    struct coll_error_box *err);

/* Implementation of coll_unique_id_create(). */
coll_status coll_bootstrap_unique_id(const struct coll_settings *settings, coll_unique_id *id,
                                     struct coll_error_box *err);

/* A string that is equal on processes of one host and differs between hosts
 * (boot id and namespaces; COLL_HOST_ID overrides). */
void coll_bootstrap_host_id(const struct coll_settings *settings, char *buf, size_t len_bytes);
/* Equal on processes that share cores, containers of one machine too, whatever COLL_HOST_ID says. */
uint64_t coll_bootstrap_machine(void);

#endif
