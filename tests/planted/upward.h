/*
 * An include that points up, for the same test.
 */
#ifndef COLL_TESTS_PLANTED_UPWARD_H
#define COLL_TESTS_PLANTED_UPWARD_H

#include "core/comm.h"

#endif
