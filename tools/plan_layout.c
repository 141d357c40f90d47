/*
 * See plan_layout.h.
 */
#include "tools/plan_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { SIZE_MAX_RANKS = 65536, RANDOM_MAX = 256, LEVELS_MAX = COLL_LAYOUT_LEVELS_MAX };

static const char *const names[] = {"site", "host", "package", "numa", "l3", "l2"};

/* Groups of the places, per level, and the rank at each place. */
struct sketch {
	int size;
	int nlevels;
	bool keep; /* levels that leave single ranks */
	uint32_t *group_at[LEVELS_MAX];
	uint32_t *group_of[LEVELS_MAX];
	int *rank_at;
};

static void sketch_free(struct sketch *k)
{
	for (int i = 0; i < LEVELS_MAX; i++) {
		free(k->group_at[i]);
		free(k->group_of[i]);
	}
	free(k->rank_at);
}

static bool sketch_make(struct sketch *k, int size, int nlevels)
{
	*k = (struct sketch){.size = size, .nlevels = nlevels, .rank_at = calloc((size_t)size, sizeof(int))};
	for (int i = 0; i < nlevels; i++) {
		k->group_at[i] = calloc((size_t)size, sizeof(uint32_t));
		k->group_of[i] = calloc((size_t)size, sizeof(uint32_t));
		if (!k->group_at[i] || !k->group_of[i])
			return false;
	}
	for (int p = 0; k->rank_at && p < size; p++)
		k->rank_at[p] = p;
	return k->rank_at != NULL;
}

static void shuffle(struct sketch *k, uint64_t seed)
{
	struct coll_rng rng = {seed};

	for (int i = k->size - 1; i > 0; i--) {
		const int j = (int)(coll_rng_next(&rng) % (uint64_t)(i + 1)), rank = k->rank_at[i];

		k->rank_at[i] = k->rank_at[j];
		k->rank_at[j] = rank;
	}
}

/* Rank after rank to the next outermost group that has a place left. */
static void deal(struct sketch *k)
{
	int rank = 0;

	for (int turn = 0; rank < k->size; turn++)
		for (int p = 0, at = 0; p < k->size; p++) {
			at = p > 0 && k->group_at[0][p] == k->group_at[0][p - 1] ? at + 1 : 0;
			if (at == turn)
				k->rank_at[p] = rank++;
		}
}

/* The outermost of one level is "host"; above it there is "site". rates: of each outermost group, or NULL. */
static bool finish(struct sketch *k, const int *rates, struct coll_layout **layout)
{
	uint32_t *rate_of = calloc((size_t)k->size, sizeof(*rate_of));
	bool fine = rate_of != NULL;

	struct coll_layout_split splits[LEVELS_MAX];
	const int first = k->nlevels == 1 ? 1 : 0;

	for (int i = 0; i < k->nlevels; i++) {
		for (int p = 0; p < k->size; p++)
			k->group_of[i][k->rank_at[p]] = k->group_at[i][p];
		splits[i] =
		        (struct coll_layout_split){names[first + i], first + i < 2, rates || k->keep, k->group_of[i]};
	}
	fine = fine && coll_layout_create(k->size, splits, (uint32_t)k->nlevels, layout) == COLL_OK;
	for (int p = 0; fine && rates && p < k->size; p++)
		rate_of[k->rank_at[p]] = (uint32_t)rates[k->group_at[0][p]];
	if (fine && rates && *layout && strcmp((*layout)->level[0].name, names[0]) == 0)
		coll_layout_tell_uplinks(*layout, rate_of);
	else if (fine && rates && *layout)
		fine = coll_layout_rate(*layout, rate_of) == COLL_OK;
	free(rate_of);
	return fine;
}

static bool even(struct sketch *k, const int *sizes, int nsizes)
{
	int64_t size = 1;

	for (int i = 0; i < nsizes; i++) {
		if (sizes[i] < 1)
			return false;
		size *= sizes[i];
		if (size > SIZE_MAX_RANKS)
			return false;
	}
	if (nsizes < 2 || nsizes > LEVELS_MAX + 1 || !sketch_make(k, (int)size, nsizes - 1))
		return false;
	for (int i = 0, each = (int)size; i + 1 < nsizes; i++) {
		each /= sizes[i];
		for (int p = 0; p < (int)size; p++)
			k->group_at[i][p] = (uint32_t)(p / each);
	}
	return true;
}

