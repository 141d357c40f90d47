/*
 * Checks of settings that each rank can make alone, independent of the machine.
 */
#ifndef COLL_COMM_SETTINGS_H
#define COLL_COMM_SETTINGS_H

#include "core/comm.h"

/* A value that is invalid on every machine is an error, which names the setting. */
coll_status coll_settings_check(const struct coll_settings *settings, struct coll_error_box *err);

/* COLL_LEVELS as bits 1 << enum coll_level (topology/search.h); 0: auto. The settings have been checked. */
unsigned coll_settings_levels(const struct coll_settings *settings);

#endif
