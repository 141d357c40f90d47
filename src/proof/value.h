/*
 * Values: what a chunk may hold while plans are proved, as numbers.
 *
 * A value is a contribution (rank, chunk), raw or pre-scaled, or an expression of
 * contributions, of which only what must be proved is kept: the set of
 * contributions (as a count and a 128-bit sum of random numbers, so that one more
 * or one less cannot go unseen), the interval of ranks that it covers in order, a
 * hash of its tree of roundings, and whether it has been post-scaled.
 */
#ifndef COLL_PROOF_VALUE_H
#define COLL_PROOF_VALUE_H

#include "plan/plan.h"

/* Low numbers are contributions: rank * chunks + chunk, with SCALED or not. */
#define COLL_VALUE_UNDEFINED  0xffffffffu
#define COLL_VALUE_EXPRESSION 0x80000000u
#define COLL_VALUE_SCALED     0x40000000u

struct coll_expression {
	uint64_t set[2];
	uint64_t tree;
	uint32_t chunk;
	uint32_t count;
	int low, high; /* covers ranks low..high in order; low > high: it does not */
	bool posted;
};

struct coll_values {
	int size;
	uint32_t chunks;
	bool ordered; /* operands must be in rank order */
	enum coll_kind kind;
	struct coll_expression *list;
	size_t count, capacity;
	uint64_t (*random)[2]; /* per rank */
	uint64_t full[2];      /* sum over all ranks */
	coll_status status;    /* sticky: of what failed first, and why */
	char error[128];
};

/* On failure the zeroed or half-made object is still to be ended by fini. */
coll_status coll_values_init(struct coll_values *v, enum coll_kind kind, int size, uint32_t chunks, bool ordered);
void coll_values_fini(struct coll_values *v);

/* Record a failure, unless there is one. */
void coll_values_fail(struct coll_values *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A new value; UNDEFINED (and failed) when there is no memory. */
uint32_t coll_value_of(struct coll_values *v, const struct coll_expression *x);
/* What a value stands for as an operand; false, and failed, when it is undefined or
 * not yet pre-scaled. */
bool coll_value_expand(struct coll_values *v, uint32_t value, struct coll_expression *x);
/* A pre-scaling read of `in` by rank: the raw contribution, scaled. */
uint32_t coll_value_scale(struct coll_values *v, int rank, uint32_t value);
/* left becomes left (op) right. list: part of an n-input reduction, which rounds in
 * the order of its inputs; two operands alone may be swapped without changing a bit. */
bool coll_value_combine(struct coll_values *v, struct coll_expression *left, const struct coll_expression *right,
                        bool list);
/* The last rank that contributes to the result of rank; they begin at rank 0. */
int coll_value_last(const struct coll_values *v, int rank);
/* Whether x has every contribution to the result of rank. */
bool coll_value_is_complete(const struct coll_values *v, int rank, const struct coll_expression *x);
/* Post-scale on rank: x must be complete, and is so for the first time. */
void coll_value_post(struct coll_values *v, int rank, struct coll_expression *x);

/* NULL when value is no expression. */
static inline const struct coll_expression *coll_value_expression(const struct coll_values *v, uint32_t value)
{
	bool is = value != COLL_VALUE_UNDEFINED && value & COLL_VALUE_EXPRESSION;

	return is ? &v->list[value & ~COLL_VALUE_EXPRESSION] : NULL;
}

#endif
