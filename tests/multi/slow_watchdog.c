/*
 * The library of the program lawful-slow: between what a rank sees of its own calls and what it
 * knows of its peer's it is held up, as on a machine with many times more threads than cores.
 */
#include "base/planted.h"

enum coll_planted coll_planted = COLL_PLANTED_SLOW_JUDGE;
