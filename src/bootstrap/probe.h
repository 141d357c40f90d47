/*
 * The part of the probe that only reads: no launcher is asked anything.
 */
#ifndef COLL_BOOTSTRAP_PROBE_H
#define COLL_BOOTSTRAP_PROBE_H

#include "bootstrap/bootstrap.h"

/* As coll_bootstrap_probe(), but where the launcher's store must carry the address
 * of rank 0 (publish) the key is still missing. */
coll_status coll_bootstrap_identify(const coll_config *cfg, const struct coll_settings *settings,
                                    struct coll_identity *id, struct coll_error_box *err);

/* Find out from cfg, then the environment. Contradictions and half-set
 * variables are COLL_ERR_CONFIG, named in err. Reads only, except under a launcher
 * whose store must carry the address of rank 0 across hosts (publish): then it
 * waits for all ranks there, within create_timeout_ms. */
coll_status coll_bootstrap_probe(const coll_config *cfg, const struct coll_settings *settings, struct coll_identity *id,
                                 struct coll_error_box *err);

#endif
