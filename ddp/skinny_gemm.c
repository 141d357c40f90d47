/*
 * Products with thin matrices: bound by memory if several rows of the large matrix are
 * taken at once, so that the thin one's are loaded once for all of them. Vectors are of
 * four, as every processor has: wider ones would gain little, and their sums would be other ones.
 *
 * The usual ranks, 4, 8 and 16, are constants inside; for others there are plain loops.
 */
#include "ddp/skinny_gemm.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define WIDTH  4  /* of a vector */
#define ROWS   4  /* at once */
#define MOST   16 /* the largest of the usual ranks */

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

INLINE quad load(const float *x)
{
	return *(const quad *)x;
}

INLINE void store(float *x, quad v)
{
	*(quad *)x = v;
}

/* Calls what(constant or r) for its rank. */
#define FOR_RANK(r, what)           \
	do {                        \
		if ((r) == 4)       \
			what(4);    \
		else if ((r) == 8)  \
			what(8);    \
		else if ((r) == 16) \
			what(16);   \
	} while (0)

static int is_usual(size_t r)
{
	return r == 4 || r == 8 || r == 16;
}

/* ---- m += g; out = m q -------------------------------------------------------- */

INLINE void times_rows(float *out, float *m, const float *g, const float *q, size_t n, size_t columns, size_t r)
{
	quad sums[ROWS * MOST / WIDTH] = {{0}};
	const size_t vectors = r / WIDTH;

	for (size_t i = 0; i < n * columns; i++)
		m[i] += g[i];
	for (size_t j = 0; j < columns; j++)
		for (size_t i = 0; i < n; i++)
			for (size_t v = 0; v < vectors; v++)
				sums[i * vectors + v] += m[i * columns + j] * load(q + j * r + v * WIDTH);
	for (size_t v = 0; v < n * vectors; v++)
		store(out + v * WIDTH, sums[v]);
}

INLINE void times_usual(float *out, float *m, const float *g, const float *q, size_t rows, size_t columns, size_t r)
{
	size_t i = 0;

	for (; i + ROWS <= rows; i += ROWS)
		times_rows(out + i * r, m + i * columns, g + i * columns, q, ROWS, columns, r);
	for (; i < rows; i++)
		times_rows(out + i * r, m + i * columns, g + i * columns, q, 1, columns, r);
}

void ddp_thin_times(float *out, float *m, const float *g, const float *q, size_t rows, size_t columns, size_t r)
{
#define CALL(n) times_usual(out, m, g, q, rows, columns, n)
	FOR_RANK(r, CALL);
#undef CALL
	if (is_usual(r))
		return;
	memset(out, 0, rows * r * sizeof(*out));
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++) {
			m[i * columns + j] += g[i * columns + j];
			for (size_t k = 0; k < r; k++)
				out[i * r + k] += m[i * columns + j] * q[j * r + k];
		}
}

/* ---- out = m^T p ---------------------------------------------------------------- */

INLINE void transposed_rows(float *out, const float *m, const float *p, size_t n, size_t columns, size_t r)
{
	quad thin[ROWS * MOST / WIDTH] = {{0}};
	const size_t vectors = r / WIDTH;

	for (size_t v = 0; v < n * vectors; v++)
		thin[v] = load(p + v * WIDTH);
	for (size_t j = 0; j < columns; j++)
		for (size_t v = 0; v < vectors; v++) {
			quad sum = load(out + j * r + v * WIDTH);

			for (size_t i = 0; i < n; i++)
				sum += m[i * columns + j] * thin[i * vectors + v];
			store(out + j * r + v * WIDTH, sum);
		}
}

INLINE void transposed_usual(float *out, const float *m, const float *p, size_t rows, size_t columns, size_t r)
{
	size_t i = 0;

	for (; i + ROWS <= rows; i += ROWS)
		transposed_rows(out, m + i * columns, p + i * r, ROWS, columns, r);
	for (; i < rows; i++)
		transposed_rows(out, m + i * columns, p + i * r, 1, columns, r);
}

void ddp_thin_transposed(float *out, const float *m, const float *p, size_t rows, size_t columns, size_t r)
{
	memset(out, 0, columns * r * sizeof(*out));
#define CALL(n) transposed_usual(out, m, p, rows, columns, n)
	FOR_RANK(r, CALL);
#undef CALL
	if (is_usual(r))
		return;
	for (size_t i = 0; i < rows; i++)
		for (size_t j = 0; j < columns; j++)
			for (size_t k = 0; k < r; k++)
				out[j * r + k] += m[i * columns + j] * p[i * r + k];
}

/* ---- g = p q^T; m -= g ------------------------------------------------------------ */

static void turn(float *turned, const float *q, size_t columns, size_t r)
{
	for (size_t j = 0; j < columns; j++)
		for (size_t k = 0; k < r; k++)
			turned[k * columns + j] = q[j * r + k];
}

INLINE void product_row(float *g, float *m, const float *p, const float *turned, size_t columns, size_t r)
{
	size_t j = 0;

	for (; j + WIDTH <= columns; j += WIDTH) {
		quad x = {0};

		for (size_t k = 0; k < r; k++)
			x += p[k] * load(turned + k * columns + j);
		store(g + j, x);
		store(m + j, load(m + j) - x);
	}
	for (; j < columns; j++) {
		float x = 0;

		for (size_t k = 0; k < r; k++)
			x += p[k] * turned[k * columns + j];
		g[j] = x;
		m[j] -= x;
	}
}

void ddp_thin_product(float *g, float *m, const float *p, const float *q, float *turned, size_t rows, size_t columns,
                      size_t r)
{
	turn(turned, q, columns, r);
	for (size_t i = 0; i < rows; i++) {
		float *gi = g + i * columns, *mi = m + i * columns;
		const float *pi = p + i * r;

#define CALL(n) product_row(gi, mi, pi, turned, columns, n)
		FOR_RANK(r, CALL);
		if (!is_usual(r))
			CALL(r);
#undef CALL
	}
}
