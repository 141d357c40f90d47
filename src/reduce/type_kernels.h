/*
 * Template of all kernels of one type T: the operations every type has, those of
 * integers (BITS) and those of floats (SCALED). See kernel.h for what the
 * includer provides. Included many times, on purpose without a guard.
 */
#define OP      sum
#define COMBINE sum
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  SPREADS
#include "kernel.h"

#define OP      prod
#define COMBINE prod
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#define OP      min
#define COMBINE min
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#define OP      max
#define COMBINE max
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#define OP      avg
#define COMBINE sum
#define PRE     0
#define POST    1
#define TRUTH   0
#define SPREAD  SPREADS
#include "kernel.h"

#define OP      land
#define COMBINE land
#define PRE     0
#define POST    0
#define TRUTH   1
#define SPREAD  0
#include "kernel.h"

#define OP      lor
#define COMBINE lor
#define PRE     0
#define POST    0
#define TRUTH   1
#define SPREAD  0
#include "kernel.h"

#define OP      lxor
#define COMBINE lxor
#define PRE     0
#define POST    0
#define TRUTH   1
#define SPREAD  0
#include "kernel.h"

#if BITS
#define OP      band
#define COMBINE band
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#define OP      bor
#define COMBINE bor
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#define OP      bxor
#define COMBINE bxor
#define PRE     0
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#else
#define OP      premul
#define COMBINE sum
#define PRE     1
#define POST    0
#define TRUTH   0
#define SPREAD  0
#include "kernel.h"

#endif

#undef T
#undef BITS
