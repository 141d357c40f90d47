/*
 * What a compressed wire has lost so far and sends with later steps, to go on from where a
 * run was left. It is this rank's own and as large on all ranks; between steps nothing
 * else is left of the step before.
 */
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"

static size_t pieces_of(const coll_ddp *d, int bucket, struct piece *pieces)
{
	return d->wire->kept ? d->wire->kept(&d->buckets[bucket], pieces) : 0;
}

size_t coll_ddp_state_bytes(const coll_ddp *d)
{
	struct piece pieces[MOST_PIECES];
	size_t all = 0;

	for (int b = 0; d && b < d->bucket_count; b++)
		for (size_t i = 0, n = pieces_of(d, b, pieces); i < n; i++)
			all += pieces[i].len_bytes;
	return all;
}

void coll_ddp_state_save(const coll_ddp *d, void *state)
{
	struct piece pieces[MOST_PIECES];
	char *to = state;

	for (int b = 0; d && state && b < d->bucket_count; b++)
		for (size_t i = 0, n = pieces_of(d, b, pieces); i < n; to += pieces[i++].len_bytes)
			memcpy(to, pieces[i].at, pieces[i].len_bytes);
}

coll_status coll_ddp_state_load(coll_ddp *d, const void *state, size_t len_bytes)
{
	struct piece pieces[MOST_PIECES];
	const char *from = state;

	if (!d || (!state && len_bytes))
		return COLL_ERR_ARGUMENT;
	if (d->begun)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_state_load() in the middle of a step");
	if (len_bytes != coll_ddp_state_bytes(d))
		return ddp_fail(d, COLL_ERR_ARGUMENT,
		                "coll_ddp_state_load(): %zu bytes, expected %zu: the settings differ", len_bytes,
		                coll_ddp_state_bytes(d));
	for (int b = 0; b < d->bucket_count; b++)
		for (size_t i = 0, n = pieces_of(d, b, pieces); i < n; from += pieces[i++].len_bytes)
			memcpy(pieces[i].at, from, pieces[i].len_bytes);
	return COLL_OK;
}
