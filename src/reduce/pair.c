/*
 * Minimum and maximum of pairs of a value and an index: MINLOC and MAXLOC of MPI, with its layouts (MPI_FLOAT_INT,
 * MPI_DOUBLE_INT, MPI_2INT, MPI_LONG_INT).
 *
 * The order of pairs is total, so the result depends neither on the order of the operands nor on how they are grouped:
 * a NaN before every number, then the smaller or larger value, then the lower index, then the bits of the value. Zeros
 * of both signs are equal, as in C. A pair that was combined has zeros in its padding.
 */
#include "reduce/pair.h"

#include <assert.h>
#include <string.h>

#include "reduce/copy.h"

static_assert(sizeof(coll_f32_i32) == 8 && offsetof(coll_f32_i32, index) == 4, "MPI_FLOAT_INT");
static_assert(sizeof(coll_f64_i32) == 16 && offsetof(coll_f64_i32, index) == 8, "MPI_DOUBLE_INT");
static_assert(sizeof(coll_i32_i32) == 8 && offsetof(coll_i32_i32, index) == 4, "MPI_2INT");
static_assert(sizeof(coll_i64_i32) == 16 && offsetof(coll_i64_i32, index) == 8, "MPI_LONG_INT");

/* Whether b takes the place of a. U: unsigned, of the size of a value. */
#define PAIR(T, U)                                                                                                   \
	static bool T##_wins(T b, T a, bool max)                                                                     \
	{                                                                                                            \
		const bool a_nan = a.value != a.value, b_nan = b.value != b.value;                                   \
		U x, y;                                                                                              \
                                                                                                                     \
		if (a_nan != b_nan)                                                                                  \
			return b_nan;                                                                                \
		if (!a_nan && a.value != b.value)                                                                    \
			return max ? b.value > a.value : b.value < a.value;                                          \
		if (a.index != b.index)                                                                              \
			return b.index < a.index;                                                                    \
		memcpy(&x, &a.value, sizeof(x));                                                                     \
		memcpy(&y, &b.value, sizeof(y));                                                                     \
		return max ? y < x : y > x;                                                                          \
	}                                                                                                            \
	static void T##_kernel(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw, \
	                       bool last, size_t count)                                                              \
	{                                                                                                            \
		(void)raw;                                                                                           \
		(void)last;                                                                                          \
		if (nsrc == 1) {                                                                                     \
			coll_reduce_copy(dst, src[0], count * sizeof(T));                                            \
			return;                                                                                      \
		}                                                                                                    \
		for (size_t i = 0; i < count; i++) {                                                                 \
			T best, next;                                                                                \
			char out[sizeof(T)] = {0};                                                                   \
                                                                                                                     \
			memcpy(&best, (const char *)src[0] + i * sizeof(T), sizeof(T));                              \
			for (int s = 1; s < nsrc; s++) {                                                             \
				memcpy(&next, (const char *)src[s] + i * sizeof(T), sizeof(T));                      \
				if (T##_wins(next, best, r->op == COLL_MAX))                                         \
					best = next;                                                                 \
			}                                                                                            \
			memcpy(out, &best.value, sizeof(best.value));                                                \
			memcpy(out + sizeof(best.value), &best.index, sizeof(best.index));                           \
			memcpy((char *)dst + i * sizeof(T), out, sizeof(T));                                         \
		}                                                                                                    \
	}

PAIR(coll_f32_i32, uint32_t)
PAIR(coll_f64_i32, uint64_t)
PAIR(coll_i32_i32, uint32_t)
PAIR(coll_i64_i32, uint64_t)

coll_reduce_fn coll_reduce_pair_find(coll_dtype type, coll_op op)
{
	if (op != COLL_MIN && op != COLL_MAX)
		return NULL;
	switch (type) {
	case COLL_F32_I32: return coll_f32_i32_kernel;
	case COLL_F64_I32: return coll_f64_i32_kernel;
	case COLL_I32_I32: return coll_i32_i32_kernel;
	case COLL_I64_I32: return coll_i64_i32_kernel;
	default: return NULL;
	}
}
