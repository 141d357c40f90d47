/*
 * What every rank can tell of its settings by itself, whatever this machine has.
 */
#ifndef COLL_COMM_SETTINGS_H
#define COLL_COMM_SETTINGS_H

#include "core/comm.h"

/* Values that no machine can take are an error, by name. */
coll_status coll_settings_check(const struct coll_settings *settings, struct coll_error_box *err);

#endif
