/*
 * Inputs and their verification, at the speed of memory.
 *
 * The oracle is asked for PERIOD positions only, once per type and operation.
 * Element i of any buffer takes position (i + rotation(i / PERIOD)) % PERIOD, the
 * rotation a hash of the block and the salt: so a block in the wrong place, stale
 * data of an earlier call, or a shift by any distance shows, while filling and
 * checking are copies and comparisons of table slices. Nothing of the size of a
 * buffer is allocated. Every table is stored twice in a row, so that a rotated
 * block is one slice.
 */
#include <stdlib.h>
#include <string.h>

#include "perf.h"

enum { PERIOD = 2039 }; /* a prime: no cut of a buffer is likely to be a multiple */

struct perf_data {
	coll_dtype type;
	int op;
	int size, ranks;
	size_t elem_bytes;
	bool exact;    /* positions that round are replaced by their neighbour */
	bool tolerant; /* some position has a tolerance */
	char **inputs; /* of each rank, made when first needed */
	char *result;
	double *value;
	double *tolerance;
	double *widened; /* of each pattern of a float of 8 or 16 bits */
};

static uint32_t rotation(uint64_t block, uint64_t salt)
{
	uint64_t x = (block + 1) * 0x9e3779b97f4a7c15ull ^ (salt + 1) * 0xc2b2ae3d27d4eb4full;

	x ^= x >> 29;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 32;
	return (uint32_t)(x % PERIOD);
}

static void put(char *table, size_t elem_bytes, uint32_t position, uint64_t bits)
{
	memcpy(table + position * elem_bytes, &bits, elem_bytes);
	memcpy(table + (position + PERIOD) * elem_bytes, &bits, elem_bytes);
}

/* Odd positions may round (see oracle.c), even ones never do. */
static uint32_t asked(const struct perf_data *d, uint32_t position)
{
	return d->exact ? position & ~1u : position;
}

static bool make_results(struct perf_data *d)
{
	d->result = malloc(2 * PERIOD * d->elem_bytes);
	d->value = malloc(2 * PERIOD * sizeof(double));
	d->tolerance = malloc(2 * PERIOD * sizeof(double));
	if (!d->result || !d->value || !d->tolerance)
		return false;
	for (uint32_t k = 0; k < PERIOD; k++) {
		const struct perf_expected e = perf_oracle_result(d->type, d->op, d->size, d->ranks, asked(d, k));

		put(d->result, d->elem_bytes, k, e.bits);
		d->value[k] = d->value[k + PERIOD] = e.value;
		d->tolerance[k] = d->tolerance[k + PERIOD] = e.tolerance;
		d->tolerant |= e.tolerance >= 0;
	}
	return true;
}

static bool make_widened(struct perf_data *d)
{
	const uint32_t patterns = d->elem_bytes == 1 ? 256 : 65536;

	if (!d->tolerant || d->elem_bytes > 2)
		return true;
	d->widened = malloc(patterns * sizeof(double));
	for (uint32_t h = 0; d->widened && h < patterns; h++)
		d->widened[h] = perf_oracle_widen(d->type, h);
	return d->widened != NULL;
}

struct perf_data *perf_data_create(coll_dtype type, int op, int size, int ranks, bool exact)
{
	struct perf_data *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->type = type;
	d->op = op;
	d->size = size;
	d->ranks = ranks;
	d->exact = exact;
	d->elem_bytes = coll_dtype_size(type);
	d->inputs = calloc((size_t)size, sizeof(*d->inputs));
	if (!d->inputs || (op >= 0 && (!make_results(d) || !make_widened(d))))
		perf_data_destroy(&d);
	return d;
}

void perf_data_destroy(struct perf_data **data)
{
	struct perf_data *d = *data;

	if (!d)
		return;
	for (int r = 0; d->inputs && r < d->size; r++)
		free(d->inputs[r]);
	free(d->inputs);
	free(d->result);
	free(d->value);
	free(d->tolerance);
	free(d->widened);
	free(d);
	*data = NULL;
}

