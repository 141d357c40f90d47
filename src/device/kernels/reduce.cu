/*
 * Reductions: n inputs to m places, an entry per type (table.h).
 *
 * The arithmetic is that of reduce/element.h, element by element, in the order of the inputs, so that each
 * entry is bit-equal to the scalar level of src/reduce (the payload of a NaN excepted). If all addresses have the same
 * rest modulo 16, a thread takes 16 bytes of each input at a time; elements before and behind, or all, go singly. A
 * thread loads an element of every input before it stores it, and no other thread touches it.
 *
 * Each block finds its addresses first: they may be known since the kernel began only (records.cu).
 */
#include "device/kernels/kernel.h"

#include "coll/coll.h"
#include "device/kernels/args.h"
#include "device/kernels/table.h"
#include "reduce/element.h"

ELEMENT_SIGNED(i8, int8_t, uint8_t, uint32_t)
ELEMENT_UNSIGNED(u8, uint8_t, uint32_t)
ELEMENT_SIGNED(i16, int16_t, uint16_t, uint32_t)
ELEMENT_UNSIGNED(u16, uint16_t, uint32_t)
ELEMENT_SIGNED(i32, int32_t, uint32_t, uint32_t)
ELEMENT_UNSIGNED(u32, uint32_t, uint32_t)
ELEMENT_SIGNED(i64, int64_t, uint64_t, uint64_t)
ELEMENT_UNSIGNED(u64, uint64_t, uint64_t)
ELEMENT_FLOAT(f16, float, uint32_t)
ELEMENT_FLOAT(bf16, float, uint32_t)
ELEMENT_FLOAT(f8e4m3, float, uint32_t)
ELEMENT_FLOAT(f8e5m2, float, uint32_t)
ELEMENT_FLOAT(f32, float, uint32_t)
ELEMENT_FLOAT(f64, double, uint64_t)
ELEMENT_HALF(f16)
ELEMENT_HALF(bf16)
ELEMENT_F8(f8e4m3)
ELEMENT_F8(f8e5m2)
ELEMENT_WIDE(f32, float)
ELEMENT_WIDE(f64, double)

/* In shared memory: where the inputs and results are, and how many elements. */
enum { REDUCE_OUT = COLL_KERNEL_PLACES_MAX, REDUCE_COUNT = 2 * COLL_KERNEL_PLACES_MAX, REDUCE_WORDS };

KERNEL_INLINE uint64_t reduce_found(const struct coll_kernel_reduce_args *a, uint64_t place)
{
	return a->found ? LOAD_8(a->found + place * 8) : 0;
}

/* All threads of the block have come back from it before one goes on. */
KERNEL_INLINE void reduce_find(const struct coll_kernel_reduce_args *a, uint64_t *at)
{
	const bool whole = reduce_found(a, COLL_KERNEL_RANKS_MAX) != 0;
	const uint64_t shift = whole ? a->whole_shift : a->shift;
	/* By masks: a choice between members would put the argument into local memory. */
	const uint64_t other = whole ? a->whole_out : 0, given = other ? 0 : ~(uint64_t)0;

	KERNEL_ROLLED
	for (uint32_t i = THREAD; i < (uint32_t)a->nin; i += THREADS) {
		const uint64_t in = reduce_found(a, i);

		at[i] = in ? in + shift : a->in[i];
	}
	KERNEL_ROLLED
	for (uint32_t d = THREAD; d < (uint32_t)a->nout; d += THREADS)
		at[REDUCE_OUT + d] = other | (a->out[d] & given);
	if (THREAD == 0)
		at[REDUCE_COUNT] = whole ? a->whole_count : a->count;
	BARRIER();
}

/* How the elements of a call lie. */
struct reduce_shape {
	uint64_t head;    /* elements before the vectors; all, if there are none */
	uint64_t vectors; /* of 16 bytes */
	bool natural;     /* every element is aligned to its size */
};

KERNEL_INLINE struct reduce_shape reduce_shape_of(const struct coll_kernel_reduce_args *a, const uint64_t *at, uint32_t bytes)
{
	const uint64_t first = at[REDUCE_OUT], count = at[REDUCE_COUNT];
	struct reduce_shape s = {count, 0, false};
	uint64_t apart = 0;

	KERNEL_ROLLED
	for (int32_t i = 0; i < a->nin; i++)
		apart |= at[i] ^ first;
	KERNEL_ROLLED
	for (int32_t i = 1; i < a->nout; i++)
		apart |= at[REDUCE_OUT + i] ^ first;
	s.natural = ((apart | first) & (bytes - 1)) == 0;
	if (s.natural && (apart & 15) == 0) {
		const uint64_t before = ((0 - first) & 15) / bytes;

		if (before < count) {
			s.head = before;
			s.vectors = (count - before) * bytes / 16;
		}
	}
	return s;
}

