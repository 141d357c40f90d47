/*
 * What somebody may have meant who wrote a name that there is not.
 */
#ifndef COLL_TOOLS_NEAREST_H
#define COLL_TOOLS_NEAREST_H

#include <stddef.h>

/* The one of the names that differs least from the word; NULL if all differ too much to be meant. */
const char *nearest(const char *word, const char *const *names, size_t count);

#endif
