/*
 * Long direct calls: where the user's buffers lie, so that other ranks read them in place.
 * docs/design/direct.md argues it.
 *
 * Invariants:
 *  - A buffer is named in a record only if all ranks have answered that they have mapped its allocation.
 *  - Kernels read the records of a call behind its first sync, and all ranks read the same.
 *  - A region that a call names stays announced until that call has ended on all ranks.
 */
#ifndef COLL_MAPPED_RECORDS_H
#define COLL_MAPPED_RECORDS_H

#include "devcall/mapped_call.h"
#include "devcall/mapped_state.h"

/* All by the communicator's thread. */

/* Find out where a buffer lies, and announce its allocation if it is a new one. len_bytes 0: others do not need it. */
void coll_records_find(struct coll_comm *comm, const void *ptr, size_t len_bytes, struct coll_mapped_buffer *buffer);
/* The call has its numbers: which of its buffers go into its record. last: its last sync. */
void coll_records_assign(struct coll_mapped *d, struct coll_mapped_call *call, uint32_t last);
/* Before anything of the call is enqueued. */
void coll_records_publish(struct coll_mapped *d, const struct coll_mapped_call *call);
/* For people: how buffers of long calls have gone so far. */
void coll_records_describe(const struct coll_device_facts *facts, char *buf, size_t len_bytes);
/* No peer can answer any more. */
void coll_records_close(struct coll_mapped *d);

#endif
