/*
 * The order of measured values: medians and quantiles of blocks.
 */
#ifndef COLL_BENCH_MEDIAN_H
#define COLL_BENCH_MEDIAN_H

#include <stdlib.h>

static inline int median_order(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Sorts the values; their median. */
static inline double median_of(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), median_order);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

#endif
