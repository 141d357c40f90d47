/*
 * Where filling a slot through the caches stops paying.
 */
#ifndef COLL_SELECT_FAR_H
#define COLL_SELECT_FAR_H

#include "select/select.h"

void coll_select_far(struct coll_select_far *far);

#endif