/* The bits of one element at any address; bytes is a constant. */
KERNEL_INLINE uint64_t reduce_fetch(uint64_t p, uint32_t bytes, bool natural)
{
	uint64_t bits = 0;

	if (!natural) {
		KERNEL_ROLLED
		for (uint32_t i = 0; i < bytes; i++)
			bits |= (uint64_t)LOAD_1(p + i) << 8 * i;
		return bits;
	}
	return bytes == 1 ? LOAD_1(p) : bytes == 2 ? LOAD_2(p) : bytes == 4 ? LOAD_4(p) : LOAD_8(p);
}

KERNEL_INLINE void reduce_put(uint64_t p, uint64_t bits, uint32_t bytes, bool natural)
{
	if (!natural) {
		KERNEL_ROLLED
		for (uint32_t i = 0; i < bytes; i++)
			STORE_1(p + i, (uint8_t)(bits >> 8 * i));
	} else if (bytes == 1) {
		STORE_1(p, (uint8_t)bits);
	} else if (bytes == 2) {
		STORE_2(p, (uint16_t)bits);
	} else if (bytes == 4) {
		STORE_4(p, (uint32_t)bits);
	} else {
		STORE_8(p, bits);
	}
}

/* One statement for each of N elements, without a loop. */
#define EACH(N, statement)                    \
	do {                                  \
		KERNEL_UNROLL                 \
		for (int k = 0; k < (N); k++) \
			statement;            \
	} while (0)

