/*
 * What somebody may have meant who wrote a name that there is not.
 */
#ifndef COLL_BASE_NEAREST_H
#define COLL_BASE_NEAREST_H

#include <stddef.h>

/* The one of the names that differs least from the word; NULL if all differ too much to be meant. */
const char *coll_nearest(const char *word, const char *const *names, size_t count);

/* The end of a message: ": did you mean NAME?", or "". */
struct coll_guess {
	char text[96];
};
struct coll_guess coll_guess(const char *word, const char *const *names, size_t count);

#endif
