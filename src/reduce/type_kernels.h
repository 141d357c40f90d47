/*
 * Template of all kernels of one type T: the operations every type has, those of
 * integers and those of floats, by CLASS. See kernel.h for what the
 * includer provides. Included many times, on purpose without a guard.
 */
#define OP     sum
#define SPREAD SPREADS
#include "kernel.h"
#define OP prod
#include "kernel.h"
#define OP min
#include "kernel.h"
#define OP max
#include "kernel.h"
#define OP      avg
#define COMBINE sum
#define MEAN    (CLASS == NARROW)
#define POST    (CLASS != NARROW)
#define SPREAD  SPREADS
#include "kernel.h"
#define OP    land
#define TRUTH 1
#include "kernel.h"
#define OP    lor
#define TRUTH 1
#include "kernel.h"
#define OP    lxor
#define TRUTH 1
#include "kernel.h"
#if CLASS == INTEGER
#define OP band
#include "kernel.h"
#define OP bor
#include "kernel.h"
#define OP bxor
#include "kernel.h"
#else
#define OP      premul
#define COMBINE sum
#define PRE     1
#include "kernel.h"
#endif

#undef T
#undef CLASS
