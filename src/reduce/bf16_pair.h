/*
 * bf16 in vectors: the upper half of an f32, so a vector of them is two of f32, the even and
 * the odd elements, without any shuffle. For levels whose f32_v is a vector; they widen and
 * narrow with their own instructions.
 */
#ifndef COLL_REDUCE_BF16_PAIR_H
#define COLL_REDUCE_BF16_PAIR_H

#include "reduce/element.h"

typedef struct {
	f32_v even;
	f32_v odd;
} bf16_v;

#define BOTH(name)                                                                     \
	ELEMENT_INLINE bf16_v bf16_##name(bf16_v a, bf16_v b)                          \
	{                                                                              \
		return (bf16_v){f32_##name(a.even, b.even), f32_##name(a.odd, b.odd)}; \
	}
BOTH(sum)
BOTH(prod)
BOTH(min)
BOTH(max)
BOTH(land)
BOTH(lor)
BOTH(lxor)

ELEMENT_INLINE bf16_v bf16_truth(bf16_v a)
{
	return (bf16_v){f32_truth(a.even), f32_truth(a.odd)};
}

ELEMENT_INLINE bf16_v bf16_weigh(bf16_v a, float share)
{
	return (bf16_v){f32_scale(a.even, (double)share), f32_scale(a.odd, (double)share)};
}

#undef BOTH
#endif
