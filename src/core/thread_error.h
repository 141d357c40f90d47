/*
 * The last failure of a thread: of any call that it made, whether a communicator holds the failure too or not.
 */
#ifndef COLL_CORE_THREAD_ERROR_H
#define COLL_CORE_THREAD_ERROR_H

#include "core/failure.h"

/* Keep the error for coll_last_error(NULL), log it if cfg names a log function, and return st. cfg
 * may be NULL or of another version. */
coll_status coll_thread_error_failed(coll_status st, const struct coll_error_box *box, const coll_config *cfg);

/* Keep one that is logged, or that nobody logs. message: the whole text in one line. */
void coll_thread_error_keep(const struct coll_error_box *box, const char *message);
void coll_thread_error_copy(const coll_error *e);

/* The same for a call that failed without a communicator. why: a text that may begin with an id, NULL: that of the
 * status. Returns the status. */
coll_status coll_thread_error_say(const char *kind, coll_status status, const char *why);

/* The failure of something that this thread asked about: of a stream, of an event, of a request. Returns the status.
 * NULL: only the status is left of it. */
coll_status coll_thread_error_of(const struct coll_failure *why, coll_status status, const char *kind);

/* NULL: there is none. */
const coll_error *coll_thread_error_error(void);

#endif
