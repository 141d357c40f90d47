/*
 * The number type of the GPT code. Everything under gpt/ is written for one
 * real type and compiled twice: for float, which programs use, and for double,
 * in which tests compare gradients with central differences.
 */
#ifndef GPT_REAL_H
#define GPT_REAL_H

#include <math.h>

#ifdef GPT_DOUBLE
typedef double gpt_real;
#define GPT_SQRT     sqrt
#define GPT_EXP      exp
#define GPT_LOG      log
#define GPT_TANH     tanh
#define GPT_EPS_REAL 2.220446049250313e-16
#else
typedef float gpt_real;
#define GPT_SQRT     sqrtf
#define GPT_EXP      expf
#define GPT_LOG      logf
#define GPT_TANH     tanhf
#define GPT_EPS_REAL 1.1920929e-7
#endif

#endif
