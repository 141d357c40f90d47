/*
 * The last error of a creation or destruction in this thread. At that point no communicator exists
 * that could hold it.
 */
#ifndef COLL_CORE_THREAD_ERROR_H
#define COLL_CORE_THREAD_ERROR_H

#include "base/error.h"

/* Keep the error for coll_last_error(NULL), log it if cfg names a log function, and return st. cfg
 * may be NULL or of another version. */
coll_status coll_thread_error_failed(coll_status st, const struct coll_error_box *box, const coll_config *cfg);

/* The same for a destruction, which has already logged its error. message: the whole text in one
 * line. */
void coll_thread_error_keep(const struct coll_error_box *box, const char *message);

/* NULL: there is none. */
const coll_error *coll_thread_error_error(void);

#endif
