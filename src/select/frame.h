/*
 * Frames worth having.
 */
#ifndef COLL_SELECT_FRAME_H
#define COLL_SELECT_FRAME_H

#include "select/select.h"

/* The longest frames worth having while memory allows; 0: the transport has no opinion. Reads caps, one_host
 * and oversubscribed. */
size_t coll_select_frame_bytes(const struct coll_select_facts *facts);

#endif
