/*
 * Which network cards a call uses between hosts, in words.
 */
#ifndef COLL_CORE_RAILS_TEXT_H
#define COLL_CORE_RAILS_TEXT_H

#include "core/comm.h"

/* What this rank sends to other hosts in a call of this plan with so many windows, by card: "; to other hosts by tcp,
 * as far as from its CPUs: e0 1000 Mb/s near 67 %, e1 500 Mb/s another package 33 %", cut to len_bytes. "": nothing.
 * The windows take equal parts of a long call. */
void coll_rails_explain(const struct coll_comm *comm, const struct coll_plan *plan, uint32_t windows, char *buf,
                        size_t len_bytes);

#endif
