/*
 * What the last failed creation or destruction in this thread said: there is no object yet,
 * or no more, that could hold it.
 */
#ifndef COLL_CORE_THREAD_ERROR_H
#define COLL_CORE_THREAD_ERROR_H

#include "base/error.h"

/* Keep it for coll_last_error(NULL), log it as far as the caller's log is known (cfg may
 * be NULL or of another version), return st. */
coll_status coll_thread_error_failed(coll_status st, const struct coll_error_box *box, const coll_config *cfg);

/* The same of a destruction; it has been logged. message: all of it in one line. */
void coll_thread_error_keep(const struct coll_error_box *box, const char *message);

/* NULL: none. */
const coll_error *coll_thread_error_error(void);

#endif