bool plan_layout_even(const int *sizes, int nsizes, uint64_t seed, struct coll_layout **layout)
{
	struct sketch k = {.size = 0};
	bool fine = even(&k, sizes, nsizes);

	k.keep = fine && sizes[nsizes - 1] == 1;
	if (fine && seed)
		shuffle(&k, seed);
	fine = fine && finish(&k, NULL, layout);
	sketch_free(&k);
	return fine;
}

bool plan_layout_random(uint64_t seed, int most, struct coll_layout **layout)
{
	struct coll_rng rng = {seed};
	struct sketch k = {.size = 0};
	const int size = 2 + (int)(coll_rng_next(&rng) % (uint64_t)(most - 1));
	const bool rated = seed % 3 == 0;
	const int nlevels = rated ? 1 : 1 + (int)(coll_rng_next(&rng) % 3);
	int rates[RANDOM_MAX];
	bool fine = most <= RANDOM_MAX && sketch_make(&k, size, nlevels);

	/* A new group begins at a place by chance, on a finer level more often. */
	for (int i = 0; fine && i < nlevels; i++)
		for (int p = 1; p < size; p++)
			k.group_at[i][p] =
			        k.group_at[i][p - 1] + ((i > 0 && k.group_at[i - 1][p] != k.group_at[i - 1][p - 1]) ||
			                                coll_rng_next(&rng) % (uint64_t)(3 * (nlevels - i)) == 0);
	if (fine)
		shuffle(&k, seed);
	for (int i = 0; i < RANDOM_MAX; i++)
		rates[i] = 125 << coll_rng_next(&rng) % 4;
	fine = fine && finish(&k, rated ? rates : NULL, layout);
	sketch_free(&k);
	return fine;
}

/* Numbers separated by one character; 0 when the text is malformed. */
static int split(const char *text, char by, int *numbers, int most)
{
	int n = 0;

	for (const char *at = text; n < most; at++) {
		char *end;
		const long v = strtol(at, &end, 10);

		if (end == at || *at == '-' || *at == '+' || *at == ' ' || v < 1 || v > SIZE_MAX_RANKS)
			return 0;
		numbers[n++] = (int)v;
		if (*end == '\0')
			return n;
		if (*end != by)
			return 0;
		at = end;
	}
	return 0;
}

static bool uneven(struct sketch *k, const int *sizes, int nsizes)
{
	int64_t size = 0;
	int p = 0;

	for (int i = 0; i < nsizes; i++)
		size += sizes[i];
	if (nsizes < 1 || size > SIZE_MAX_RANKS || !sketch_make(k, (int)size, 1))
		return false;
	for (int i = 0; i < nsizes; i++)
		for (int j = 0; j < sizes[i]; j++)
			k->group_at[0][p++] = (uint32_t)i;
	return true;
}

static bool number_ranks(struct sketch *k, const char *map)
{
	char *end;
	unsigned long seed;

	if (strcmp(map, "block") == 0)
		return true;
	if (strcmp(map, "cyclic") == 0) {
		deal(k);
		return true;
	}
	if (strncmp(map, "random:", 7) != 0 || map[7] < '0' || map[7] > '9')
		return false;
	seed = strtoul(map + 7, &end, 10);
	shuffle(k, seed);
	return *end == '\0';
}

bool plan_layout_parse(const char *text, const char *map, const char *rates, struct coll_layout **layout, int *size)
{
	int numbers[1024], of[1024];
	struct sketch k = {.size = 0};
	bool fine;

	*layout = NULL;
	if (strchr(text, 'x'))
		fine = even(&k, numbers, split(text, 'x', numbers, LEVELS_MAX + 1));
	else
		fine = uneven(&k, numbers, split(text, ',', numbers, 1024));
	if (fine && rates)
		fine = split(rates, ',', of, 1024) == 1 + (int)k.group_at[0][k.size - 1];
	fine = fine && number_ranks(&k, map) && finish(&k, rates ? of : NULL, layout);
	*size = k.size;
	sketch_free(&k);
	return fine;
}