static const char *input_of(struct perf_data *d, int rank)
{
	if (!d->inputs[rank]) {
		char *table = malloc(2 * PERIOD * d->elem_bytes);

		if (!table) {
			fprintf(stderr, "out of memory\n");
			exit(1);
		}
		for (uint32_t k = 0; k < PERIOD; k++)
			put(table, d->elem_bytes, k, perf_oracle_input(d->type, d->op, d->size, rank, asked(d, k)));
		d->inputs[rank] = table;
	}
	return d->inputs[rank];
}

/* The slice that holds element index and the elements behind it: its position in
 * a doubled table, and its length (at most most). */
static size_t slice(uint64_t salt, size_t index, size_t most, size_t *position)
{
	const size_t within = index % PERIOD;

	*position = rotation(index / PERIOD, salt) + within;
	return most < PERIOD - within ? most : PERIOD - within;
}

void perf_data_fill(struct perf_data *data, int rank, uint64_t salt, size_t first, size_t count, void *out)
{
	const char *table = input_of(data, rank);
	const size_t bytes = data->elem_bytes;
	char *p = out;

	for (size_t i = 0, n, at; i < count; i += n) {
		n = slice(salt, first + i, count - i, &at);
		memcpy(p + i * bytes, table + at * bytes, n * bytes);
	}
}

static uint64_t count_different(const char *got, const char *want, size_t elem_bytes, size_t count)
{
	uint64_t wrong = 0;

	if (memcmp(got, want, count * elem_bytes) == 0)
		return 0;
	for (size_t i = 0; i < count; i++)
		wrong += memcmp(got + i * elem_bytes, want + i * elem_bytes, elem_bytes) != 0;
	return wrong;
}

static double widen_at(const struct perf_data *d, const char *p)
{
	uint64_t bits = 0;

	memcpy(&bits, p, d->elem_bytes);
	return d->widened ? d->widened[bits] : perf_oracle_widen(d->type, bits);
}

/* Equal bits are right; others only within the tolerance (a NaN never is). */
static uint64_t count_intolerable(const struct perf_data *d, const char *got, size_t at, size_t count)
{
	const char *want = d->result + at * d->elem_bytes;
	uint64_t wrong = 0;

	if (memcmp(got, want, count * d->elem_bytes) == 0)
		return 0;
	for (size_t i = 0; i < count; i++) {
		const char *p = got + i * d->elem_bytes;
		double error;

		if (memcmp(p, want + i * d->elem_bytes, d->elem_bytes) == 0)
			continue;
		error = widen_at(d, p) - d->value[at + i];
		wrong += !((error < 0 ? -error : error) <= d->tolerance[at + i]);
	}
	return wrong;
}

uint64_t perf_data_check(struct perf_data *data, const struct perf_segment *s, uint64_t salt, const void *got)
{
	const size_t bytes = data->elem_bytes;
	const char *table = s->source == PERF_REDUCED ? data->result : input_of(data, s->source);
	const bool tolerant = s->source == PERF_REDUCED && data->tolerant;
	const char *p = got;
	uint64_t wrong = 0;

	for (size_t i = 0, n, at; i < s->count; i += n) {
		n = slice(salt, s->first + i, s->count - i, &at);
		wrong += tolerant ? count_intolerable(data, p + i * bytes, at, n)
		                  : count_different(p + i * bytes, table + at * bytes, bytes, n);
	}
	return wrong;
}

/* Four independent lanes, so that it runs at the speed of memory. */
uint64_t perf_data_hash(const void *buf, size_t len_bytes)
{
	const uint64_t prime = 0x9e3779b185ebca87ull;
	uint64_t lane[4] = {1, 2, 3, 4}, word[4], h = len_bytes;
	const char *p = buf;
	size_t i = 0;

	for (; len_bytes - i >= sizeof(word); i += sizeof(word)) {
		memcpy(word, p + i, sizeof(word));
		for (int k = 0; k < 4; k++)
			lane[k] = ((lane[k] << 29 | lane[k] >> 35) ^ word[k]) * prime;
	}
	for (; i < len_bytes; i++)
		h = (h ^ (unsigned char)p[i]) * prime;
	for (int k = 0; k < 4; k++)
		h = ((h << 31 | h >> 33) ^ lane[k]) * prime;
	return h ^ h >> 32;
}
