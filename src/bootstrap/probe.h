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

#endif
