/*
 * The version as a text. Only programs and libraries that link src/commit.c know their commit, so that a new commit
 * does not link every test anew.
 */
#ifndef COLL_BASE_VERSION_H
#define COLL_BASE_VERSION_H

#include "coll/coll.h"

#define COLL_TEXT_OF(x)          #x
#define COLL_VERSION_OF(a, b, c) COLL_TEXT_OF(a) "." COLL_TEXT_OF(b) "." COLL_TEXT_OF(c)
#define COLL_VERSION_TEXT        COLL_VERSION_OF(COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH)

extern const char coll_built_version[] __attribute__((weak));

enum { COLL_LIBRARY_BYTES = 48 };

static inline const char *coll_library_version(void)
{
	return coll_built_version ? coll_built_version : COLL_VERSION_TEXT;
}

#endif
