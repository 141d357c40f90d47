/*
 * What a call pays for diagnosis and for the promise that it ends: the flight recorder,
 * call records, the look at the attention word, deadlines. A build with -Dguards=false
 * leaves all of it out, so that the price can be measured (bench/guards.sh). It is for
 * that and for nothing else: a dead peer is a hang there, and asynchronous calls may not
 * be mixed with blocking ones.
 */
#ifndef COLL_BASE_GUARDS_H
#define COLL_BASE_GUARDS_H

#include "coll_build.h"

/* A look that only guards need: false in a build without them. */
#define COLL_GUARDED(look) (COLL_GUARDS && (look))

#endif
