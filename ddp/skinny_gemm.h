/*
 * Products of a large matrix with thin ones, of a few columns; matrices are row-major.
 */
#ifndef DDP_THIN_H
#define DDP_THIN_H

#include <stddef.h>

/* m += g, both rows x columns; out (rows x r) = m q, q of columns x r. */
void ddp_thin_times(float *out, float *m, const float *g, const float *q, size_t rows, size_t columns, size_t r);
/* out (columns x r) = m^T p, p of rows x r. */
void ddp_thin_transposed(float *out, const float *m, const float *p, size_t rows, size_t columns, size_t r);
/* g = p q^T and m -= g. turned: room for as many numbers as q has. */
void ddp_thin_product(float *g, float *m, const float *p, const float *q, float *turned, size_t rows, size_t columns,
                      size_t r);

#endif
