/*
 * The all-gather of bootstrap.
 */
#ifndef COLL_BOOTSTRAP_EXCHANGE_H
#define COLL_BOOTSTRAP_EXCHANGE_H

#include "bootstrap/bootstrap.h"

/*
 * All-gather len_bytes from every rank into all (size * len_bytes, rank order),
 * over a tree of short-lived connections (or PMI, or the caller's exchange).
 * Blocks until done or until the creation deadline; the error names the ranks
 * that did not connect. May be called once per identity.
 */
coll_status coll_bootstrap_exchange(const coll_config *cfg, const struct coll_settings *settings,
                                    const struct coll_identity *id, void *mine, void *all, size_t len_bytes,
                                    struct coll_error_box *err);

/* This rank cannot come, or has failed on its way, for a reason of its own: tell the root, or as the root whoever
 * comes. Best effort, within COLL_DELAY_RENDEZVOUS_TELL_MS. */
void coll_bootstrap_absent(const coll_config *cfg, const struct coll_settings *settings, const struct coll_identity *id,
                           const struct coll_absent *why);

#endif
