#ifndef DDP_EXACT_H
#define DDP_EXACT_H

#include "ddp/ddp_inner.h"

extern const struct wire ddp_wire_exact;

#endif
