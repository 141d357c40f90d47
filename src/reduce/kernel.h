/*
 * Template of one reduction kernel: type T, operation OP. Included many times,
 * on purpose without a guard.
 *
 * The includer has defined, for vectors of T_lanes elements (a scalar is a
 * vector of one): T_v, T_load, T_store, T_load_some, T_store_some and the
 * operations of element.h on T_v; and the parameters, of which all but OP may be left out (0)
 *   OP       name of the kernel          COMBINE  operation that joins two vectors (OP)
 *   PRE      inputs may be scaled        POST     the last call divides
 *   MEAN     inputs are weighed by their shares
 *   TRUTH    a single last input becomes 0 or 1
 *   SPREAD   a second kernel stores the result to several places: whole vectors, all inputs
 *            raw, the result complete
 *   UNROLL   vectors per turn of the main loop: 4, or 1
 * A kernel reads every input once and writes dst once. All loads of a turn
 * precede its stores, so dst may be any of the inputs.
 */
#ifndef COMBINE
#define COMBINE OP
#endif
#ifndef PRE
#define PRE 0
#endif
#ifndef POST
#define POST 0
#endif
#ifndef MEAN
#define MEAN 0
#endif
#ifndef TRUTH
#define TRUTH 0
#endif
#ifndef SPREAD
#define SPREAD 0
#endif
#define KERNEL_JOIN_(a, b) a##_##b
#define KERNEL_JOIN(a, b)  KERNEL_JOIN_(a, b)
#define TF(name)           KERNEL_JOIN(T, name)
#define KERNEL             KERNEL_JOIN(T, KERNEL_JOIN(OP, kernel))
#define STEP               ((size_t)TF(lanes) * TF(bytes))

#if PRE
#define INPUT(s, v) (raw == -2 || raw == (s) ? TF(scale)(v, r->scale) : (v))
#elif MEAN
#define INPUT(s, v) TF(weigh)(v, share[(size_t)(s)*each])
#else
#define INPUT(s, v) (v)
#endif
#if MEAN
#define EQUAL(n)       const float equal = 1 / (float)(n);
#define EQUAL_INPUT(v) TF(weigh)(v, equal)
#else
#define EQUAL(n)
#define EQUAL_INPUT(v) (v)
#endif
#if POST
#define FINISH(v) (last ? TF(div)(v, r->divisor) : (v))
#elif TRUTH
#define FINISH(v) (nsrc == 1 && last ? TF(truth)(v) : (v))
#else
#define FINISH(v) (v)
#endif
#define LOAD(s, p)         INPUT(s, TF(load)(p))
#define LOAD_SOME(s, p, n) INPUT(s, TF(load_some)(p, n))

static void KERNEL_JOIN(KERNEL, two)(const struct coll_reduction *r, char *d, const char *a, const char *b, int raw,
                                     bool last, size_t bytes)
{
	enum { nsrc = 2, each = 1 };
	const float share[] = {r->share ? r->share[0] : 0.5f, r->share ? r->share[1] : 0.5f};
	size_t i = 0;

	(void)nsrc;
	(void)each;
	(void)share;
#if UNROLL == 4
	for (; bytes - i >= 4 * STEP; i += 4 * STEP) {
		TF(v) v0 = LOAD(0, a + i), v1 = LOAD(0, a + i + STEP);
		TF(v) v2 = LOAD(0, a + i + 2 * STEP), v3 = LOAD(0, a + i + 3 * STEP);

		v0 = TF(COMBINE)(v0, LOAD(1, b + i));
		v1 = TF(COMBINE)(v1, LOAD(1, b + i + STEP));
		v2 = TF(COMBINE)(v2, LOAD(1, b + i + 2 * STEP));
		v3 = TF(COMBINE)(v3, LOAD(1, b + i + 3 * STEP));
		TF(store)(d + i, FINISH(v0));
		TF(store)(d + i + STEP, FINISH(v1));
		TF(store)(d + i + 2 * STEP, FINISH(v2));
		TF(store)(d + i + 3 * STEP, FINISH(v3));
	}
#endif
	KERNEL_INDEPENDENT
	for (; bytes - i >= STEP; i += STEP)
		TF(store)(d + i, FINISH(TF(COMBINE)(LOAD(0, a + i), LOAD(1, b + i))));
	if (TF(lanes) > 1 && i < bytes) {
		const size_t n = (bytes - i) / TF(bytes);

		TF(store_some)(d + i, FINISH(TF(COMBINE)(LOAD_SOME(0, a + i, n), LOAD_SOME(1, b + i, n))), n);
	}
}

