/*
 * Errors as NCCL reports them: a code, and a sentence for ncclGetLastError().
 */
#ifndef COLL_COMPAT_NCCL_ERROR_H
#define COLL_COMPAT_NCCL_ERROR_H

#include "coll/coll.h"
#include "compat/nccl/abi.h"

/* Keep the sentence as the last one of this thread and of the process; returns result. */
ncclResult_t nccl_fail(ncclResult_t result, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The code for a status of the library, with the sentence of coll_last_error(comm), whose calls failed. OK: success,
 * and nothing is kept. */
ncclResult_t nccl_from(coll_status status, const coll_comm *comm, const char *function);

/* The code alone. */
ncclResult_t nccl_code(coll_status status);

/* Copy the last sentence of this thread, "" if it has none. */
void nccl_last(char *text, size_t len_bytes);

#endif
