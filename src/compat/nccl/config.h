/*
 * The configuration structures of NCCL, of any version: what is refused, with NCCL's own code.
 */
#ifndef COLL_COMPAT_NCCL_CONFIG_H
#define COLL_COMPAT_NCCL_CONFIG_H

#include "compat/nccl/abi.h"

/* NULL is a configuration without values. */
ncclResult_t nccl_check_config(const ncclConfig_t *given, const char *function);
ncclResult_t nccl_check_call_config(const ncclCollConfig_t *given, const char *function);

#endif