/* v op y, for the operations of a class; the first input is v. */
#define COMBINE_ANY(T, N)                                            \
	default: EACH(N, v[k] = y[k]); break;                        \
	case COLL_SUM:                                               \
	case COLL_AVG: EACH(N, v[k] = T##_sum(v[k], y[k])); break;   \
	case COLL_PROD: EACH(N, v[k] = T##_prod(v[k], y[k])); break; \
	case COLL_MIN: EACH(N, v[k] = T##_min(v[k], y[k])); break;   \
	case COLL_MAX: EACH(N, v[k] = T##_max(v[k], y[k])); break;   \
	case COLL_LAND: EACH(N, v[k] = T##_land(v[k], y[k])); break; \
	case COLL_LOR: EACH(N, v[k] = T##_lor(v[k], y[k])); break;   \
	case COLL_LXOR:                                              \
		EACH(N, v[k] = T##_lxor(v[k], y[k]));                \
		break
#define COMBINE_INTEGER(T, N)                                        \
	COMBINE_ANY(T, N);                                           \
	case COLL_BAND: EACH(N, v[k] = T##_band(v[k], y[k])); break; \
	case COLL_BOR: EACH(N, v[k] = T##_bor(v[k], y[k])); break;   \
	case COLL_BXOR:                                              \
		EACH(N, v[k] = T##_bxor(v[k], y[k]));                \
		break
#define COMBINE_REAL(T, N) \
	COMBINE_ANY(T, N); \
	case COLL_KERNEL_PREMUL: EACH(N, v[k] = T##_sum(v[k], y[k])); break
#define COMBINE_NARROW COMBINE_REAL

/* Input s, before it is combined. */
#define SCALE_INTEGER(T, N)
#define SCALE_REAL(T, N)                                                  \
	if (a->op == COLL_KERNEL_PREMUL && (a->raw == -2 || a->raw == s)) \
	EACH(N, y[k] = T##_scale(y[k], a->scale))
#define SCALE_NARROW(T, N)                               \
	SCALE_REAL(T, N);                                \
	if (a->op == COLL_AVG)                           \
	EACH(N, y[k] = T##_weigh(y[k], a->share))

/* The last input is in. */
#define DIVIDE_INTEGER(T, N)             \
	if (a->last && a->op == COLL_AVG) \
	EACH(N, v[k] = T##_div(v[k], a->divisor))
#define DIVIDE_REAL         DIVIDE_INTEGER
#define DIVIDE_NARROW(T, N) /* a mean */

/*
 * N elements from x join v as input s; the result goes from v to x. The first input is no case of its own before the
 * loop, since its conversion would double the code.
 */
#define REDUCE_WIDTH(T, class, name, N)                                                                             \
	KERNEL_INLINE void T##_##name##_join(const struct coll_kernel_reduce_args *a, T##_v *v, const char *x,      \
	                                     int32_t s)                                                             \
	{                                                                                                           \
		T##_v y[N];                                                                                         \
                                                                                                                    \
		EACH(N, y[k] = T##_load(x + k * T##_bytes));                                                        \
		SCALE_##class(T, N);                                                                                \
		switch (s == 0 ? -1 : a->op) {                                                                      \
			COMBINE_##class(T, N);                                                                      \
		}                                                                                                   \
	}                                                                                                           \
	KERNEL_INLINE void T##_##name##_end(const struct coll_kernel_reduce_args *a, T##_v *v, char *x)             \
	{                                                                                                           \
		DIVIDE_##class(T, N);                                                                               \
		if (a->last && a->nin == 1 && (a->op == COLL_LAND || a->op == COLL_LOR || a->op == COLL_LXOR)) \
			EACH(N, v[k] = T##_truth(v[k]));                                                            \
		EACH(N, T##_store(x + k * T##_bytes, v[k]));                                                        \
	}

#define REDUCE(T, TYPE, class)                                                                                         \
	REDUCE_WIDTH(T, class, vector, 16 / T##_bytes)                                                                 \
	REDUCE_WIDTH(T, class, one, 1)                                                                                 \
	KERNEL_INLINE void T##_reduce_vector(const struct coll_kernel_reduce_args *a, const uint64_t *to, uint64_t at) \
	{                                                                                                              \
		T##_v v[16 / T##_bytes] = {0};                                                                         \
		struct kernel_16 x;                                                                                    \
		int32_t s = 0;                                                                                         \
                                                                                                                       \
		KERNEL_ROLLED                                                                                          \
		do {                                                                                                   \
			x = LOAD_16(to[s] + at);                                                                       \
			T##_vector_join(a, v, (const char *)&x, s);                                                    \
		} while (++s < a->nin);                                                                                \
		T##_vector_end(a, v, (char *)&x);                                                                      \
		KERNEL_ROLLED                                                                                          \
		for (int32_t d = 0; d < a->nout; d++)                                                         \
			STORE_16(to[REDUCE_OUT + d] + at, x);                                                          \
	}                                                                                                              \
	KERNEL_INLINE void T##_reduce_one(const struct coll_kernel_reduce_args *a, const uint64_t *to, uint64_t at,    \
	                                  bool natural)                                                                \
	{                                                                                                              \
		uint64_t x;                                                                                            \
		int32_t s = 0;                                                                                         \
		T##_v v = 0;                                                                                           \
                                                                                                                       \
		KERNEL_ROLLED                                                                                          \
		do {                                                                                                   \
			x = reduce_fetch(to[s] + at, T##_bytes, natural);                                              \
			T##_one_join(a, &v, (const char *)&x, s);                                                      \
		} while (++s < a->nin);                                                                                \
		T##_one_end(a, &v, (char *)&x);                                                                        \
		KERNEL_ROLLED                                                                                          \
		for (int32_t d = 0; d < a->nout; d++)                                                         \
			reduce_put(to[REDUCE_OUT + d] + at, x, T##_bytes, natural);                                    \
	}                                                                                                              \
	KERNEL(coll_kernel_reduce_##T, coll_kernel_reduce_args)                                                        \
	{                                                                                                              \
		SHARED(uint64_t, to, REDUCE_WORDS);                                                                    \
		struct reduce_shape shape;                                                                             \
		uint64_t inside;                                                                                       \
                                                                                                                       \
		if (!kernel_may_write(args.state, args.gate))                                                                     \
			return;                                                                                        \
		reduce_find(&args, to);                                                                                \
		shape = reduce_shape_of(&args, to, T##_bytes);                                                      \
		inside = shape.vectors * 16 / T##_bytes;                                                               \
		KERNEL_ROLLED                                                                                          \
		for (uint64_t i = kernel_rank(); i < shape.vectors; i += kernel_size())                                \
			T##_reduce_vector(&args, to, shape.head *T##_bytes + i * 16);                                  \
		KERNEL_ROLLED                                                                                          \
		for (uint64_t i = kernel_rank(); i < to[REDUCE_COUNT] - inside; i += kernel_size())                    \
			T##_reduce_one(&args, to, (i < shape.head ? i : i + inside) * T##_bytes, shape.natural);       \
	}
COLL_KERNELS_REDUCE(REDUCE)
