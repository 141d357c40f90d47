/*
 * Host names to addresses with a deadline.
 */
#ifndef COLL_BOOTSTRAP_RESOLVE_H
#define COLL_BOOTSTRAP_RESOLVE_H

#include "bootstrap/address.h"

/* Addresses of a host name, waiting until deadline_ns (coll_clock_ns) at most;
 * a name server that does not answer costs a sleeping thread, not more. False
 * with a reason in why. */
bool coll_resolve(const char *host, uint16_t port, uint64_t deadline_ns, struct coll_places *p, char *why,
                  size_t why_bytes);

#endif