static void KERNEL_JOIN(KERNEL, many)(const struct coll_reduction *r, char *d, const char *const *src, int nsrc,
                                      int raw, bool last, size_t bytes)
{
	/* One share for all, or a list of them. */
	const float equal = 1 / (float)nsrc, *const share = r->share ? r->share : &equal;
	const size_t each = r->share != NULL;
	size_t i = 0;

	(void)share;
	(void)each;
#if UNROLL == 4
	for (; bytes - i >= 4 * STEP; i += 4 * STEP) {
		const char *p = src[0] + i;
		TF(v) v0 = LOAD(0, p), v1 = LOAD(0, p + STEP);
		TF(v) v2 = LOAD(0, p + 2 * STEP), v3 = LOAD(0, p + 3 * STEP);

		for (int s = 1; s < nsrc; s++) {
			p = src[s] + i;
			v0 = TF(COMBINE)(v0, LOAD(s, p));
			v1 = TF(COMBINE)(v1, LOAD(s, p + STEP));
			v2 = TF(COMBINE)(v2, LOAD(s, p + 2 * STEP));
			v3 = TF(COMBINE)(v3, LOAD(s, p + 3 * STEP));
		}
		TF(store)(d + i, FINISH(v0));
		TF(store)(d + i + STEP, FINISH(v1));
		TF(store)(d + i + 2 * STEP, FINISH(v2));
		TF(store)(d + i + 3 * STEP, FINISH(v3));
	}
#endif
	for (; bytes - i >= STEP; i += STEP) {
		TF(v) v = LOAD(0, src[0] + i);

		for (int s = 1; s < nsrc; s++)
			v = TF(COMBINE)(v, LOAD(s, src[s] + i));
		TF(store)(d + i, FINISH(v));
	}
	if (TF(lanes) > 1 && i < bytes) {
		const size_t n = (bytes - i) / TF(bytes);
		TF(v) v = LOAD_SOME(0, src[0] + i, n);

		for (int s = 1; s < nsrc; s++)
			v = TF(COMBINE)(v, LOAD_SOME(s, src[s] + i, n));
		TF(store_some)(d + i, FINISH(v), n);
	}
}

static void KERNEL(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw, bool last,
                   size_t count)
{
	const size_t bytes = count * TF(bytes);

	(void)raw;
	(void)last;
	if (nsrc == 2)
		KERNEL_JOIN(KERNEL, two)(r, dst, src[0], src[1], raw, last, bytes);
	else if (nsrc == 1 && !(PRE && (raw == 0 || raw == -2)) && !(POST && last) && !(TRUTH && last))
		coll_reduce_copy(dst, src[0], bytes);
	else
		KERNEL_JOIN(KERNEL, many)(r, dst, (const char *const *)src, nsrc, raw, last, bytes);
}

#if SPREAD
/* Two to two, and two to one, are written out: the pointers stay in registers. The non-temporal loop of two to two
 * reloads its pointers for each vector on purpose. The core then has fewer stores in flight; with the maximum number it
 * falls into phases of a millisecond in which it is a third slower (docs/design/shm-large.md; gcc 12). A compiler that
 * keeps the pointers in registers brings these phases back, and nothing worse. */
#define SPREAD_JOIN(STORE)           \
	for (; i < bytes; i += STEP) \
		STORE(x + i, FINISH(TF(COMBINE)(EQUAL_INPUT(TF(load)(a + i)), EQUAL_INPUT(TF(load)(b + i)))));
#define SPREAD_MANY(STORE)                                                     \
	for (; i < bytes; i += STEP) {                                         \
		TF(v) v = EQUAL_INPUT(TF(load)(src[0] + i));                   \
                                                                               \
		for (int s = 1; s < nsrc; s++)                                 \
			v = TF(COMBINE)(v, EQUAL_INPUT(TF(load)(src[s] + i))); \
		v = FINISH(v);                                                 \
		for (int d = 0; d < ndst; d++)                                 \
			STORE(dst[d] + i, v);                                  \
	}

static void KERNEL_JOIN(KERNEL, spread_two)(const struct coll_reduction *r, char *x, char *y, const char *a,
                                            const char *b, size_t bytes)
{
	const bool last = true;
	EQUAL(2)

	(void)last;
	for (size_t i = 0; i < bytes; i += STEP) {
		const TF(v) v = FINISH(TF(COMBINE)(EQUAL_INPUT(TF(load)(a + i)), EQUAL_INPUT(TF(load)(b + i))));

		TF(store)(x + i, v);
		TF(store)(y + i, v);
	}
}

static void KERNEL_JOIN(KERNEL, spread_join)(const struct coll_reduction *r, char *x, const char *a, const char *b,
                                             bool stream, size_t bytes)
{
	const bool last = true;
	EQUAL(2)
	size_t i = 0;

	(void)last;
	if (stream)
		SPREAD_JOIN(TF(stream))
	else
		SPREAD_JOIN(TF(store))
}

static void KERNEL_JOIN(KERNEL, spread)(const struct coll_reduction *r, char *const *dst, int ndst,
                                        const char *const *src, int nsrc, bool stream, size_t bytes)
{
	const bool last = true;
	EQUAL(nsrc)
	size_t i = 0;

	(void)last;
	if (nsrc == 2 && ndst == 2 && !stream)
		KERNEL_JOIN(KERNEL, spread_two)(r, dst[0], dst[1], src[0], src[1], bytes);
	else if (nsrc == 2 && ndst == 1)
		KERNEL_JOIN(KERNEL, spread_join)(r, dst[0], src[0], src[1], stream, bytes);
	else if (stream)
		SPREAD_MANY(TF(stream))
	else
		SPREAD_MANY(TF(store))
}
#undef SPREAD_JOIN
#undef SPREAD_MANY
#endif

#undef KERNEL_JOIN_
#undef KERNEL_JOIN
#undef TF
#undef KERNEL
#undef STEP
#undef INPUT
#undef FINISH
#undef LOAD
#undef LOAD_SOME
#undef OP
#undef COMBINE
#undef PRE
#undef MEAN
#undef EQUAL
#undef EQUAL_INPUT
#undef POST
#undef TRUTH
#undef SPREAD
